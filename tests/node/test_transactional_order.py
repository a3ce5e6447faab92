"""Transactional requests of one connection, several at a time: they are appended as they came.

A request waits for the coordinator if the transaction is new in one of its partitions. The next one
may be about partitions in which it is open already, and would have nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from strandline.types import ProducerId
from tests.node.cluster_world import ClusterWorld
from tests.node.messages import fetch, produce, values
from tests.node.test_transactions_in_cluster import ID, VERSION_1, VERSION_2, Transactions


class Pipeline(Transactions):
    """A producer and its one connection to the leader of `t` and `new`; `t` knows its transaction.

    The coordinator is another broker.
    """

    def __init__(self, version: int) -> None:
        world = ClusterWorld(
            3, "transaction.state.log.num.partitions=1", "transaction.state.log.min.isr=1"
        )
        world.create_topic("new", (1, 2, 3))
        super().__init__(world)
        self.version = version
        self.leader = world.leader_of("t")
        assert self.leader is world.leader_of("new")
        assert self.leader is not self.coordinator
        self.client = self.leader.connect()
        if version == VERSION_1:
            self._add("t", "new")
        self.send(t=0)
        assert self.outcomes() == [{"t": ErrorCode.NONE}]

    def _add(self, *topics: str) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in topics
            ],
        )
        self.coordinator.connect().ask(request, 3)

    def send(self, **sequences: int) -> None:
        """Send a record with its sequence to each of these topics, and wait for nothing."""
        batches: dict[tuple[str, int], bytes | None] = {
            (topic, 0): self.batch(b"%d" % sequence, sequence)
            for topic, sequence in sequences.items()
        }
        request = produce(batches, timeout_ms=30_000)
        request.transactional_id = ID
        self.client.send(request, self.version)

    def outcomes(self) -> list[dict[str, ErrorCode]]:
        """Of each request since the last call, by topic."""
        self.leader.wait_for(lambda: not self.client.asked)
        answers: list[Any] = self.client.answers
        self.client.answers = []
        return [
            {
                topic.name: ErrorCode(topic.partition_responses[0].error_code)
                for topic in answer.responses
            }
            for answer in answers
        ]

    def verifications(self, topic: str = "new") -> bool:
        """Whether the leader keeps that of the producer for this topic."""
        producers = self.leader.node.replicas.hosted(topic, 0).log.producers
        return producers.verifications.get(ProducerId(self.producer_id)) is not None

    def written(self, topic: str) -> list[bytes | None]:
        """All values that the leader has, committed or not."""
        return values(self.leader.connect().ask(fetch((topic, 0, 0)), 11))


@pytest.fixture(params=[VERSION_1, VERSION_2])
def pipeline(request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    made = Pipeline(request.param)
    yield made
    made.world.check()


def test_a_batch_does_not_overtake_one_that_waits_for_the_coordinator(pipeline: Pipeline) -> None:
    pipeline.send(t=1, new=0)
    pipeline.send(t=2)
    pipeline.send(t=3, new=1)
    pipeline.send(new=2)

    assert {code for each in pipeline.outcomes() for code in each.values()} == {ErrorCode.NONE}
    assert pipeline.written("t") == [b"0", b"1", b"2", b"3"]
    assert pipeline.written("new") == [b"0", b"1", b"2"]


def test_what_the_coordinator_refuses_for_good_is_forgotten(pipeline: Pipeline) -> None:
    """Its producer is free of it, and a client that names many producers fills no memory."""
    true_id = pipeline.producer_id
    pipeline.producer_id = 10**6
    pipeline.send(new=0)
    assert pipeline.outcomes() == [{"new": ErrorCode.INVALID_PRODUCER_ID_MAPPING}]
    assert not pipeline.verifications()
    pipeline.send(new=1)
    pipeline.send(new=0)
    assert {code for each in pipeline.outcomes() for code in each.values()} == {
        ErrorCode.INVALID_PRODUCER_ID_MAPPING
    }
    assert not pipeline.verifications()
    pipeline.producer_id = true_id
    pipeline.send(new=0)
    assert pipeline.outcomes() == [{"new": ErrorCode.NONE}]


def test_what_is_refused_is_forgotten_behind_questions_about_other_partitions(
    pipeline: Pipeline,
) -> None:
    pipeline.producer_id = 10**6
    pipeline.send(new=0)
    pipeline.send(t=0)
    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert pipeline.outcomes() == [{"new": code}, {"t": code}]
    assert not pipeline.verifications("new")
    assert not pipeline.verifications("t")


def test_a_request_of_two_producers_begins_nothing(pipeline: Pipeline) -> None:
    first = pipeline.batch(b"a", 1)
    pipeline.producer_id += 1
    request = produce({("t", 0): first, ("new", 0): pipeline.batch(b"b", 0)})
    request.transactional_id = ID
    pipeline.client.send(request, pipeline.version)
    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert pipeline.outcomes() == [{"t": code, "new": code}]
    assert not pipeline.verifications()


def test_a_later_batch_does_not_overtake_one_that_is_to_be_sent_again(pipeline: Pipeline) -> None:
    pipeline.world.kill(pipeline.coordinator.broker_id)
    pipeline.send(new=0)
    assert pipeline.outcomes() == [{"new": ErrorCode.NOT_ENOUGH_REPLICAS}]
    assert pipeline.verifications()


def test_batches_go_on_when_the_coordinator_does_not_answer(pipeline: Pipeline) -> None:
    pipeline.world.kill(pipeline.coordinator.broker_id)
    pipeline.send(t=1, new=0)
    pipeline.send(t=2)

    assert pipeline.outcomes() == [
        {"t": ErrorCode.NONE, "new": ErrorCode.NOT_ENOUGH_REPLICAS},
        {"t": ErrorCode.NONE},
    ]
    assert pipeline.written("t") == [b"0", b"1", b"2"]
