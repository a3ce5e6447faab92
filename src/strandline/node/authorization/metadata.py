"""Permissions of what shows the cluster: Metadata, descriptions, and coordinators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.authorization.acls import CLUSTER_NAME, Operation, ResourceType
from strandline.errors import ErrorCode
from strandline.node.authorization.authority import Access
from strandline.node.authorization.records import name_of
from strandline.node.authorization.rule import MESSAGES, Need, Rule, split, with_refused
from strandline.node.request import Request
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from strandline.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from strandline.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from strandline.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from strandline.types import NO_TOPIC_ID

_TOPIC: Final = ResourceType.TOPIC
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NOTHING: Final = 0
_MANY_KEYS_SINCE: Final = 4
_SHARE_KEY: Final = 2
_COORDINATED: Final = {
    0: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    1: (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}


def _metadata(access: Access, request: Request[MetadataRequest]) -> bool:
    """As Kafka: of all topics those that may not be seen are left out; a topic by name is refused
    without its id, one by id without its name. A missing topic is created for those who may."""
    body = request.body
    is_all = body.topics is None or (request.version == 0 and not body.topics)
    refused: list[MetadataResponseTopic] = []
    if not is_all:
        body.topics, denied = split(
            body.topics or (), lambda topic: _may_see(access, topic, is_noted=True)
        )
        refused = [
            MetadataResponseTopic(
                error_code=_DENIED,
                name=(topic.name or "") if topic.topic_id == NO_TOPIC_ID else None,
                topic_id=topic.topic_id,
            )
            for topic in denied
        ]
        if body.allow_auto_topic_creation and access.creates_topics:
            refused += _refuse_creation(access, body)
    asked = body.topics

    def amend(response: MetadataResponse) -> None:
        may_see = access.topics(Operation.DESCRIBE, is_noted=False)
        # Version 0 knows no list of no topics: if all were refused, the handler took it for all.
        response.topics = [
            topic for topic in response.topics if (may_see(topic.name or "") if is_all else asked)
        ] + refused
        if body.include_topic_authorized_operations:
            for topic in response.topics:
                if topic.error_code != _DENIED and topic.name:
                    topic.topic_authorized_operations = access.operations(_TOPIC, topic.name)
        if body.include_cluster_authorized_operations:
            response.cluster_authorized_operations = _cluster_operations(access)

    request.amend = amend
    return True


def _may_see(access: Access, topic: MetadataRequestTopic, *, is_noted: bool) -> bool:
    name = name_of(access, topic.name, topic.topic_id)
    return name is None or access.may(Operation.DESCRIBE, _TOPIC, name, is_noted=is_noted)


def _refuse_creation(access: Access, body: MetadataRequest) -> list[MetadataResponseTopic]:
    """Take out what would be created without permission."""
    topics = access.image.topics
    missing = {
        topic.name
        for topic in body.topics or ()
        if topic.topic_id == NO_TOPIC_ID and topic.name and topic.name not in topics
    }
    if not missing or access.may_cluster(Operation.CREATE, is_noted=False):
        return []
    may_create = access.topics(Operation.CREATE)
    body.topics, denied = split(
        body.topics or (), lambda topic: topic.name not in missing or may_create(topic.name or "")
    )
    return [MetadataResponseTopic(error_code=_DENIED, name=topic.name or "") for topic in denied]


def _cluster_operations(access: Access) -> int:
    if access.may_cluster(Operation.DESCRIBE, is_noted=False):
        return access.operations(ResourceType.CLUSTER, CLUSTER_NAME)
    return _NOTHING


def _describe_cluster(access: Access, request: Request[DescribeClusterRequest]) -> bool:
    def amend(response: DescribeClusterResponse) -> None:
        if request.body.include_cluster_authorized_operations:
            response.cluster_authorized_operations = _cluster_operations(access)

    request.amend = amend
    return True


def _describe_topic_partitions(
    access: Access, request: Request[DescribeTopicPartitionsRequest]
) -> bool:
    body = request.body
    if body.topics:
        names = dict.fromkeys(topic.name for topic in body.topics)
        _, denied = split(names, access.topics(Operation.DESCRIBE))
    else:
        # The pages of all topics are cut by the number of partitions: what may not be seen must
        # not count, so the handler is told what there is for this client.
        body.topics, _ = split(
            [TopicRequest(name=name) for name in access.image.topics],
            lambda topic: access.may(Operation.DESCRIBE, _TOPIC, topic.name, is_noted=False),
        )
        denied = []
        if not body.topics:
            request.reply(DescribeTopicPartitionsResponse())
            return False
    hidden = set(denied)
    body.topics = [topic for topic in body.topics if topic.name not in hidden]
    refused = [
        DescribeTopicPartitionsResponseTopic(error_code=_DENIED, name=name) for name in denied
    ]
    if not body.topics:
        request.reply(DescribeTopicPartitionsResponse(topics=refused))
        return False
    if body.cursor is not None:
        refused = []  # they were told with the first page

    def amend(response: DescribeTopicPartitionsResponse) -> None:
        for topic in response.topics:
            if topic.name and topic.error_code == ErrorCode.NONE:
                topic.topic_authorized_operations = access.operations(_TOPIC, topic.name)
        response.topics += refused

    request.amend = amend
    return True


def _find_coordinator(access: Access, request: Request[FindCoordinatorRequest]) -> bool:
    body = request.body
    if body.key_type == _SHARE_KEY and not access.may_cluster(Operation.CLUSTER_ACTION):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        refused = [
            Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=MESSAGES[code])
            for key in body.coordinator_keys
        ]
        request.reply(FindCoordinatorResponse(coordinators=refused))
        return False
    found = _COORDINATED.get(body.key_type)
    if found is None:
        return True
    kind, code = found
    if request.version < _MANY_KEYS_SINCE:
        if access.may(Operation.DESCRIBE, kind, body.key):
            return True
        request.reply(
            FindCoordinatorResponse(
                error_code=code, error_message=MESSAGES[code], node_id=-1, port=-1
            )
        )
        return False
    body.coordinator_keys, denied = split(
        body.coordinator_keys, lambda key: access.may(Operation.DESCRIBE, kind, key)
    )
    refused = [
        Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=MESSAGES[code])
        for key in denied
    ]
    if denied and not body.coordinator_keys:
        # The topic of the coordinators is not made for what is refused.
        request.reply(FindCoordinatorResponse(coordinators=refused))
        return False

    return with_refused(request, refused, lambda response: response.coordinators)


RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.API_VERSIONS: Rule(None),
    ApiKey.METADATA: Rule(
        _metadata,
        (
            Need(
                Operation.DESCRIBE,
                _TOPIC,
                _DENIED,
                "of a topic that is asked for; of all topics the others are left out",
            ),
            Need(
                Operation.CREATE,
                _TOPIC,
                _DENIED,
                "to have a missing topic created; Create of the cluster is enough, too",
            ),
            Need(Operation.DESCRIBE, ResourceType.CLUSTER, None, "to see the cluster's operations"),
        ),
    ),
    ApiKey.DESCRIBE_CLUSTER: Rule(
        _describe_cluster,
        (Need(Operation.DESCRIBE, ResourceType.CLUSTER, None, "to see the cluster's operations"),),
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Rule(
        _describe_topic_partitions,
        (
            Need(
                Operation.DESCRIBE,
                _TOPIC,
                _DENIED,
                "of a topic that is asked for; of all topics the others are left out",
            ),
        ),
    ),
    ApiKey.FIND_COORDINATOR: Rule(
        _find_coordinator,
        (
            Need(
                Operation.DESCRIBE,
                ResourceType.GROUP,
                ErrorCode.GROUP_AUTHORIZATION_FAILED,
                "of the coordinator of a group",
            ),
            Need(
                Operation.DESCRIBE,
                ResourceType.TRANSACTIONAL_ID,
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "of the coordinator of a transactional id",
            ),
            Need(
                Operation.CLUSTER_ACTION,
                ResourceType.CLUSTER,
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "of the coordinator of a share partition",
            ),
        ),
    ),
}
