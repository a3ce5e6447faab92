"""Permissions of share groups (KIP-932). Those of single topics of a fetch, an acknowledgement, or
of offsets are asked by their handlers, which find the topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from strandline.authorization.acls import Operation, ResourceType
from strandline.errors import ErrorCode, ProtocolError
from strandline.node.authorization.authority import Access
from strandline.node.authorization.groups import describe_with_members, may_subscribe
from strandline.node.authorization.rule import MESSAGES, Need, Rule, split, with_refused
from strandline.node.request import Request
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.messages import share_group_describe, share_group_heartbeat
from strandline.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponseGroup,
)
from strandline.sharing.answer import Answer

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP_DENIED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_CLUSTER_DENIED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _needs_group(access: Access, request: Request[Any], operation: Operation) -> bool:
    """Of requests about one group whose answer has an error of its own."""
    if access.may(operation, _GROUP, request.body.group_id or ""):
        return True
    response = KNOWN[request.api_key].response_class
    request.reply(response(error_code=_GROUP_DENIED, error_message=MESSAGES[_GROUP_DENIED]))
    return False


def _reads_group(access: Access, request: Request[Any]) -> bool:
    return _needs_group(access, request, Operation.READ)


def _deletes_of_group(access: Access, request: Request[Any]) -> bool:
    return _needs_group(access, request, Operation.DELETE)


def _heartbeat(
    access: Access, request: Request[share_group_heartbeat.ShareGroupHeartbeatRequest]
) -> bool:
    response = share_group_heartbeat.ShareGroupHeartbeatResponse
    return _reads_group(access, request) and may_subscribe(access, request, response)


def _describe(
    access: Access, request: Request[share_group_describe.ShareGroupDescribeRequest]
) -> bool:
    described = share_group_describe.DescribedGroup
    return describe_with_members(access, request, described, _topics_of)


def _topics_of(group: share_group_describe.DescribedGroup) -> set[str]:
    return {
        topic.topic_name for member in group.members for topic in member.assignment.topic_partitions
    } | {name for member in group.members for name in member.subscribed_topic_names}


def _describe_offsets(access: Access, request: Request[DescribeShareGroupOffsetsRequest]) -> bool:
    body = request.body
    body.groups, denied = split(
        body.groups, lambda group: access.may(Operation.DESCRIBE, _GROUP, group.group_id)
    )

    refused = [
        DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id,
            error_code=_GROUP_DENIED,
            error_message=MESSAGES[_GROUP_DENIED],
        )
        for group in denied
    ]
    return with_refused(request, refused, lambda response: response.groups)


def _state(access: Access, request: Request[Any]) -> bool:
    if access.may_cluster(Operation.CLUSTER_ACTION):
        return True
    for _, _, part in Answer(request.body, request.reply).parts():
        part(error=ProtocolError(_CLUSTER_DENIED, MESSAGES[_CLUSTER_DENIED]))
    return False


_READS: Final = Need(Operation.READ, _GROUP, _GROUP_DENIED)
_READS_TOPICS: Final = Need(Operation.READ, _TOPIC, _DENIED)
_OF_BROKERS: Final = Rule(
    _state, (Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, _CLUSTER_DENIED),)
)

RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: Rule(
        _heartbeat,
        (_READS, Need(Operation.DESCRIBE, _TOPIC, _DENIED, "of all topics subscribed to")),
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: Rule(
        _describe,
        (
            Need(Operation.DESCRIBE, _GROUP, _GROUP_DENIED),
            Need(Operation.DESCRIBE, _TOPIC, _DENIED, "of all topics of the group's members"),
        ),
    ),
    ApiKey.SHARE_FETCH: Rule(_reads_group, (_READS, _READS_TOPICS)),
    ApiKey.SHARE_ACKNOWLEDGE: Rule(_reads_group, (_READS, _READS_TOPICS)),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _OF_BROKERS,
    ApiKey.READ_SHARE_GROUP_STATE: _OF_BROKERS,
    ApiKey.WRITE_SHARE_GROUP_STATE: _OF_BROKERS,
    ApiKey.DELETE_SHARE_GROUP_STATE: _OF_BROKERS,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _OF_BROKERS,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Rule(
        _describe_offsets,
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
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Rule(_reads_group, (_READS, _READS_TOPICS)),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Rule(
        _deletes_of_group, (Need(Operation.DELETE, _GROUP, _GROUP_DENIED), _READS_TOPICS)
    ),
}
