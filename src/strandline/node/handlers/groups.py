"""The APIs of consumer groups: from the wire to the coordinator's requests.

What a request means is the coordinator's affair; this file knows how versions say it, and checks
what the coordinator cannot: whether topics exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.cluster.controller import Refusal
from strandline.cluster.topic_names import CONSUMER_OFFSETS
from strandline.errors import ErrorCode
from strandline.groups.admin_requests import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from strandline.groups.offset_requests import (
    GroupFetch,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    PartitionCommit,
    TopicCommit,
    TopicErrors,
    TopicFetch,
)
from strandline.groups.requests import (
    HeartbeatRequest,
    JoinProtocol,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    SyncRequest,
)
from strandline.node.group_answers import CommitCall, DeleteCall, FetchCall
from strandline.node.group_host import GroupHost
from strandline.node.metadata import Metadata
from strandline.node.request import Request
from strandline.node.topic_creation import TopicCreation
from strandline.protocol.messages import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from strandline.types import NO_OFFSET, Instant, LeaderEpoch, Offset

_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1
_MANY_KEYS_SINCE: Final = 4
_TOPIC_IDS_SINCE: Final = 10


class FindCoordinatorHandler:
    """Answers FindCoordinator, versions 0 to 6; creates `__consumer_offsets` at its first use."""

    def __init__(self, metadata: Metadata, groups: GroupHost, creation: TopicCreation) -> None:
        self._metadata = metadata
        self._groups = groups
        self._creation = creation

    def handle(
        self, request: Request[find_coordinator.FindCoordinatorRequest], now: Instant
    ) -> None:
        """Tell which broker coordinates each group."""
        body = request.body
        if body.key_type != _GROUP_KEY or CONSUMER_OFFSETS in self._metadata.image.topics:
            self._reply(request)
            return

        def created(refused: dict[str, Refusal], at: Instant) -> None:
            del at
            self._reply(request, refused.get(CONSUMER_OFFSETS))

        self._creation.ensure([CONSUMER_OFFSETS], created, now)

    def _reply(
        self,
        request: Request[find_coordinator.FindCoordinatorRequest],
        refusal: Refusal | None = None,
    ) -> None:
        """`refusal` tells why the topic of the groups could not be made."""
        body, listener = request.body, request.connection.listener
        if request.version >= _MANY_KEYS_SINCE:
            request.reply(
                find_coordinator.FindCoordinatorResponse(
                    coordinators=[
                        self._find(body.key_type, key, listener, refusal)
                        for key in body.coordinator_keys
                    ]
                )
            )
            return
        found = self._find(body.key_type, body.key, listener, refusal)
        request.reply(
            find_coordinator.FindCoordinatorResponse(
                error_code=found.error_code,
                error_message=found.error_message,
                node_id=found.node_id,
                host=found.host,
                port=found.port,
            )
        )

    def _find(
        self, key_type: int, key: str, listener: str, refusal: Refusal | None
    ) -> find_coordinator.Coordinator:
        answer = find_coordinator.Coordinator(key=key, node_id=-1, port=-1, error_message=None)
        if key_type == _TRANSACTION_KEY:
            answer.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            answer.error_message = "Transactions are not served by this version of Strandline."
            return answer
        if key_type != _GROUP_KEY:
            answer.error_code = ErrorCode.INVALID_REQUEST
            answer.error_message = f"There is no coordinator for keys of type {key_type}."
            return answer
        image = self._metadata.image
        topic = image.topics.get(CONSUMER_OFFSETS)
        partition = topic and topic.partitions.get(self._groups.partition_for(key))
        broker = image.brokers.get(partition.leader) if partition else None
        if broker is None:
            answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if partition is not None:
                answer.error_message = "The partition that holds the group has no leader."
            elif refusal is not None:
                answer.error_message = (
                    f"The topic {CONSUMER_OFFSETS} could not be made: {refusal.message}"
                )
            else:
                answer.error_message = f"The topic {CONSUMER_OFFSETS} is not ready yet."
            return answer
        endpoint = broker.endpoint_for(listener)
        answer.node_id, answer.host, answer.port = broker.broker_id, endpoint.host, endpoint.port
        return answer


class MembershipHandler:
    """Answers JoinGroup, SyncGroup, Heartbeat and LeaveGroup in all their versions."""

    def __init__(self, groups: GroupHost) -> None:
        self._groups = groups

    def join(self, request: Request[join_group.JoinGroupRequest], now: Instant) -> None:
        """Become a member."""
        body = request.body
        asked = JoinRequest(
            token=request,
            version=request.version,
            group_id=body.group_id,
            member_id=body.member_id,
            group_instance_id=body.group_instance_id,
            client_id=request.client_id or "",
            client_host=f"/{request.connection.client_host}",
            session_timeout_ms=body.session_timeout_ms,
            rebalance_timeout_ms=body.rebalance_timeout_ms,
            protocol_type=body.protocol_type,
            protocols=tuple(JoinProtocol(item.name, item.metadata) for item in body.protocols),
            reason=body.reason,
        )
        self._groups.ask(asked, now)

    def sync(self, request: Request[sync_group.SyncGroupRequest], now: Instant) -> None:
        """Bring or fetch the assignment."""
        body = request.body
        if request.version >= 5 and (body.protocol_type is None or body.protocol_name is None):
            request.reply(
                sync_group.SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            )
            return
        asked = SyncRequest(
            token=request,
            group_id=body.group_id,
            generation=body.generation_id,
            member_id=body.member_id,
            group_instance_id=body.group_instance_id,
            protocol_type=body.protocol_type,
            protocol_name=body.protocol_name,
            assignments=tuple((item.member_id, item.assignment) for item in body.assignments),
        )
        self._groups.ask(asked, now)

    def heartbeat(self, request: Request[heartbeat.HeartbeatRequest], now: Instant) -> None:
        """Say that a member lives."""
        body = request.body
        asked = HeartbeatRequest(
            token=request,
            group_id=body.group_id,
            generation=body.generation_id,
            member_id=body.member_id,
            group_instance_id=body.group_instance_id,
        )
        self._groups.ask(asked, now)

    def leave(self, request: Request[leave_group.LeaveGroupRequest], now: Instant) -> None:
        """Say that members go."""
        body = request.body
        members = tuple(
            LeavingMember(item.member_id, item.group_instance_id, item.reason)
            for item in body.members
        )
        if request.version < 3:
            members = (LeavingMember(body.member_id),)
        self._groups.ask(LeaveRequest(request, body.group_id, members), now)


class OffsetsHandler:
    """Answers OffsetCommit, OffsetFetch and OffsetDelete."""

    def __init__(self, groups: GroupHost, metadata: Metadata) -> None:
        self._groups = groups
        self._metadata = metadata

    def commit(self, request: Request[offset_commit.OffsetCommitRequest], now: Instant) -> None:
        """Store offsets of topics that exist; refuse the others one by one."""
        body, image = request.body, self._metadata.image
        response = offset_commit.OffsetCommitResponse()
        topics: list[TopicCommit] = []
        for asked in body.topics:
            by_id = request.version >= _TOPIC_IDS_SINCE
            topic = image.topic_by_id(asked.topic_id) if by_id else image.topics.get(asked.name)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused = offset_commit.OffsetCommitResponseTopic(
                name=asked.name, topic_id=asked.topic_id
            )
            commits: list[PartitionCommit] = []
            for item in asked.partitions:
                if topic is None or item.partition_index not in topic.partitions:
                    refused.partitions.append(
                        offset_commit.OffsetCommitResponsePartition(
                            partition_index=item.partition_index,
                            error_code=(
                                unknown if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                            ),
                        )
                    )
                    continue
                commits.append(
                    PartitionCommit(
                        item.partition_index,
                        Offset(item.committed_offset),
                        LeaderEpoch(item.committed_leader_epoch),
                        item.committed_metadata,
                    )
                )
            if refused.partitions:
                response.topics.append(refused)
            if topic is not None and commits:
                topics.append(TopicCommit(topic.name, tuple(commits), topic.topic_id))
        if not topics:
            request.reply(response)
            return
        self._groups.ask(
            OffsetCommitRequest(
                token=CommitCall(request, response),
                version=request.version,
                group_id=body.group_id,
                topics=tuple(topics),
                generation=body.generation_id_or_member_epoch,
                member_id=body.member_id,
                group_instance_id=body.group_instance_id,
                retention_ms=body.retention_time_ms,
            ),
            now,
        )

    def fetch(self, request: Request[offset_fetch.OffsetFetchRequest], now: Instant) -> None:
        """Look up committed offsets of one or several groups."""
        body = request.body
        early: list[list[offset_fetch.OffsetFetchResponseTopics]] = [[] for _ in body.groups]
        if request.version >= 8:
            groups = tuple(
                GroupFetch(
                    asked.group_id,
                    None
                    if asked.topics is None
                    else tuple(self._wanted(request.version, asked.topics, refused)),
                )
                for asked, refused in zip(body.groups, early, strict=True)
            )
        else:
            topics = body.topics
            groups = (
                GroupFetch(
                    body.group_id,
                    None
                    if topics is None
                    else tuple(
                        TopicFetch(topic.name, tuple(topic.partition_indexes)) for topic in topics
                    ),
                ),
            )
        token = FetchCall(request, early, self._metadata)
        self._groups.ask(OffsetFetchRequest(token, groups, body.require_stable), now)

    def _wanted(
        self,
        version: int,
        topics: list[offset_fetch.OffsetFetchRequestTopics],
        refused: list[offset_fetch.OffsetFetchResponseTopics],
    ) -> Iterator[TopicFetch]:
        """The topics by name; those whose id is unknown are refused at once."""
        for asked in topics:
            if version < _TOPIC_IDS_SINCE:
                yield TopicFetch(asked.name, tuple(asked.partition_indexes))
                continue
            topic = self._metadata.image.topic_by_id(asked.topic_id)
            if topic is not None:
                yield TopicFetch(topic.name, tuple(asked.partition_indexes), asked.topic_id)
                continue
            refused.append(
                offset_fetch.OffsetFetchResponseTopics(
                    topic_id=asked.topic_id,
                    partitions=[
                        offset_fetch.OffsetFetchResponsePartitions(
                            partition_index=partition,
                            committed_offset=NO_OFFSET,
                            metadata="",
                            error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                        )
                        for partition in asked.partition_indexes
                    ],
                )
            )

    def delete(self, request: Request[offset_delete.OffsetDeleteRequest], now: Instant) -> None:
        """Forget committed offsets. Of what does not exist the group is not asked."""
        body = request.body
        early: list[TopicErrors] = []
        topics: list[tuple[str, tuple[int, ...]]] = []
        for asked in body.topics:
            topic = self._metadata.image.topics.get(asked.name)
            known = frozenset() if topic is None else topic.partitions.keys()
            numbers = [item.partition_index for item in asked.partitions]
            unknown = tuple(
                (number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                for number in numbers
                if number not in known
            )
            if unknown:
                early.append(TopicErrors(asked.name, unknown))
            if rest := tuple(number for number in numbers if number in known):
                topics.append((asked.name, rest))
        call = DeleteCall(request, tuple(early))
        self._groups.ask(OffsetDeleteRequest(call, body.group_id, tuple(topics)), now)


class GroupAdminHandler:
    """Answers ListGroups, DescribeGroups and DeleteGroups."""

    def __init__(self, groups: GroupHost) -> None:
        self._groups = groups

    def list(self, request: Request[list_groups.ListGroupsRequest], now: Instant) -> None:
        """List groups by state and type."""
        body = request.body
        asked = ListGroupsRequest(
            request, frozenset(body.states_filter), frozenset(body.types_filter)
        )
        self._groups.ask(asked, now)

    def describe(
        self, request: Request[describe_groups.DescribeGroupsRequest], now: Instant
    ) -> None:
        """Describe groups with their members."""
        asked = DescribeGroupsRequest(request, request.version, tuple(request.body.groups))
        self._groups.ask(asked, now)

    def delete(self, request: Request[delete_groups.DeleteGroupsRequest], now: Instant) -> None:
        """Delete groups that have no members."""
        self._groups.ask(DeleteGroupsRequest(request, tuple(request.body.groups_names)), now)
