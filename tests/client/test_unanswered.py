"""What an asyncio producer sends without waiting for answers (acks=0): what counts as delivered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import strandline
from strandline.client.aio import sending
from strandline.types import TopicPartition
from tests.client.conftest import PATIENCE_S, BrokerThread
from tests.client.stalling import behind
from tests.client.test_aio import run
from tests.client.test_api import settings

VALUE = bytes(900_000)
COUNT = 24
"""Far more than sockets keep."""


def bounded(work: Coroutine[Any, Any, None]) -> None:
    async def inner() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work

    asyncio.run(inner())


def kept_bytes(producer: strandline.AsyncProducer) -> int:
    """What asyncio keeps because the sockets do not take it."""
    transports = [each._transport for each in producer._cluster._connections.values()]
    return sum(each.get_write_buffer_size() for each in transports if each is not None)


def test_the_next_batch_of_a_partition_goes_out_at_once(
    broker: BrokerThread, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It need not be looked for: the task that sends would never look by itself here."""
    monkeypatch.setattr(sending, "_LOOK_MS", PATIENCE_S * 1_000_000)

    async def work() -> None:
        mine = settings(broker, acks="0", batch_size=1000)
        async with strandline.AsyncProducer(mine) as producer:
            for _ in range(30):
                await producer.send(name, bytes(900), partition=0)
            async with asyncio.timeout(PATIENCE_S / 2):
                assert (await producer.flush()).delivered == 30

    run(work())


async def until_kept(producer: strandline.AsyncProducer) -> None:
    """Wait until the sockets take no more."""
    while not kept_bytes(producer):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def written_in_the_end(mine: dict[str, object], count: int) -> None:
    """Wait until the log has so many records: what was let out arrives."""
    at = TopicPartition("t", 0)
    with strandline.Consumer({**mine, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([at])
        found = 0
        while found < count:
            polled = consumer.poll(PATIENCE_S * 1000)
            assert polled, f"only {found} of {count} records came"
            found += len(polled)
        assert consumer.end_offsets([at]) == {at: count}


def test_what_a_broker_does_not_take_is_not_delivered(
    start_broker_at: Callable[..., BrokerThread],
) -> None:
    with behind(start_broker_at) as (way, mine):

        async def work() -> None:
            async with strandline.AsyncProducer({**mine, "acks": "0"}) as producer:
                await producer.send("t", b"first")
                await producer.flush()
                way.hold()
                sent = [await producer.send("t", VALUE) for _ in range(COUNT)]
                flush = asyncio.create_task(producer.flush())
                await until_kept(producer)
                assert kept_bytes(producer) < 2 * len(VALUE)
                assert not sent[-1].is_done
                assert not flush.done()
                way.release()
                assert (await flush).delivered == COUNT

        bounded(work())
        written_in_the_end(mine, COUNT + 1)


def test_what_counts_as_delivered_goes_out_before_the_connection_is_closed(
    start_broker_at: Callable[..., BrokerThread],
) -> None:
    with behind(start_broker_at) as (way, mine):
        sent = []

        async def work() -> None:
            async with strandline.AsyncProducer({**mine, "acks": "0"}) as producer:
                sent.append(await producer.send("t", b"first"))
                await producer.flush()
                way.hold()
                sent.extend([await producer.send("t", VALUE) for _ in range(COUNT)])
                await until_kept(producer)
                # While the program leaves, which it does by an error: nothing else is sent.
                threading.Timer(0.2, way.release).start()
                raise RuntimeError("the program's own")

        with pytest.raises(RuntimeError, match="own"):
            bounded(work())
        written_in_the_end(mine, sum(each.is_done for each in sent))


def test_a_broker_that_takes_nothing_does_not_keep_a_producer_open(
    start_broker_at: Callable[..., BrokerThread],
) -> None:
    with behind(start_broker_at) as (way, mine):

        async def work() -> None:
            own = {**mine, "acks": "0", "request.timeout.ms": 200}
            async with strandline.AsyncProducer(own) as producer:
                await producer.send("t", b"first")
                await producer.flush()
                way.hold()
                for _ in range(COUNT):
                    await producer.send("t", VALUE)
                await until_kept(producer)
                raise RuntimeError("the program's own")

        with pytest.raises(RuntimeError, match="own"):
            bounded(work())
