"""Produce requests of several partitions, and whom the parts of an answer are about."""

from __future__ import annotations

from strandline.client.produce_messages import (
    answers_by_partition,
    highest_version,
    produce_request,
)
from strandline.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from strandline.types import NO_TOPIC_ID, TopicId, TopicPartition

T, U = TopicId(int=7), TopicId(int=8)
IDS = {"t": T, "u": U}


def test_partitions_stand_under_their_topics() -> None:
    batches = [
        (TopicPartition("t", 0), b"a"),
        (TopicPartition("u", 0), b"b"),
        (TopicPartition("t", 1), b"c"),
    ]
    request = produce_request(batches, IDS, acks=-1, timeout_ms=5)
    assert [(each.name, each.topic_id) for each in request.topic_data] == [("t", T), ("u", U)]
    assert [each.index for each in request.topic_data[0].partition_data] == [0, 1]
    assert (request.acks, request.timeout_ms) == (-1, 5)


def test_topics_without_ids_need_a_version_that_names_them() -> None:
    assert highest_version(IDS) is None
    assert highest_version({**IDS, "v": NO_TOPIC_ID}) == 12


def test_answers_are_found_by_name_or_id_and_those_of_other_topics_left_out() -> None:
    parts = [PartitionProduceResponse(index=3)]
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(name="t", partition_responses=parts),
            TopicProduceResponse(topic_id=U, partition_responses=parts),
            TopicProduceResponse(topic_id=TopicId(int=9), partition_responses=parts),
            TopicProduceResponse(name="w", partition_responses=parts),
        ]
    )
    found = [(at, topic_id) for at, topic_id, _ in answers_by_partition(response, IDS)]
    assert found == [(TopicPartition("t", 3), NO_TOPIC_ID), (TopicPartition("u", 3), U)]
