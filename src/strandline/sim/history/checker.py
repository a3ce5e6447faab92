"""Decides whether a history of clients is one that a replicated log may have produced.

The classes of anomalies are those of Jepsen's Kafka workload (invariants I-28 to I-30, I-34, I-35
and I-38 of the specification). Pure: it reads a sequence of events and returns a report, whether
the events come from real clients or from a simulated world.

Two passes. The first goes through the events in order and collects, per partition, which value is
known to lie at which offset: from acknowledgements and from readers alike, so that a reader that
was given something else than an acknowledged producer was promised shows at once. The second asks
what only the whole history can answer: what was acknowledged and never read, what lies in another
order than it was sent in, and which offsets a reader jumped over although a record lies there.

Deletion is part of what a log may do. Where readers were told that the log begins (`StartSeen`,
`Deleted`), what lay before may be missing; after `Deleted` it must not come back either. Of a
partition that was deleted (`Gone`) nothing need be left. Compaction is part of it, too: of a key
the newest value is enough (`Compacted`), and none where a tombstone may have erased it (`Erased`).

A run may be meant to lose records; the checker reports all the same, and the caller says which
kinds it allows. It may also say which sends count: what was acknowledged by one replica alone
(acks=1) is no promise, and its offset may be given to another record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias

from strandline.sim.history.operations import (
    TRANSACTION_EVENTS,
    Acknowledged,
    Assigned,
    Compacted,
    Deleted,
    EndSeen,
    Erased,
    Event,
    Gone,
    Partition,
    Polled,
    Refused,
    Sent,
    StartSeen,
)
from strandline.sim.history.partition import MalformedHistory, PartitionHistory
from strandline.sim.history.report import Report

__all__ = ["Checker", "IsPromise", "MalformedHistory", "check"]

IsPromise: TypeAlias = Callable[[Sent], bool]
"""Whether a send, once acknowledged, must never be lost."""


def check(
    events: Iterable[Event],
    *,
    last_readers: Collection[str] = (),
    is_promise: IsPromise | None = None,
) -> Report:
    """Judge a history. `last_readers` read everything when all was over: only what they were given
    is still there. Without them, what any reader was given counts as there.

    Without `is_promise`, every acknowledgement is one. Raises MalformedHistory for a history that
    no recorder may produce: a value sent twice, an outcome without its send, two outcomes of one
    send.
    """
    checker = Checker(last_readers=last_readers, is_promise=is_promise)
    checker.feed(events)
    return checker.report()


class Checker:
    """The same for a history that is still being made: `feed` takes what has come since, `report`
    may be asked at any time. What only the whole history can tell counts as if it ended there."""

    def __init__(
        self, *, last_readers: Collection[str] = (), is_promise: IsPromise | None = None
    ) -> None:
        self._last_readers = last_readers
        self._is_promise = is_promise
        self._partitions: dict[Partition, PartitionHistory] = {}
        self._fed = 0

    def feed(self, events: Iterable[Event]) -> None:
        """Take the next events, in their order. Raises MalformedHistory."""
        partitions, is_promise = self._partitions, self._is_promise
        for event in events:
            if isinstance(event, TRANSACTION_EVENTS):
                self._fed += 1
                continue
            partition = partitions.get(event.partition)
            if partition is None:
                partition = PartitionHistory(event.partition, self._last_readers)
                partitions[event.partition] = partition
            match event:
                case Polled():
                    partition.polled(event)
                case Sent():
                    partition.sent(event, is_promise=is_promise is None or is_promise(event))
                case Erased():
                    partition.erased.add(event.key)
                case Compacted():
                    partition.is_compacted = True
                case Acknowledged():
                    partition.acknowledged(event.value, event.offset)
                case Refused():
                    partition.refused(event.value)
                case Assigned():
                    partition.positions[event.consumer] = event.offset
                case EndSeen():
                    partition.end_seen(event.client, event.offset)
                case StartSeen():
                    partition.log_start = max(partition.log_start, event.offset)
                case Deleted():
                    partition.deleted_to(event, self._fed)
                case Gone():
                    partition.is_gone = True
            self._fed += 1

    def report(self) -> Report:
        """The verdict on what has been fed."""
        everything = self._partitions.values()
        anomalies = [found for each in everything for found in (*each.anomalies, *each.judged())]
        return Report(
            anomalies=tuple(anomalies),
            sent=sum(len(each.sends) for each in everything),
            acknowledged=sum(len(each.promised) + len(each.hoped) for each in everything),
            refused=sum(len(each.definitely_not) for each in everything),
            read=sum(len(each.read | each.read_at_last) for each in everything),
        )
