"""ElectLeaders, and the moves of replicas: AlterPartitionReassignments, ListPartitionReassignments.

Decided by the controller; other brokers answer NOT_CONTROLLER, except to questions about moves,
which every broker can answer from its image.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Final, Protocol, TypeVar

from strandline.cluster.controller import (
    Elected,
    ElectionKind,
    ReassignmentAnswer,
    ReassignmentWish,
    Refusal,
    alter_reassignments,
    elect_leaders,
    list_reassignments,
)
from strandline.errors import ErrorCode, ProtocolError
from strandline.node.metadata import Metadata
from strandline.node.office import Office, tell_events
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

_PER_DECISION: Final = 1000
"""Partitions that are elected for in one write."""


class ElectLeadersHandler:
    """Answers ElectLeaders, versions 0 to 2 (KIP-460)."""

    def __init__(self, office: Office, metadata: Metadata) -> None:
        self._office = office
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
        _Election(self._office, request, kind, list(dict.fromkeys(partitions))).go_on(now)


class _Election:
    """One request, decided in portions."""

    def __init__(
        self,
        office: Office,
        request: Request[ElectLeadersRequest],
        kind: ElectionKind,
        partitions: Sequence[TopicPartition],
    ) -> None:
        self._office = office
        self._request = request
        self._kind = kind
        self._left = partitions
        self._results: list[Elected] = []

    def go_on(self, now: Instant) -> None:
        """Decide the next portion, or answer; the first call always asks whether we may."""
        portion, self._left = self._left[:_PER_DECISION], self._left[_PER_DECISION:]
        decide = partial(
            elect_leaders, kind=self._kind, partitions=portion, policy=self._office.policy
        )

        def failed(error: ProtocolError, at: Instant) -> None:
            del at
            if error.code is ErrorCode.NOT_CONTROLLER and not self._results:
                _reply_elected(self._request, [], error.code)
                return
            # Before version 1 there is no code for the whole; and some may be elected already.
            refusal = Refusal.of(error)
            left = [Elected(each, refusal) for each in (*portion, *self._left)]
            _reply_elected(self._request, [*self._results, *left], ErrorCode.NONE)

        self._office.carry_out(decide, done=self._done, failed=failed, now=now)

    def _done(self, results: tuple[Elected, ...], now: Instant) -> None:
        for result in results:
            tell_events(result.events, now)
        self._results += results
        if self._left:
            self.go_on(now)
            return
        wanted = self._results
        if self._request.body.topic_partitions is None:
            # Asked for all, Kafka tells of those only for which there was something to do.
            wanted = [
                result
                for result in wanted
                if result.refusal is None
                or result.refusal.code is not ErrorCode.ELECTION_NOT_NEEDED
            ]
        _reply_elected(self._request, wanted, ErrorCode.NONE)


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

    def __init__(self, office: Office, metadata: Metadata) -> None:
        self._office = office
        self._metadata = metadata

    def alter(self, request: Request[AlterPartitionReassignmentsRequest], now: Instant) -> None:
        """Begin moves, and cancel others. The moves themselves go on after the answer."""
        body = request.body
        wishes = [
            ReassignmentWish(
                TopicPartition(topic.name, item.partition_index),
                None if item.replicas is None else [BrokerId(broker) for broker in item.replicas],
            )
            for topic in body.topics
            for item in topic.partitions
        ]

        def done(results: tuple[ReassignmentAnswer, ...], at: Instant) -> None:
            del at
            response = AlterPartitionReassignmentsResponse(
                allow_replication_factor_change=body.allow_replication_factor_change
            )
            for name, group in groupby(_by_topic(results), _topic_of):
                response.responses.append(
                    ReassignableTopicResponse(
                        name=name, partitions=[_reassigned(item) for item in group]
                    )
                )
            request.reply(response)

        def failed(error: ProtocolError, at: Instant) -> None:
            del at
            request.reply(
                AlterPartitionReassignmentsResponse(
                    allow_replication_factor_change=body.allow_replication_factor_change,
                    error_code=error.code,
                    error_message=error.message or None,
                )
            )

        decide = partial(
            alter_reassignments,
            wishes=wishes,
            policy=self._office.policy,
            may_change_replication_factor=body.allow_replication_factor_change,
        )
        self._office.carry_out(decide, done=done, failed=failed, now=now)

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


def _topic_of(item: _OfPartition) -> str:
    return item.partition.topic
