"""Requests of the tests, said shortly, and what is read off their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from strandline.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from strandline.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from strandline.records.batch import iterate_headers
from strandline.records.builder import build_batch
from strandline.records.codec import Codec
from strandline.records.record import Record, read_records
from strandline.types import NO_OFFSET, NO_TOPIC_ID, ProducerEpoch, ProducerId
from tests.node.world import WALL_MS


def batch(
    *values: bytes,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    codec: Codec = Codec.NONE,
    timestamp: int = WALL_MS,
    key: bytes | None = None,
) -> bytes:
    """A record batch as a client builds it."""
    return build_batch(
        [Record(NO_OFFSET, timestamp + i, key, value) for i, value in enumerate(values)],
        codec=codec,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=sequence,
    )


def with_flipped_bit(data: bytes, bit: int) -> bytes:
    """As the network may damage it; bits are counted from the first byte's lowest."""
    at, shift = divmod(bit, 8)
    return data[:at] + bytes([data[at] ^ 1 << shift]) + data[at + 1 :]


def produce(
    records: bytes | Mapping[tuple[str, int], bytes | None] | None,
    topic: str = "orders",
    partition: int = 0,
    *,
    acks: int = -1,
    timeout_ms: int = 1000,
    topic_id: UUID = NO_TOPIC_ID,
) -> ProduceRequest:
    """A produce request for one partition, or for several given as a dict."""
    if not isinstance(records, Mapping):
        records = {(topic, partition): records}
    topics: dict[str, TopicProduceData] = {}
    for (name, index), data in records.items():
        entry = topics.setdefault(
            name,
            TopicProduceData(name="" if topic_id.int else name, topic_id=topic_id),
        )
        view = None if data is None else memoryview(data)
        entry.partition_data.append(PartitionProduceData(index=index, records=view))
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values()))


def fetch(
    *wanted: tuple[str | UUID, int, int],
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    partition_max_bytes: int = 1_000_000,
    session: tuple[int, int] = (0, -1),
    forgotten: tuple[tuple[str | UUID, int], ...] = (),
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    replica_id: int = -1,
    isolation_level: int = 0,
) -> FetchRequest:
    """A fetch of (topic name or id, partition, offset)s."""
    topics = []
    for topic, partition, offset in wanted:
        entry = FetchTopic(
            partitions=[
                FetchPartition(
                    partition=partition,
                    fetch_offset=offset,
                    partition_max_bytes=partition_max_bytes,
                    current_leader_epoch=leader_epoch,
                    last_fetched_epoch=last_fetched_epoch,
                )
            ]
        )
        _name(entry, topic)
        topics.append(entry)
    dropped = []
    for topic, partition in forgotten:
        forgotten_topic = ForgottenTopic(partitions=[partition])
        _name(forgotten_topic, topic)
        dropped.append(forgotten_topic)
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
        forgotten_topics_data=dropped,
    )


def _name(entry: Any, topic: str | UUID) -> None:
    if isinstance(topic, UUID):
        entry.topic_id = topic
    else:
        entry.topic = topic


def list_offsets(
    timestamp: int,
    topic: str = "orders",
    partition: int = 0,
    *,
    leader_epoch: int = -1,
    isolation_level: int = 0,
) -> ListOffsetsRequest:
    """A lookup of one partition by time or by a special number."""
    return ListOffsetsRequest(
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=partition,
                        current_leader_epoch=leader_epoch,
                        timestamp=timestamp,
                    )
                ],
            )
        ],
    )


def produced(answer: Any) -> Any:
    """The answer of the only partition of a produce."""
    (topic,) = answer.responses
    (partition,) = topic.partition_responses
    return partition


def fetched(answer: Any) -> dict[tuple[str | UUID, int], Any]:
    """The partitions of a fetch answer."""
    return {
        (topic.topic or topic.topic_id, partition.partition_index): partition
        for topic in answer.responses
        for partition in topic.partitions
    }


def values(answer: Any) -> list[bytes | None]:
    """All values of a fetch answer, in its order."""
    found = []
    for partition in fetched(answer).values():
        data = bytes(partition.records or b"")
        for position, _ in iterate_headers(data):
            found += [record.value for record in read_records(data, position)]
    return found


def offsets(answer: Any) -> list[int]:
    """All offsets of a fetch answer, in its order."""
    found: list[int] = []
    for partition in fetched(answer).values():
        data = bytes(partition.records or b"")
        for position, _ in iterate_headers(data):
            found += [record.offset for record in read_records(data, position)]
    return found
