"""Permissions of consumer groups and of their offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from strandline.authorization.acls import Operation, ResourceType
from strandline.errors import ErrorCode
from strandline.groups.requests import refused as refused_group
from strandline.node.authorization.authority import Access
from strandline.node.authorization.records import name_of, named
from strandline.node.authorization.rule import MESSAGES, Need, Rule, split, with_refused
from strandline.node.handlers.groups import one_group
from strandline.node.request import Request
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from strandline.types import NO_OFFSET

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP_DENIED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_MANY_GROUPS_SINCE: Final = 8
_NULL_PROTOCOL_SINCE: Final = 7
_HIDDEN_TOPICS: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)


def _read_group(access: Access, request: Request[Any]) -> bool:
    """Of requests that need nothing but to read their group."""
    if access.may(Operation.READ, _GROUP, request.body.group_id):
        return True
    _refuse_group(request)
    return False


def _refuse_group(request: Request[Any]) -> None:
    response: Any = refused_group(request.body, _GROUP_DENIED, MESSAGES[_GROUP_DENIED])
    if request.api_key is ApiKey.JOIN_GROUP and request.version < _NULL_PROTOCOL_SINCE:
        response.protocol_name = ""
    request.reply(response)


def _offset_commit(access: Access, request: Request[offset_commit.OffsetCommitRequest]) -> bool:
    if not _read_group(access, request):
        return False
    body = request.body
    body.topics, denied = split(body.topics, named(access, Operation.READ))
    refused = [
        offset_commit.OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                offset_commit.OffsetCommitResponsePartition(
                    partition_index=item.partition_index, error_code=_DENIED
                )
                for item in topic.partitions
            ],
        )
        for topic in denied
    ]

    return with_refused(request, refused, lambda response: response.topics)


def _offset_fetch(access: Access, request: Request[offset_fetch.OffsetFetchRequest]) -> bool:
    if request.version < _MANY_GROUPS_SINCE:
        return _offset_fetch_of_one(access, request)
    body = request.body
    body.groups, denied = split(
        body.groups, lambda group: access.may(Operation.DESCRIBE, _GROUP, group.group_id)
    )
    refused_groups = [
        offset_fetch.OffsetFetchResponseGroup(group_id=group.group_id, error_code=_GROUP_DENIED)
        for group in denied
    ]
    if denied and not body.groups:
        request.reply(offset_fetch.OffsetFetchResponse(groups=refused_groups))
        return False
    refused: list[list[offset_fetch.OffsetFetchResponseTopics] | None] = []
    for group in body.groups:
        if group.topics is None:
            refused.append(None)
            continue
        group.topics, hidden = split(group.topics, named(access, Operation.DESCRIBE))
        refused.append([_without_offsets(topic) for topic in hidden])

    def amend(response: offset_fetch.OffsetFetchResponse) -> None:
        for group, denied_topics in zip(response.groups, refused, strict=True):
            if group.error_code != ErrorCode.NONE:
                continue
            if denied_topics is None:
                group.topics = [t for t in group.topics if _may_see(access, t)]
            else:
                group.topics += denied_topics
        response.groups += refused_groups

    request.amend = amend
    return True


def _may_see(access: Access, topic: Any) -> bool:
    name = topic.name or name_of(access, topic.name, topic.topic_id)
    return access.may(Operation.DESCRIBE, _TOPIC, name or "", is_noted=False)


def _without_offsets(
    topic: offset_fetch.OffsetFetchRequestTopics,
) -> offset_fetch.OffsetFetchResponseTopics:
    return offset_fetch.OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            offset_fetch.OffsetFetchResponsePartitions(
                partition_index=number, committed_offset=NO_OFFSET, metadata="", error_code=_DENIED
            )
            for number in topic.partition_indexes
        ],
    )


def _offset_fetch_of_one(access: Access, request: Request[offset_fetch.OffsetFetchRequest]) -> bool:
    body = request.body
    if not access.may(Operation.DESCRIBE, _GROUP, body.group_id):
        group = offset_fetch.OffsetFetchResponseGroup(
            group_id=body.group_id, error_code=_GROUP_DENIED
        )
        request.reply(one_group(request, offset_fetch.OffsetFetchResponse(groups=[group])))
        return False
    is_all = body.topics is None
    refused: list[offset_fetch.OffsetFetchResponseTopic] = []
    may_see = access.topics(Operation.DESCRIBE, is_noted=not is_all)
    if body.topics is not None:
        body.topics, denied = split(body.topics, lambda topic: may_see(topic.name))
        refused = [
            offset_fetch.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    offset_fetch.OffsetFetchResponsePartition(
                        partition_index=number,
                        committed_offset=NO_OFFSET,
                        metadata="",
                        error_code=_DENIED,
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in denied
        ]

    def amend(response: offset_fetch.OffsetFetchResponse) -> None:
        if is_all:
            response.topics = [topic for topic in response.topics if may_see(topic.name)]
        elif response.error_code == ErrorCode.NONE:
            response.topics += refused

    request.amend = amend
    return True


def _offset_delete(access: Access, request: Request[offset_delete.OffsetDeleteRequest]) -> bool:
    body, may_read = request.body, access.topics(Operation.READ)
    if not access.may(Operation.DELETE, _GROUP, body.group_id):
        request.reply(offset_delete.OffsetDeleteResponse(error_code=_GROUP_DENIED))
        return False
    body.topics, denied = split(body.topics, lambda topic: may_read(topic.name))
    refused = [
        offset_delete.OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                offset_delete.OffsetDeleteResponsePartition(
                    partition_index=item.partition_index, error_code=_DENIED
                )
                for item in topic.partitions
            ],
        )
        for topic in denied
    ]

    def amend(response: offset_delete.OffsetDeleteResponse) -> None:
        if response.error_code == ErrorCode.NONE:
            response.topics += refused

    request.amend = amend
    return True


def _list_groups(access: Access, request: Request[list_groups.ListGroupsRequest]) -> bool:
    if access.may_cluster(Operation.DESCRIBE, is_noted=False):
        return True

    def amend(response: list_groups.ListGroupsResponse) -> None:
        response.groups = [
            group
            for group in response.groups
            if access.may(Operation.DESCRIBE, _GROUP, group.group_id, is_noted=False)
        ]

    request.amend = amend
    return True


def _describe_groups(
    access: Access, request: Request[describe_groups.DescribeGroupsRequest]
) -> bool:
    body = request.body
    body.groups, denied = split(
        body.groups, lambda group: access.may(Operation.DESCRIBE, _GROUP, group)
    )
    refused = [
        describe_groups.DescribedGroup(
            group_id=group, error_code=_GROUP_DENIED, error_message=_message(request.version, 6)
        )
        for group in denied
    ]

    def amend(response: describe_groups.DescribeGroupsResponse) -> None:
        if body.include_authorized_operations:
            _set_operations(access, response.groups)
        response.groups += refused

    request.amend = amend
    return True


def _message(version: int, since: int) -> str | None:
    return MESSAGES[_GROUP_DENIED] if version >= since else None


def _set_operations(access: Access, groups: list[Any]) -> None:
    for group in groups:
        if group.error_code == ErrorCode.NONE:
            group.authorized_operations = access.operations(_GROUP, group.group_id)


def _delete_groups(access: Access, request: Request[delete_groups.DeleteGroupsRequest]) -> bool:
    body = request.body
    body.groups_names, denied = split(
        body.groups_names, lambda group: access.may(Operation.DELETE, _GROUP, group)
    )
    refused = [
        delete_groups.DeletableGroupResult(group_id=group, error_code=_GROUP_DENIED)
        for group in denied
    ]

    return with_refused(request, refused, lambda response: response.results)


def may_subscribe(access: Access, request: Request[Any], response: type[Any]) -> bool:
    """Of a heartbeat whose member may read the group: whether it may describe all topics that it
    subscribes to."""
    names = dict.fromkeys(request.body.subscribed_topic_names or ())
    _, denied = split(names, access.topics(Operation.DESCRIBE))
    if denied:
        request.reply(response(error_code=_DENIED, error_message=MESSAGES[_DENIED]))
    return not denied


def describe_with_members(
    access: Access,
    request: Request[Any],
    described: type[Any],
    topics_of: Callable[[Any], set[str]],
) -> bool:
    """Of requests that describe groups with their members, in entries of the type `described`: a
    group whose members read a topic that the client may not describe is hidden."""
    body = request.body
    body.group_ids, denied = split(
        body.group_ids, lambda group: access.may(Operation.DESCRIBE, _GROUP, group)
    )
    refused = [
        described(group_id=group, error_code=_GROUP_DENIED, error_message=MESSAGES[_GROUP_DENIED])
        for group in denied
    ]

    def shown(group: Any, may_see: Callable[[str], bool]) -> Any:
        if all(may_see(name) for name in topics_of(group)):
            return group
        return described(group_id=group.group_id, error_code=_DENIED, error_message=_HIDDEN_TOPICS)

    def amend(response: Any) -> None:
        may_see = access.topics(Operation.DESCRIBE, is_noted=False)
        if body.include_authorized_operations:
            _set_operations(access, response.groups)
        response.groups = [shown(group, may_see) for group in response.groups] + refused

    request.amend = amend
    return True


def _consumer_group_heartbeat(
    access: Access, request: Request[consumer_group_heartbeat.ConsumerGroupHeartbeatRequest]
) -> bool:
    response = consumer_group_heartbeat.ConsumerGroupHeartbeatResponse
    return _read_group(access, request) and may_subscribe(access, request, response)


def _consumer_group_describe(
    access: Access, request: Request[consumer_group_describe.ConsumerGroupDescribeRequest]
) -> bool:
    described = consumer_group_describe.DescribedGroup
    return describe_with_members(access, request, described, _topics_of)


def _topics_of(group: consumer_group_describe.DescribedGroup) -> set[str]:
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    } | {name for member in group.members for name in member.subscribed_topic_names}


_READS_GROUP: Final = Rule(_read_group, (Need(Operation.READ, _GROUP, _GROUP_DENIED),))

RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.JOIN_GROUP: _READS_GROUP,
    ApiKey.SYNC_GROUP: _READS_GROUP,
    ApiKey.HEARTBEAT: _READS_GROUP,
    ApiKey.LEAVE_GROUP: _READS_GROUP,
    ApiKey.OFFSET_COMMIT: Rule(
        _offset_commit,
        (
            Need(Operation.READ, _GROUP, _GROUP_DENIED, "for all partitions"),
            Need(Operation.READ, _TOPIC, _DENIED),
        ),
    ),
    ApiKey.OFFSET_FETCH: Rule(
        _offset_fetch,
        (
            Need(Operation.DESCRIBE, _GROUP, _GROUP_DENIED),
            Need(
                Operation.DESCRIBE,
                _TOPIC,
                _DENIED,
                "of a topic that is asked for; of all topics the others are left out",
            ),
        ),
    ),
    ApiKey.OFFSET_DELETE: Rule(
        _offset_delete,
        (
            Need(Operation.DELETE, _GROUP, _GROUP_DENIED),
            Need(Operation.READ, _TOPIC, _DENIED),
        ),
    ),
    ApiKey.LIST_GROUPS: Rule(
        _list_groups,
        (
            Need(Operation.DESCRIBE, ResourceType.CLUSTER, None, "to see all groups"),
            Need(Operation.DESCRIBE, _GROUP, None, "to see one of them"),
        ),
    ),
    ApiKey.DESCRIBE_GROUPS: Rule(
        _describe_groups, (Need(Operation.DESCRIBE, _GROUP, _GROUP_DENIED),)
    ),
    ApiKey.DELETE_GROUPS: Rule(_delete_groups, (Need(Operation.DELETE, _GROUP, _GROUP_DENIED),)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Rule(
        _consumer_group_heartbeat,
        (
            Need(Operation.READ, _GROUP, _GROUP_DENIED),
            Need(
                Operation.DESCRIBE,
                _TOPIC,
                _DENIED,
                "of all topics subscribed by name; a pattern matches those that may be seen",
            ),
        ),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Rule(
        _consumer_group_describe,
        (
            Need(Operation.DESCRIBE, _GROUP, _GROUP_DENIED),
            Need(Operation.DESCRIBE, _TOPIC, _DENIED, "of all topics of the group's members"),
        ),
    ),
}
