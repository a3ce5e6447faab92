"""The decision to change settings of topics and brokers at run time.

What the settings mean and which may change is `config`'s to say; here it is which resources exist
and what is written. Resources of one request stand and fall on their own.

What follows from another `min.insync.replicas` is for the reconciliation to write: until it has
taken eligible leaders out of a partition, its leader commits nothing without them (ruling D-13).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from strandline.cluster.controller.decision import (
    Decision,
    Refusal,
    duplicates,
    fenced,
    fenced_from_deletions,
    refuse_duplicate,
)
from strandline.cluster.controller.topic_writes import config_write
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Check, Operation
from strandline.cluster.topic_names import name_problem
from strandline.cluster.znodes import CLUSTER_DEFAULT, ConfigResource, ResourceKind, topic_path
from strandline.config.alter import (
    Alteration,
    BrokerCheck,
    alter_broker,
    alter_group,
    alter_topic,
    always,
    replace_broker,
    replace_group,
    replace_topic,
)
from strandline.config.broker import BrokerConfig
from strandline.errors import ErrorCode, ProtocolError

CLIENT_METRICS: Final = 16
_NO_SETTINGS: Final = {
    8: "AlterConfigs does not change the levels of loggers; IncrementalAlterConfigs does.",
    CLIENT_METRICS: "Strandline does not collect metrics from clients (KIP-714), so there are no "
    "subscriptions to them.",
}


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    """Changes to single settings of a resource (IncrementalAlterConfigs)."""

    kind: int
    """The resource's type as it came on the wire."""
    name: str
    alterations: Sequence[Alteration]


@dataclass(frozen=True, slots=True)
class ConfigReplacement:
    """All settings that a resource shall have from now on (AlterConfigs)."""

    kind: int
    name: str
    settings: Sequence[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class ConfigsAltered:
    """What became of one resource."""

    kind: int
    name: str
    refusal: Refusal | None = None


Request = TypeVar("Request", ConfigAlteration, ConfigReplacement)


def incremental_alter_configs(
    image: ClusterImage,
    requests: Sequence[ConfigAlteration],
    broker: BrokerConfig,
    *,
    validate_only: bool = False,
    check: BrokerCheck = always,
) -> Decision[ConfigsAltered]:
    """Results by first mention of each resource. `broker` is the one that the request reached;
    `check` says whether it can do with other settings.

    Refusals: INVALID_REQUEST (duplicates, resources that have no settings here, null values,
    settings that cannot change), INVALID_CONFIG, INVALID_TOPIC_EXCEPTION,
    UNKNOWN_TOPIC_OR_PARTITION.
    """

    def altered(resource: ConfigResource, request: ConfigAlteration) -> dict[str, str]:
        current = image.overrides(resource)
        if resource.kind is ResourceKind.TOPIC:
            return alter_topic(current, request.alterations, broker)
        if resource.kind is ResourceKind.GROUP:
            return alter_group(current, request.alterations, broker)
        return alter_broker(
            current,
            request.alterations,
            broker,
            one_broker=resource.name != CLUSTER_DEFAULT,
            check=check,
        )

    return _decide(image, requests, altered, broker, validate_only=validate_only)


def alter_configs(
    image: ClusterImage,
    requests: Sequence[ConfigReplacement],
    broker: BrokerConfig,
    *,
    validate_only: bool = False,
    check: BrokerCheck = always,
) -> Decision[ConfigsAltered]:
    """Like `incremental_alter_configs`, but what a request does not name loses its override."""

    def replaced(resource: ConfigResource, request: ConfigReplacement) -> dict[str, str]:
        if resource.kind is ResourceKind.TOPIC:
            return replace_topic(request.settings, broker)
        if resource.kind is ResourceKind.GROUP:
            return replace_group(request.settings, broker)
        return replace_broker(
            request.settings, broker, one_broker=resource.name != CLUSTER_DEFAULT, check=check
        )

    return _decide(image, requests, replaced, broker, validate_only=validate_only)


def _decide(
    image: ClusterImage,
    requests: Sequence[Request],
    new_overrides: Callable[[ConfigResource, Request], dict[str, str]],
    broker: BrokerConfig,
    *,
    validate_only: bool,
) -> Decision[ConfigsAltered]:
    repeated = duplicates((request.kind, request.name) for request in requests)
    results: dict[tuple[int, str], ConfigsAltered] = {}
    operations: list[Operation] = []
    for request in requests:
        key = (request.kind, request.name)
        if key in results:
            continue
        try:
            refuse_duplicate(key, repeated)
            resource = _resource(request.kind, request.name, broker)
            overrides = new_overrides(resource, request)
            operations += _write(image, resource, overrides)
            results[key] = ConfigsAltered(*key)
        except ProtocolError as error:
            results[key] = ConfigsAltered(*key, Refusal.of(error))
    has_topics = any(request.kind == ResourceKind.TOPIC for request in requests)
    fence = fenced_from_deletions if has_topics else fenced
    write = () if validate_only else fence(image, operations)
    return Decision(tuple(results.values()), write)


def _resource(kind: int, name: str, broker: BrokerConfig) -> ConfigResource:
    """The resource if it can have settings. Whether a topic exists is asked later, as in Kafka."""
    if kind == ResourceKind.TOPIC:
        if not name:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, "There are no settings for all topics together."
            )
        if problem := name_problem(name):
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        return ConfigResource(ResourceKind.TOPIC, name)
    if kind == ResourceKind.BROKER:
        if name not in (CLUSTER_DEFAULT, str(broker.node_id)):
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                f"The settings of broker {name!r} change at that broker; "
                f"this is broker {broker.node_id}.",
            )
        return ConfigResource(ResourceKind.BROKER, name)
    if kind == ResourceKind.GROUP:
        if not name:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."
            )
        return ConfigResource(ResourceKind.GROUP, name)
    raise no_settings(kind)


def no_settings(kind: int) -> ProtocolError:
    """The refusal of a type of resource that has no settings here, with the reason."""
    reason = _NO_SETTINGS.get(kind, f"Resources of type {kind} have no settings here.")
    return ProtocolError(ErrorCode.INVALID_REQUEST, reason)


def _write(
    image: ClusterImage, resource: ConfigResource, overrides: Mapping[str, str]
) -> list[Operation]:
    if resource.kind is ResourceKind.TOPIC:
        if resource.name not in image.topics:
            raise ProtocolError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {resource.name!r}."
            )
        if overrides == image.overrides(resource):
            return []
        # The topic may be deleted meanwhile; its settings must not come after it.
        return [Check(topic_path(resource.name)), *config_write(image, resource, overrides)]
    if resource.kind is ResourceKind.GROUP and overrides == image.overrides(resource):
        return []
    # A broker's settings are written even if they stay the same: it makes the broker read the
    # files again that they name (KAFKA-14136).
    return config_write(image, resource, overrides)
