"""The committed offsets of one `__consumer_offsets` partition, and those that are being written.

Knows three layers. *Committed* offsets are durable: what a new coordinator would find in the log,
and the only ones in answers. *In flight* are writes whose records are appended and not
yet replicated; deletions must count with them, since their records come first in the log. A write
moves from the second layer to the first when it is durable, and vanishes if its append was refused.
*Pending* are offsets of open transactions, from their append on: they become committed with the
marker that commits their transaction, unless one of later in the log counts by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from strandline.errors import InvariantViolated
from strandline.groups.offset_records import OffsetRecord
from strandline.protocol.messages.offsets_topic import OffsetCommitValue
from strandline.types import ProducerId, TopicPartition

Offsets = Mapping[TopicPartition, OffsetCommitValue]

_NOTHING: Offsets = MappingProxyType({})

_Place = tuple[str, TopicPartition]
"""A group and a partition."""


@dataclass(frozen=True, slots=True)
class _Write:
    append_id: int
    value: OffsetCommitValue | None


class OffsetStore:
    """Offsets by group and partition."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, OffsetCommitValue]] = {}
        self._in_flight: dict[str, dict[TopicPartition, list[_Write]]] = {}
        """Writes of each partition in the order of the log; no empty lists, no empty groups."""
        self._pending: dict[ProducerId, dict[_Place, list[_Write]]] = {}
        """Of each partition in each open transaction the newest durable offset, and those in
        flight behind it, in the order of the log; no empty lists, no empty transactions."""
        self._producers: dict[str, dict[TopicPartition, set[ProducerId]]] = {}
        """The same the other way round: by group and partition in whose transactions there is an
        offset. No empty sets, no empty groups."""

    def committed(self, group_id: str) -> Offsets:
        """The durable offsets of a group."""
        return self._committed.get(group_id, _NOTHING)

    def latest(self, group_id: str) -> dict[TopicPartition, OffsetCommitValue]:
        """What a group's offsets will be when everything in flight is durable."""
        latest = dict(self.committed(group_id))
        for topic_partition, writes in self._in_flight.get(group_id, {}).items():
            if (value := writes[-1].value) is None:
                latest.pop(topic_partition, None)
            else:
                latest[topic_partition] = value
        return latest

    def touched(self, group_id: str) -> frozenset[TopicPartition]:
        """Every partition for which the log may hold an offset when all is written."""
        in_flight = self._in_flight.get(group_id, {})
        pending = self.pending(group_id)
        return frozenset(self.committed(group_id)) | frozenset(in_flight) | pending

    def group_ids(self) -> frozenset[str]:
        """The groups that have offsets of either kind."""
        return frozenset(self._committed) | frozenset(self._in_flight) | frozenset(self._producers)

    def pending(self, group_id: str) -> frozenset[TopicPartition]:
        """The partitions for which an open transaction may commit an offset of this group."""
        return frozenset(self._producers.get(group_id, ()))

    def last_append(self, group_id: str) -> int | None:
        """The newest append that writes an offset of this group, if one is under way."""
        writes = self._in_flight.get(group_id, {}).values()
        return max((entries[-1].append_id for entries in writes), default=None)

    def replay(self, record: OffsetRecord) -> None:
        """Take over a record that is durable already."""
        group_id, topic_partition = record.group_id, record.topic_partition
        if record.value is not None:
            self._committed.setdefault(group_id, {})[topic_partition] = record.value
            return
        offsets = self._committed.get(group_id)
        if offsets is None:
            return
        offsets.pop(topic_partition, None)
        if not offsets:
            del self._committed[group_id]

    def begin(self, append_id: int, records: Iterable[OffsetRecord]) -> None:
        """These records are being appended, after all that are in flight."""
        for record in records:
            writes = self._in_flight.setdefault(record.group_id, {})
            entry = _Write(append_id, record.value)
            writes.setdefault(record.topic_partition, []).append(entry)

    def settle(self, append_id: int, record: OffsetRecord, *, durable: bool) -> None:
        """A record in flight has become durable, or will never be."""
        group_id, topic_partition = record.group_id, record.topic_partition
        group_writes = self._in_flight[group_id]
        writes = group_writes[topic_partition]
        for index, write in enumerate(writes):
            if write.append_id == append_id:
                del writes[index]
                break
        else:
            raise InvariantViolated(f"Append {append_id} does not write {topic_partition}.")
        if not writes:
            del group_writes[topic_partition]
        if not group_writes:
            del self._in_flight[group_id]
        if durable:
            self.replay(record)
            self._overtake((group_id, topic_partition), append_id)

    # Transactions.

    def begin_pending(
        self, append_id: int, producer_id: ProducerId, records: Iterable[OffsetRecord]
    ) -> None:
        """These offsets of an open transaction are being appended, or were found in the log."""
        writes = self._pending.setdefault(producer_id, {})
        for record in records:
            place = record.group_id, record.topic_partition
            writes.setdefault(place, []).append(_Write(append_id, record.value))
            by_partition = self._producers.setdefault(record.group_id, {})
            by_partition.setdefault(record.topic_partition, set()).add(producer_id)

    def settle_pending(
        self, append_id: int, producer_id: ProducerId, record: OffsetRecord, *, durable: bool
    ) -> None:
        """An offset of a transaction has become durable, or will never be. What the transaction
        wrote before counts no more, or goes on to count."""

        def is_over(write: _Write) -> bool:
            return write.append_id < append_id if durable else write.append_id == append_id

        place = record.group_id, record.topic_partition
        self._forget_pending(producer_id, place, is_over)

    def end_transaction(self, producer_id: ProducerId, *, commits: bool) -> frozenset[str]:
        """A marker is durable; returns the groups of which offsets were pending.

        What is committed overtakes the offsets of other transactions that are older in the log,
        whenever these end: compaction may have removed their records by then.
        """
        writes = self._pending.pop(producer_id, {})
        for place, offsets in writes.items():
            self._forget_producer(producer_id, place)
            if commits:
                self.replay(OffsetRecord(*place, offsets[-1].value))
                self._overtake(place, offsets[-1].append_id)
        return frozenset(group_id for group_id, _ in writes)

    def _overtake(self, place: _Place, append_id: int) -> None:
        group_id, topic_partition = place
        for producer_id in list(self._producers.get(group_id, {}).get(topic_partition, ())):
            self._forget_pending(producer_id, place, lambda write: write.append_id < append_id)

    def _forget_pending(
        self, producer_id: ProducerId, place: _Place, is_over: Callable[[_Write], bool]
    ) -> None:
        writes = self._pending.get(producer_id, {})
        offsets = writes.get(place)
        if offsets is None:
            return
        offsets[:] = [write for write in offsets if not is_over(write)]
        if not offsets:
            del writes[place]
            self._forget_producer(producer_id, place)
        if not writes:
            del self._pending[producer_id]

    def _forget_producer(self, producer_id: ProducerId, place: _Place) -> None:
        group_id, topic_partition = place
        by_partition = self._producers[group_id]
        by_partition[topic_partition].remove(producer_id)
        if not by_partition[topic_partition]:
            del by_partition[topic_partition]
        if not by_partition:
            del self._producers[group_id]
