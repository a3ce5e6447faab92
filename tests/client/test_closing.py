"""Clients that are closed: what still counts while they are, and what is refused afterwards."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import warnings
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

import strandline
from strandline.client import core_thread
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import TopicPartition
from tests.client.conftest import PATIENCE_S, BrokerThread
from tests.client.stalling import behind
from tests.client.test_aio import read as read_async
from tests.client.test_aio import run
from tests.client.test_api import read, settings, write

PATIENCE_MS = PATIENCE_S * 1000


def stored(broker: BrokerThread, group: str) -> dict[TopicPartition, int]:
    with strandline.Admin(settings(broker)) as admin:
        return dict(admin.group_offsets(group))


# -- What is dropped -----------------------------------------------------------------------------


def test_a_member_that_is_dropped_leaves_its_group(
    broker: BrokerThread, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_thread, "_ABANDONED_MS", PATIENCE_MS)
    before = set(threading.enumerate())
    write(broker, name, 10)
    consumer = strandline.Consumer(settings(broker, group_id=name, auto_offset_reset="earliest"))
    consumer.subscribe([name])
    read(consumer, 10)
    worker = strandline.ShareConsumer(settings(broker, group_id=f"{name}-share"))
    worker.subscribe([name])
    while worker.acquisition_lock_timeout_ms is None:
        worker.poll(100)
    names = ("strandline-group", "strandline-share-group")
    new = set(threading.enumerate()) - before
    threads = [each for each in new if each.name in names]
    assert len(threads) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of the sockets
        del consumer, worker
        gc.collect()
    for each in threads:
        each.join(PATIENCE_S)
        assert not each.is_alive()
    with strandline.Admin(settings(broker)) as admin:
        assert not admin.describe_group(name).members
        assert not admin.describe_group(f"{name}-share").members


# -- What a listener does in `close` -------------------------------------------------------------


def test_what_is_given_up_in_close_can_still_be_committed(broker: BrokerThread, name: str) -> None:
    write(broker, name, 10)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    mine = settings(broker, group_id=name, auto_offset_reset="earliest", enable_auto_commit="false")
    positions: list[int] = []
    with strandline.Consumer(mine) as consumer:

        def revoked(partitions: Sequence[TopicPartition]) -> None:
            positions.extend(consumer.position(each) for each in partitions)
            consumer.commit()
            consumer.commit({first: 3})

        consumer.subscribe([name], on_revoked=revoked)
        read(consumer, 10)
    assert positions == [5, 5]
    assert stored(broker, name) == {first: 3, second: 5}


def test_what_is_given_up_in_close_can_still_be_committed_on_an_event_loop(
    broker: BrokerThread, name: str
) -> None:
    write(broker, name, 10)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    mine = settings(broker, group_id=name, auto_offset_reset="earliest", enable_auto_commit="false")

    async def work() -> None:
        async with strandline.AsyncConsumer(mine) as consumer:

            async def revoked(partitions: Sequence[TopicPartition]) -> None:
                assert [consumer.position(each) for each in partitions] == [5, 5]
                await consumer.commit()
                await consumer.commit({first: 3})

            await consumer.subscribe([name], on_revoked=revoked)
            await read_async(consumer, 10)

    run(work())
    assert stored(broker, name) == {first: 3, second: 5}


# -- Other tasks of an event loop ----------------------------------------------------------------


async def is_refused(waiting: asyncio.Task[object], what: str) -> None:
    """The task ends by itself, because what it uses is closed."""
    await asyncio.wait({waiting}, timeout=PATIENCE_S / 4)
    assert waiting.done(), "it waits on"
    assert not waiting.cancelled(), "it was not cancelled"
    error = waiting.exception()
    assert isinstance(error, ProtocolError), error
    assert (error.code, error.retriable) == (ErrorCode.INVALID_REQUEST, False)
    assert error.message == f"The {what} is closed."


def open_connections(client: strandline.AsyncConsumer | strandline.AsyncProducer) -> int:
    return sum(not each.closed for each in client._cluster._connections.values())


async def for_ever(consumer: strandline.AsyncConsumer) -> object:
    async for record in consumer:
        del record
    return None


@pytest.mark.parametrize("is_member", [False, True])
def test_a_loop_over_a_consumer_ends_when_another_task_closes_it(
    broker: BrokerThread, name: str, is_member: bool
) -> None:
    write(broker, name, 2)

    async def work() -> None:
        mine = settings(broker, group_id=name, auto_offset_reset="earliest")
        consumer = strandline.AsyncConsumer(mine)
        if is_member:
            await consumer.subscribe([name])
        else:
            await consumer.assign([TopicPartition(name, each) for each in range(2)])
        await read_async(consumer, 2)
        loop = asyncio.create_task(for_ever(consumer))
        await asyncio.sleep(0.05)
        await consumer.close()
        await is_refused(loop, "consumer")
        assert open_connections(consumer) == 0

    run(work())


def test_a_loop_that_reads_no_partition_ends_too(broker: BrokerThread) -> None:
    async def work() -> None:
        consumer = strandline.AsyncConsumer(settings(broker))
        await consumer.assign([])
        loop = asyncio.create_task(for_ever(consumer))
        await asyncio.sleep(0.05)
        await consumer.close()
        await is_refused(loop, "consumer")

    run(work())


def test_a_call_that_waits_for_a_connection_is_refused_when_the_client_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"

        async def work() -> None:
            consumer = strandline.AsyncConsumer({"bootstrap.servers": address})
            waiting = asyncio.create_task(consumer.partitions_for("t"))
            await asyncio.sleep(0.05)
            await consumer.close()
            await is_refused(waiting, "consumer")

        run(work())


async def fails_within(producer: strandline.AsyncProducer) -> None:
    """Leave the producer by an exception: nothing more is sent."""
    with pytest.raises(RuntimeError, match="own"):
        async with producer:
            raise RuntimeError("the program's own")


async def outcome(producer: strandline.AsyncProducer, sent: strandline.Delivery) -> object:
    return await producer.outcome(sent)


async def flush(producer: strandline.AsyncProducer, sent: strandline.Delivery) -> object:
    del sent
    return await producer.flush()


@pytest.mark.parametrize("wait", [outcome, flush])
def test_a_wait_for_records_is_refused_when_a_producer_is_left_by_an_exception(
    start_broker_at: Callable[..., BrokerThread],
    wait: Callable[[strandline.AsyncProducer, strandline.Delivery], Coroutine[Any, Any, object]],
) -> None:
    with behind(start_broker_at) as (way, mine):

        async def work() -> None:
            producer = strandline.AsyncProducer(mine)
            await producer.send_and_wait("t", b"first")
            way.hold()
            sent = await producer.send("t", b"second")
            waiting = [asyncio.create_task(wait(producer, sent)) for _ in range(2)]
            await asyncio.sleep(0.05)
            await fails_within(producer)
            for each in waiting:
                await is_refused(each, "producer")
            await is_refused(asyncio.create_task(wait(producer, sent)), "producer")
            assert open_connections(producer) == 0

        asyncio.run(work())


def test_a_record_is_refused_whose_producer_is_closed_while_it_waits_for_room(
    start_broker_at: Callable[..., BrokerThread],
) -> None:
    with behind(start_broker_at) as (way, mine):

        async def work() -> None:
            producer = strandline.AsyncProducer({**mine, "buffer.memory": 1000})
            await producer.send_and_wait("t", b"first")
            way.hold()
            await producer.send("t", bytes(800))
            waiting = asyncio.create_task(producer.send("t", bytes(800)))
            await asyncio.sleep(0.05)
            await fails_within(producer)
            await is_refused(waiting, "producer")

        asyncio.run(work())
