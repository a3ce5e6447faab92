"""CreateTopics, DeleteTopics and CreatePartitions: requests to the controller's decisions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from strandline.cluster.controller import (
    Decision,
    PartitionsAdded,
    PartitionsSpec,
    Permit,
    Refusal,
    TopicCreated,
    TopicDeleted,
    TopicReference,
    TopicSpec,
    always,
    as_brokers_make_it,
    create_partitions,
    create_topics,
    delete_topics,
)
from strandline.cluster.controller.create_partitions import bytes_after
from strandline.cluster.controller.create_topics import bytes_wanted, partitions_wanted
from strandline.cluster.controller.delete_topics import removal_bytes
from strandline.cluster.image import ClusterImage, TopicImage
from strandline.cluster.topic_names import exclusion_key
from strandline.errors import ErrorCode
from strandline.node.client_quotas import ClientQuotas
from strandline.node.controller_loop import ControllerLoop
from strandline.node.handlers.batching import InBatches
from strandline.node.metadata import Metadata
from strandline.node.request import Request
from strandline.node.settings import Settings
from strandline.node.timers import Timers
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
LOOK_AGAIN_MS: Final = 20


class TopicsHandler:
    """Answers CreateTopics 2 to 7, DeleteTopics 1 to 6 and CreatePartitions 0 to 3.

    On the controller, that is: other brokers answer NOT_CONTROLLER. An answer is given when this
    broker's image shows the change; the others may hear of it a moment later. A long request is
    decided in parts: if one fails, the topics of those before it are made or gone, and the answer
    says so.
    """

    def __init__(
        self,
        metadata: Metadata,
        controller: ControllerLoop,
        settings: Settings,
        timers: Timers,
        quotas: ClientQuotas,
        random: Random,
    ) -> None:
        self._metadata = metadata
        self._controller_loop = controller
        self._timers = timers
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

        broker = self._settings.broker
        wanted = partitions_wanted(specs, broker)
        permit = self._permit(request, now, is_strict=request.version >= _CREATE_STRICT_SINCE)

        def decide(image: ClusterImage, some: Sequence[TopicSpec]) -> Decision[TopicCreated]:
            count = image.broker_count
            return create_topics(
                image,
                [as_brokers_make_it(spec, broker, broker_count=count) for spec in some],
                broker,
                wanted=wanted,
                validate_only=body.validate_only,
                ignores_case=self._settings.ignores_case,
                permit=permit,
                random=self._random,
            )

        def key(spec: TopicSpec) -> Hashable:
            return exclusion_key(spec.name, ignores_case=self._settings.ignores_case)

        def size(spec: TopicSpec) -> int:
            return bytes_wanted(spec, broker)

        def done(results: Sequence[TopicCreated], at: Instant) -> None:
            del at
            response = CreateTopicsResponse(topics=[self._created(result) for result in results])
            request.reply(response)

        def refused(spec: TopicSpec, refusal: Refusal) -> TopicCreated:
            return TopicCreated(spec.name, refusal=refusal)

        InBatches(
            self._controller_loop, decide, specs, key=key, refused=refused, size=size
        ).carry_out(done=done, now=now)

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

        found = {reference: self._found(reference) for reference in references}
        permit = self._permit(request, now, is_strict=request.version >= _DELETE_STRICT_SINCE)
        deadline_ms = now.monotonic_ms + max(0, body.timeout_ms)

        def decide(image: ClusterImage, some: Sequence[TopicReference]) -> Decision[TopicDeleted]:
            is_enabled = self._settings.broker.delete_topic_enable
            return delete_topics(image, some, is_enabled=is_enabled, permit=permit)

        def key(reference: TopicReference) -> Hashable:
            topic = found[reference]
            return reference if topic is None else topic.name

        def size(reference: TopicReference) -> int:
            topic = found[reference]
            return 0 if topic is None else removal_bytes(topic)

        def done(results: Sequence[TopicDeleted], at: Instant) -> None:
            self._reply_when_gone(request, results, deadline_ms, at)

        def refused(reference: TopicReference, refusal: Refusal) -> TopicDeleted:
            if refusal.code is ErrorCode.TOPIC_DELETION_DISABLED and request.version < 3:
                # The code came with version 3; older clients know this one.
                refusal = Refusal(ErrorCode.INVALID_REQUEST, refusal.message)
            return TopicDeleted(reference.name, reference.topic_id, refusal)

        InBatches(
            self._controller_loop, decide, references, key=key, refused=refused, size=size
        ).carry_out(done=done, now=now)

    def _found(self, reference: TopicReference) -> TopicImage | None:
        """The topic that is meant, if there is one now."""
        image = self._metadata.image
        if reference.name is not None:
            return image.topics.get(reference.name)
        return image.topic_by_id(reference.topic_id)

    def _reply_when_gone(
        self,
        request: Request[DeleteTopicsRequest],
        results: Sequence[TopicDeleted],
        deadline_ms: int,
        now: Instant,
    ) -> None:
        """Topics of very many partitions are removed step by step."""
        image = self._metadata.image
        left = {
            result
            for result in results
            if result.refusal is None and image.is_being_deleted(result.name or "")
        }
        if left and now.monotonic_ms < deadline_ms and not request.connection.has_ended:

            def look_again(at: Instant) -> None:
                self._reply_when_gone(request, results, deadline_ms, at)

            self._timers.schedule(now.monotonic_ms + LOOK_AGAIN_MS, look_again)
            return
        late = Refusal(ErrorCode.REQUEST_TIMED_OUT, "The topic is still being deleted.")
        told = (replace(each, refusal=late) if each in left else each for each in results)
        request.reply(DeleteTopicsResponse(responses=[_deleted(each) for each in told]))

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

        permit = self._permit(request, now, is_strict=request.version >= _GROW_STRICT_SINCE)

        def decide(
            image: ClusterImage, some: Sequence[PartitionsSpec]
        ) -> Decision[PartitionsAdded]:
            return create_partitions(
                image,
                some,
                added_before=sum(result.added for result in batches.results),
                validate_only=body.validate_only,
                permit=permit,
            )

        def size(spec: PartitionsSpec) -> int:
            """The whole assignment of the topic is written."""
            topic = self._metadata.image.topics.get(spec.name)
            return 0 if topic is None else bytes_after(topic, spec)

        def done(results: Sequence[PartitionsAdded], at: Instant) -> None:
            del at
            request.reply(CreatePartitionsResponse(results=[_added(result) for result in results]))

        def refused(spec: PartitionsSpec, refusal: Refusal) -> PartitionsAdded:
            return PartitionsAdded(spec.name, refusal=refusal)

        batches = InBatches(
            self._controller_loop, decide, specs, key=_name_of, refused=refused, size=size
        )
        batches.carry_out(done=done, now=now)

    def _permit(self, request: Request[Any], now: Instant, *, is_strict: bool) -> Permit:
        """What every partition that is made or removed is to be allowed by."""
        mutations = self._quotas.mutations(request, strict=is_strict, now=now)
        return always if mutations is None else mutations.take


def _name_of(spec: PartitionsSpec) -> str:
    return spec.name


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
