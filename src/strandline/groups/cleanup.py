"""How offsets and groups end: they expire, are deleted by request, or lose their topics.

An offset expires when its retention time has passed: since the group became empty, since it was
committed if the group never had members or none subscribes to the topic any more, or by the expiry
that an old client set itself. A group that is empty and has no offsets goes too. Everything goes by
tombstones; a group whose tombstone is being written is DEAD, and refuses all but readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.consumer.image import burial
from strandline.groups.group import Group, GroupState, no_group
from strandline.groups.offset_records import (
    GroupRecord,
    OffsetRecord,
    StateRecord,
    encode_record,
)
from strandline.groups.shard import Outcome, Shard, coordinator_error
from strandline.protocol.messages.offsets_topic import OffsetCommitValue
from strandline.types import NO_TIMESTAMP, NO_TOPIC_ID, Instant, TopicId, TopicPartition

_STEP = 1_000
"""How many offsets a step of expiry looks at. That takes five milliseconds, or twenty if they
are over."""
_GROUP = 5
"""To look at a group costs as much as so many offsets."""
_RECORD_OVERHEAD = 16
"""A generous bound on what a record adds to its key in a batch."""


class Cleanup:
    """Ends offsets and groups of one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def schedule(self, now: Instant) -> None:
        """See to expiry from now on."""
        interval_ms = self._shard.settings.offsets_retention_check_interval_ms
        self._shard.schedule("expiry", now=now, delay_ms=interval_ms, do=self._expiry_due)

    def _expiry_due(self, now: Instant) -> None:
        group_ids = dict.fromkeys([*self._shard.groups, *self._shard.consumer_groups])
        self._expire(iter(group_ids), now)

    def _expire(self, group_ids: Iterator[str], now: Instant) -> None:
        """Write tombstones for what of these groups is over: now as far as that takes some
        milliseconds, and the rest in later steps."""
        records: list[StateRecord] = []
        ending: list[ConsumerGroup] = []
        seen = 0
        for group_id in group_ids:
            if (group := self._shard.groups.get(group_id)) is not None:
                records += self._over(group, now)
            if (consumers := self._shard.consumer_groups.get(group_id)) is not None:
                expired = list(self._expired_of(consumers, now))
                records += _tombstones(group_id, expired)
                nothing_left = self._shard.offsets.touched(group_id) == frozenset(expired)
                if nothing_left and consumers.image.exists and not consumers.members:
                    ending.append(consumers)
            seen += _GROUP + len(self._shard.offsets.committed(group_id))
            if seen >= _STEP:
                do = partial(self._expire, group_ids)
                self._shard.schedule_step("expiry", now=now, do=do)
                break
        else:
            self.schedule(now)
        self._append_in_parts(records, now)
        # Behind all of their offsets, which may be more than one append holds: a coordinator that
        # finds only the first part has a group without members, and goes on with it.
        for consumers in ending:
            self._bury_consumers(consumers, [], now)

    def _over(self, group: Group, now: Instant) -> list[StateRecord]:
        """Tombstones of a classic group's offsets whose time is over, and of the group itself if
        nothing is left of it."""
        if group.state is GroupState.DEAD:
            return []
        expired = list(self._expired(group, now.wall_ms))
        records = _tombstones(group.group_id, expired)
        nothing_left = self._shard.offsets.touched(group.group_id) == frozenset(expired)
        if nothing_left and group.state is GroupState.EMPTY and not group.pending_joins:
            records.append(self._bury(group))
        return records

    def _expired_of(self, group: ConsumerGroup, now: Instant) -> Iterator[TopicPartition]:
        """The same for a group of the consumer protocol, whose offsets expire by their age, those
        of topics that members read excepted."""
        for at, offset in self._unchanging(group.group_id):
            if group.is_subscribed_to(at.topic):
                continue
            if self._is_over(now.wall_ms, offset, _commit_time):
                yield at

    def _expired(self, group: Group, now_ms: int) -> Iterator[TopicPartition]:
        """The offsets of a group that have outlived their time, and that are not being changed."""
        since = _expiry_base(group)
        if since is None:
            return
        for topic_partition, offset in self._unchanging(group.group_id):
            if group.is_subscribed_to(topic_partition.topic):
                continue
            if self._is_over(now_ms, offset, since):
                yield topic_partition

    def _unchanging(self, group_id: str) -> Iterator[tuple[TopicPartition, OffsetCommitValue]]:
        """The offsets that are not being changed: what is being written decides next time."""
        offsets = self._shard.offsets
        latest, pending = offsets.latest(group_id), offsets.pending(group_id)
        for topic_partition, offset in offsets.committed(group_id).items():
            if latest.get(topic_partition) is offset and topic_partition not in pending:
                yield topic_partition, offset

    def _is_over(
        self, now_ms: int, offset: OffsetCommitValue, since: Callable[[OffsetCommitValue], int]
    ) -> bool:
        if offset.expire_timestamp != NO_TIMESTAMP:
            return now_ms >= offset.expire_timestamp
        return now_ms - since(offset) >= self._shard.settings.offsets_retention_ms

    def _bury_consumers(
        self,
        group: ConsumerGroup,
        tombstones: list[StateRecord],
        now: Instant,
        outcome: Outcome | None = None,
    ) -> None:
        """End a group of the consumer protocol, and with it these offsets, in one append."""
        burials = list(burial(group.group_id, group.image))
        for record in burials:
            group.apply(record)
        group.last_append = self._shard.append([*tombstones, *burials], now, outcome)

    def delete(self, group_id: str, now: Instant, deliver: Callable[[ErrorCode], None]) -> None:
        """Handle one group of a DeleteGroups: `deliver` how it ended."""
        consumers = self._shard.consumer_group(group_id)
        if consumers is not None:
            if consumers.members:
                raise ProtocolError(ErrorCode.NON_EMPTY_GROUP)
            offsets = _tombstones(group_id, sorted(self._shard.offsets.touched(group_id)))
            self._bury_consumers(consumers, offsets, now, partial(_deleted, deliver))
            return
        group = self._shard.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise no_group(group_id)
        if group.state is not GroupState.EMPTY:
            raise ProtocolError(ErrorCode.NON_EMPTY_GROUP)
        touched = self._shard.offsets.touched(group_id)
        records: list[StateRecord] = [*_tombstones(group_id, sorted(touched)), self._bury(group)]
        self._shard.append(records, now, partial(_deleted, deliver))

    def topics_deleted(self, topics: Iterable[tuple[str, TopicId]], now: Instant) -> None:
        """Forget the offsets of topics that are gone; a new topic of the name starts clean."""
        topic_ids = dict(topics)
        records: list[StateRecord] = []
        for group_id in sorted(self._shard.offsets.group_ids()):
            gone = [
                topic_partition
                for topic_partition, offset in self._shard.offsets.latest(group_id).items()
                if topic_partition.topic in topic_ids
                and offset.topic_id in (NO_TOPIC_ID, topic_ids[topic_partition.topic])
            ]
            gone += sorted(
                topic_partition
                for topic_partition in self._shard.offsets.pending(group_id) - frozenset(gone)
                if topic_partition.topic in topic_ids
            )
            records += _tombstones(group_id, gone)
        self._append_in_parts(records, now)

    def _bury(self, group: Group) -> GroupRecord:
        """Mark a group dead; it goes with its tombstone, or comes back if that is refused."""
        group.transition_to(GroupState.DEAD, group.state_timestamp_ms)
        return GroupRecord(group.group_id, None)

    def _append_in_parts(self, records: list[StateRecord], now: Instant) -> None:
        part: list[StateRecord] = []
        part_bytes = 0
        for record in records:
            record_bytes = len(encode_record(record).key) + _RECORD_OVERHEAD
            if part and part_bytes + record_bytes > self._shard.settings.append_bytes_max:
                self._shard.append(part, now)
                part, part_bytes = [], 0
            part.append(record)
            part_bytes += record_bytes
        if part:
            self._shard.append(part, now)


def _expiry_base(group: Group) -> Callable[[OffsetCommitValue], int] | None:
    """From when on an offset's retention time counts, or None if none expires now."""
    if group.protocol_type is None:
        return _commit_time
    if group.state is GroupState.EMPTY:
        emptied_ms = group.state_timestamp_ms
        return _commit_time if emptied_ms == NO_TIMESTAMP else lambda _offset: emptied_ms
    if (
        group.state is GroupState.STABLE
        and group.uses_consumer_protocol
        and group.subscribed_topics is not None
    ):
        return _commit_time
    return None


def _commit_time(offset: OffsetCommitValue) -> int:
    return offset.commit_timestamp


def _tombstones(group_id: str, partitions: Iterable[TopicPartition]) -> list[StateRecord]:
    return [OffsetRecord(group_id, partition, None) for partition in partitions]


def _deleted(deliver: Callable[[ErrorCode], None], error: ErrorCode | None, _now: Instant) -> None:
    deliver(ErrorCode.NONE if error is None else coordinator_error(error))
