"""How long `poll` waits: while nothing comes, and no longer when a broker says nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import strandline
from strandline.client.cluster import ClusterClient
from strandline.client.fetching import FetchedRecords
from strandline.types import Offset, TopicPartition
from tests.client.conftest import PATIENCE_S, BrokerThread
from tests.client.stalling import Stalling, behind
from tests.client.test_api import settings, write


def test_a_member_polls_on_when_an_answer_holds_no_records(
    broker: BrokerThread, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer of a session lists all partitions, with records or without."""
    write(broker, name, 0)
    with strandline.Consumer(
        settings(broker, group_id=name, auto_offset_reset="earliest")
    ) as consumer:
        consumer.subscribe([name])
        while len(consumer.assignment) < 2:
            assert consumer.poll(0) == []
        assert consumer._member is not None
        reader = consumer._member._consumer
        empty = FetchedRecords(consumer.assignment[0], (), Offset(0), Offset(0), Offset(0))
        slices = 0
        poll = reader.poll

        def answers(timeout_ms: int) -> list[FetchedRecords]:
            nonlocal slices
            slices += 1
            if slices == 1:
                with strandline.Producer(settings(broker)) as producer:
                    producer.send(name, b"late")
                return [empty]
            return poll(timeout_ms)

        monkeypatch.setattr(reader, "poll", answers)
        assert [each.value for each in consumer.poll(60_000)] == [b"late"]
        assert slices > 1


# -- A broker that says nothing ------------------------------------------------------------------

AT = TopicPartition("t", 0)
SILENT: dict[str, Any] = {
    "auto.offset.reset": "earliest",
    "request.timeout.ms": PATIENCE_S * 1000,
    "default.api.timeout.ms": PATIENCE_S * 1000,
}
"""What waits for an answer waits longer than these tests let it."""


@contextmanager
def nothing_waits(way: Stalling) -> Iterator[None]:
    """The broker says nothing meanwhile, and no call waits until it does."""
    way.hold()
    has_waited = threading.Event()

    def let_through() -> None:
        has_waited.set()
        way.release()

    timer = threading.Timer(PATIENCE_S / 4, let_through)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        way.release()
    assert not has_waited.is_set(), "a poll has waited until the broker answered"


def send(mine: dict[str, Any], *values: bytes) -> None:
    with strandline.Producer(mine) as producer:
        for value in values:
            producer.send("t", value)


def forgets(client: strandline.Consumer | strandline.AsyncConsumer, what: str) -> None:
    """The client has to ask who leads, or to connect, before it can read on."""
    if what == "metadata":
        client._cluster.forget(["t"])
    else:
        for each in client._cluster._connections.values():
            each.close()


def waited_for(cluster: ClusterClient) -> list[object]:
    """The questions and connections that answers are still missing of."""
    questions = [each for one in cluster._connections.values() for each in one._unfinished.waiting]
    return [*questions, *cluster._opening.values()]


def values(records: list[strandline.ConsumerRecord]) -> list[bytes | None]:
    return [each.value for each in records]


@pytest.mark.parametrize("what", ["metadata", "connection"])
@pytest.mark.parametrize("is_member", [False, True])
def test_poll_keeps_its_time_when_a_broker_says_nothing(
    start_broker_at: Callable[..., BrokerThread], what: str, is_member: bool
) -> None:
    with behind(start_broker_at) as (way, mine):
        send(mine, b"before")
        with strandline.Consumer({**mine, **SILENT, "group.id": "g"}) as consumer:
            if is_member:
                consumer.subscribe(["t"])
            else:
                consumer.assign([AT])
            assert values(consumer.poll(PATIENCE_S * 1000)) == [b"before"]
            cluster = consumer._cluster
            with nothing_waits(way):
                forgets(consumer, what)
                assert consumer.poll(50) == []
                asked = waited_for(cluster)
                assert asked, "it has not asked"
                for _ in range(3):
                    assert consumer.poll(50) == []
                assert waited_for(cluster) == asked, "it has asked again"
            send(mine, b"after")
            found = consumer.poll(PATIENCE_S * 1000)
            assert values(found) == [b"after"]


@pytest.mark.parametrize("what", ["metadata", "connection"])
@pytest.mark.parametrize("is_member", [False, True])
def test_the_same_on_an_event_loop(
    start_broker_at: Callable[..., BrokerThread], what: str, is_member: bool
) -> None:
    with behind(start_broker_at) as (way, mine):
        send(mine, b"before")

        async def work() -> None:
            async with strandline.AsyncConsumer({**mine, **SILENT, "group.id": "g"}) as consumer:
                if is_member:
                    await consumer.subscribe(["t"])
                else:
                    await consumer.assign([AT])
                assert values(await consumer.poll(PATIENCE_S * 1000)) == [b"before"]
                with nothing_waits(way):
                    forgets(consumer, what)
                    for _ in range(4):
                        assert await consumer.poll(50) == []
                send(mine, b"after")
                assert values(await consumer.poll(PATIENCE_S * 1000)) == [b"after"]
            assert len(asyncio.all_tasks()) == 1, "tasks are left"

        asyncio.run(work())
