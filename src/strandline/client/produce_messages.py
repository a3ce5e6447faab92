"""Produce requests and their answers by partition; the bytes of a batch. Knows no batch's fate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from strandline.client.delivery import Batch
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from strandline.records.builder import BatchBuilder, BatchOptions
from strandline.records.codec import Codec
from strandline.types import NO_TOPIC_ID, TopicId, TopicPartition

_LAST_BY_NAME: Final = 12
"""Versions from the next one on name topics by their ids alone."""


def encode_batch(batch: Batch, codec: tuple[Codec, int | None]) -> bytes:
    """The bytes of a batch, with its identity if it has one. `codec` comes with its level."""
    options = BatchOptions(codec=codec[0], level=codec[1])
    if batch.identity is not None:
        options = BatchOptions(
            codec=codec[0],
            level=codec[1],
            producer_id=batch.identity.producer_id,
            producer_epoch=batch.identity.epoch,
            base_sequence=batch.identity.base_sequence,
            is_transactional=batch.identity.is_transactional,
        )
    builder = BatchBuilder(options)
    for record in batch.records:
        builder.append(record)
    return builder.build()


def produce_request(
    encoded: Iterable[tuple[TopicPartition, bytes]],
    ids: Mapping[str, TopicId],
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """One batch per partition; `ids` has the topics."""
    topics: dict[str, TopicProduceData] = {}
    for (name, number), batch in encoded:
        topic = topics.setdefault(name, TopicProduceData(name=name, topic_id=ids[name]))
        data = PartitionProduceData(index=number, records=memoryview(batch))
        topic.partition_data.append(data)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=list(topics.values()),
    )


def highest_version(ids: Mapping[str, TopicId], highest: int | None = None) -> int | None:
    """The newest usable version up to `highest`: without topic ids it is one that names topics."""
    if NO_TOPIC_ID not in ids.values():
        return highest
    return _LAST_BY_NAME if highest is None else min(highest, _LAST_BY_NAME)


def answers_by_partition(
    response: ProduceResponse, ids: Mapping[str, TopicId]
) -> Iterator[tuple[TopicPartition, TopicId, PartitionProduceResponse]]:
    """The parts of the answer to a request with these topics, with the topic's id if the answer has
    it; others are left out."""
    names = {topic_id: name for name, topic_id in ids.items()}
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id, "")
        if name in ids:
            for answer in topic.partition_responses:
                yield TopicPartition(name, answer.index), topic.topic_id, answer
