"""CreateTopics, DeleteTopics and CreatePartitions: requests to the controller's decisions."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any, Final

from strandline.cluster.controller import (
    PartitionsAdded,
    PartitionsSpec,
    Permit,
    Refusal,
    TopicCreated,
    TopicDeleted,
    TopicReference,
    TopicSpec,
    always,
    create_partitions,
    create_topics,
    delete_topics,
)
from strandline.errors import ErrorCode, ProtocolError
from strandline.node.client_quotas import ClientQuotas
from strandline.node.controller_loop import ControllerLoop
from strandline.node.request import Request
from strandline.node.settings import Settings
from strandline.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from strandline.protocol.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from strandline.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from strandline.types import NO_TOPIC_ID, BrokerId, Instant

_STATES_SINCE: Final = 6
_CREATE_STRICT_SINCE: Final = 6
_DELETE_STRICT_SINCE: Final = 5
_GROW_STRICT_SINCE: Final = 3
"""Clients of these versions know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


class TopicsHandler:
    """Answers CreateTopics 2 to 7, DeleteTopics 1 to 6 and CreatePartitions 0 to 3.

    On the controller, that is: other brokers answer NOT_CONTROLLER. An answer is given when this
    broker's image shows the change; the others may hear of it a moment later.
    """

    def __init__(
        self,
        controller: ControllerLoop,
        settings: Settings,
        quotas: ClientQuotas,
        random: Random,
    ) -> None:
        self._controller_loop = controller
        self._settings = settings
        self._quotas = quotas
        self._random = random

    def create_topics(self, request: Request[CreateTopicsRequest], now: Instant) -> None:
        """Create those topics that can be created."""
        body = request.body
        specs = [
            TopicSpec(
                topic.name,
                topic.num_partitions,
                topic.replication_factor,
                [
                    (item.partition_index, [BrokerId(broker) for broker in item.broker_ids])
                    for item in topic.assignments
                ],
                {config.name: config.value for config in topic.configs},
            )
            for topic in body.topics
        ]

        def done(results: tuple[TopicCreated, ...], at: Instant) -> None:
            del at
            response = CreateTopicsResponse(topics=[self._created(result) for result in results])
            request.reply(response)

        def failed(error: ProtocolError, at: Instant) -> None:
            refusal = Refusal.of(error)
            done(tuple(TopicCreated(spec.name, refusal=refusal) for spec in specs), at)

        decide = partial(
            create_topics,
            specs=specs,
            broker=self._settings.broker,
            validate_only=body.validate_only,
            ignores_case=self._settings.ignores_case,
            permit=self._permit(request, now, is_strict=request.version >= _CREATE_STRICT_SINCE),
            random=self._random,
        )
        self._controller_loop.carry_out(decide, done=done, failed=failed, now=now)

    def _created(self, result: TopicCreated) -> CreatableTopicResult:
        refusal = result.refusal
        if refusal is not None:
            return CreatableTopicResult(
                name=result.name,
                error_code=refusal.code,
                error_message=refusal.message or None,
                configs=None,
            )
        return CreatableTopicResult(
            name=result.name,
            error_message=None,
            topic_id=result.topic_id or NO_TOPIC_ID,
            num_partitions=result.partition_count,
            replication_factor=result.replication_factor,
            configs=[
                CreatableTopicConfigs(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.is_sensitive,
                )
                for entry in self._settings.describe_topic(result.overrides)
            ],
        )

    def delete_topics(self, request: Request[DeleteTopicsRequest], now: Instant) -> None:
        """Delete topics by name or by id."""
        body = request.body
        if request.version >= _STATES_SINCE:
            references = [TopicReference(topic.name, topic.topic_id) for topic in body.topics]
        else:
            references = [TopicReference(name) for name in body.topic_names]

        def done(results: tuple[TopicDeleted, ...], at: Instant) -> None:
            del at
            request.reply(DeleteTopicsResponse(responses=[_deleted(result) for result in results]))

        def failed(error: ProtocolError, at: Instant) -> None:
            refusal = Refusal.of(error)
            if error.code is ErrorCode.TOPIC_DELETION_DISABLED and request.version < 3:
                # The code came with version 3; older clients know this one.
                refusal = Refusal(ErrorCode.INVALID_REQUEST, error.message)
            done(tuple(TopicDeleted(ref.name, ref.topic_id, refusal) for ref in references), at)

        decide = partial(
            delete_topics,
            references=references,
            is_enabled=self._settings.broker.delete_topic_enable,
            permit=self._permit(request, now, is_strict=request.version >= _DELETE_STRICT_SINCE),
        )
        self._controller_loop.carry_out(decide, done=done, failed=failed, now=now)

    def create_partitions(self, request: Request[CreatePartitionsRequest], now: Instant) -> None:
        """Add partitions to topics."""
        body = request.body
        specs = [
            PartitionsSpec(
                topic.name,
                topic.count,
                None
                if topic.assignments is None
                else [[BrokerId(b) for b in item.broker_ids] for item in topic.assignments],
            )
            for topic in body.topics
        ]

        def done(results: tuple[PartitionsAdded, ...], at: Instant) -> None:
            del at
            request.reply(CreatePartitionsResponse(results=[_added(result) for result in results]))

        def failed(error: ProtocolError, at: Instant) -> None:
            refusal = Refusal.of(error)
            done(tuple(PartitionsAdded(spec.name, refusal=refusal) for spec in specs), at)

        decide = partial(
            create_partitions,
            specs=specs,
            validate_only=body.validate_only,
            permit=self._permit(request, now, is_strict=request.version >= _GROW_STRICT_SINCE),
        )
        self._controller_loop.carry_out(decide, done=done, failed=failed, now=now)

    def _permit(self, request: Request[Any], now: Instant, *, is_strict: bool) -> Permit:
        """What every partition that is made or removed is to be allowed by."""
        mutations = self._quotas.mutations(request, strict=is_strict, now=now)
        return always if mutations is None else mutations.take


def _deleted(result: TopicDeleted) -> DeletableTopicResult:
    refusal = result.refusal
    return DeletableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_code=refusal.code if refusal else ErrorCode.NONE,
        error_message=refusal.message or None if refusal else None,
    )


def _added(result: PartitionsAdded) -> CreatePartitionsTopicResult:
    refusal = result.refusal
    return CreatePartitionsTopicResult(
        name=result.name,
        error_code=refusal.code if refusal else ErrorCode.NONE,
        error_message=refusal.message or None if refusal else None,
    )
