"""aiokafka, the asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import UnknownTopicOrPartitionError

from tests.clients.support import WAIT_SECONDS, BrokerProcess

T = TypeVar("T")


def finish(work: Awaitable[T]) -> T:
    """Run one test's work with a deadline."""

    async def with_deadline() -> T:
        async with asyncio.timeout(2 * WAIT_SECONDS):
            return await work

    return asyncio.run(with_deadline())


async def take(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord[Any, Any]]:
    return [await consumer.getone() for _ in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_records(broker: BrokerProcess, topic: str, codec: str | None, idempotent: bool) -> None:
    async def work() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=broker.address,
            compression_type=codec,
            enable_idempotence=idempotent,
            linger_ms=2,
        ) as producer:
            sent = [
                await producer.send(
                    topic, b"v%d" % n, key=b"k%d" % n, partition=n % 4, headers=[("h", b"%d" % n)]
                )
                for n in range(400)
            ]
            metadata = [await future for future in sent]
        for partition in range(4):
            assert [m.offset for m in metadata[partition::4]] == list(range(100))
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=broker.address, auto_offset_reset="earliest"
        ) as consumer:
            read = await take(consumer, 400)
        expected = {
            (n % 4, n // 4, b"k%d" % n, b"v%d" % n, (("h", b"%d" % n),)) for n in range(400)
        }
        assert {(r.partition, r.offset, r.key, r.value, tuple(r.headers)) for r in read} == expected

    finish(work())


def test_group_and_commits(broker: BrokerProcess, topic: str, name: str) -> None:
    def member() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.address,
            group_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
        )

    async def balanced(*members: AIOKafkaConsumer) -> None:
        while sorted(len(m.assignment()) for m in members) != [2] * len(members):
            await asyncio.gather(*(m.getmany(timeout_ms=50) for m in members))

    async def work() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
            for n in range(40):
                await producer.send_and_wait(topic, b"%d" % n, partition=n % 4)
        async with member() as first:
            assert len(await take(first, 40)) == 40
            await first.commit()
            assert await first.committed(TopicPartition(topic, 2)) == 10
            async with member() as second:
                await balanced(first, second)
                assert first.assignment() | second.assignment() == {
                    TopicPartition(topic, n) for n in range(4)
                }
        async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
            await producer.send_and_wait(topic, b"after", partition=3)
        async with member() as third:
            [record] = await take(third, 1)
            assert (record.value, record.offset) == (b"after", 10)

    finish(work())


def test_offsets(broker: BrokerProcess, topic: str) -> None:
    part = TopicPartition(topic, 0)

    async def work() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
            for n in range(10):
                await producer.send_and_wait(
                    topic, b"%d" % n, partition=0, timestamp_ms=1_700_000_000_000 + n
                )
        async with AIOKafkaConsumer(bootstrap_servers=broker.address) as consumer:
            consumer.assign([part])
            assert await consumer.beginning_offsets([part]) == {part: 0}
            assert await consumer.end_offsets([part]) == {part: 10}
            found = await consumer.offsets_for_times({part: 1_700_000_000_004})
            assert found[part].offset == 4
            consumer.seek(part, 8)
            assert [record.value for record in await take(consumer, 2)] == [b"8", b"9"]

    finish(work())


def test_admin(broker: BrokerProcess, name: str) -> None:
    async def work() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(name, 3, 1)])
            [described] = await admin.describe_topics([name])
            assert len(described["partitions"]) == 3
            await admin.delete_topics([name])
            assert name not in await admin.list_topics()
            answered = await admin.delete_topics([name])
            [(_, code)] = answered.topic_error_codes
            assert code == UnknownTopicOrPartitionError.errno
        finally:
            await admin.close()

    finish(work())
