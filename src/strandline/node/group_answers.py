"""The group coordinator's responses in the words of the wire protocol, version by version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_never

from strandline.errors import ErrorCode, InvariantViolated
from strandline.groups.admin_requests import (
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsResponse,
    ListGroupsResponse,
)
from strandline.groups.effects import Response
from strandline.groups.offset_requests import (
    GroupOffsets,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
    TopicErrors,
)
from strandline.groups.requests import (
    HeartbeatResponse,
    JoinResponse,
    LeaveResponse,
    SyncResponse,
    Token,
)
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
from strandline.types import NO_EPOCH, NO_OFFSET

_MANY_GROUPS_SINCE = 8
_GROUP_ERROR_SINCE = 2
_MANY_LEAVE_SINCE = 3
_NULL_PROTOCOL_SINCE = 7
_TOPIC_IDS_SINCE = 10


@dataclass(frozen=True, slots=True, eq=False)
class CommitCall:
    """An OffsetCommit of which some partitions were refused before the coordinator was asked."""

    request: Request[offset_commit.OffsetCommitRequest]
    early: offset_commit.OffsetCommitResponse


@dataclass(frozen=True, slots=True, eq=False)
class FetchCall:
    """An OffsetFetch; `early` are topics refused before, for each group of the request."""

    request: Request[offset_fetch.OffsetFetchRequest]
    early: list[list[offset_fetch.OffsetFetchResponseTopics]]
    metadata: Metadata


@dataclass(frozen=True, slots=True, eq=False)
class DeleteCall:
    """An OffsetDelete of which some partitions were refused before the coordinator was asked."""

    request: Request[offset_delete.OffsetDeleteRequest]
    early: tuple[TopicErrors, ...]


def answer(token: Token, response: Response) -> None:
    """Answer the wire request that `token` stands for with what the coordinator said."""
    match token, response:
        case CommitCall(), OffsetCommitResponse():
            token.early.topics += _commit(response).topics
            token.request.reply(token.early)
        case FetchCall(), OffsetFetchResponse():
            token.request.reply(_fetch(token, response))
        case DeleteCall(), OffsetDeleteResponse():
            token.request.reply(_delete_offsets(token, response))
        case Request(), _:
            _answer(token, response)
        case _:
            raise InvariantViolated(f"{token!r} cannot be answered with {response!r}.")


def _answer(request: Request[Any], response: Response) -> None:
    match response:
        case JoinResponse():
            request.reply(_join(request, response))
        case SyncResponse():
            request.reply(
                sync_group.SyncGroupResponse(
                    error_code=response.error,
                    protocol_type=response.protocol_type,
                    protocol_name=response.protocol_name,
                    assignment=response.assignment,
                )
            )
        case HeartbeatResponse():
            request.reply(heartbeat.HeartbeatResponse(error_code=response.error))
        case LeaveResponse():
            request.reply(_leave(request, response))
        case OffsetCommitResponse() | OffsetDeleteResponse() | OffsetFetchResponse():
            raise InvariantViolated("Offsets are answered by their own calls.")
        case ListGroupsResponse():
            request.reply(_list(response))
        case DescribeGroupsResponse():
            request.reply(
                describe_groups.DescribeGroupsResponse(
                    groups=[_described(request, group) for group in response.groups]
                )
            )
        case DeleteGroupsResponse():
            request.reply(
                delete_groups.DeleteGroupsResponse(
                    results=[
                        delete_groups.DeletableGroupResult(group_id=group_id, error_code=error)
                        for group_id, error in response.results
                    ]
                )
            )
        case _:
            assert_never(response)


def _join(request: Request[Any], response: JoinResponse) -> join_group.JoinGroupResponse:
    name = response.protocol_name
    if request.version < _NULL_PROTOCOL_SINCE:
        name = name or ""
    return join_group.JoinGroupResponse(
        error_code=response.error,
        generation_id=response.generation,
        protocol_type=response.protocol_type,
        protocol_name=name,
        leader=response.leader,
        skip_assignment=response.skip_assignment,
        member_id=response.member_id,
        members=[
            join_group.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in response.members
        ],
    )


def _leave(request: Request[Any], response: LeaveResponse) -> leave_group.LeaveGroupResponse:
    error = response.error
    if request.version < _MANY_LEAVE_SINCE:
        if error is ErrorCode.NONE and response.members:
            error = response.members[0].error
        return leave_group.LeaveGroupResponse(error_code=error)
    return leave_group.LeaveGroupResponse(
        error_code=error,
        members=[
            leave_group.MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=member.error,
            )
            for member in response.members
        ],
    )


def _commit(response: OffsetCommitResponse) -> offset_commit.OffsetCommitResponse:
    return offset_commit.OffsetCommitResponse(
        topics=[
            offset_commit.OffsetCommitResponseTopic(
                name=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    offset_commit.OffsetCommitResponsePartition(
                        partition_index=partition, error_code=error
                    )
                    for partition, error in topic.partitions
                ],
            )
            for topic in response.topics
        ]
    )


def _fetch(call: FetchCall, response: OffsetFetchResponse) -> offset_fetch.OffsetFetchResponse:
    request = call.request
    if request.version < _MANY_GROUPS_SINCE:
        return _fetch_one(request, response.groups[0])
    topics = call.metadata.image.topics
    return offset_fetch.OffsetFetchResponse(
        groups=[
            offset_fetch.OffsetFetchResponseGroup(
                group_id=group.group_id,
                error_code=group.error,
                topics=[
                    *refused,
                    *(
                        offset_fetch.OffsetFetchResponseTopics(
                            name=topic.topic,
                            topic_id=topics[topic.topic].topic_id
                            if topic.topic in topics
                            else topic.topic_id,
                            partitions=[
                                offset_fetch.OffsetFetchResponsePartitions(
                                    partition_index=item.partition,
                                    committed_offset=item.offset,
                                    committed_leader_epoch=item.leader_epoch,
                                    metadata=item.metadata,
                                    error_code=item.error,
                                )
                                for item in topic.partitions
                            ],
                        )
                        for topic in group.topics
                        if request.version < _TOPIC_IDS_SINCE or topic.topic in topics
                    ),
                ],
            )
            for group, refused in zip(response.groups, call.early, strict=True)
        ]
    )


def _fetch_one(request: Request[Any], group: GroupOffsets) -> offset_fetch.OffsetFetchResponse:
    """Up to version 7 there is one group; up to version 1 even its error is each partition's."""
    answered = offset_fetch.OffsetFetchResponse(error_code=group.error)
    if group.error is not ErrorCode.NONE and request.version < _GROUP_ERROR_SINCE:
        for asked in request.body.topics or ():
            answered.topics.append(
                offset_fetch.OffsetFetchResponseTopic(
                    name=asked.name,
                    partitions=[
                        offset_fetch.OffsetFetchResponsePartition(
                            partition_index=partition,
                            committed_offset=NO_OFFSET,
                            committed_leader_epoch=NO_EPOCH,
                            metadata="",
                            error_code=group.error,
                        )
                        for partition in asked.partition_indexes
                    ],
                )
            )
        return answered
    answered.topics = [
        offset_fetch.OffsetFetchResponseTopic(
            name=topic.topic,
            partitions=[
                offset_fetch.OffsetFetchResponsePartition(
                    partition_index=item.partition,
                    committed_offset=item.offset,
                    committed_leader_epoch=item.leader_epoch,
                    metadata=item.metadata,
                    error_code=item.error,
                )
                for item in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return answered


def _delete_offsets(
    call: DeleteCall, response: OffsetDeleteResponse
) -> offset_delete.OffsetDeleteResponse:
    decided: dict[str, list[tuple[int, ErrorCode]]] = {}
    if response.error is ErrorCode.NONE:  # else it is about the request as a whole
        for topic in (*call.early, *response.topics):
            decided.setdefault(topic.topic, []).extend(topic.partitions)
    return offset_delete.OffsetDeleteResponse(
        error_code=response.error,
        topics=[
            offset_delete.OffsetDeleteResponseTopic(
                name=name,
                partitions=[
                    offset_delete.OffsetDeleteResponsePartition(
                        partition_index=partition, error_code=error
                    )
                    for partition, error in partitions
                ],
            )
            for name, partitions in decided.items()
        ],
    )


def _list(response: ListGroupsResponse) -> list_groups.ListGroupsResponse:
    return list_groups.ListGroupsResponse(
        error_code=response.error,
        groups=[
            list_groups.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group in response.groups
        ],
    )


def _described(request: Request[Any], group: DescribedGroup) -> describe_groups.DescribedGroup:
    described = describe_groups.DescribedGroup(
        group_id=group.group_id,
        error_code=group.error,
        error_message=group.error_message if request.version >= 6 else None,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            describe_groups.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )
    if request.body.include_authorized_operations and group.error is ErrorCode.NONE:
        described.authorized_operations = GROUP_OPERATIONS
    return described
