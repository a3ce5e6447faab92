"""A share partition beside a naive model: one entry for each record."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.acknowledge_type import AckType
from strandline.sharing.partition import SharePartition
from strandline.sharing.runs import RecordState, StateBatch
from strandline.sharing.values import AckBatch, Limits, LogBatch, Write
from strandline.types import Instant

LIMITS = Limits(lock_ms=100, deliveries_max=3, window_max=12)
BATCHES = [LogBatch(0, 2), LogBatch(3, 3), LogBatch(6, 9), LogBatch(10, 13, True)]
BATCHES += [LogBatch(first, first + 1) for first in range(15, 41, 2)]
HIDDEN = {
    offset for each in BATCHES if each.is_hidden for offset in range(each.first, each.last + 1)
}
LOG_END = 41
MEMBERS = ("a", "b", "c")


@dataclass
class Entry:
    state: RecordState = RecordState.AVAILABLE
    deliveries: int = 0
    member: str = ""
    until: int = 0
    write: int = 0


@dataclass
class Kept:
    """What the coordinator would have."""

    start: int = 0
    states: dict[int, StateBatch] = field(default_factory=dict)


class SharePartitionMachine(RuleBasedStateMachine):
    """Members acquire, acknowledge and fall silent; writes succeed and fail; leaders change."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.start_over(SharePartition(0), {}, 0)
        self.kept = Kept()
        self.write: Write | None = None
        self.accepted: set[int] = set()
        self.log_start = 0

    def start_over(self, partition: SharePartition, entries: dict[int, Entry], start: int) -> None:
        self.partition = partition
        self.entries = entries
        self.start = start
        self.collecting = 1

    @property
    def instant(self) -> Instant:
        return Instant(self.now, self.now)

    @rule(member=st.sampled_from(MEMBERS), most=st.integers(1, 6), strict=st.booleans())
    def acquire(self, member: str, most: int, strict: bool) -> None:
        position = self.partition.next_offset
        found = [each for each in BATCHES if each.last >= max(position, self.log_start)]
        before = self.partition.end_offset
        given = self.partition.acquire(
            member, found, LIMITS, self.instant, records_max=most, is_strict=strict
        )
        for offset in range(before + 1, self.partition.end_offset + 1):
            self.entries[offset] = Entry()
        for offset in range(self.start, self.partition.end_offset + 1):
            entry = self.entries.get(offset)
            first = found[0].first if found else 0
            passed = position <= offset < first or (offset in HIDDEN and offset >= position)
            if entry is not None and passed and entry.state is RecordState.AVAILABLE:
                reached = max((each.last for each in given), default=-1)
                if not entry.write and (offset < first or offset < max(reached, offset + 1)):
                    actual = self.actual(offset)
                    if actual is None or actual.state is RecordState.ARCHIVED:
                        entry.state = RecordState.ARCHIVED
        count = 0
        for first, last, deliveries in given:
            for offset in range(first, last + 1):
                entry = self.entries[offset]
                assert entry.state is RecordState.AVAILABLE, offset
                assert not entry.write, offset
                assert offset not in self.accepted
                assert offset not in HIDDEN
                entry.state, entry.member = RecordState.ACQUIRED, member
                entry.until = self.now + LIMITS.lock_ms
                entry.deliveries += 1
                assert entry.deliveries == deliveries <= LIMITS.deliveries_max
                count += 1
        if strict:
            assert count <= most
        if any(deliveries == LIMITS.deliveries_max for _, _, deliveries in given):
            assert count == 1, "a last attempt is not made alone"
        if position <= before and found and found[0].first <= position:
            assert given, "what is available is not given"
        self.advance()

    def actual(self, offset: int) -> Entry | None:
        for run in self.partition.runs:
            if run.first <= offset <= run.last:
                return Entry(run.status.state)
        return None

    @rule(
        member=st.sampled_from(MEMBERS),
        at=st.integers(0, 14),
        kinds=st.lists(st.sampled_from(list(AckType)), min_size=1, max_size=5),
    )
    def acknowledge(self, member: str, at: int, kinds: list[AckType]) -> None:
        first = self.start + at
        batch = AckBatch(first, first + len(kinds) - 1, kinds)
        entries = [self.entries.get(first + n) for n in range(len(kinds))]
        mine = all(
            e and e.state is RecordState.ACQUIRED and not e.write and e.member == member
            for e in entries
        )
        if not mine:
            with pytest.raises(ProtocolError) as refused:
                self.partition.acknowledge(member, [batch], LIMITS, self.instant)
            codes = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)
            assert refused.value.code in codes
            return
        write = self.partition.acknowledge(member, [batch], LIMITS, self.instant)
        assert (write is None) == all(kind is AckType.RENEW for kind in kinds)
        for entry, kind in zip(entries, kinds, strict=True):
            assert entry is not None
            if kind is AckType.RENEW:
                entry.until = self.now + LIMITS.lock_ms
                continue
            entry.write = write or 0
            entry.state = RecordState.ARCHIVED
            if kind is AckType.ACCEPT:
                entry.state = RecordState.ACKNOWLEDGED
            elif kind is AckType.RELEASE and entry.deliveries < LIMITS.deliveries_max:
                entry.state = RecordState.AVAILABLE

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        self.partition.release(member, LIMITS)
        self.let_go(lambda entry: entry.member == member)

    @rule(passed=st.integers(1, 150))
    def wait(self, passed: int) -> None:
        self.now += passed
        self.partition.tick(LIMITS, self.instant)
        self.let_go(lambda entry: entry.until <= self.now)

    def let_go(self, is_over: object) -> None:
        for entry in self.entries.values():
            if entry.state is RecordState.ACQUIRED and not entry.write and is_over(entry):  # type: ignore[operator]
                over = entry.deliveries >= LIMITS.deliveries_max
                entry.state = RecordState.ARCHIVED if over else RecordState.AVAILABLE
        self.advance()

    @precondition(lambda self: self.write is None)
    @rule()
    def begin_write(self) -> None:
        self.write = self.partition.next_write()

    @precondition(lambda self: self.write is not None)
    @rule(is_stored=st.booleans())
    def end_write(self, is_stored: bool) -> None:
        write = self.write
        self.write = None
        assert write is not None
        self.partition.written(write.write_id, is_stored=is_stored)
        if is_stored:
            self.kept.start = write.start
            for batch in write.batches:
                for offset in range(batch.first, batch.last + 1):
                    self.kept.states[offset] = StateBatch(offset, offset, *batch[2:])
        for offset, entry in self.entries.items():
            if entry.write != write.write_id:
                continue
            entry.write = 0
            if not is_stored:
                entry.state = RecordState.ACQUIRED
            elif entry.state is RecordState.ACKNOWLEDGED:
                self.accepted.add(offset)
        self.advance()

    def advance(self) -> None:
        done = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
        while (entry := self.entries.get(self.start)) and entry.state in done and not entry.write:
            del self.entries[self.start]
            self.start += 1

    @rule()
    def change_leader(self) -> None:
        kept = [batch for offset, batch in self.kept.states.items() if offset >= self.kept.start]
        self.write = None
        self.partition = SharePartition.loaded(
            self.kept.start, kept, log_start=self.log_start, log_end=LOG_END
        )
        end = max((batch.last for batch in kept), default=self.kept.start - 1)
        self.start = max(self.kept.start, self.log_start)
        self.entries = {
            offset: Entry(*(self.kept.states[offset][2:] if offset in self.kept.states else ()))
            for offset in range(self.start, end + 1)
        }
        self.advance()

    @rule(by=st.integers(1, 4))
    def raise_log_start(self, by: int) -> None:
        self.log_start = min(self.log_start + by, LOG_END - 1)
        self.partition.raise_start(self.log_start)
        for offset in range(self.start, self.log_start):
            self.entries.pop(offset, None)
        self.start = max(self.start, self.log_start)
        self.advance()

    @invariant()
    def is_as_the_model(self) -> None:
        self.partition.check()
        ours = {
            offset: (run.status.state, run.status.deliveries, run.status.write)
            for run in self.partition.runs
            for offset in range(run.first, run.last + 1)
        }
        theirs = {
            offset: (entry.state, entry.deliveries, entry.write)
            for offset, entry in self.entries.items()
        }
        assert self.partition.first_offset == self.start
        assert ours == theirs
        deadlines = [
            e.until
            for e in self.entries.values()
            if e.state is RecordState.ACQUIRED and not e.write
        ]
        assert self.partition.next_deadline() == min(deadlines, default=None)


TestSharePartition = SharePartitionMachine.TestCase
TestSharePartition.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


NOW = Instant(0, 0)


def test_a_hidden_batch_is_passed_as_a_whole_also_where_batches_may_be_split() -> None:
    """Its first offsets were archived, and the others given out with the next batch."""
    partition = SharePartition(0)
    batches = [LogBatch(0, 9, True), LogBatch(10, 10, True), LogBatch(11, 20)]
    given = partition.acquire("a", batches, Limits(), NOW, records_max=3, is_strict=True)
    assert given == [(11, 13, 1)]
    assert partition.first_offset == 11


def test_a_full_window_that_ends_in_a_hidden_batch() -> None:
    """The batch was split while its group read what was aborted as well."""
    partition, limits = SharePartition(0), Limits(window_max=3)
    partition.acquire("a", [LogBatch(0, 9)], limits, NOW, records_max=3, is_strict=True)
    partition.release("a", limits)
    batches = [LogBatch(0, 9, True), LogBatch(10, 12)]
    for expected in ([], [(10, 12, 1)]):
        given = partition.acquire("a", batches, limits, NOW, records_max=3, is_strict=True)
        assert given == expected
    assert partition.first_offset == 10
