"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from strandline.cluster.controller import (
    ConfigAlteration,
    ConfigReplacement,
    ConfigsAltered,
    Decision,
    Refusal,
    alter_configs,
    incremental_alter_configs,
)
from strandline.cluster.controller.alter_configs import CLIENT_METRICS, no_settings
from strandline.cluster.controller.decision import duplicates, refuse_duplicate
from strandline.cluster.image import ClusterImage
from strandline.cluster.topic_names import name_problem
from strandline.cluster.znodes import CLUSTER_DEFAULT, ConfigResource, ResourceKind
from strandline.config.alter import Alteration, BrokerCheck
from strandline.config.describe import (
    DescribedSetting,
    describe_broker,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
)
from strandline.errors import ErrorCode, ProtocolError
from strandline.node.controller import Controller
from strandline.node.handlers.batching import Decide, InBatches
from strandline.node.handlers.broker_loggers import BROKER_LOGGER, BrokerLoggers
from strandline.node.metadata import Metadata
from strandline.node.request import Request
from strandline.node.settings import Settings, overrides_of_topic
from strandline.protocol.messages import (
    alter_configs as alter_messages,
)
from strandline.protocol.messages import (
    describe_configs,
    list_config_resources,
)
from strandline.protocol.messages import (
    incremental_alter_configs as incremental_messages,
)
from strandline.types import BrokerId, Instant

_RESOURCE_TYPES: Final = frozenset({*ResourceKind, BROKER_LOGGER} - {ResourceKind.USER})
_WITHOUT_SETTINGS: Final = frozenset({CLIENT_METRICS})
"""Of these there are none, which is no error to ask for."""
_Wish = TypeVar("_Wish", bound=ConfigAlteration | ConfigReplacement)


class ConfigsHandler:
    """Settings of topics and of this broker, read and changed."""

    def __init__(
        self,
        metadata: Metadata,
        controller: Controller,
        settings: Settings,
        broker_id: BrokerId,
        check: BrokerCheck,
    ) -> None:
        self._metadata = metadata
        self._controller = controller
        self._settings = settings
        self._broker_id = broker_id
        self._check = check
        self._loggers = BrokerLoggers(broker_id)

    def describe(
        self, request: Request[describe_configs.DescribeConfigsRequest], now: Instant
    ) -> None:
        """Answers DescribeConfigs, versions 1 to 4."""
        del now
        body = request.body
        response = describe_configs.DescribeConfigsResponse()
        for asked in body.resources:
            result = describe_configs.DescribeConfigsResult(
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
                error_message=None,
            )
            response.results.append(result)
            try:
                described = self._describe(asked.resource_type, asked.resource_name)
            except ProtocolError as error:
                result.error_code, result.error_message = error.code, error.message or None
                continue
            # An empty list of keys means all, as null does (KAFKA-9429).
            keys = set(asked.configuration_keys or ())
            result.configs = [
                _entry(
                    setting,
                    with_synonyms=body.include_synonyms,
                    with_documentation=body.include_documentation,
                )
                for setting in described
                if not keys or setting.name in keys
            ]
        request.reply(response)

    def _describe(self, kind: int, name: str) -> list[DescribedSetting]:
        image, broker = self._metadata.image, self._settings.broker
        if kind == ResourceKind.TOPIC:
            problem = name_problem(name)
            if problem is not None:
                raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
            if name not in image.topics:
                raise ProtocolError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}."
                )
            return describe_topic(overrides_of_topic(name, image), broker)
        if kind == ResourceKind.BROKER:
            if name == CLUSTER_DEFAULT:
                return describe_cluster_defaults(broker)
            if name != str(self._broker_id):
                raise ProtocolError(
                    ErrorCode.INVALID_REQUEST,
                    f"This is broker {self._broker_id}; the settings of broker {name!r} are told "
                    f"by that broker.",
                )
            return describe_broker(broker)
        if kind == ResourceKind.GROUP:
            if not name:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "The group name is empty.")
            return describe_group(image.overrides(ConfigResource(ResourceKind.GROUP, name)), broker)
        if kind == BROKER_LOGGER:
            return self._loggers.describe(name)
        raise no_settings(kind)

    def alter(self, request: Request[alter_messages.AlterConfigsRequest], now: Instant) -> None:
        """Answers AlterConfigs, versions 0 to 2: what is not named loses its override."""
        body = request.body
        wanted = [
            ConfigReplacement(
                asked.resource_type,
                asked.resource_name,
                [(config.name, config.value) for config in asked.configs],
            )
            for asked in body.resources
        ]

        broker = self._settings.broker

        def decide(
            image: ClusterImage, some: Sequence[ConfigReplacement]
        ) -> Decision[ConfigsAltered]:
            return alter_configs(
                image, some, broker, validate_only=body.validate_only, check=self._check
            )

        def size(item: ConfigReplacement) -> int:
            return sum(len(name) + len(value or "") for name, value in item.settings)

        def reply(results: Sequence[ConfigsAltered]) -> None:
            answers = [alter_messages.AlterConfigsResourceResponse(**_outcome(r)) for r in results]
            request.reply(alter_messages.AlterConfigsResponse(responses=answers))

        self._carry_out(decide, wanted, size, reply, now)

    def incremental_alter(
        self, request: Request[incremental_messages.IncrementalAlterConfigsRequest], now: Instant
    ) -> None:
        """Answers IncrementalAlterConfigs, versions 0 and 1 (KIP-339)."""
        body = request.body
        asked_for = [
            ConfigAlteration(
                asked.resource_type,
                asked.resource_name,
                [
                    Alteration(config.name, config.config_operation, config.value)
                    for config in asked.configs
                ],
            )
            for asked in body.resources
        ]
        wanted = [each for each in asked_for if each.kind != BROKER_LOGGER]
        loggers = self._alter_loggers(
            [each for each in asked_for if each.kind == BROKER_LOGGER],
            validate_only=body.validate_only,
        )

        broker = self._settings.broker

        def decide(
            image: ClusterImage, some: Sequence[ConfigAlteration]
        ) -> Decision[ConfigsAltered]:
            return incremental_alter_configs(
                image, some, broker, validate_only=body.validate_only, check=self._check
            )

        def size(item: ConfigAlteration) -> int:
            return sum(len(each.name) + len(each.value or "") for each in item.alterations)

        def reply(results: Sequence[ConfigsAltered]) -> None:
            answers = [
                incremental_messages.AlterConfigsResourceResponse(**_outcome(result))
                for result in (*results, *loggers)
            ]
            request.reply(incremental_messages.IncrementalAlterConfigsResponse(responses=answers))

        self._carry_out(decide, wanted, size, reply, now)

    def _alter_loggers(
        self, wanted: Sequence[ConfigAlteration], *, validate_only: bool
    ) -> list[ConfigsAltered]:
        """Loggers are of this process, and nothing of them is written to the metadata."""
        repeated = duplicates(each.name for each in wanted)
        results: dict[str, ConfigsAltered] = {}
        for each in wanted:
            refusal = None
            try:
                refuse_duplicate(each.name, repeated)
                self._loggers.alter(each.name, each.alterations, validate_only=validate_only)
            except ProtocolError as error:
                refusal = Refusal.of(error)
            results[each.name] = ConfigsAltered(each.kind, each.name, refusal)
        return list(results.values())

    def _carry_out(
        self,
        decide: Decide[_Wish, ConfigsAltered],
        wanted: Sequence[_Wish],
        size: Callable[[_Wish], int],
        reply: Callable[[Sequence[ConfigsAltered]], None],
        now: Instant,
    ) -> None:
        def done(results: Sequence[ConfigsAltered], at: Instant) -> None:
            del at
            reply(results)

        def refused(item: _Wish, refusal: Refusal) -> ConfigsAltered:
            return ConfigsAltered(item.kind, item.name, refusal)

        InBatches(
            self._controller, decide, wanted, key=_resource_of, refused=refused, size=size
        ).carry_out(done=done, now=now)

    def list_resources(
        self, request: Request[list_config_resources.ListConfigResourcesRequest], now: Instant
    ) -> None:
        """Answers ListConfigResources, versions 0 (client metrics: there are none) and 1."""
        del now
        asked = set(request.body.resource_types)
        if request.version == 0:
            asked = {CLIENT_METRICS}
        elif not asked:
            asked = set(_RESOURCE_TYPES)
        response = list_config_resources.ListConfigResourcesResponse()
        if asked - _RESOURCE_TYPES - _WITHOUT_SETTINGS:
            response.error_code = ErrorCode.UNSUPPORTED_VERSION
            request.reply(response)
            return
        image = self._metadata.image
        brokers = [str(broker) for broker in image.brokers]
        names = {
            int(ResourceKind.TOPIC): list(image.topics),
            int(ResourceKind.BROKER): brokers,
            BROKER_LOGGER: brokers,
            int(ResourceKind.GROUP): [
                resource.name for resource in image.configs if resource.kind is ResourceKind.GROUP
            ],
        }
        response.config_resources = [
            list_config_resources.ConfigResource(resource_name=name, resource_type=kind)
            for kind, found in names.items()
            if kind in asked
            for name in found
        ]
        request.reply(response)


def _resource_of(item: ConfigAlteration | ConfigReplacement) -> tuple[int, str]:
    return item.kind, item.name


def _outcome(result: ConfigsAltered) -> dict[str, Any]:
    """The fields that the answers of both alter APIs have."""
    refusal = result.refusal
    return {
        "error_code": refusal.code if refusal else ErrorCode.NONE,
        "error_message": refusal.message if refusal else None,
        "resource_type": result.kind,
        "resource_name": result.name,
    }


def _entry(
    setting: DescribedSetting, *, with_synonyms: bool, with_documentation: bool
) -> describe_configs.DescribeConfigsResourceResult:
    return describe_configs.DescribeConfigsResourceResult(
        name=setting.name,
        value=setting.value,
        read_only=setting.read_only,
        config_source=setting.source,
        is_sensitive=setting.is_sensitive,
        synonyms=[
            describe_configs.DescribeConfigsSynonym(
                name=synonym.name, value=synonym.value, source=synonym.source
            )
            for synonym in (setting.synonyms if with_synonyms else ())
        ],
        config_type=setting.kind,
        documentation=setting.documentation if with_documentation else None,
    )
