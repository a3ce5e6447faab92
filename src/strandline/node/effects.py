"""What a node asks its driver to do. Effects are carried out in the order in which they are given.

A node never touches a socket, a thread or the metadata store: it says what it wants in these
values. The asyncio broker and the seeded simulator both carry them out. (Files are the exception:
a log writes through its own narrow `Files` interface, see the architecture's decision 1.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from strandline.cluster.store import Operation
from strandline.storage.compaction.plan import CleaningPlan
from strandline.storage.files import Files
from strandline.storage.flush_plan import SyncPlan
from strandline.storage.log_reader import LogSlice
from strandline.types import BrokerId

ConnectionId: TypeAlias = int
"""Names one client connection for the life of the node; never used twice."""

LinkId: TypeAlias = int
"""Names one connection of this node to another broker, from its dial on; never used twice."""

Chunk: TypeAlias = bytes | bytearray | memoryview | LogSlice
"""A piece of an answer: bytes as they are, or a range of a log file to be sent without copying."""


@dataclass(slots=True)
class Send:
    """Write the chunks, in order, to one connection.

    It is not frozen like the others: making it would take twice as long, and it is made for each
    answer."""

    connection: ConnectionId
    chunks: Sequence[Chunk]


@dataclass(frozen=True, slots=True)
class Close:
    """Close one connection after what was sent before; `reason` is a sentence for the log."""

    connection: ConnectionId
    reason: str


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Apply all operations to the metadata store or none; answer with `Node.metadata_written`."""

    token: int
    operations: Sequence[Operation]


@dataclass(frozen=True, slots=True)
class SyncLog:
    """fsync what the plan names, in another thread; answer with `Node.log_synced`."""

    token: int
    plan: SyncPlan


@dataclass(frozen=True, slots=True)
class CleanLog:
    """Carry a round of compaction out, in another thread, with files of its own.

    Every result is told by `Node.log_cleaned`, in their order, and then the end of the round, once,
    by `Node.cleaning_ended`, with the error if there was one.
    """

    token: int
    plan: CleaningPlan


@dataclass(frozen=True, slots=True)
class ExamineLog:
    """As `CleanLog`, but write nothing; answer with `Node.log_examined`, once."""

    token: int
    plan: CleaningPlan


@dataclass(frozen=True, slots=True)
class StopCleaning:
    """Have a round end soon, by `CleaningAborted`; it may have ended already."""

    token: int


@dataclass(frozen=True, slots=True)
class PaceCleaning:
    """From now on all rounds together read and write at most so much."""

    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class RemoveFiles:
    """Remove files that nothing uses any more, in another thread; answer `Node.files_removed`.

    Large files take a file system long to give back: hundreds of milliseconds per gigabyte.
    """

    token: int
    paths: tuple[str, ...]
    trees: tuple[str, ...] = ()
    """Directories with everything in them."""

    def carry_out(self, files: Files) -> None:
        """Remove everything that is there. Raises `StorageError`."""
        for path in self.paths:
            files.remove(path)
        for path in self.trees:
            files.remove_tree(path)


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to another broker; answer with `Node.link_opened` or `Node.link_closed`.

    From then on every frame that comes is told by `Node.link_received`, and the end of the link,
    unless the node itself hung up, by `Node.link_closed`, once.
    """

    link: LinkId
    broker_id: BrokerId
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Write the chunks, a whole request, to an open link."""

    link: LinkId
    chunks: Sequence[bytes | bytearray | memoryview]


@dataclass(frozen=True, slots=True)
class HangUp:
    """End a link, open or still being dialled. Nothing more is to be told of it."""

    link: LinkId


@dataclass(frozen=True, slots=True)
class Halt:
    """End the process: there is nothing left that this broker could serve. Given once."""

    reason: str


Effect: TypeAlias = (
    Send
    | Close
    | WriteMetadata
    | SyncLog
    | CleanLog
    | ExamineLog
    | StopCleaning
    | PaceCleaning
    | RemoveFiles
    | Dial
    | Ask
    | HangUp
    | Halt
)
