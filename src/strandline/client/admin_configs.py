"""Describing and changing the settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from strandline.client.admin_topics import one_of
from strandline.client.arguments import as_texts, several
from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.refusal import check
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from strandline.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from strandline.types import BrokerId

_SET: Final = 0
_RESET: Final = 1


class ResourceType(IntEnum):
    """What has settings; Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Resource(NamedTuple):
    """A thing with settings. A broker without a name stands for all brokers."""

    kind: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Resource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker: BrokerId) -> Resource:
        return cls(ResourceType.BROKER, str(broker))

    @classmethod
    def all_brokers(cls) -> Resource:
        return cls(ResourceType.BROKER, "")

    @classmethod
    def group(cls, name: str) -> Resource:
        return cls(ResourceType.GROUP, name)

    def __str__(self) -> str:
        if self.kind is not ResourceType.BROKER:
            return f"{self.kind.name.lower()} '{self.name}'"
        return f"broker {self.name}" if self.name else "all brokers"


class ConfigSource(IntEnum):
    """Where a value comes from; Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """Another place that gives a setting its value if nothing stronger does."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting in force. Secrets have no value."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None

    def is_own_of(self, resource: Resource) -> bool:
        """Whether the value was set for this very resource, and not inherited."""
        if resource.kind is ResourceType.TOPIC:
            return self.source is ConfigSource.TOPIC
        if resource.kind is ResourceType.GROUP:
            return self.source is ConfigSource.GROUP
        return self.source in (
            ConfigSource.BROKER,
            ConfigSource.ALL_BROKERS,
            ConfigSource.STATIC,
        )


class ConfigAdmin:
    """See the module."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def describe(self, resource: Resource, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """The settings of a resource in the order of their names, all by default."""
        asked = DescribeConfigsResource(
            resource_type=resource.kind,
            resource_name=resource.name,
            configuration_keys=None if names is None else list(names),
        )
        request = DescribeConfigsRequest(
            resources=[asked], include_synonyms=True, include_documentation=True
        )

        def attempt() -> list[ConfigEntry]:
            connection = self._connection_for(resource)
            response = connection.call(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsResponse, request)
            result = one_of(response.results, str(resource))
            check(result.error_code, result.error_message, str(resource))
            return sorted(map(_entry, result.configs), key=lambda entry: entry.name)

        return self._cluster.retry(attempt)

    def alter(
        self,
        resource: Resource,
        *,
        set_to: Mapping[str, object] | None = None,
        reset: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set and reset single settings; the others stay (KIP-339)."""
        changes = [
            AlterableConfig(name=name, config_operation=_SET, value=value)
            for name, value in as_texts(set_to or {}).items()
        ]
        changes += [
            AlterableConfig(name=name, config_operation=_RESET, value=None)
            for name in several(reset, "Settings")
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=resource.kind, resource_name=resource.name, configs=changes
                )
            ],
            validate_only=validate_only,
        )

        def attempt() -> None:
            response = self._connection_for(resource).call(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsResponse, request
            )
            result = one_of(response.responses, str(resource))
            check(result.error_code, result.error_message, str(resource))

        self._cluster.retry(attempt)

    def _connection_for(self, resource: Resource) -> Connection:
        """A broker's own settings are told and changed by that broker."""
        if resource.kind is ResourceType.BROKER and resource.name:
            return self._cluster.connection_to(BrokerId(int(resource.name)))
        return self._cluster.any_connection()


def _entry(result: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        result.name,
        result.value,
        _source(result.config_source),
        result.read_only,
        result.is_sensitive,
        tuple(
            ConfigSynonym(each.name, each.value, _source(each.source)) for each in result.synonyms
        ),
        result.documentation,
    )


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN
