"""The client and librdkafka read what the other writes, and agree on partitions and members."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer as TheirConsumer
from confluent_kafka import Producer as TheirProducer
from confluent_kafka import TopicPartition as TheirPartition

from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.consumer import Consumer
from strandline.client.producer import Producer, ProducerSettings
from strandline.client.start import Start
from strandline.errors import ErrorCode, ProtocolError
from strandline.records.codec import Codec
from strandline.types import Offset, TopicPartition

CODECS = {
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
COUNT = 300
PARTITIONS = 3


def value_of(number: int) -> bytes:
    return b"value %d " % number * (number % 50 + 1)


@pytest.mark.parametrize("codec", CODECS)
def test_they_read_what_we_write(
    broker: Any, cluster: ClusterClient, name: str, codec: str
) -> None:
    Admin(cluster).topics.create(name, partitions=PARTITIONS)
    with Producer(cluster, ProducerSettings(codec=CODECS[codec])) as producer:
        for number in range(COUNT):
            producer.send(
                name,
                value_of(number),
                key=b"%d" % number,
                headers=[("number", b"%d" % number)],
                timestamp=1_700_000_000_000 + number,
            )
    consumer = TheirConsumer({"bootstrap.servers": broker.address, "group.id": name})
    try:
        consumer.assign([TheirPartition(name, each, 0) for each in range(PARTITIONS)])
        found = consumer.consume(COUNT, 20)
    finally:
        consumer.close()
    keys = [int(each.key() or b"") for each in found]
    assert {key: each.value() for key, each in zip(keys, found, strict=True)} == {
        number: value_of(number) for number in range(COUNT)
    }
    for key, each in zip(keys, found, strict=True):
        assert each.headers() == [("number", each.key())]
        assert each.timestamp()[1] == 1_700_000_000_000 + key


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_they_write_and_keys_agree(
    broker: Any, cluster: ClusterClient, name: str, codec: str
) -> None:
    Admin(cluster).topics.create(name, partitions=PARTITIONS)
    theirs = TheirProducer(
        {
            "bootstrap.servers": broker.address,
            "compression.type": codec,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
        }
    )
    for number in range(COUNT):
        theirs.produce(name, value_of(number), b"%d" % number, headers=[("h", None)])
    assert theirs.flush(20) == 0
    with Producer(cluster) as ours:
        deliveries = [ours.send(name, b"", key=b"%d" % number) for number in range(COUNT)]
    expected = [each.topic_partition.partition for each in deliveries]
    consumer = Consumer(cluster)
    partitions = [TopicPartition(name, each) for each in range(PARTITIONS)]
    consumer.assign(dict.fromkeys(partitions, Start.earliest()))
    ends = consumer.end_offsets()
    found: dict[int, tuple[bytes | None, int]] = {}
    while any(consumer.positions[each] < end for each, end in ends.items()):
        for fetched in consumer.poll(60_000):
            for record in fetched.records:
                if record.headers:
                    assert record.headers == (("h", None),)
                    number = int(record.key or b"")
                    found[number] = (record.value, fetched.topic_partition.partition)
    assert found == {number: (value_of(number), expected[number]) for number in range(COUNT)}


def test_a_member_of_theirs_is_described_and_protected(
    broker: Any, cluster: ClusterClient, name: str
) -> None:
    admin = Admin(cluster)
    admin.topics.create(name, partitions=2)
    partition = TopicPartition(name, 0)
    consumer = TheirConsumer(
        {"bootstrap.servers": broker.address, "group.id": name, "client.id": "theirs"}
    )
    try:
        consumer.subscribe([name])
        for _ in range(100):
            consumer.poll(0.1)
            if len(consumer.assignment()) == 2:
                break
        consumer.commit(offsets=[TheirPartition(name, 0, 0)], asynchronous=False)
        described = admin.groups.describe(name)
        assert described.state == "Stable"
        (member,) = described.members
        assert (member.client_id, member.subscribed) == ("theirs", (name,))
        assert set(member.assigned) == {partition, TopicPartition(name, 1)}
        assert admin.groups.offsets(name)[partition].offset == 0
        with pytest.raises(ProtocolError) as refused:
            admin.groups.set_offsets(name, {partition: Offset(0)})
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        with pytest.raises(ProtocolError) as not_empty:
            admin.groups.delete(name)
        assert not_empty.value.code is ErrorCode.NON_EMPTY_GROUP
    finally:
        consumer.close()
