"""OffsetCommit, OffsetFetch and OffsetDelete for the groups of one shard.

Commits become readable when they are durable. A commit comes from a member, with its generation, or
from anyone while the group has no members: that makes a *simple* group, without a protocol type. A
fetch tells durable offsets; with `require_stable` it waits for what is in flight at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.consumer.commits import check_commit, check_fetch
from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.group import Group, GroupState, no_group
from strandline.groups.offset_records import OffsetRecord
from strandline.groups.rebalance import Rebalance
from strandline.groups.requests import NO_GENERATION, NO_MEMBER_ID, Call, refused
from strandline.groups.settings import GroupSettings
from strandline.groups.shard import Shard, coordinator_error
from strandline.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from strandline.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from strandline.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from strandline.protocol.messages.offsets_topic import OffsetCommitValue
from strandline.protocol.wire import STRING_BYTES_MAX
from strandline.types import (
    NO_OFFSET,
    NO_TIMESTAMP,
    NO_TOPIC_ID,
    Instant,
    TopicId,
    TopicPartition,
)

_BROKER_RETENTION = -1
"""The retention time of a commit that leaves it to the broker."""

_LATEST_MS = 2**63 - 1
"""The latest time that a record can hold: "for ever", in the commits of old clients."""

_GROUP_ID_NOT_FOUND_SINCE = 9
"""The version of OffsetCommit from which on an unknown group has an error of its own."""


class OffsetService:
    """Handles what is asked about the offsets of one shard's groups."""

    def __init__(self, shard: Shard, rebalance: Rebalance) -> None:
        self._shard = shard
        self._rebalance = rebalance

    # OffsetCommit.

    def commit(self, call: Call[OffsetCommitRequest], now: Instant) -> None:
        """Handle OffsetCommit, which is answered when the offsets are durable."""
        request = call.body
        group = self._shard.groups.get(request.group_id)
        consumers = self._shard.consumer_group(request.group_id)
        if consumers is not None:
            check_commit(
                consumers,
                request.member_id,
                request.generation_id_or_member_epoch,
                call.version,
                _partitions(request),
            )
        elif group is None:
            if request.generation_id_or_member_epoch >= 0:
                raise _unknown_group(call)
        else:
            _check_commit(request, group)
            self._note_life(request, group, now)
        response, records = self._decide_commit(request, now)
        if not records:
            self._shard.reply(call.token, response)
            return
        if group is None and consumers is None:
            self._shard.groups[request.group_id] = Group(request.group_id, created_ms=now.wall_ms)
        self._shard.append(records, now, partial(self._answer, call, response))

    def _note_life(self, request: OffsetCommitRequest, group: Group, now: Instant) -> None:
        if group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._rebalance.keep_alive(group, group.members[request.member_id], now)

    def _decide_commit(
        self, request: OffsetCommitRequest, now: Instant
    ) -> tuple[OffsetCommitResponse, list[OffsetRecord]]:
        expire_ms = NO_TIMESTAMP
        if request.retention_time_ms != _BROKER_RETENTION:
            expire_ms = min(now.wall_ms + request.retention_time_ms, _LATEST_MS)
        response = OffsetCommitResponse()
        records: list[OffsetRecord] = []
        for topic in request.topics:
            committed = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
            for item in topic.partitions:
                outcome = OffsetCommitResponsePartition(partition_index=item.partition_index)
                if is_too_large(item.committed_metadata or "", self._shard.settings):
                    outcome.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    records.append(
                        _commit_record(request.group_id, topic, item, now.wall_ms, expire_ms)
                    )
                committed.partitions.append(outcome)
            response.topics.append(committed)
        return response, records

    def _answer(
        self,
        call: Call[OffsetCommitRequest] | Call[OffsetDeleteRequest],
        response: OffsetCommitResponse | OffsetDeleteResponse,
        error: ErrorCode | None,
        _now: Instant,
    ) -> None:
        self._shard.reply(
            call.token, response if error is None else refused(call.body, coordinator_error(error))
        )

    # OffsetFetch.

    def fetch(
        self,
        wanted: OffsetFetchRequestGroup,
        *,
        require_stable: bool,
        now: Instant,
        deliver: Callable[[OffsetFetchResponseGroup], None],
    ) -> None:
        """Handle one group of an OffsetFetch: `deliver` its offsets, now or when stable."""
        self._check_fetch(wanted)
        append_id = self._shard.offsets.last_append(wanted.group_id) if require_stable else None
        if append_id is None:
            # What a new coordinator found above its high watermark may vanish with it; and it may
            # have been acknowledged, so the offset before it is no answer either.
            append_id = self._shard.unsettled_load
        if append_id is None:
            deliver(self._read(wanted, require_stable=require_stable))
            return
        self._shard.when_settled(
            append_id, now, partial(self._settled, wanted, require_stable, deliver)
        )

    def _settled(
        self,
        wanted: OffsetFetchRequestGroup,
        require_stable: bool,
        deliver: Callable[[OffsetFetchResponseGroup], None],
        error: ErrorCode | None,
        _now: Instant,
    ) -> None:
        if error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            # Consumers before 3.9 do not expect COORDINATOR_NOT_AVAILABLE here.
            deliver(fetch_refused(wanted, ErrorCode.NOT_COORDINATOR))
        else:
            # Durable or refused: either way nothing older is in flight, and this is stable.
            deliver(self._read(wanted, require_stable=require_stable))

    def _check_fetch(self, wanted: OffsetFetchRequestGroup) -> None:
        consumers = self._shard.consumer_groups.get(wanted.group_id)
        if consumers is not None and consumers.durable.exists:
            check_fetch(consumers, wanted.member_id, wanted.member_epoch)

    def _read(
        self, wanted: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        offsets = self._shard.offsets.committed(wanted.group_id)
        pending = self._shard.offsets.pending(wanted.group_id) if require_stable else frozenset()
        if wanted.topics is None:
            by_topic: dict[str, list[int]] = {}
            for topic_partition in offsets:
                by_topic.setdefault(topic_partition.topic, []).append(topic_partition.partition)
            topics = [
                OffsetFetchRequestTopics(name=topic, partition_indexes=sorted(partitions))
                for topic, partitions in sorted(by_topic.items())
            ]
        else:
            topics = wanted.topics
        return OffsetFetchResponseGroup(
            group_id=wanted.group_id,
            topics=[
                OffsetFetchResponseTopics(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        _unstable(at.partition)
                        if at in pending
                        else _fetched(topic, at.partition, offsets.get(at))
                        for at in (TopicPartition(topic.name, p) for p in topic.partition_indexes)
                    ],
                )
                for topic in topics
            ],
        )

    # OffsetDelete.

    def delete(self, call: Call[OffsetDeleteRequest], now: Instant) -> None:
        """Handle OffsetDelete, which is answered when the tombstones are durable."""
        request = call.body
        group = self._deletable(request.group_id)
        touched = self._shard.offsets.touched(request.group_id)
        response = OffsetDeleteResponse()
        records: list[OffsetRecord] = []
        for topic in request.topics:
            partitions = [item.partition_index for item in topic.partitions]
            error = ErrorCode.NONE
            if group.is_subscribed_to(topic.name):
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                records += [
                    OffsetRecord(request.group_id, topic_partition, None)
                    for partition in dict.fromkeys(partitions)
                    if (topic_partition := TopicPartition(topic.name, partition)) in touched
                ]
            outcomes = [
                OffsetDeleteResponsePartition(partition_index=partition, error_code=error)
                for partition in partitions
            ]
            response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=outcomes))
        if records:
            self._shard.append(records, now, partial(self._answer, call, response))
        else:
            self._shard.reply(call.token, response)

    def _deletable(self, group_id: str) -> Group | ConsumerGroup:
        consumers = self._shard.consumer_group(group_id)
        if consumers is not None:
            return consumers
        group = self._shard.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise no_group(group_id)
        if group.state is not GroupState.EMPTY and not group.uses_consumer_protocol:
            raise ProtocolError(ErrorCode.NON_EMPTY_GROUP)
        return group


def is_too_large(metadata: str, settings: GroupSettings) -> bool:
    """Whether a note is longer than may be stored with an offset."""
    return (
        _utf16_length(metadata) > settings.offset_metadata_max
        or len(metadata.encode()) > STRING_BYTES_MAX
    )


def fetch_refused(wanted: OffsetFetchRequestGroup, error: ErrorCode) -> OffsetFetchResponseGroup:
    """The part of an OffsetFetch answer that carries `error` for a group."""
    return OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=error)


def _unknown_group(call: Call[OffsetCommitRequest]) -> ProtocolError:
    if call.version >= _GROUP_ID_NOT_FOUND_SINCE:
        return no_group(call.body.group_id)
    return ProtocolError(ErrorCode.ILLEGAL_GENERATION)


def _partitions(request: OffsetCommitRequest) -> Iterator[tuple[TopicId, int]]:
    for topic in request.topics:
        for item in topic.partitions:
            yield topic.topic_id, item.partition_index


def _check_commit(request: OffsetCommitRequest, group: Group) -> None:
    """Refuse a commit by someone who may not, or may not now."""
    if group.state is GroupState.DEAD:
        raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    generation = request.generation_id_or_member_epoch
    if generation < 0 and group.state is GroupState.EMPTY:
        return  # an administrator, or a consumer that manages its partitions itself
    anonymous = (
        generation <= NO_GENERATION
        and request.member_id == NO_MEMBER_ID
        and request.group_instance_id is None
    )
    if anonymous:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    group.check_member(request.member_id, request.group_instance_id)
    if generation != group.generation:
        raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member knows the generation and not yet its assignment: it must sync first.
        raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)


def _commit_record(
    group_id: str,
    topic: OffsetCommitRequestTopic,
    item: OffsetCommitRequestPartition,
    now_ms: int,
    expire_ms: int,
) -> OffsetRecord:
    value = OffsetCommitValue(
        offset=item.committed_offset,
        leader_epoch=item.committed_leader_epoch,
        metadata=item.committed_metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=expire_ms,
        topic_id=topic.topic_id,
    )
    return OffsetRecord(group_id, TopicPartition(topic.name, item.partition_index), value)


def _fetched(
    topic: OffsetFetchRequestTopics, partition: int, committed: OffsetCommitValue | None
) -> OffsetFetchResponsePartitions:
    # An offset may belong to an earlier topic of the same name.
    if committed is None or (
        NO_TOPIC_ID not in (topic.topic_id, committed.topic_id)
        and topic.topic_id != committed.topic_id
    ):
        return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=NO_OFFSET)
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _unstable(partition: int) -> OffsetFetchResponsePartitions:
    """An open transaction may commit another offset for the partition (KIP-447)."""
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=NO_OFFSET,
        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )


def _utf16_length(text: str) -> int:
    """The length of a string as Java counts it."""
    return len(text) + sum(character > "\uffff" for character in text)
