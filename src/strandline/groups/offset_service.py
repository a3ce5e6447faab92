"""OffsetCommit, OffsetFetch and OffsetDelete for the groups of one shard.

Commits become readable when they are durable. A commit comes from a member, with its generation, or
from anyone while the group has no members: that makes a *simple* group, without a protocol type. A
fetch tells durable offsets; with `require_stable` it waits for what is in flight at that time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.group import Group, GroupState, no_group
from strandline.groups.offset_records import CommittedOffset, OffsetKey, OffsetRecord
from strandline.groups.offset_requests import (
    BROKER_RETENTION,
    FetchedOffset,
    GroupFetch,
    GroupOffsets,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    PartitionCommit,
    TopicCommit,
    TopicErrors,
    TopicFetch,
    TopicOffsets,
)
from strandline.groups.rebalance import Rebalance
from strandline.groups.requests import NO_GENERATION, NO_MEMBER_ID
from strandline.groups.shard import Shard, coordinator_error
from strandline.groups.wire import STRING_BYTES_MAX, utf16_length
from strandline.types import NO_TIMESTAMP, NO_TOPIC_ID, Instant, TopicPartition

_GROUP_ID_NOT_FOUND_SINCE = 9
"""The version of OffsetCommit from which on an unknown group has an error of its own."""


class OffsetService:
    """Handles what is asked about the offsets of one shard's groups."""

    def __init__(self, shard: Shard, rebalance: Rebalance) -> None:
        self._shard = shard
        self._rebalance = rebalance

    # OffsetCommit.

    def commit(self, request: OffsetCommitRequest, now: Instant) -> None:
        """Handle OffsetCommit, which is answered when the offsets are durable."""
        group = self._shard.groups.get(request.group_id)
        if group is None:
            if request.generation >= 0:
                raise _unknown_group(request)
        else:
            _check_commit(request, group)
            self._note_life(request, group, now)
        response, records = self._decide_commit(request, now)
        if not records:
            self._shard.reply(request.token, response)
            return
        if group is None:
            self._shard.groups[request.group_id] = Group(request.group_id, created_ms=now.wall_ms)
        self._shard.append(records, now, partial(self._committed, request, response))

    def _note_life(self, request: OffsetCommitRequest, group: Group, now: Instant) -> None:
        if group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._rebalance.keep_alive(group, group.members[request.member_id], now)

    def _decide_commit(
        self, request: OffsetCommitRequest, now: Instant
    ) -> tuple[OffsetCommitResponse, list[OffsetRecord]]:
        expire_ms = NO_TIMESTAMP
        if request.retention_ms != BROKER_RETENTION:
            expire_ms = now.wall_ms + request.retention_ms
        topics: list[TopicErrors] = []
        records: list[OffsetRecord] = []
        for topic in request.topics:
            errors = []
            for commit in topic.partitions:
                error = ErrorCode.NONE
                if self._is_too_large(commit.metadata or ""):
                    error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    records.append(
                        _commit_record(request.group_id, topic, commit, now.wall_ms, expire_ms)
                    )
                errors.append((commit.partition, error))
            topics.append(TopicErrors(topic.topic, tuple(errors), topic.topic_id))
        return OffsetCommitResponse(tuple(topics)), records

    def _is_too_large(self, metadata: str) -> bool:
        return (
            utf16_length(metadata) > self._shard.settings.offset_metadata_max
            or len(metadata.encode()) > STRING_BYTES_MAX
        )

    def _committed(
        self,
        request: OffsetCommitRequest,
        response: OffsetCommitResponse,
        error: ErrorCode | None,
        _now: Instant,
    ) -> None:
        refused = None if error is None else request.refused(coordinator_error(error))
        self._shard.reply(request.token, refused or response)

    # OffsetFetch.

    def fetch(
        self,
        wanted: GroupFetch,
        *,
        require_stable: bool,
        now: Instant,
        deliver: Callable[[GroupOffsets], None],
    ) -> None:
        """Handle one group of an OffsetFetch: `deliver` its offsets, now or when stable."""
        append_id = self._shard.offsets.last_append(wanted.group_id) if require_stable else None
        if append_id is None:
            # What a new coordinator found above its high watermark may vanish with it; and it may
            # have been acknowledged, so the offset before it is no answer either.
            append_id = self._shard.unsettled_load
        if append_id is None:
            deliver(self._read(wanted))
            return
        self._shard.when_settled(append_id, now, partial(self._settled, wanted, deliver))

    def _settled(
        self,
        wanted: GroupFetch,
        deliver: Callable[[GroupOffsets], None],
        error: ErrorCode | None,
        _now: Instant,
    ) -> None:
        if error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            # Consumers before 3.9 do not expect COORDINATOR_NOT_AVAILABLE here.
            deliver(wanted.refused(ErrorCode.NOT_COORDINATOR))
        else:
            # Durable or refused: either way nothing older is in flight, and this is stable.
            deliver(self._read(wanted))

    def _read(self, wanted: GroupFetch) -> GroupOffsets:
        offsets = self._shard.offsets.committed(wanted.group_id)
        if wanted.topics is None:
            by_topic: dict[str, list[int]] = {}
            for topic_partition in offsets:
                by_topic.setdefault(topic_partition.topic, []).append(topic_partition.partition)
            topics = tuple(
                TopicFetch(topic, tuple(sorted(partitions)))
                for topic, partitions in sorted(by_topic.items())
            )
        else:
            topics = wanted.topics
        return GroupOffsets(
            wanted.group_id,
            tuple(
                TopicOffsets(
                    topic.topic,
                    tuple(
                        _fetched(
                            topic, partition, offsets.get(TopicPartition(topic.topic, partition))
                        )
                        for partition in topic.partitions
                    ),
                    topic.topic_id,
                )
                for topic in topics
            ),
        )

    # OffsetDelete.

    def delete(self, request: OffsetDeleteRequest, now: Instant) -> None:
        """Handle OffsetDelete, which is answered when the tombstones are durable."""
        group = self._shard.groups.get(request.group_id)
        if group is None or group.state is GroupState.DEAD:
            raise no_group(request.group_id)
        if group.state is not GroupState.EMPTY and not group.uses_consumer_protocol:
            raise ProtocolError(ErrorCode.NON_EMPTY_GROUP)
        touched = self._shard.offsets.touched(request.group_id)
        topics: list[TopicErrors] = []
        records: list[OffsetRecord] = []
        for topic, partitions in request.topics:
            error = ErrorCode.NONE
            if group.is_subscribed_to(topic):
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                records += [
                    OffsetRecord(OffsetKey(request.group_id, topic_partition), None)
                    for partition in dict.fromkeys(partitions)
                    if (topic_partition := TopicPartition(topic, partition)) in touched
                ]
            topics.append(TopicErrors(topic, tuple((partition, error) for partition in partitions)))
        response = OffsetDeleteResponse(topics=tuple(topics))
        if records:
            self._shard.append(records, now, partial(self._deleted, request, response))
        else:
            self._shard.reply(request.token, response)

    def _deleted(
        self,
        request: OffsetDeleteRequest,
        response: OffsetDeleteResponse,
        error: ErrorCode | None,
        _now: Instant,
    ) -> None:
        refused = None if error is None else request.refused(coordinator_error(error))
        self._shard.reply(request.token, refused or response)


def _unknown_group(request: OffsetCommitRequest) -> ProtocolError:
    if request.version >= _GROUP_ID_NOT_FOUND_SINCE:
        return no_group(request.group_id)
    return ProtocolError(ErrorCode.ILLEGAL_GENERATION)


def _check_commit(request: OffsetCommitRequest, group: Group) -> None:
    """Refuse a commit by someone who may not, or may not now."""
    if group.state is GroupState.DEAD:
        raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if request.generation < 0 and group.state is GroupState.EMPTY:
        return  # an administrator, or a consumer that manages its partitions itself
    anonymous = (
        request.generation <= NO_GENERATION
        and request.member_id == NO_MEMBER_ID
        and request.group_instance_id is None
    )
    if anonymous:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation != group.generation:
        raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member knows the generation and not yet its assignment: it must sync first.
        raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)


def _commit_record(
    group_id: str, topic: TopicCommit, commit: PartitionCommit, now_ms: int, expire_ms: int
) -> OffsetRecord:
    value = CommittedOffset(
        offset=commit.offset,
        leader_epoch=commit.leader_epoch,
        metadata=commit.metadata or "",
        commit_timestamp_ms=now_ms,
        expire_timestamp_ms=expire_ms,
        topic_id=topic.topic_id,
    )
    key = OffsetKey(group_id, TopicPartition(topic.topic, commit.partition))
    return OffsetRecord(key, value)


def _fetched(topic: TopicFetch, partition: int, committed: CommittedOffset | None) -> FetchedOffset:
    if committed is None:
        return FetchedOffset(partition)
    if NO_TOPIC_ID not in (topic.topic_id, committed.topic_id) and (
        topic.topic_id != committed.topic_id
    ):
        return FetchedOffset(partition)  # it belongs to an earlier topic of the same name
    return FetchedOffset(partition, committed.offset, committed.leader_epoch, committed.metadata)
