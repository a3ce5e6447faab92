"""What the checkers read of a node and of its disk that these show nobody else.

A checker must look without touching: a read through the ordinary way could meet an injected fault,
cost simulated time, or open a file that the node would have opened later. All places at which
the checkers reach behind a class's public face stand in this file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

from strandline.node.fetch_reading import ConsumerReader
from strandline.node.fetch_sessions import Fetched, Session
from strandline.node.handlers.delete_records import _Waiting
from strandline.node.handlers.fetch import FetchHandler, _Fetch
from strandline.protocol.apis import ApiKey
from strandline.storage.memory_files import MemoryFile

if TYPE_CHECKING:
    from strandline.node.commit_queue import CommitQueue
    from strandline.node.fetcher import Fetcher
    from strandline.node.fetchers import Fetchers
    from strandline.node.node import Node
    from strandline.node.purgatory import Operation, ParkedEntry, Purgatory, Watched
    from strandline.node.replica import Replica
    from strandline.storage.files import File
    from strandline.types import LeaderEpoch

TO_THE_END = 1 << 60


def peek(file: File, position: int, length: int = TO_THE_END) -> bytes:
    """The bytes of an open file as its reader would see them."""
    return cast(MemoryFile, file).peek(position, length)


def bytes_in(file: File) -> int:
    """How many bytes the file has, with what a handle does not know that died while it wrote."""
    return cast(MemoryFile, file)._contents.size


class Place(NamedTuple):
    """Where a replica is fetched."""

    fetcher: Fetcher
    leader_epoch: LeaderEpoch


def place_of(fetchers: Fetchers, replica: Replica) -> Place | None:
    """The fetcher that is said to fetch the replica."""
    placed = fetchers._placed.get(replica)
    return None if placed is None else Place(placed.fetcher, placed.leader_epoch)


def fetchers_of(fetchers: Fetchers) -> Iterable[Fetcher]:
    """Every fetcher of a node."""
    return fetchers._fetchers.values()


def fetches(fetcher: Fetcher, replica: Replica) -> bool:
    """Whether the fetcher has the replica among its partitions."""
    return any(partition.replica is replica for partition in fetcher._partitions.values())


def commits_of(replica: Replica) -> CommitQueue | None:
    """Who waits for the high watermark of the replica, each with the offset that it needs."""
    return replica._commits


def first_required(commits: CommitQueue) -> int | None:
    """The lowest high watermark that anybody waits for."""
    return commits._entries[0][0] if commits._entries else None


def has_failed_commits(commits: CommitQueue) -> bool:
    """Whether somebody is still to be told that leadership was lost."""
    return bool(commits._failed)


def is_to_be_woken(purgatory: Purgatory, watched: Watched) -> bool:
    """Whether those who wait for it are checked at the end of this turn."""
    return watched in purgatory._changed


def is_turn_over(purgatory: Purgatory) -> bool:
    """Whether everything that changed has been looked at."""
    return not purgatory._changed


def parked(purgatory: Purgatory) -> Iterable[ParkedEntry]:
    """Every parked operation."""
    return purgatory._parked


class ParkedFetch(NamedTuple):
    """A fetch that waits: what for, up to how many bytes."""

    partitions: Iterable[Fetched]
    bytes_min: int
    bytes_max: int
    session: Session | None
    is_consumer: bool
    may_follow: bool


def parked_fetch(operation: Operation) -> ParkedFetch | None:
    """The fetch behind a parked operation; None for another kind of operation."""
    if not isinstance(operation, _Fetch):
        return None
    context, reader = operation._context, operation._reader
    is_consumer = isinstance(reader, ConsumerReader)
    return ParkedFetch(
        context._partitions if is_consumer else context.partitions,
        operation._bytes_min,
        operation._bytes_max,
        context._session,
        is_consumer,
        isinstance(reader, ConsumerReader) and reader._may_follow,
    )


def parked_deletion(operation: Operation) -> list[tuple[Replica, int]] | None:
    """What a parked DeleteRecords waits for: replicas, and where they must start everywhere."""
    if not isinstance(operation, _Waiting):
        return None
    return [(pending.replica, pending.target) for pending in operation._pending]


def sessions_of(node: Node) -> Iterable[Session]:
    """Every fetch session of a node; none before its first fetch."""
    handle = node.routes._made.get(ApiKey.FETCH)
    handler = getattr(handle, "__self__", None)
    return handler.sessions._sessions.values() if isinstance(handler, FetchHandler) else ()
