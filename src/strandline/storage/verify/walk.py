"""All batches of one replica in order, and everything that is wrong with them by themselves.

This file knows in which order offsets and epochs come, and what ends what can be judged. It must
not know other replicas.

What can be judged: after a clean shutdown the whole log; otherwise what lies below the checkpointed
high watermark, because the rest may be half written, or may be cut when the broker starts again.
Below the frontier of compaction offsets may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from strandline.storage.files import File, Files
from strandline.storage.verify.directories import Replica
from strandline.storage.verify.epochs import EpochLineage
from strandline.storage.verify.files import SegmentFiles
from strandline.storage.verify.findings import Findings, Kind
from strandline.storage.verify.order import lacks_records
from strandline.storage.verify.reading import StoredBatch, Unreadable, is_unwritten, stored_batches
from strandline.storage.verify.segment_indexes import SegmentIndexes
from strandline.storage.verify.transactions import TransactionHistory
from strandline.types import Offset

_NEVER: Final = 2**63


class Fact(NamedTuple):
    """A batch as others may compare it: equal facts of sound batches are equal batches."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    size_bytes: int
    is_sound: bool
    """False: a finding says already that something is wrong here, or that nothing is here."""


class Walk:
    """One pass over a replica. `next_offset` is behind what was passed."""

    def __init__(
        self,
        files: Files,
        replica: Replica,
        segments: Sequence[SegmentFiles],
        findings: Findings,
        *,
        frontier: int,
    ) -> None:
        self.replica = replica
        self.findings = findings
        self.first_offset = max(
            replica.log_start, segments[0].base_offset if segments else replica.log_start
        )
        self.next_offset = self.first_offset
        self.batches = self.records = self.bytes_read = 0
        self.was_compacted = False
        """Whether a batch has fewer records than offsets: only compaction makes such."""
        self.ended_early = False
        """Whether there is more that could not be judged."""
        self._files = files
        self._segments = segments
        self._frontier = frontier
        self._high_watermark = replica.high_watermark or 0
        self._judged_to = _NEVER if replica.is_clean else self._high_watermark
        self._hole_from: int | None = None
        self._epochs = EpochLineage(
            files,
            replica.directory,
            findings,
            complete_to=_NEVER if replica.is_clean else replica.recovery_point,
        )
        self._transactions = TransactionHistory(files, findings, frontier=frontier)
        if self.first_offset > 0:
            self._transactions.miss_something()
        if replica.is_clean:
            self._epochs.check_start(self.first_offset, frontier)

    def facts(self) -> Iterator[Fact]:
        """The batches; findings are made on the way."""
        bases = [segment.base_offset for segment in self._segments]
        for at, segment in enumerate(self._segments):
            following = bases[at + 1] if at + 1 < len(bases) else None
            if following is not None and following <= self.first_offset:
                continue  # wholly below the log's start: its deletion may be half done
            if self.next_offset >= self._judged_to:
                self.ended_early = any(map(self._has_something, self._segments[at:]))
                self._epochs.finish()
                return
            yield from self._segment(segment, following)
        self._epochs.finish()
        if self._hole_from is not None:
            yield _hole(self._hole_from, _NEVER)
        elif self.next_offset < self._high_watermark:
            self.findings.add(
                Kind.SHORT_LOG,
                f"The log ends at offset {self.next_offset}, but its high watermark is "
                f"{self._high_watermark}.",
                path=self.replica.directory,
                offset=self.next_offset,
                end_offset=self._high_watermark,
            )

    def _has_something(self, segment: SegmentFiles) -> bool:
        file = self._files.open(segment.path)
        try:
            return not is_unwritten(file, 0)
        finally:
            file.close()

    def _segment(self, segment: SegmentFiles, following: int | None) -> Iterator[Fact]:
        is_closed = following is not None
        indexes = SegmentIndexes(self._files, segment, self.findings, is_closed=is_closed)
        self._transactions.begin_segment(segment)
        is_complete = True
        file = self._files.open(segment.path)
        try:
            self.bytes_read += file.size
            for found, next_base in _with_next_base(stored_batches(file), following):
                if isinstance(found, Unreadable):
                    is_complete = False
                    self._unreadable(found, file, segment, following)
                    break
                if self._is_behind_the_end(found):
                    self.ended_early = True
                    is_complete = False
                    break
                if found.header.next_offset > self.first_offset:
                    yield from self._batch(found, next_base, segment, indexes)
                elif found.damage:
                    indexes.pass_damage(found.position)
                else:
                    indexes.see(found.position, found.header)
        finally:
            file.close()
        # What an index says about an end that is missing is no fault of the index.
        is_short = not is_closed and self.next_offset < self._high_watermark
        seen_to = min(self._judged_to, self.next_offset)
        judged_to = _NEVER if is_complete and not is_short else seen_to
        indexes.finish(judged_to, is_complete=is_complete)
        self._transactions.finish_segment(judged_to)

    def _is_behind_the_end(self, found: StoredBatch) -> bool:
        if self._hole_from is None or found.damage:
            return self.next_offset >= self._judged_to
        return found.header.base_offset >= self._judged_to

    def _batch(
        self,
        found: StoredBatch,
        next_base: int | None,
        segment: SegmentFiles,
        indexes: SegmentIndexes,
    ) -> Iterator[Fact]:
        header = found.header
        if found.damage:
            self._damaged(found, segment)
            indexes.pass_damage(found.position)
            return
        self.batches += 1
        self.records += header.record_count
        self.was_compacted |= lacks_records(header)
        if self._is_misplaced(found, next_base, segment, indexes):
            return
        indexes.see(found.position, header)
        yield from self._gap(header.base_offset, segment)
        self._transactions.see(found)
        is_sound = self._epochs.check(header, self.first_offset)
        self.next_offset = header.next_offset
        yield Fact(
            header.base_offset,
            header.last_offset,
            header.leader_epoch,
            header.crc,
            header.size_bytes,
            is_sound,
        )

    def _damaged(self, found: StoredBatch, segment: SegmentFiles) -> None:
        """The next sound batch will say how far this reaches."""
        self.findings.add(
            Kind.DAMAGED_BATCH,
            f"The batch at position {found.position}: {found.damage}",
            path=segment.path,
            offset=self.next_offset,
        )
        self._open_hole()

    def _is_misplaced(
        self,
        found: StoredBatch,
        next_base: int | None,
        segment: SegmentFiles,
        indexes: SegmentIndexes,
    ) -> bool:
        """Whether the batch has offsets that cannot be here; what follows goes on without it."""
        header, expected = found.header, self.next_offset
        begins_before = header.base_offset < expected
        if begins_before and expected == self.first_offset and header.last_offset >= expected:
            return False  # a log may begin inside a batch
        fits_without = next_base == expected + header.last_offset_delta + 1
        is_wrong_number = fits_without and header.base_offset != expected
        if not (begins_before or is_wrong_number):
            return False
        if begins_before and self._hole_from is not None and not is_wrong_number:
            # Behind damage the expected offset is a guess.
            return False
        right = header._replace(base_offset=Offset(expected)) if is_wrong_number else header
        indexes.see(found.position, right)
        self.findings.add(
            Kind.OFFSET_ORDER,
            f"The batch at position {found.position} begins with offset {header.base_offset}, "
            f"where {expected} is expected.",
            path=segment.path,
            offset=expected,
            end_offset=expected + header.last_offset_delta + 1,
        )
        self._open_hole()
        return True

    def _gap(self, base_offset: int, segment: SegmentFiles) -> Iterator[Fact]:
        """Close a hole that is known, or say that there is one that compaction did not make."""
        if self._hole_from is not None:
            if self._hole_from < base_offset:
                yield _hole(self._hole_from, base_offset)
            self._hole_from = None
            return
        start = max(self.next_offset, self._frontier)
        if start >= min(base_offset, self._judged_to):
            return
        self.findings.add(
            Kind.OFFSET_GAP,
            f"The offsets {start} to {base_offset - 1} are missing.",
            path=segment.path,
            offset=start,
            end_offset=base_offset,
        )
        self._transactions.miss_something()
        yield _hole(start, base_offset)

    def _unreadable(
        self, found: Unreadable, file: File, segment: SegmentFiles, following: int | None
    ) -> None:
        if self.next_offset >= self._judged_to:
            return
        if following is None and is_unwritten(file, found.position):
            return
        self.findings.add(
            Kind.DAMAGED_BATCH,
            f"From position {found.position} on nothing can be read: {found.reason}",
            path=segment.path,
            offset=self.next_offset,
            end_offset=-1 if following is None else following,
        )
        self._open_hole()

    def _open_hole(self) -> None:
        if self._hole_from is None:
            self._hole_from = self.next_offset
        self._transactions.miss_something()


def _hole(start: int, end: int) -> Fact:
    return Fact(start, end - 1, -1, -1, 0, is_sound=False)


def _with_next_base(
    batches: Iterator[StoredBatch | Unreadable], following: int | None
) -> Iterator[tuple[StoredBatch | Unreadable, int | None]]:
    """Each batch with the base offset of the one behind it, if that is known.

    The bytes of a batch are gone when the next one is read; all that is asked of them was.
    """
    previous: StoredBatch | Unreadable | None = None
    for found in chain(batches, [None]):
        if previous is not None:
            next_base = following
            if isinstance(found, StoredBatch):
                next_base = None if found.damage else found.header.base_offset
            elif isinstance(found, Unreadable):
                next_base = None
            yield previous, next_base
        previous = found
