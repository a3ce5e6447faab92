"""The APIs of consumer groups: what is to be done before and after the coordinator.

What a request means is the coordinator's affair, in the words of the newest versions; this file
knows how older ones say it, and checks what the coordinator cannot: whether topics exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from strandline.errors import ErrorCode
from strandline.node.group_host import GroupHost
from strandline.node.handlers.authorized import GROUP_OPERATIONS
from strandline.node.metadata import Metadata
from strandline.node.request import Request
from strandline.protocol.messages import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from strandline.types import NO_OFFSET, Instant

_MANY_LEAVE_SINCE: Final = 3
_MANY_GROUPS_SINCE: Final = 8
_GROUP_ERROR_SINCE: Final = 2
_NULL_PROTOCOL_SINCE: Final = 7
_PROTOCOL_REQUIRED_SINCE: Final = 5
_TOPIC_IDS_SINCE: Final = 10


class MembershipHandler:
    """Answers JoinGroup, SyncGroup, Heartbeat and LeaveGroup in all their versions."""

    def __init__(self, groups: GroupHost) -> None:
        self._groups = groups

    def join(self, request: Request[join_group.JoinGroupRequest], now: Instant) -> None:
        """Become a member."""
        complete = _without_null if request.version < _NULL_PROTOCOL_SINCE else None
        self._groups.ask(request, now, complete=complete)

    def sync(self, request: Request[sync_group.SyncGroupRequest], now: Instant) -> None:
        """Bring or fetch the assignment."""
        body = request.body
        if request.version >= _PROTOCOL_REQUIRED_SINCE and (
            body.protocol_type is None or body.protocol_name is None
        ):
            request.reply(
                sync_group.SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            )
            return
        self._groups.ask(request, now)

    def heartbeat(self, request: Request[heartbeat.HeartbeatRequest], now: Instant) -> None:
        """Say that a member lives."""
        self._groups.ask(request, now)

    def leave(self, request: Request[leave_group.LeaveGroupRequest], now: Instant) -> None:
        """Say that members go."""
        if request.version >= _MANY_LEAVE_SINCE:
            self._groups.ask(request, now)
            return
        body = leave_group.LeaveGroupRequest(
            group_id=request.body.group_id,
            members=[leave_group.MemberIdentity(member_id=request.body.member_id)],
        )
        self._groups.ask(request, now, body=body, complete=_one_left)


def _without_null(response: join_group.JoinGroupResponse) -> join_group.JoinGroupResponse:
    response.protocol_name = response.protocol_name or ""
    return response


def _one_left(response: leave_group.LeaveGroupResponse) -> leave_group.LeaveGroupResponse:
    error = response.error_code
    if error == ErrorCode.NONE and response.members:
        error = response.members[0].error_code
    return leave_group.LeaveGroupResponse(error_code=error)


class OffsetsHandler:
    """Answers OffsetCommit, OffsetFetch and OffsetDelete."""

    def __init__(self, groups: GroupHost, metadata: Metadata) -> None:
        self._groups = groups
        self._metadata = metadata

    def commit(self, request: Request[offset_commit.OffsetCommitRequest], now: Instant) -> None:
        """Store offsets of topics that exist; refuse the others one by one."""
        body, image = request.body, self._metadata.image
        early: list[offset_commit.OffsetCommitResponseTopic] = []
        topics: list[offset_commit.OffsetCommitRequestTopic] = []
        for asked in body.topics:
            by_id = request.version >= _TOPIC_IDS_SINCE
            topic = image.topic_by_id(asked.topic_id) if by_id else image.topics.get(asked.name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if by_id and topic is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            known = frozenset() if topic is None else topic.partitions.keys()
            refused = [
                offset_commit.OffsetCommitResponsePartition(
                    partition_index=item.partition_index, error_code=error
                )
                for item in asked.partitions
                if item.partition_index not in known
            ]
            if refused:
                early.append(
                    offset_commit.OffsetCommitResponseTopic(
                        name=asked.name, topic_id=asked.topic_id, partitions=refused
                    )
                )
            items = [item for item in asked.partitions if item.partition_index in known]
            if topic is not None and items:
                topics.append(
                    offset_commit.OffsetCommitRequestTopic(
                        name=topic.name, topic_id=topic.topic_id, partitions=items
                    )
                )

        def complete(
            response: offset_commit.OffsetCommitResponse,
        ) -> offset_commit.OffsetCommitResponse:
            response.topics = early + response.topics
            return response

        if topics:
            body.topics = topics
            self._groups.ask(request, now, complete=complete)
        else:
            request.reply(offset_commit.OffsetCommitResponse(topics=early))

    def fetch(self, request: Request[offset_fetch.OffsetFetchRequest], now: Instant) -> None:
        """Look up committed offsets of one or several groups."""
        body = request.body
        if request.version < _MANY_GROUPS_SINCE:
            topics = (
                None
                if body.topics is None
                else [
                    offset_fetch.OffsetFetchRequestTopics(
                        name=topic.name, partition_indexes=topic.partition_indexes
                    )
                    for topic in body.topics
                ]
            )
            group = offset_fetch.OffsetFetchRequestGroup(group_id=body.group_id, topics=topics)
            self._groups.ask(
                request,
                now,
                body=offset_fetch.OffsetFetchRequest(
                    groups=[group], require_stable=body.require_stable
                ),
                complete=partial(one_group, request),
            )
            return
        if request.version < _TOPIC_IDS_SINCE:
            self._groups.ask(request, now)
            return
        early: list[list[offset_fetch.OffsetFetchResponseTopics]] = [[] for _ in body.groups]
        for wanted, refused in zip(body.groups, early, strict=True):
            if wanted.topics is not None:
                wanted.topics = list(self._known(wanted.topics, refused))
        self._groups.ask(request, now, complete=partial(self._with_topic_ids, early))

    def _known(
        self,
        topics: list[offset_fetch.OffsetFetchRequestTopics],
        refused: list[offset_fetch.OffsetFetchResponseTopics],
    ) -> Iterator[offset_fetch.OffsetFetchRequestTopics]:
        """The topics with their names; those whose id is unknown are refused at once."""
        for asked in topics:
            topic = self._metadata.image.topic_by_id(asked.topic_id)
            if topic is not None:
                asked.name = topic.name
                yield asked
                continue
            refused.append(
                offset_fetch.OffsetFetchResponseTopics(
                    topic_id=asked.topic_id,
                    partitions=[
                        offset_fetch.OffsetFetchResponsePartitions(
                            partition_index=partition,
                            committed_offset=NO_OFFSET,
                            error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                        )
                        for partition in asked.partition_indexes
                    ],
                )
            )

    def _with_topic_ids(
        self,
        early: list[list[offset_fetch.OffsetFetchResponseTopics]],
        response: offset_fetch.OffsetFetchResponse,
    ) -> offset_fetch.OffsetFetchResponse:
        """What was refused before, and of the rest the topics that there are now."""
        topics = self._metadata.image.topics
        for group, refused in zip(response.groups, early, strict=True):
            found = [topic for topic in group.topics if topic.name in topics]
            for topic in found:
                topic.topic_id = topics[topic.name].topic_id
            group.topics = refused + found
        return response

    def delete(self, request: Request[offset_delete.OffsetDeleteRequest], now: Instant) -> None:
        """Forget committed offsets. Of what does not exist the group is not asked."""
        body, image = request.body, self._metadata.image
        early: list[offset_delete.OffsetDeleteResponseTopic] = []
        topics: list[offset_delete.OffsetDeleteRequestTopic] = []
        for asked in body.topics:
            topic = image.topics.get(asked.name)
            known = frozenset() if topic is None else topic.partitions.keys()
            refused = [
                offset_delete.OffsetDeleteResponsePartition(
                    partition_index=item.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
                for item in asked.partitions
                if item.partition_index not in known
            ]
            if refused:
                early.append(
                    offset_delete.OffsetDeleteResponseTopic(name=asked.name, partitions=refused)
                )
            asked.partitions = [item for item in asked.partitions if item.partition_index in known]
            if asked.partitions:
                topics.append(asked)
        body.topics = topics
        self._groups.ask(request, now, complete=partial(_with_refused, early))


def one_group(
    request: Request[offset_fetch.OffsetFetchRequest], response: offset_fetch.OffsetFetchResponse
) -> offset_fetch.OffsetFetchResponse:
    """Up to version 7 there is one group; up to version 1 even its error is each partition's."""
    [group] = response.groups
    topics = [
        offset_fetch.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                offset_fetch.OffsetFetchResponsePartition(
                    partition_index=item.partition_index,
                    committed_offset=item.committed_offset,
                    committed_leader_epoch=item.committed_leader_epoch,
                    metadata=item.metadata,
                    error_code=item.error_code,
                )
                for item in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    if group.error_code != ErrorCode.NONE and request.version < _GROUP_ERROR_SINCE:
        topics = [
            offset_fetch.OffsetFetchResponseTopic(
                name=asked.name,
                partitions=[
                    offset_fetch.OffsetFetchResponsePartition(
                        partition_index=partition,
                        committed_offset=NO_OFFSET,
                        error_code=group.error_code,
                    )
                    for partition in asked.partition_indexes
                ],
            )
            for asked in request.body.topics or ()
        ]
    return offset_fetch.OffsetFetchResponse(topics=topics, error_code=group.error_code)


def _with_refused(
    early: list[offset_delete.OffsetDeleteResponseTopic],
    response: offset_delete.OffsetDeleteResponse,
) -> offset_delete.OffsetDeleteResponse:
    """Each topic once, with what was refused before; an error is about the request as a whole."""
    decided: dict[str, list[offset_delete.OffsetDeleteResponsePartition]] = {}
    if response.error_code == ErrorCode.NONE:
        for topic in early + response.topics:
            decided.setdefault(topic.name, []).extend(topic.partitions)
    response.topics = [
        offset_delete.OffsetDeleteResponseTopic(name=name, partitions=partitions)
        for name, partitions in decided.items()
    ]
    return response


class GroupAdminHandler:
    """Answers ListGroups, DescribeGroups and DeleteGroups."""

    def __init__(self, groups: GroupHost) -> None:
        self._groups = groups

    def list(self, request: Request[list_groups.ListGroupsRequest], now: Instant) -> None:
        """List groups by state and type."""
        self._groups.ask(request, now)

    def describe(
        self, request: Request[describe_groups.DescribeGroupsRequest], now: Instant
    ) -> None:
        """Describe groups with their members."""
        complete = _with_operations if request.body.include_authorized_operations else None
        self._groups.ask(request, now, complete=complete)

    def delete(self, request: Request[delete_groups.DeleteGroupsRequest], now: Instant) -> None:
        """Delete groups that have no members."""
        # A session that has ended counts as ended before its timer has fired. What members ask is
        # served before their timers: a heartbeat that came in time counts.
        self._groups.catch_up(now)
        self._groups.ask(request, now)


def _with_operations(
    response: describe_groups.DescribeGroupsResponse,
) -> describe_groups.DescribeGroupsResponse:
    for group in response.groups:
        if group.error_code == ErrorCode.NONE:
            group.authorized_operations = GROUP_OPERATIONS
    return response
