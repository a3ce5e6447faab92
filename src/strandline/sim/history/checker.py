"""Decides whether a history of clients is one that a replicated log may have produced.

The classes of anomalies are those of Jepsen's Kafka workload (invariants I-28 to I-30, I-34, I-35
and I-38 of the specification). Pure: it reads a sequence of events and returns a report, whether
the events come from real clients or from a simulated world.

Two passes. The first goes through the events in order and collects, per partition, which value is
known to lie at which offset: from acknowledgements and from readers alike, so that a reader that
was given something else than an acknowledged producer was promised shows at once. The second asks
what only the whole history can answer: what was acknowledged and never read, what lies in another
order than it was sent in, and which offsets a reader jumped over although a record lies there.

A run may be meant to lose records; the checker reports all the same, and the caller says which
kinds it allows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from strandline.sim.history.operations import (
    Acknowledged,
    Assigned,
    EndSeen,
    Event,
    Partition,
    Polled,
    Refused,
    Sent,
    Value,
)
from strandline.sim.history.report import Anomaly, AnomalyKind, Report


class MalformedHistory(ValueError):
    """The history contradicts itself, so that nothing can be said about the cluster."""


def check(events: Iterable[Event], *, last_readers: Collection[str] = ()) -> Report:
    """Judge a history. `last_readers` read everything when all was over: only what they were given
    is still there. Without them, what any reader was given counts as there.

    Raises MalformedHistory for a history that no recorder may produce: a value sent twice, an
    outcome without its send, two outcomes of one send.
    """
    partitions: dict[Partition, _Partition] = {}
    for event in events:
        partition = partitions.get(event.partition)
        if partition is None:
            partition = partitions[event.partition] = _Partition(event.partition, last_readers)
        match event:
            case Polled():
                partition.polled(event.consumer, event.records)
            case Sent():
                partition.sent(event.producer, event.value)
            case Acknowledged():
                partition.acknowledged(event.value, event.offset)
            case Refused():
                partition.refused(event.value)
            case Assigned():
                partition.positions[event.consumer] = event.offset
            case EndSeen():
                partition.end_seen(event.client, event.offset)
    for partition in partitions.values():
        partition.judge()
    everything = partitions.values()
    return Report(
        anomalies=tuple(anomaly for each in everything for anomaly in each.anomalies),
        sent=sum(len(each.sends) for each in everything),
        acknowledged=sum(len(each.promised) for each in everything),
        refused=sum(len(each.definitely_not) for each in everything),
        read=sum(len(each.read) for each in everything),
    )


@dataclass(slots=True)
class _Send:
    producer: str
    value: Value
    floor: int
    """Offset that was already acknowledged when this send began; -1: none. It lies beyond it."""


@dataclass(slots=True)
class _Partition:
    """What is known of one partition, and what was found wrong with it."""

    name: Partition
    last_readers: Collection[str]
    anomalies: list[Anomaly] = field(default_factory=list)
    sends: dict[Value, _Send] = field(default_factory=dict)
    """In the order in which they began."""
    promised: dict[Value, int | None] = field(default_factory=dict)
    definitely_not: set[Value] = field(default_factory=set)
    read: set[Value] = field(default_factory=set)
    read_at_last: set[Value] = field(default_factory=set)
    value_at: dict[int, Value] = field(default_factory=dict)
    """First value known at each offset, from acknowledgements and readers."""
    offset_of: dict[Value, int] = field(default_factory=dict)
    """First offset known of each value, likewise."""
    positions: dict[str, int | None] = field(default_factory=dict)
    """Where each consumer goes on; None: anywhere."""
    ends: dict[str, int] = field(default_factory=dict)
    jumps: list[tuple[str, int, int]] = field(default_factory=list)
    """Consumer, offset where it should have gone on, offset that it was given."""
    highest_acknowledged: int = -1
    highest_read: int = -1
    contradictions: set[tuple[int, Value]] = field(default_factory=set)
    """(offset, value) that were already reported: ten readers of one fault are one finding."""

    def sent(self, producer: str, value: Value) -> None:
        if value in self.sends:
            raise MalformedHistory(f"{value!r} was sent twice to {self.name}")
        self.sends[value] = _Send(producer, value, self.highest_acknowledged)

    def acknowledged(self, value: Value, offset: int | None) -> None:
        self._settle(value)
        self.promised[value] = offset
        if offset is not None:
            self._place(offset, value, "acknowledged")
            self.highest_acknowledged = max(self.highest_acknowledged, offset)

    def refused(self, value: Value) -> None:
        self._settle(value)
        self.definitely_not.add(value)

    def polled(self, consumer: str, records: Iterable[tuple[int, Value]]) -> None:
        position = self.positions.get(consumer)
        seen = self.read_at_last if consumer in self.last_readers else self.read
        for offset, value in records:
            if position is not None and offset != position:
                if offset < position:
                    self._found(
                        AnomalyKind.NONMONOTONIC_POLL,
                        f"{consumer} was at offset {position} and was given offset {offset}",
                    )
                else:
                    self.jumps.append((consumer, position, offset))
            position = offset + 1
            seen.add(value)
            if self.value_at.get(offset) != value or self.offset_of.get(value) != offset:
                self._place(offset, value, f"read by {consumer}")
        if position is not None:
            self.positions[consumer] = position
            if not self.last_readers or consumer in self.last_readers:
                self.highest_read = max(self.highest_read, position - 1)

    def end_seen(self, client: str, offset: int) -> None:
        before = self.ends.get(client, 0)
        if offset < before:
            self._found(
                AnomalyKind.END_WENT_BACK, f"{client} saw the end at {before}, later at {offset}"
            )
        self.ends[client] = offset

    def judge(self) -> None:
        """The questions to the whole history."""
        self.read |= self.read_at_last
        for value in self.read:
            if value in self.definitely_not:
                self._found(
                    AnomalyKind.REFUSED_READ,
                    f"{value!r} at offset {self.offset_of[value]} had been refused",
                )
            elif value not in self.sends:
                self._found(
                    AnomalyKind.PHANTOM,
                    f"{value!r} at offset {self.offset_of[value]} was sent by nobody",
                )
        self._judge_acknowledged()
        self._judge_order()
        self._judge_jumps()

    def _judge_acknowledged(self) -> None:
        there = self.read_at_last if self.last_readers else self.read
        for value, offset in self.promised.items():
            if value in there:
                continue
            where = "an unknown offset" if offset is None else f"offset {offset}"
            kind, until = AnomalyKind.UNSEEN, f"readers came to offset {self.highest_read}"
            if value in self.read:
                until += "; it had been read before"
            if offset is not None and offset <= self.highest_read:
                kind = AnomalyKind.LOST
                if offset in self.value_at and self.value_at[offset] != value:
                    until += f"; there lies {self.value_at[offset]!r}"
            self._found(kind, f"{value!r} acknowledged at {where} is not there ({until})")

    def _judge_order(self) -> None:
        last: dict[str, int] = {}
        for send in self.sends.values():
            offset = self.offset_of.get(send.value)
            if offset is None:
                continue
            before = last.get(send.producer, -1)
            if offset < before:
                self._reordered(send, offset, before, f"{send.producer} sent before it")
            elif offset < send.floor:
                self._reordered(send, offset, send.floor, "was acknowledged before it was sent")
            last[send.producer] = max(before, offset)

    def _reordered(self, send: _Send, offset: int, before: int, how: str) -> None:
        earlier = self.value_at.get(before)
        self._found(
            AnomalyKind.REORDERED,
            f"{send.value!r} at offset {offset} lies before {earlier!r} at offset {before}, which "
            f"{how}",
        )

    def _judge_jumps(self) -> None:
        """An offset without a record is no skip: a marker, or what no leader ever committed."""
        known = sorted(self.value_at) if self.jumps else []
        for consumer, position, given in self.jumps:
            missed = known[bisect_left(known, position) : bisect_left(known, given)]
            if missed:
                self._found(
                    AnomalyKind.POLL_SKIP,
                    f"{consumer} went from offset {position} to {given} over {len(missed)} "
                    f"records, the first {self.value_at[missed[0]]!r} at offset {missed[0]}",
                )

    def _place(self, offset: int, value: Value, how: str) -> None:
        """Note that `value` lies at `offset`, and whether that contradicts what is known."""
        there = self.value_at.setdefault(offset, value)
        elsewhere = self.offset_of.setdefault(value, offset)
        if (there == value and elsewhere == offset) or (offset, value) in self.contradictions:
            return
        self.contradictions.add((offset, value))
        if there != value:
            self._found(
                AnomalyKind.INCONSISTENT_OFFSETS,
                f"offset {offset} holds {there!r} and, {how}, {value!r}",
            )
        if elsewhere != offset:
            self._found(
                AnomalyKind.DUPLICATE,
                f"{value!r} lies at offset {elsewhere} and, {how}, at offset {offset}",
            )

    def _settle(self, value: Value) -> None:
        if value not in self.sends:
            raise MalformedHistory(f"{value!r} has an outcome, but was not sent to {self.name}")
        if value in self.promised or value in self.definitely_not:
            raise MalformedHistory(f"{value!r} has two outcomes in {self.name}")

    def _found(self, kind: AnomalyKind, sentence: str) -> None:
        self.anomalies.append(Anomaly(kind, self.name, sentence))
