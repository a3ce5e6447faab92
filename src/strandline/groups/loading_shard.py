"""Rebuilding a shard from the records of its partition.

Records come in the order of the log, in as many pieces as is convenient. The last record of a key
counts; a tombstone removes. Those of aborted transactions must have been left out, and those of
open ones come last, as `OpenRecord`, in their order, too. Kinds of records that are not served
(streams groups) are skipped and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from strandline.errors import CorruptRecords, InvariantViolated
from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.group import Group
from strandline.groups.offset_records import (
    GroupRecord,
    OffsetRecord,
    UnknownRecord,
    decode_record,
)
from strandline.groups.serving import ServedShard
from strandline.groups.share.group import ShareGroup
from strandline.groups.share.records import ShareRecord
from strandline.protocol.coordinator_log import CoordinatorRecord, OpenRecord
from strandline.types import Instant, TopicId


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What was found in a partition."""

    groups: int
    offsets: int
    unknown_kinds: Mapping[int, int]
    """How many records of each kind that is not served."""
    damaged_records: int
    """Records that were skipped because their bytes make no sense."""
    append_id: int | None = None
    """If the log's end was not committed: tell the end of this append when it is."""


class LoadingShard:
    """A shard that is being rebuilt."""

    def __init__(self, served: ServedShard) -> None:
        self.served = served
        self._shard = served.shard
        self._unknown: Counter[int] = Counter()
        self._damaged = 0
        self._deleted: list[Sequence[tuple[str, TopicId]]] = []
        """The topics that went meanwhile, in their order."""

    def replay(self, records: Iterable[CoordinatorRecord | OpenRecord]) -> None:
        """Take in the next records of the log."""
        for record in records:
            try:
                if isinstance(record, OpenRecord):
                    self._apply_open(record)
                else:
                    self._apply(record)
            except CorruptRecords:
                # One bad record must not make all groups of the partition unreachable for ever.
                self._damaged += 1

    def topics_deleted(self, topics: Sequence[tuple[str, TopicId]]) -> None:
        """Topics are gone. Their offsets, of which all are in the log before, go when the rest of
        them is known."""
        self._deleted.append(topics)

    def finish(self, now: Instant, *, is_committed: bool) -> LoadReport:
        """All records are in: make the groups live.

        Unless everything that was read `is_committed`, the end of the log may still be lost with
        the leadership: no offsets are told before the append in the report has ended.
        """
        append_id = None if is_committed else self._shard.expect_loaded()
        self._settle_consumer_groups()
        known = (
            self._shard.groups.keys()
            | self._shard.consumer_groups.keys()
            | self._shard.share_groups.keys()
        )
        for group_id in self._shard.offsets.group_ids() - known:
            group = Group(group_id, created_ms=now.wall_ms)
            group.is_stored = True
            self._shard.groups[group_id] = group
        self.served.start(now)
        for topics in self._deleted:
            self.served.cleanup.topics_deleted(topics, now)
        return LoadReport(
            groups=len(known | self._shard.groups.keys()),
            offsets=sum(
                len(self._shard.offsets.committed(group_id))
                for group_id in (*self._shard.groups, *self._shard.consumer_groups)
            ),
            unknown_kinds=dict(self._unknown),
            damaged_records=self._damaged,
            append_id=append_id,
        )

    def _apply_open(self, open_record: OpenRecord) -> None:
        record = decode_record(open_record.record)
        if isinstance(record, OffsetRecord):
            self._shard.found_open(open_record.producer_id, record)

    def _apply(self, record: CoordinatorRecord) -> None:
        match decode_record(record):
            case OffsetRecord() as offset:
                self._shard.offsets.replay(offset)
            case GroupRecord(group_id, None):
                self._shard.groups.pop(group_id, None)
            case GroupRecord(group_id, value) if value is not None:
                self._shard.groups[group_id] = Group.from_value(group_id, value)
            case UnknownRecord(kind):
                self._unknown[kind] += 1
            case ShareRecord() as share:
                groups = self._shard.share_groups
                groups.setdefault(share.group_id, ShareGroup(share.group_id)).apply(share)
            case GroupRecord():
                raise InvariantViolated("A group's record is neither a value nor a tombstone.")
            case consumer:
                group_id = consumer.group_id
                consumers = self._shard.consumer_groups
                group = consumers.get(group_id) or ConsumerGroup(group_id)
                group.apply(consumer)
                consumers[group_id] = group

    def _settle_consumer_groups(self) -> None:
        """What was read counts as durable; what compaction has left of groups that are gone is
        dropped."""
        for group_id, group in list(self._shard.consumer_groups.items()):
            if group.image.exists:
                group.become_durable()
            else:
                del self._shard.consumer_groups[group_id]
        for group_id, share_group in list(self._shard.share_groups.items()):
            if share_group.image.exists:
                share_group.become_durable()
            else:
                del self._shard.share_groups[group_id]
