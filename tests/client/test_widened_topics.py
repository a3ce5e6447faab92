"""Topics that get more partitions while clients use them: what is named is looked for once more."""

from __future__ import annotations

import time
from random import Random

import pytest

import strandline
from strandline.client.router import Router
from strandline.client.settings import Address, ClientSettings
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.types import TopicPartition
from tests.client.conftest import PATIENCE_S, BrokerThread
from tests.client.test_aio import run
from tests.client.test_api import settings


def widen(broker: BrokerThread, topic: str, total: int) -> None:
    with strandline.Admin(settings(broker)) as admin:
        admin.create_partitions(topic, total)
        deadline = time.monotonic() + PATIENCE_S
        while len(admin.describe_topic(topic).partitions) < total:  # the broker hears of it
            assert time.monotonic() < deadline


def created(broker: BrokerThread, topic: str) -> str:
    with strandline.Admin(settings(broker)) as admin:
        admin.create_topic(topic, partitions=1)
    return topic


def test_a_producer_finds_a_partition_that_was_added(broker: BrokerThread, name: str) -> None:
    created(broker, name)
    with strandline.Producer(settings(broker)) as producer:
        producer.send(name, b"v", partition=0)
        producer.flush().raise_failure()
        widen(broker, name, 3)
        delivery = producer.send(name, b"v", partition=2)
        producer.flush().raise_failure()
        assert delivery.result() == 0
        with pytest.raises(ProtocolError, match="the partitions 0 to 2") as refused:
            producer.send(name, b"v", partition=3)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_consumer_finds_a_partition_that_was_added(broker: BrokerThread, name: str) -> None:
    created(broker, name)
    at = TopicPartition(name, 2)
    with strandline.Consumer(settings(broker, auto_offset_reset="earliest")) as consumer:
        assert consumer.partitions_for(name) == [TopicPartition(name, 0)]
        widen(broker, name, 3)
        assert consumer.end_offsets([at]) == {at: 0}
        consumer.assign([at])
        assert consumer.position(at) == 0


def test_asyncio_clients_find_them_too(broker: BrokerThread, name: str) -> None:
    created(broker, name)
    at = TopicPartition(name, 2)

    async def work() -> None:
        async with (
            strandline.AsyncProducer(settings(broker)) as producer,
            strandline.AsyncConsumer(settings(broker, auto_offset_reset="earliest")) as consumer,
        ):
            await producer.send_and_wait(name, b"v", partition=0)
            assert await consumer.partitions_for(name) == [TopicPartition(name, 0)]
            widen(broker, name, 3)
            assert await producer.send_and_wait(name, b"v", partition=2) == 0
            assert await consumer.end_offsets([at]) == {at: 1}
            await consumer.assign([at])
            assert [each.value for each in await consumer.poll(60_000)] == [b"v"]
            with pytest.raises(ProtocolError, match="the partitions 0 to 2"):
                await producer.send(name, b"v", partition=3)

    run(work())


def test_what_is_known_is_used_while_it_is_fresh_and_has_the_partition() -> None:
    router = Router(ClientSettings(metadata_age_max_ms=100), Random(1), [Address("one", 9092)])
    assert router.usable_topic("t", 1000) is None
    parts = [MetadataResponsePartition(partition_index=0, leader_id=1)]
    topic = MetadataResponseTopic(name="t", partitions=parts)
    router.learn(MetadataResponse(topics=[topic]), 1000)
    for partition, is_used in ((None, True), (0, True), (1, False)):
        assert (router.usable_topic("t", 1099, partition) is not None) == is_used
        assert router.usable_topic("t", 1100, partition) is None
