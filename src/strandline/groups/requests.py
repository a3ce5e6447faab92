"""What the coordinator is asked: a message of the protocol, and what it must know beside it.

The messages are those of `protocol.messages`, in the form of their newest versions: LeaveGroup has
a list of members, OffsetFetch one of groups. What older versions say otherwise is the node's to
bring into that form, as is whether topics exist, and who may touch them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar, assert_never

from strandline.errors import ErrorCode
from strandline.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from strandline.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from strandline.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from strandline.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from strandline.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from strandline.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from strandline.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from strandline.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from strandline.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from strandline.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from strandline.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from strandline.protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from strandline.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from strandline.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from strandline.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from strandline.protocol.messages.write_txn_markers import WritableTxnMarkerPartitionResult

Token: TypeAlias = Hashable

NO_MEMBER_ID = ""
"""The member id of a client that has not been given one yet."""
NO_GENERATION = -1

GroupRequest: TypeAlias = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | OffsetCommitRequest
    | OffsetDeleteRequest
    | TxnOffsetCommitRequest
    | ConsumerGroupHeartbeatRequest
    | ShareGroupHeartbeatRequest
)
"""Requests about one group."""

Request: TypeAlias = (
    GroupRequest
    | OffsetFetchRequest
    | ListGroupsRequest
    | DescribeGroupsRequest
    | DeleteGroupsRequest
    | ConsumerGroupDescribeRequest
    | ShareGroupDescribeRequest
)

Response: TypeAlias = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | OffsetDeleteResponse
    | TxnOffsetCommitResponse
    | WritableTxnMarkerPartitionResult
    | ListGroupsResponse
    | DescribeGroupsResponse
    | DeleteGroupsResponse
    | ConsumerGroupHeartbeatResponse
    | ConsumerGroupDescribeResponse
    | ShareGroupHeartbeatResponse
    | ShareGroupDescribeResponse
)

Body = TypeVar("Body", covariant=True)


def every_topic(_: str) -> bool:
    """Without an authorizer a member may see every topic."""
    return True


@dataclass(frozen=True, slots=True, eq=False)
class Call(Generic[Body]):
    """One request to the coordinator.

    `token` is hashable, unique among unanswered requests, and returned untouched with the one
    answer. `version` is the API version, where the rules themselves depend on it.
    """

    token: Token
    version: int
    body: Body
    client_id: str = ""
    client_host: str = ""
    guard: int = 0
    """Of a TxnOffsetCommit: what the log wants to see of a verified transaction."""
    may_see: Callable[[str], bool] = every_topic
    """Of a ConsumerGroupHeartbeat: whether the member may know that a topic exists."""


def refused(request: GroupRequest, error: ErrorCode, message: str = "") -> Response:
    """The answer that carries `error`, and the sentence where it has a place."""
    match request:
        case JoinGroupRequest():
            outsider = error is ErrorCode.GROUP_MAX_SIZE_REACHED
            member_id = NO_MEMBER_ID if outsider else request.member_id
            return JoinGroupResponse(error_code=error, member_id=member_id)
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=error)
        case HeartbeatRequest():
            # While the group is loading, any heartbeat is fine.
            loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error)
        case LeaveGroupRequest():
            return _leave_refused(request, error)
        case OffsetCommitRequest():
            return OffsetCommitResponse(
                topics=[
                    OffsetCommitResponseTopic(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            OffsetCommitResponsePartition(
                                partition_index=item.partition_index, error_code=error
                            )
                            for item in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        case TxnOffsetCommitRequest():
            return TxnOffsetCommitResponse(
                topics=[
                    TxnOffsetCommitResponseTopic(
                        name=topic.name,
                        partitions=[
                            TxnOffsetCommitResponsePartition(
                                partition_index=item.partition_index, error_code=error
                            )
                            for item in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        case ConsumerGroupHeartbeatRequest():
            return ConsumerGroupHeartbeatResponse(error_code=error, error_message=message or None)
        case ShareGroupHeartbeatRequest():
            return ShareGroupHeartbeatResponse(error_code=error, error_message=message or None)
        case OffsetDeleteRequest():
            return OffsetDeleteResponse(error_code=error)
        case _:
            assert_never(request)


def _leave_refused(request: LeaveGroupRequest, error: ErrorCode) -> LeaveGroupResponse:
    """An unknown group is every member's own error."""
    if error is not ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=error)
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=leaving.member_id,
                group_instance_id=leaving.group_instance_id,
                error_code=error,
            )
            for leaving in request.members
        ]
    )
