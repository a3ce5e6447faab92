"""The public clients on an event loop, against real brokers: the same promises, no thread."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline.client.aio.connection import Connection
from strandline.client.settings import ClientSettings, parse_addresses
from strandline.errors import ErrorCode, InvalidSetting, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from strandline.types import TopicPartition
from tests.client.conftest import PATIENCE_S, BrokerThread
from tests.client.half_led import HEALTHY, ORPHAN, VALUES, comes_back, half_led
from tests.client.test_api import settings
from tests.client.test_producer import LosesAnAnswer
from tests.client.test_producer_patience import Keeps

PATIENCE_MS = PATIENCE_S * 1000


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        before = threading.active_count()
        async with asyncio.timeout(PATIENCE_S):
            await work
        assert threading.active_count() == before, "it has threads"
        assert len(asyncio.all_tasks()) == 1, "tasks are left"

    asyncio.run(bounded())


async def read(consumer: strandline.AsyncConsumer, count: int) -> list[strandline.ConsumerRecord]:
    found: list[strandline.ConsumerRecord] = []
    while len(found) < count:
        found += await consumer.poll(PATIENCE_MS)
    return found


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_what_is_written_is_read(broker: BrokerThread, name: str, codec: str) -> None:
    async def work() -> None:
        async with strandline.AsyncAdmin(settings(broker)) as admin:
            await admin.create_topic(name, partitions=3)
        mine = settings(broker, compression_type=codec, batch_size=2000)
        async with strandline.AsyncProducer(mine) as producer:
            sent = [
                await producer.send(name, b"%d" % each, key=b"%d" % (each % 9))
                for each in range(2000)
            ]
            assert (await producer.flush()).delivered == 2000
            assert producer.buffered_bytes == 0
            assert await producer.partitions_for(name) == [0, 1, 2]
        places = {(*each.topic_partition, each.result()) for each in sent}
        async with strandline.AsyncConsumer(settings(broker, auto_offset_reset="earliest")) as own:
            await own.assign(await own.partitions_for(name))
            found = await read(own, 2000)
            assert {(each.topic, each.partition, each.offset) for each in found} == places
            assert {each.value for each in found} == {b"%d" % each for each in range(2000)}

    run(work())


def test_an_outcome_can_be_waited_for_and_what_lingers_goes_out(
    broker: BrokerThread, name: str
) -> None:
    async def work() -> None:
        async with strandline.AsyncProducer(settings(broker)) as producer:
            offsets = await asyncio.gather(
                *(producer.send_and_wait(name, b"%d" % each, partition=0) for each in range(50))
            )
            assert sorted(offsets) == list(range(50))
            delivery = await producer.send(name, b"v", partition=0)
            assert await producer.outcome(delivery) == await producer.outcome(delivery) == 50

    run(work())


def test_a_batch_above_the_limit_is_split_and_its_records_fail_alone(
    broker: BrokerThread, name: str
) -> None:
    async def work() -> None:
        async with strandline.AsyncAdmin(settings(broker)) as admin:
            await admin.create_topic(name, configs={"max.message.bytes": "1000"})
        mine = settings(broker, linger_ms=1000)
        async with strandline.AsyncProducer(mine) as producer:
            sent = [await producer.send(name, b"x" * 100) for _ in range(40)]
            large = await producer.send(name, bytes(2000))
            result = await producer.flush()
            assert (result.delivered, [each.count for each in result.failed]) == (40, [1])
            assert [await producer.outcome(each) for each in sent] == list(range(40))
            with pytest.raises(ProtocolError) as refused:
                await producer.outcome(large)
            assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(ProtocolError, match=r"max\.message\.bytes"):
            async with strandline.AsyncProducer(mine) as producer:
                await producer.send(name, bytes(2000))

    run(work())


def test_memory_is_bounded(broker: BrokerThread, name: str) -> None:
    async def work() -> None:
        mine = settings(broker, buffer_memory=20_000, batch_size=5000)
        async with strandline.AsyncProducer(mine) as producer:
            for _ in range(300):
                await producer.send(name, bytes(500))
                assert producer.buffered_bytes <= 20_000
            with pytest.raises(ProtocolError, match="does not fit"):
                await producer.send(name, bytes(20_001))

    run(work())


def test_a_lost_answer_is_repeated_once_only(start_broker_at: Callable[..., Any]) -> None:
    proxy = LosesAnAnswer()
    broker = start_broker_at(f"advertised.listeners=PLAINTEXT://127.0.0.1:{proxy.port}")
    proxy.target = ("127.0.0.1", broker.port)

    async def work() -> None:
        mine = settings(broker, auto_offset_reset="earliest")
        writing = {**settings(broker), "bootstrap.servers": f"127.0.0.1:{proxy.port}"}
        async with strandline.AsyncProducer(writing) as producer:
            assert await producer.send_and_wait("t", b"once") == 0
        async with strandline.AsyncConsumer(mine) as consumer:
            at = TopicPartition("t", 0)
            assert await consumer.end_offsets([at]) == {at: 1}

    try:
        asyncio.run(work())
    finally:
        proxy.close()
    assert proxy.lost == 1


def test_a_broker_may_be_away_for_a_while(start_broker_at: Callable[..., Any]) -> None:
    broker = start_broker_at()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        mine = settings(broker, auto_offset_reset="latest")
        async with (
            strandline.AsyncProducer(settings(broker)) as producer,
            strandline.AsyncConsumer(mine) as consumer,
        ):
            await producer.send_and_wait("t", b"before")
            await consumer.assign([TopicPartition("t", 0)])
            await loop.run_in_executor(None, broker.stop)
            during = await producer.send("t", b"during")
            assert await consumer.poll(50) == []
            await loop.run_in_executor(None, broker.start)
            assert await producer.outcome(during) == 1
            assert [each.value for each in await read(consumer, 1)] == [b"during"]

    asyncio.run(work())


@pytest.mark.parametrize(
    ("record", "refusal"),
    [({"value": "text"}, TypeError), ({"value": b"v", "timestamp_ms": 2**63}, ValueError)],
)
def test_what_is_no_record_is_refused_at_once_and_harms_no_other(
    broker: BrokerThread, name: str, record: dict[str, Any], refusal: type[Exception]
) -> None:
    async def work() -> None:
        async with strandline.AsyncProducer(settings(broker)) as producer:
            with pytest.raises(refusal):
                await producer.send(name, **record)
            with pytest.raises(refusal):
                await producer.send_and_wait(name, **record)
            assert await producer.send_and_wait(name, b"good") == 0

    run(work())


def test_what_has_waited_for_the_program_has_its_whole_time_for_attempts(
    broker: BrokerThread, name: str
) -> None:
    async def work() -> None:
        mine = settings(broker, linger_ms=100_000, delivery_timeout_ms=50_000)
        async with strandline.AsyncProducer(mine) as producer:
            delivery = await producer.send(name, b"v")
            # As if the program had kept the event loop for longer than the delivery timeout.
            delivery.batch.created_ms -= 60_000
            assert (await producer.flush()).delivered == 1

    run(work())


def test_a_batch_on_its_way_is_given_up_when_its_time_is_over(
    start_broker_at: Callable[..., Any],
) -> None:
    proxy = Keeps()
    broker = start_broker_at(f"advertised.listeners=PLAINTEXT://127.0.0.1:{proxy.port}")
    proxy.target = ("127.0.0.1", broker.port)

    async def work() -> None:
        async with strandline.AsyncAdmin(settings(broker)) as admin:
            await admin.create_topic("t")
        mine = settings(broker, delivery_timeout_ms=2000)
        mine["bootstrap.servers"] = f"127.0.0.1:{proxy.port}"
        async with strandline.AsyncProducer(mine) as producer:
            await producer.send("t", b"unanswered")
            (failed,) = (await producer.flush()).failed
            assert failed.maybe_written
            waited = re.search(r"did not answer Produce within (\d+) ms", failed.error.message)
            assert waited is not None
            assert int(waited[1]) <= 2000
            assert await producer.send_and_wait("t", b"next") == 1

    try:
        asyncio.run(work())
    finally:
        proxy.close()


def test_a_producer_goes_on_when_a_secret_that_was_missing_is_there_again(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("secret")

    async def work(brokers: strandline.Cluster) -> None:
        mine = {**brokers.client_config("alice"), "sasl.password": f"file:{secret}"}
        async with strandline.AsyncProducer(mine) as producer:
            await producer.send_and_wait("t", b"before")
            secret.rename(tmp_path / "away")
            for connection in producer._cluster._connections.values():
                connection.close()
            during = await producer.send("t", b"during")
            waiting = [asyncio.create_task(producer.outcome(during)) for _ in range(2)]
            for each in waiting:
                with pytest.raises(InvalidSetting):
                    await each
            with pytest.raises(InvalidSetting):
                await producer.flush()
            (tmp_path / "away").rename(secret)
            assert await producer.outcome(during) == 1
            assert (await producer.flush()).delivered == 2

    security: Any = {"security": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    with strandline.Cluster(brokers=1, users={"alice": "secret"}, **security) as brokers:
        brokers.create_topic("t", partitions=1)
        asyncio.run(work(brokers))


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_partition_that_no_broker_gives_stops_no_other(is_noticed: bool) -> None:
    """It has no leader, or one that cannot be reached."""
    with half_led(is_noticed=is_noticed) as brokers:

        async def work() -> None:
            loop = asyncio.get_running_loop()
            mine = {
                "bootstrap.servers": brokers.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "none",
            }
            async with strandline.AsyncConsumer(mine) as consumer:
                await consumer.commit({ORPHAN: 0, HEALTHY: 0})
                await consumer.assign([ORPHAN, HEALTHY])
                assert [each.value for each in await read(consumer, 3)] == VALUES[HEALTHY]
                await loop.run_in_executor(None, comes_back, brokers)
                assert [each.value for each in await read(consumer, 1)] == VALUES[ORPHAN]

        asyncio.run(work())


def test_a_broker_that_stays_away_fails_records() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    mine = {"bootstrap.servers": address, "default.api.timeout.ms": 100}

    async def work() -> None:
        producer = strandline.AsyncProducer(mine)
        with pytest.raises(ProtocolError, match="Cannot connect"):
            await producer.send("t", b"v")
        await producer.close()

    run(work())


def test_places_and_a_group(broker: BrokerThread, name: str) -> None:
    async def work() -> None:
        async with strandline.AsyncAdmin(settings(broker)) as admin:
            await admin.create_topic(name, partitions=2)
        async with strandline.AsyncProducer(settings(broker)) as producer:
            for each in range(20):
                await producer.send(
                    name, b"%d" % each, partition=each % 2, timestamp_ms=1000 + each
                )
        first, second = TopicPartition(name, 0), TopicPartition(name, 1)
        mine = settings(broker, auto_offset_reset="earliest", group_id=name)
        async with strandline.AsyncConsumer(mine) as consumer:
            await consumer.assign([first, second])
            assert consumer.assignment == [first, second]
            assert await consumer.beginning_offsets([first]) == {first: 0}
            await consumer.seek(first, 9)
            await consumer.seek_to_time(1017, second)
            found = await read(consumer, 3)
            assert sorted(each.value or b"" for each in found) == [b"17", b"18", b"19"]
            await consumer.seek_to_beginning(first)
            async for record in consumer:
                assert record.value == b"0"
                break
            await consumer.commit({first: 4})
            assert await consumer.committed([first, second]) == {first: 4}
            await consumer.seek_to_end()
            await consumer.commit()
            with pytest.raises(ProtocolError, match="is not assigned"):
                consumer.position(TopicPartition(name, 9))
        async with strandline.AsyncConsumer(mine) as consumer:
            await consumer.assign([first])
            assert consumer.position(first) == 10
        async with strandline.AsyncConsumer(settings(broker)) as consumer:
            with pytest.raises(InvalidSetting, match=r"group\.id is missing"):
                await consumer.commit()
        async with strandline.AsyncAdmin(settings(broker)) as admin:
            assert await admin.group_offsets(name) == {first: 10, second: 10}
            await admin.alter_group_offsets(name, {first: 0})
            assert (await admin.describe_group(name)).members == ()
            assert name in [each.group for each in await admin.list_groups()]
            await admin.delete_group(name)

    run(work())


def test_topics_are_managed(broker: BrokerThread, name: str) -> None:
    async def work() -> None:
        async with strandline.AsyncAdmin(settings(broker)) as admin:
            await admin.create_topic(name, configs={"retention.ms": "1000"})
            with pytest.raises(ProtocolError) as refused:
                await admin.create_topic(name)
            assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
            await admin.create_partitions(name, 3)
            assert sorted((await admin.describe_topic(name)).partitions) == [0, 1, 2]
            await admin.alter_topic_config(name, reset=iter(["retention.ms"]))
            assert (await admin.topic_config(name))["retention.ms"] == "604800000"
            (alive,) = (await admin.describe_cluster()).brokers
            assert "log.dirs" in await admin.broker_config(alive.broker_id)
            at = TopicPartition(name, 0)
            assert await admin.delete_records({at: 0}) == {at: 0}
            assert name in [each.name for each in await admin.list_topics()]
            assert await admin.delete_topics(iter([name])) == {name: None}
            with pytest.raises(ProtocolError, match="There is no topic"):
                await admin.describe_topic(name)

    run(work())


def test_what_a_version_cannot_say_is_refused_and_costs_no_other_request(
    broker: BrokerThread,
) -> None:
    async def work() -> None:
        (address,) = parse_addresses(broker.address)
        connection = await Connection.open(address, ClientSettings())
        asked = ListGroupsRequest(states_filter=["Stable"])  # since version 4
        for _ in range(2):
            with pytest.raises(ProtocolError, match="states_filter") as refused:
                await connection.call(ApiKey.LIST_GROUPS, ListGroupsResponse, asked, highest=3)
            assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(ProtocolError, match="states_filter"):
            connection.send_unanswered(ApiKey.LIST_GROUPS, asked, highest=3)
        await connection.call(ApiKey.LIST_GROUPS, ListGroupsResponse, asked)
        assert connection.in_flight == 0
        connection.close()

    run(work())


def test_a_leader_that_dies_is_left_for_the_next() -> None:
    """On three brokers: nothing is lost, doubled or out of order."""

    async def work(brokers: strandline.Cluster) -> None:
        loop = asyncio.get_running_loop()
        mine = {"bootstrap.servers": brokers.bootstrap_servers}
        async with (
            strandline.AsyncProducer(mine) as producer,
            strandline.AsyncConsumer({**mine, "auto.offset.reset": "earliest"}) as consumer,
        ):
            await consumer.assign([TopicPartition("t", 0)])
            sent = []
            found: list[strandline.ConsumerRecord] = []
            for each in range(300):
                sent.append(await producer.send("t", b"%d" % each))
                if each == 100:
                    found += await read(consumer, 1)
                    leader = brokers.leader_of("t") or 0
                    await loop.run_in_executor(None, brokers.kill, leader)
            assert [await producer.outcome(each) for each in sent] == list(range(300))
            found += await read(consumer, 300 - len(found))
            assert [each.value for each in found] == [b"%d" % each for each in range(300)]

    with strandline.Cluster(brokers=3) as brokers:
        brokers.create_topic("t", partitions=1, replication_factor=3)
        asyncio.run(work(brokers))
