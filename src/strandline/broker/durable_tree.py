"""A `NodeTree` that survives crashes: the synchronous core of the embedded metadata store.

Two files in one directory keep it: `metadata.journal`, to which every transaction is appended and
synced before any client gets the answer, and `metadata.snapshot`, which replaces the journal when
that has grown (see `cluster.journal_format` for the bytes). They hold the salted keys of SCRAM, so
only their user can read them. `embedded_store` offers it to the brokers of a process.

Theory: multis that arrive while a write is under way wait and are written together, in one frame
with one sync. They are decided in the order of their arrival when their write begins, so the tree
runs ahead of the disk only during a write, and must not be read then. If the write certainly
failed, the tree is taken back and the store goes on, as when the disk is full. After a failed sync
the file is never written or read again (design note 0023): if there was no room, a snapshot of the
tree and a new journal take its place as soon as there is; if the disk failed in another way, the
store refuses everything until it is opened again. The journal's handle is held all the time, so
that no want of handles keeps it from being written. Sessions end with the process: opening deletes
the ephemeral nodes that the last process left.

This file knows no node's content and takes no decision about the cluster.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice
from typing import Final

from strandline.cluster.journal_format import (
    JOURNAL_HEADER,
    DamagedJournal,
    decode_journal,
    decode_snapshot,
    encode_frame,
    encode_snapshot,
)
from strandline.cluster.store import (
    NO_SESSION,
    Changes,
    MultiRefused,
    MultiResult,
    Operation,
    OutcomeUnknown,
    SessionId,
    StoreError,
    StoreUnavailable,
    Zxid,
)
from strandline.cluster.tree import Applied, NodeTree
from strandline.errors import InvariantViolated, StorageError
from strandline.storage.files import File, Files, LostWrites, NoRoom, OutOfHandles, join

JOURNAL: Final = "metadata.journal"
SNAPSHOT: Final = "metadata.snapshot"
MULTIS_PER_WRITE_MAX: Final = 1000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening the store found."""

    snapshot_zxid: Zxid
    replayed: int
    """Transactions of the journal that the snapshot did not have."""
    cut_bytes: int
    """The length of the torn end of a write that was never acknowledged."""
    expired_sessions: int


@dataclass(slots=True, eq=False)
class Pending:
    """A multi that waits for its outcome, which is None until then."""

    operations: Sequence[Operation]
    session: SessionId
    ends_session: bool = False
    """Whether it deletes what the session owns by then, in place of operations."""
    outcome: MultiResult | StoreError | None = None

    def result(self) -> MultiResult:
        """The results, or raise what went wrong."""
        match self.outcome:
            case None:
                raise InvariantViolated("The outcome of a multi is asked for before its write.")
            case StoreError() as error:
                raise error
            case results:
                return results


@dataclass(slots=True, eq=False)
class Write:
    """One write to the journal: decided multis, and whether they reached the disk."""

    decided: list[tuple[Pending, Applied | StoreError]]
    frame: bytes
    error: StoreError | None = field(default=None)
    renews: bool = False
    """Whether it only replaces the journal; what waits is decided with the next write."""


class _Condition(Enum):
    """Whether the journal can be written."""

    GOOD = auto()
    TO_BE_RENEWED = auto()
    """There was no room when it was synced: what the disk has of its end is not known."""
    CLOSED = auto()
    """The disk failed."""


class DurableTree:
    """A tree on disk. One thread calls it; only `carry_out` may run in another."""

    def __init__(self, files: Files, directory: str, *, journal_bytes_max: int) -> None:
        """Read the tree, cut a torn end, end old sessions. Raises `StorageError`."""
        self._files = files
        self._snapshot_path = join(directory, SNAPSHOT)
        self._journal_path = join(directory, JOURNAL)
        self._journal_bytes_max = journal_bytes_max
        self._waiting: deque[Pending] = deque()
        self._in_flight: Write | None = None
        self._ended: set[SessionId] = set()
        self._condition = _Condition.GOOD
        self._tree = self._read_snapshot()
        snapshot_zxid = self._tree.zxid
        self._journal, replayed, cut_bytes = self._read_journal()
        self._compact_above = journal_bytes_max
        owners = self._tree.owners()
        self._expire(owners)
        self.recovery = Recovery(snapshot_zxid, replayed, cut_bytes, len(owners))

    @property
    def tree(self) -> NodeTree:
        """The durable tree. Not to be looked at while a write is under way."""
        if self._in_flight is not None:
            raise InvariantViolated("The metadata tree is read during a write.")
        return self._tree

    def submit(self, operations: Sequence[Operation], session: SessionId = NO_SESSION) -> Pending:
        """Have the multi decided and written with the next write."""
        pending = Pending(tuple(operations), session)
        self._waiting.append(pending)
        return pending

    def submit_end_of(self, session: SessionId) -> Pending:
        """Have the session's ephemeral nodes deleted with the next write."""
        pending = Pending((), session, ends_session=True)
        self._waiting.append(pending)
        return pending

    def withdraw(self, pending: Pending) -> bool:
        """Forget a multi that no write has taken up; whether it was in time."""
        if pending not in self._waiting:
            return False
        self._waiting.remove(pending)
        return True

    def begin(self) -> Write:
        """Decide what waits. The write is to be carried out and then finished."""
        if self._in_flight is not None:
            raise InvariantViolated("A write to the metadata journal begins during another.")
        if self._condition is _Condition.TO_BE_RENEWED:
            waiting = list(islice(self._waiting, MULTIS_PER_WRITE_MAX))
            undecided = StoreUnavailable("The metadata journal is not written anew yet.")
            self._in_flight = Write([(each, undecided) for each in waiting], b"", renews=True)
            return self._in_flight
        decided: list[tuple[Pending, Applied | StoreError]] = []
        changes: list[Changes] = []
        while self._waiting and len(decided) < MULTIS_PER_WRITE_MAX:
            pending = self._waiting.popleft()
            decision = self._decide(pending)
            decided.append((pending, decision))
            if isinstance(decision, Applied) and decision.changes is not None:
                changes.append(decision.changes)
        self._in_flight = Write(decided, encode_frame(changes) if changes else b"")
        if self._condition is _Condition.CLOSED:
            self._in_flight.error = StoreUnavailable(
                "The metadata journal failed before; it must be opened again: restart this process."
            )
        return self._in_flight

    def carry_out(self, write: Write) -> None:
        """Bring the write to the disk. Blocks; may run in any thread. Raises nothing of the disk:
        `finish` has the outcome."""
        if write.renews:
            self._renew(write)
            return
        if write.error is not None or not write.frame:
            return
        before = self._journal.size
        try:
            self._journal.append(write.frame)
        except OutOfHandles as error:  # nothing was asked of the disk
            write.error = StoreUnavailable(f"The metadata journal cannot be written: {error}")
            return
        except StorageError as error:
            self._settle_failed_append(write, error)
            return
        try:
            self._journal.sync()
        except StorageError as error:
            write.error = OutcomeUnknown(f"The metadata journal could not be synced: {error}")
            self._settle_failed_sync(error, before)
            return
        if self._journal.size > self._compact_above:
            self._compact()

    def finish(self, write: Write) -> list[Changes]:
        """Give every multi of the write its outcome. Returns what is durable now, in order."""
        if write is not self._in_flight:
            raise InvariantViolated("A write is finished that was not begun.")
        self._in_flight = None
        if write.error is not None:
            self._fail(write, write.error)
            return []
        if write.renews:
            return []
        changes = []
        for pending, decision in write.decided:
            if isinstance(decision, StoreError):
                pending.outcome = decision
                continue
            pending.outcome = decision.results
            if decision.changes is not None:
                changes.append(decision.changes)
        return changes

    def write_now(self) -> list[Changes]:
        """Begin, carry out and finish one write, and before it that of a new journal if need be."""
        while True:
            write = self.begin()
            self.carry_out(write)
            changes = self.finish(write)
            if write.error is not None or not write.renews:
                return changes

    def close(self) -> None:
        """Give the journal up. Everything acknowledged is on disk already."""
        self._journal.close()

    def _decide(self, pending: Pending) -> Applied | StoreError:
        if pending.ends_session:
            self._ended.add(pending.session)
            return self._tree.expire_session(pending.session)
        if pending.session in self._ended:
            # Its ephemeral nodes would stay for ever.
            return StoreUnavailable("The session of a metadata write has ended before it.")
        try:
            return self._tree.multi(pending.operations, pending.session)
        except MultiRefused as refusal:
            return refusal

    def _fail(self, write: Write, error: StoreError) -> None:
        """Nothing of the write counts, not even refusals: they saw what is taken back."""
        for pending, decision in reversed(write.decided):
            pending.outcome = error
            if write.renews:
                self.withdraw(pending)
            elif isinstance(decision, Applied):
                self._tree.take_back(decision.undo)

    def _settle_failed_append(self, write: Write, error: StorageError) -> None:
        """The file was cut back; only when that is durable the write certainly did not happen."""
        try:
            self._journal.sync()
        except StorageError as second:
            write.error = OutcomeUnknown(
                f"A write to the metadata journal failed ({error}) and left it unusable: {second}"
            )
            self._settle_failed_sync(second, self._journal.size)
            return
        write.error = StoreUnavailable(f"The metadata journal cannot be written: {error}")

    def _settle_failed_sync(self, error: StorageError, size: int) -> None:
        """What comes of the journal, whose durable part was `size` bytes.

        After a sync that was not begun, for want of something, it is cut back to them. A power
        failure before the next sync may bring the write back. Its outcome is unknown therefore, and
        whether it happened shows then, before anything was written behind it. The same holds for a
        write whose sync found no room, until another journal has taken the place of this one.
        """
        shortage = error.shortage if isinstance(error, LostWrites) else error
        if not isinstance(shortage, NoRoom):
            self._condition = _Condition.CLOSED
            return
        if not self._journal.failed:
            try:
                self._journal.truncate(size)
            except StorageError:
                pass
            else:
                return
        self._condition = _Condition.TO_BE_RENEWED

    def _renew(self, write: Write) -> None:
        """Have a snapshot and a new, empty journal take the place of one that is not trusted."""
        try:
            self._write_snapshot()
            self._write_new(self._journal_path, JOURNAL_HEADER)
            journal = self._open_journal()
        except NoRoom as error:
            write.error = StoreUnavailable(f"The metadata journal cannot be written anew: {error}")
            return
        except StorageError as error:
            self._condition = _Condition.CLOSED
            write.error = StoreUnavailable(f"The metadata journal cannot be written anew: {error}")
            return
        self._journal.close()
        self._journal = journal
        self._compact_above = self._journal_bytes_max
        self._condition = _Condition.GOOD
        _log.info("The metadata journal was written anew, since there is room again.")

    def _compact(self) -> None:
        """Replace the journal by a snapshot. The snapshot is durable before the journal shrinks.

        A failure loses nothing, since everything stays in the journal: the next attempt comes when
        that has grown as much again.
        """
        try:
            self._write_snapshot()
            self._journal.truncate(len(JOURNAL_HEADER))
            self._journal.sync()
            self._compact_above = self._journal_bytes_max
        except StorageError as error:
            if self._journal.failed:  # what was written is in the snapshot
                self._settle_failed_sync(error, self._journal.size)
            self._compact_above = self._journal.size + self._journal_bytes_max
            _log.warning("The metadata journal could not be replaced by a snapshot: %s", error)

    def _write_snapshot(self) -> None:
        try:
            data = encode_snapshot(self._tree)
        except MemoryError as error:
            raise NoRoom("There is no memory for a snapshot of the metadata.") from error
        self._write_new(self._snapshot_path, data)

    def _read_snapshot(self) -> NodeTree:
        if not self._files.exists(self._snapshot_path):
            return NodeTree()
        self._files.keep_secret(self._snapshot_path)  # former versions left it to the umask
        return decode_snapshot(self._files.read_bytes(self._snapshot_path))

    def _read_journal(self) -> tuple[File, int, int]:
        """Replay the journal; cut its torn end, or make it. Returns file, replayed, bytes cut.

        What was read is written to a new file: after a failed sync of the process before, the page
        cache may have what the disk has not, and a sync of the old file would not write it.
        """
        path = self._journal_path
        found = b""
        if self._files.exists(path):
            found = self._files.read_bytes(path)
        elif self._files.exists(self._snapshot_path):
            raise DamagedJournal(f"The metadata journal {path} is missing beside its snapshot.")
        contents = decode_journal(found, snapshot_zxid=self._tree.zxid)
        try:
            for changes in contents.transactions:
                self._tree.replay(changes)
        except InvariantViolated as error:
            raise DamagedJournal(
                f"The metadata journal {path} cannot be replayed: {error}"
            ) from error
        self._write_new(path, found[: contents.valid_bytes] or JOURNAL_HEADER)
        journal = self._open_journal()
        return journal, len(contents.transactions), len(found) - contents.valid_bytes

    def _write_new(self, path: str, data: bytes) -> None:
        """Replace a file, by one that no earlier attempt may have failed to sync either."""
        self._files.remove(path + ".tmp")
        self._files.write_atomically(path, data, is_secret=True)

    def _open_journal(self) -> File:
        journal = self._files.open(self._journal_path)
        journal.keep_open()
        return journal

    def _expire(self, owners: Sequence[SessionId]) -> None:
        applied = [self._tree.expire_session(owner) for owner in owners]
        changes = [one.changes for one in applied if one.changes is not None]
        if changes:
            self._journal.append(encode_frame(changes))
            self._journal.sync()
