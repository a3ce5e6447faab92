"""One partition's part of a history: what is known of it, and what was found wrong with it.

`checker` feeds it; `judged` answers what only the whole can tell, and may be asked again later.
Nothing here may depend on the order of a set: findings come in the order of the history.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from strandline.sim.history.operations import Deleted, Partition, Polled, Sent, Value
from strandline.sim.history.report import Anomaly, AnomalyKind


class MalformedHistory(ValueError):
    """The history contradicts itself, so that nothing can be said about the cluster."""


@dataclass(slots=True)
class _Send:
    producer: str
    value: Value
    key: Hashable
    floor: int
    """Offset that was already acknowledged when this send began; -1: none. It lies beyond it."""
    is_promise: bool
    """Whether it must be there once it is acknowledged."""
    is_transactional: bool


@dataclass(slots=True)
class PartitionHistory:
    """What is known of one partition, and what was found wrong with it."""

    name: Partition
    last_readers: Collection[str]
    anomalies: list[Anomaly] = field(default_factory=list)
    sends: dict[Value, _Send] = field(default_factory=dict)
    """In the order in which they began."""
    promised: dict[Value, int | None] = field(default_factory=dict)
    """Offsets of what was acknowledged and must be there."""
    hoped: dict[Value, int | None] = field(default_factory=dict)
    """The same of what may be lost, although it was acknowledged."""
    definitely_not: set[Value] = field(default_factory=set)
    read: dict[Value, None] = field(default_factory=dict)
    """In the order in which they were read first."""
    read_at_last: dict[Value, None] = field(default_factory=dict)
    value_at: dict[int, Value] = field(default_factory=dict)
    """First value known at each offset, from promises and readers."""
    offset_of: dict[Value, int] = field(default_factory=dict)
    """First offset known of each value, likewise."""
    starts: dict[Value, int] = field(default_factory=dict)
    """Where the log began, as far as that was known, when the offset of a value became known."""
    positions: dict[str, int | None] = field(default_factory=dict)
    """Where each consumer goes on; None: anywhere."""
    ends: dict[str, int] = field(default_factory=dict)
    jumps: list[tuple[str, int, int]] = field(default_factory=list)
    """Consumer, offset where it should have gone on (at or after the start of the log, as far as
    that was known), offset that it was given."""
    log_start: int = 0
    """What lay before it may be gone."""
    is_gone: bool = False
    """Whether the partition itself was deleted."""
    is_compacted: bool = False
    """Whether older values of a key may be gone."""
    erased: set[Hashable] = field(default_factory=set)
    """Keys of which there may be a tombstone."""
    deletions: list[tuple[int, Deleted]] = field(default_factory=list)
    """With the place in the history from which on they hold. Offsets rise."""
    highest_acknowledged: int = -1
    highest_read: int = -1
    contradictions: set[tuple[int, Value]] = field(default_factory=set)
    """(offset, value) that were already reported: ten readers of one fault are one finding."""

    def sent(self, event: Sent, *, is_promise: bool) -> None:
        value = event.value
        if value in self.sends:
            raise MalformedHistory(f"{value!r} was sent twice to {self.name}")
        floor = self.highest_acknowledged
        self.sends[value] = _Send(
            event.producer, value, event.key, floor, is_promise, event.transaction is not None
        )

    def acknowledged(self, value: Value, offset: int | None) -> None:
        self._settle(value)
        if not self.sends[value].is_promise:
            self.hoped[value] = offset
            return
        self.promised[value] = offset
        if offset is not None:
            self._place(offset, value, "acknowledged")
            self.highest_acknowledged = max(self.highest_acknowledged, offset)

    def refused(self, value: Value) -> None:
        self._settle(value)
        self.definitely_not.add(value)

    def deleted_to(self, event: Deleted, index: int) -> None:
        self.log_start = max(self.log_start, event.offset)
        if not self.deletions or event.offset > self.deletions[-1][1].offset:
            self.deletions.append((index, event))

    def polled(self, event: Polled) -> None:
        consumer = event.consumer
        position = self.positions.get(consumer)
        seen = self.read_at_last if consumer in self.last_readers else self.read
        value_at, offset_of = self.value_at, self.offset_of
        for offset, value in event.records:
            if position is not None and offset != position:
                if offset < position:
                    self._found(
                        AnomalyKind.NONMONOTONIC_POLL,
                        f"{consumer} was at offset {position} and was given offset {offset}",
                    )
                elif offset > self.log_start:
                    self.jumps.append((consumer, max(position, self.log_start), offset))
            position = offset + 1
            seen[value] = None
            if value_at.get(offset) != value or offset_of.get(value) != offset:
                self._place(offset, value, f"read by {consumer}")
        if self.deletions and event.records:
            self._look_for_deleted(event)
        if position is not None:
            self.positions[consumer] = position
            if not self.last_readers or consumer in self.last_readers:
                self.highest_read = max(self.highest_read, position - 1)

    def _look_for_deleted(self, event: Polled) -> None:
        offset, value = event.records[0]
        for index, deleted in self.deletions:
            was_deposed = 0 <= event.leader_epoch < deleted.leader_epoch
            if index < event.asked_at and offset < deleted.offset and not was_deposed:
                self._found(
                    AnomalyKind.RESURRECTED,
                    f"{event.consumer} was given {value!r} at offset {offset}, although everything "
                    f"before {deleted.offset} had been deleted when it asked",
                )
                return

    def end_seen(self, client: str, offset: int) -> None:
        before = self.ends.get(client, 0)
        if offset < before:
            self._found(
                AnomalyKind.END_WENT_BACK, f"{client} saw the end at {before}, later at {offset}"
            )
        self.ends[client] = offset

    def judged(self) -> Iterator[Anomaly]:
        """The questions to the whole history."""
        yield from self._strange_reads()
        if not self.is_gone:
            yield from self._broken_promises()
        yield from self._moved()
        yield from self._reordered()
        yield from self._skipped()

    def _strange_reads(self) -> Iterator[Anomaly]:
        for value in self.read | self.read_at_last:
            if value in self.definitely_not:
                yield self._anomaly(
                    AnomalyKind.REFUSED_READ,
                    f"{value!r} at offset {self.offset_of[value]} had been refused",
                )
            elif value not in self.sends:
                yield self._anomaly(
                    AnomalyKind.PHANTOM,
                    f"{value!r} at offset {self.offset_of[value]} was sent by no producer",
                )

    def _broken_promises(self) -> Iterator[Anomaly]:
        there = self.read_at_last if self.last_readers else self.read
        newest = self._newest_of_keys(there) if self.is_compacted else {}
        for value, offset in self.promised.items():
            if value in there or self._may_be_deleted(value, offset):
                continue
            if self.is_compacted and self._may_be_compacted(value, newest):
                continue
            where = "an unknown offset" if offset is None else f"offset {offset}"
            kind, until = AnomalyKind.UNSEEN, f"readers came to offset {self.highest_read}"
            if value in self.read:
                until += "; it had been read before"
            if offset is not None and offset <= self.highest_read:
                kind = AnomalyKind.LOST
                if offset in self.value_at and self.value_at[offset] != value:
                    until += f"; there lies {self.value_at[offset]!r}"
            yield self._anomaly(kind, f"{value!r} acknowledged at {where} is not there ({until})")

    def _newest_of_keys(self, there: Iterable[Value]) -> dict[Hashable, int]:
        """The offset of the newest value of each key that is there."""
        found: dict[Hashable, int] = {}
        for value in there:
            send = self.sends.get(value)
            if send is not None:
                found[send.key] = max(found.get(send.key, -1), self.offset_of[value])
        return found

    def _may_be_compacted(self, value: Value, newest: Mapping[Hashable, int]) -> bool:
        """Whether there is a newer value of its key, or perhaps a tombstone; or it has no key,
        being older than the policy: such records go with the next compaction, as in Kafka."""
        send = self.sends[value]
        if send.key is None or send.key in self.erased:
            return True
        return newest.get(send.key, -1) > self.offset_of.get(value, send.floor)

    def _may_be_deleted(self, value: Value, offset: int | None) -> bool:
        """Whether it lies before the start of the log, as far as can be known."""
        if offset is None:
            offset = self.offset_of.get(value, self.sends[value].floor + 1)
        return offset < self.log_start

    def _moved(self) -> Iterator[Anomaly]:
        """What may be lost must be where it was said to be if it is there at all."""
        for value, offset in self.hoped.items():
            found = self.offset_of.get(value)
            if found is not None and offset is not None and found != offset:
                yield self._anomaly(
                    AnomalyKind.DUPLICATE,
                    f"{value!r} was acknowledged at offset {offset} and lies at offset {found}",
                )

    def _reordered(self) -> Iterator[Anomaly]:
        last: dict[str, int] = {}
        for send in self.sends.values():
            offset = self.offset_of.get(send.value)
            if offset is None:
                continue
            before = last.get(send.producer, -1)
            if offset < before:
                # A retry that was appended again behind the deletion of what it repeats (`_place`)
                # lies behind all that was deleted with that.
                if offset < self.starts.get(self.value_at[before], 0):
                    continue
                yield self._reordering(send, offset, before, f"{send.producer} sent before it")
            elif offset < send.floor:
                how = "was acknowledged before it was sent"
                yield self._reordering(send, offset, send.floor, how)
            last[send.producer] = max(before, offset)

    def _reordering(self, send: _Send, offset: int, before: int, how: str) -> Anomaly:
        earlier = self.value_at.get(before)
        return self._anomaly(
            AnomalyKind.REORDERED,
            f"{send.value!r} at offset {offset} lies before {earlier!r} at offset {before}, which "
            f"{how}",
        )

    def _skipped(self) -> Iterator[Anomaly]:
        """An offset without a record is no skip: a marker, or what no leader ever committed; nor
        is a record of a transaction of which it is not known that it was committed."""
        known = sorted(self.value_at) if self.jumps and not self.is_compacted else []
        for consumer, position, given in self.jumps:
            missed = [
                each
                for each in known[bisect_left(known, position) : bisect_left(known, given)]
                if not self._is_undecided(self.value_at[each])
            ]
            if missed:
                yield self._anomaly(
                    AnomalyKind.POLL_SKIP,
                    f"{consumer} went from offset {position} to {given} over {len(missed)} "
                    f"records, the first {self.value_at[missed[0]]!r} at offset {missed[0]}",
                )

    def _is_undecided(self, value: Value) -> bool:
        send = self.sends.get(value)
        return send is not None and send.is_transactional and value not in self.promised

    def _place(self, offset: int, value: Value, how: str) -> None:
        """Note that `value` lies at `offset`, and whether that contradicts what is known."""
        there = self.value_at.setdefault(offset, value)
        elsewhere = self.offset_of.setdefault(value, offset)
        if elsewhere == offset:
            self.starts.setdefault(value, self.log_start)
        if (there == value and elsewhere == offset) or (offset, value) in self.contradictions:
            return
        self.contradictions.add((offset, value))
        if there != value:
            self._found(
                AnomalyKind.INCONSISTENT_OFFSETS,
                f"offset {offset} holds {there!r} and, {how}, {value!r}",
            )
        if min(elsewhere, offset) < min(max(elsewhere, offset), self.log_start):
            # A broker remembers a producer by its records. Where these were deleted, a retry that
            # is late enough may be appended again after a restart (KIP-360).
            self.offset_of[value] = max(elsewhere, offset)
            self.starts[value] = self.log_start
        elif elsewhere != offset:
            self._found(
                AnomalyKind.DUPLICATE,
                f"{value!r} lies at offset {elsewhere} and, {how}, at offset {offset}",
            )

    def _settle(self, value: Value) -> None:
        if value not in self.sends:
            raise MalformedHistory(f"{value!r} has an outcome, but was not sent to {self.name}")
        if value in self.promised or value in self.hoped or value in self.definitely_not:
            raise MalformedHistory(f"{value!r} has two outcomes in {self.name}")

    def _found(self, kind: AnomalyKind, sentence: str) -> None:
        self.anomalies.append(self._anomaly(kind, sentence))

    def _anomaly(self, kind: AnomalyKind, sentence: str) -> Anomaly:
        return Anomaly(kind, self.name, sentence)
