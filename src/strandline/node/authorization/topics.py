"""Permissions of what makes, changes and deletes topics, and of settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from strandline.authorization.acls import CLUSTER_NAME, Operation, ResourceType
from strandline.cluster.znodes import ResourceKind
from strandline.errors import ErrorCode
from strandline.node.authorization.authority import Access
from strandline.node.authorization.records import name_of
from strandline.node.authorization.rule import MESSAGES, Need, Rule, split, with_refused
from strandline.node.handlers.broker_loggers import BROKER_LOGGER
from strandline.node.request import Request
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages import alter_configs, incremental_alter_configs
from strandline.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopicResult,
)
from strandline.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from strandline.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from strandline.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResult,
)
from strandline.types import NO_TOPIC_ID

_TOPIC: Final = ResourceType.TOPIC
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_CLUSTER_DENIED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_GROUP_DENIED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_CREATION_DENIED: Final = "Authorization failed."
_STATES_SINCE: Final = 6
_CLIENT_METRICS: Final = 16
_OF_CLUSTER: Final = (ResourceKind.BROKER, BROKER_LOGGER, _CLIENT_METRICS)


def _create_topics(access: Access, request: Request[CreateTopicsRequest]) -> bool:
    body = request.body
    refused: list[CreatableTopicResult] = []
    if not access.may_cluster(Operation.CREATE, is_noted=False):
        may = access.topics(Operation.CREATE)
        body.topics, denied = split(body.topics, lambda topic: may(topic.name))
        refused = [
            CreatableTopicResult(
                name=name, error_code=_DENIED, error_message=_CREATION_DENIED, configs=None
            )
            for name in dict.fromkeys(topic.name for topic in denied)
        ]

    def amend(response: CreateTopicsResponse) -> None:
        may_see = access.topics(Operation.DESCRIBE_CONFIGS, is_noted=False)
        for topic in response.topics:
            if topic.error_code == ErrorCode.NONE and not may_see(topic.name):
                topic.topic_config_error_code = _DENIED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = None
        response.topics += refused

    request.amend = amend
    return True


def _delete_topics(access: Access, request: Request[DeleteTopicsRequest]) -> bool:
    """A topic that was named by its id keeps its name to itself if it may not be seen."""
    if access.may_cluster(Operation.DELETE, is_noted=False):
        access.may_cluster(Operation.DELETE)  # noted where it decides; else the topics are asked
        return True
    body = request.body
    refused: list[DeletableTopicResult] = []
    if request.version < _STATES_SINCE:
        body.topic_names, names = split(body.topic_names, access.topics(Operation.DELETE))
        refused = [
            DeletableTopicResult(name=name, error_code=_DENIED, error_message=MESSAGES[_DENIED])
            for name in names
        ]
    else:
        may_delete = access.topics(Operation.DELETE)
        may_see = access.topics(Operation.DESCRIBE, is_noted=False)

        def is_allowed(topic: DeleteTopicState) -> bool:
            name = name_of(access, topic.name, topic.topic_id)
            return name is None or may_delete(name)

        body.topics, denied = split(body.topics, is_allowed)
        for topic in denied:
            name = name_of(access, topic.name, topic.topic_id)
            if topic.topic_id != NO_TOPIC_ID and not may_see(name or ""):
                name = None
            refused.append(
                DeletableTopicResult(
                    name=name,
                    topic_id=topic.topic_id,
                    error_code=_DENIED,
                    error_message=MESSAGES[_DENIED],
                )
            )

    return with_refused(request, refused, lambda response: response.responses)


def _create_partitions(access: Access, request: Request[CreatePartitionsRequest]) -> bool:
    body, may = request.body, access.topics(Operation.ALTER)
    body.topics, denied = split(body.topics, lambda topic: may(topic.name))
    refused = [
        CreatePartitionsTopicResult(
            name=topic.name, error_code=_DENIED, error_message=MESSAGES[_DENIED]
        )
        for topic in denied
    ]

    return with_refused(request, refused, lambda response: response.results)


def _refusal_of(access: Access, operation: Operation, asked: Any) -> ErrorCode | None:
    """Why a resource with settings may not be touched. Types that there are not pass."""
    kind, name = asked.resource_type, asked.resource_name
    if kind == ResourceKind.TOPIC:
        return None if access.may(operation, _TOPIC, name) else _DENIED
    if kind == ResourceKind.GROUP:
        return None if access.may(operation, ResourceType.GROUP, name) else _GROUP_DENIED
    if kind in _OF_CLUSTER:
        may = access.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)
        return None if may else _CLUSTER_DENIED
    return None


def _describe_configs(access: Access, request: Request[DescribeConfigsRequest]) -> bool:
    return _without_denied(
        access,
        request,
        Operation.DESCRIBE_CONFIGS,
        DescribeConfigsResult,
        lambda response: response.results,
    )


def _alter_configs(access: Access, request: Request[Any]) -> bool:
    """Of both APIs, whose resources and answers are alike."""
    is_incremental = request.api_key is ApiKey.INCREMENTAL_ALTER_CONFIGS
    messages = incremental_alter_configs if is_incremental else alter_configs
    return _without_denied(
        access,
        request,
        Operation.ALTER_CONFIGS,
        messages.AlterConfigsResourceResponse,
        lambda response: response.responses,
    )


def _without_denied(
    access: Access,
    request: Request[Any],
    operation: Operation,
    result: Callable[..., Any],
    where: Callable[[Any], list[Any]],
) -> bool:
    """Take out the resources that may not be touched; the results of all these APIs are alike."""
    refused: list[Any] = []
    allowed = []
    for asked in request.body.resources:
        code = _refusal_of(access, operation, asked)
        if code is None:
            allowed.append(asked)
        else:
            refused.append(
                result(
                    error_code=code,
                    error_message=MESSAGES[code],
                    resource_type=asked.resource_type,
                    resource_name=asked.resource_name,
                )
            )
    request.body.resources = allowed
    return with_refused(request, refused, where)


def _of_settings(operation: Operation) -> tuple[Need, ...]:
    return (
        Need(operation, _TOPIC, _DENIED, "of topics"),
        Need(operation, ResourceType.CLUSTER, _CLUSTER_DENIED, "of brokers and broker loggers"),
        Need(operation, ResourceType.GROUP, _GROUP_DENIED, "of groups"),
    )


RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.CREATE_TOPICS: Rule(
        _create_topics,
        (
            Need(Operation.CREATE, _TOPIC, _DENIED, "or Create of the cluster"),
            Need(Operation.DESCRIBE_CONFIGS, _TOPIC, None, "to see the new topic's settings"),
        ),
    ),
    ApiKey.DELETE_TOPICS: Rule(
        _delete_topics,
        (Need(Operation.DELETE, _TOPIC, _DENIED, "or All of the cluster"),),
    ),
    ApiKey.CREATE_PARTITIONS: Rule(_create_partitions, (Need(Operation.ALTER, _TOPIC, _DENIED),)),
    ApiKey.DESCRIBE_CONFIGS: Rule(_describe_configs, _of_settings(Operation.DESCRIBE_CONFIGS)),
    ApiKey.ALTER_CONFIGS: Rule(_alter_configs, _of_settings(Operation.ALTER_CONFIGS)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Rule(_alter_configs, _of_settings(Operation.ALTER_CONFIGS)),
}
