"""ElectLeaders, and the moves of replicas: AlterPartitionReassignments, ListPartitionReassignments.

Decided by the controller; other brokers answer NOT_CONTROLLER, except to questions about moves,
which every broker can answer from its image.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Protocol, TypeVar

from strandline.cluster.controller import (
    Decision,
    Elected,
    ElectionKind,
    ReassignmentAnswer,
    ReassignmentRequest,
    Refusal,
    alter_reassignments,
    elect_leaders,
    list_reassignments,
)
from strandline.cluster.image import ClusterImage
from strandline.errors import ErrorCode, ProtocolError
from strandline.node.controller_loop import ControllerLoop, log_events
from strandline.node.handlers.batching import InBatches
from strandline.node.metadata import Metadata
from strandline.node.request import Request
from strandline.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from strandline.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from strandline.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from strandline.types import BrokerId, Instant, TopicPartition


class ElectLeadersHandler:
    """Answers ElectLeaders, versions 0 to 2 (KIP-460)."""

    def __init__(self, controller: ControllerLoop, metadata: Metadata) -> None:
        self._controller_loop = controller
        self._metadata = metadata

    def handle(self, request: Request[ElectLeadersRequest], now: Instant) -> None:
        """Elect as asked, for some partitions or for all."""
        body = request.body
        try:
            kind = ElectionKind(body.election_type)
        except ValueError:
            _reply_elected(request, [], ErrorCode.INVALID_REQUEST)
            return
        if body.topic_partitions is None:
            partitions = [
                TopicPartition(topic.name, number)
                for topic in self._metadata.image.topics.values()
                for number in topic.partitions
            ]
        else:
            partitions = [
                TopicPartition(topic.topic, number)
                for topic in body.topic_partitions
                for number in topic.partitions
            ]
        self._elect(request, kind, list(dict.fromkeys(partitions)), now)

    def _elect(
        self,
        request: Request[ElectLeadersRequest],
        kind: ElectionKind,
        partitions: Sequence[TopicPartition],
        now: Instant,
    ) -> None:
        policy = self._controller_loop.policy

        def decide(image: ClusterImage, some: Sequence[TopicPartition]) -> Decision[Elected]:
            return elect_leaders(image, kind, some, policy)

        def done(results: Sequence[Elected], at: Instant) -> None:
            _tell(results, at)
            if request.body.topic_partitions is None:
                # Asked for all, Kafka tells of those only for which there was something to do.
                results = [
                    result
                    for result in results
                    if result.refusal is None
                    or result.refusal.code is not ErrorCode.ELECTION_NOT_NEEDED
                ]
            _reply_elected(request, results, ErrorCode.NONE)

        def failed(error: ProtocolError, at: Instant) -> None:
            if error.code is ErrorCode.NOT_CONTROLLER:
                _reply_elected(request, [], error.code)
            else:
                # Before version 1 there is no code for the whole.
                refusal = Refusal.of(error)
                done([refused(each, refusal) for each in partitions], at)

        def refused(partition: TopicPartition, refusal: Refusal) -> Elected:
            return Elected(partition, refusal)

        InBatches(
            self._controller_loop, decide, partitions, key=_itself, refused=refused
        ).carry_out(done=done, failed=failed, now=now)


def _tell(results: Sequence[Elected], now: Instant) -> None:
    for result in results:
        log_events(result.events, now)


def _itself(partition: TopicPartition) -> TopicPartition:
    return partition


def _reply_elected(
    request: Request[ElectLeadersRequest], results: Iterable[Elected], code: ErrorCode
) -> None:
    if code is not ErrorCode.NONE and request.version == 0:
        # The response of version 0 has no code of its own: every partition carries it.
        asked = request.body.topic_partitions or []
        refusal = Refusal(code, "")
        results = [
            Elected(TopicPartition(topic.topic, number), refusal)
            for topic in asked
            for number in topic.partitions
        ]
        code = ErrorCode.NONE
    response = ElectLeadersResponse(error_code=code)
    for name, group in groupby(_by_topic(results), _topic_of):
        response.replica_election_results.append(
            ReplicaElectionResult(topic=name, partition_result=[_elected(item) for item in group])
        )
    request.reply(response)


def _elected(item: Elected) -> PartitionResult:
    refusal = item.refusal
    return PartitionResult(
        partition_id=item.partition.partition,
        error_code=refusal.code if refusal else ErrorCode.NONE,
        error_message=refusal.message or None if refusal else None,
    )


class ReassignmentsHandler:
    """Answers AlterPartitionReassignments 0 and 1 and ListPartitionReassignments 0 (KIP-455)."""

    def __init__(self, controller: ControllerLoop, metadata: Metadata) -> None:
        self._controller_loop = controller
        self._metadata = metadata

    def alter(self, request: Request[AlterPartitionReassignmentsRequest], now: Instant) -> None:
        """Begin moves, and cancel others. The moves themselves go on after the answer."""
        body = request.body
        wishes = [
            ReassignmentRequest(
                TopicPartition(topic.name, item.partition_index),
                None if item.replicas is None else [BrokerId(broker) for broker in item.replicas],
            )
            for topic in body.topics
            for item in topic.partitions
        ]

        image, measured = self._metadata.image, set[str]()

        def size(wish: ReassignmentRequest) -> int:
            """The assignment of a topic is written with the first of its partitions."""
            name = wish.partition.topic
            if name in measured or name not in image.topics:
                return 0
            measured.add(name)
            return len(image.topics[name].node.encode())

        def decide(
            image: ClusterImage, some: Sequence[ReassignmentRequest]
        ) -> Decision[ReassignmentAnswer]:
            return alter_reassignments(
                image,
                some,
                self._controller_loop.policy,
                may_change_replication_factor=body.allow_replication_factor_change,
            )

        def done(results: Sequence[ReassignmentAnswer], at: Instant) -> None:
            del at
            _reply_reassigned(request, results)

        def failed(error: ProtocolError, at: Instant) -> None:
            del at
            _reply_reassigned(request, [], error)

        def refused(wish: ReassignmentRequest, refusal: Refusal) -> ReassignmentAnswer:
            return ReassignmentAnswer(wish.partition, refusal)

        InBatches(
            self._controller_loop,
            decide,
            _by_topic(wishes),
            key=_partition_of,
            refused=refused,
            size=size,
        ).carry_out(done=done, failed=failed, now=now)

    def list(self, request: Request[ListPartitionReassignmentsRequest], now: Instant) -> None:
        """Tell the moves that are under way."""
        del now
        body = request.body
        wanted = None
        if body.topics is not None:
            wanted = [
                TopicPartition(topic.name, number)
                for topic in body.topics
                for number in topic.partition_indexes
            ]
        response = ListPartitionReassignmentsResponse(error_message=None)
        ongoing = list_reassignments(self._metadata.image, wanted)
        for name, group in groupby(ongoing, _topic_of):
            response.topics.append(
                OngoingTopicReassignment(
                    name=name,
                    partitions=[
                        OngoingPartitionReassignment(
                            partition_index=item.partition.partition,
                            replicas=list[int](item.replicas),
                            adding_replicas=list[int](item.adding),
                            removing_replicas=list[int](item.removing),
                        )
                        for item in group
                    ],
                )
            )
        request.reply(response)


def _reply_reassigned(
    request: Request[AlterPartitionReassignmentsRequest],
    results: Iterable[ReassignmentAnswer],
    error: ProtocolError | None = None,
) -> None:
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.body.allow_replication_factor_change,
        error_code=error.code if error else ErrorCode.NONE,
        error_message=error.message or None if error else None,
    )
    for name, group in groupby(_by_topic(results), _topic_of):
        response.responses.append(
            ReassignableTopicResponse(name=name, partitions=[_reassigned(item) for item in group])
        )
    request.reply(response)


def _reassigned(item: ReassignmentAnswer) -> ReassignablePartitionResponse:
    refusal = item.refusal
    return ReassignablePartitionResponse(
        partition_index=item.partition.partition,
        error_code=refusal.code if refusal else ErrorCode.NONE,
        error_message=refusal.message or None if refusal else None,
    )


class _OfPartition(Protocol):
    @property
    def partition(self) -> TopicPartition: ...


_Item = TypeVar("_Item", bound=_OfPartition)


def _by_topic(items: Iterable[_Item]) -> list[_Item]:
    """Each topic's items together; otherwise in their order."""
    return sorted(items, key=_topic_of)


def _partition_of(item: _OfPartition) -> TopicPartition:
    return item.partition


def _topic_of(item: _OfPartition) -> str:
    return item.partition.topic
