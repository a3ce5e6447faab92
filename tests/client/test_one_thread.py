"""Calls of two threads at once are refused, or follow one another, and are not mixed up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import strandline
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import TopicPartition
from tests.client.conftest import PATIENCE_S, BrokerThread
from tests.client.stalling import behind
from tests.client.test_api import settings

POLL_MS = 3000
WORDS = "Another thread is in a call of the .*, which belongs to one thread"


class Noted:
    """A lock of which is known when it is first taken."""

    def __init__(self) -> None:
        self.is_taken = threading.Event()
        self._lock = threading.RLock()
        self.release = self._lock.release

    def acquire(self, *, blocking: bool) -> bool:
        taken = self._lock.acquire(blocking)
        if taken:
            self.is_taken.set()
        return taken


def in_a_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(ProtocolError, match=WORDS) as found:
        call()
    assert found.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("make", "first", "second"),
    [
        (strandline.Consumer, "poll", lambda each: each.poll(100)),
        (strandline.Consumer, "poll", lambda each: next(iter(each))),
        (strandline.ShareConsumer, "poll", lambda each: each.commit()),
        (strandline.Admin, "list_groups", lambda each: each.list_topics()),
    ],
)
def test_a_call_beside_one_of_another_thread_is_refused(
    start_broker_at: Callable[..., BrokerThread],
    make: type[Any],
    first: str,
    second: Callable[[Any], object],
) -> None:
    with behind(start_broker_at) as (way, mine):
        needed = {} if make is strandline.Admin else {"group.id": "g"}
        with strandline.Admin(mine) as admin:
            admin.create_topic("t")
        with make({**mine, **needed}) as client:
            prepare(client)
            way.hold()
            lock = client._use.lock = Noted()
            call = getattr(client, first)
            thread = in_a_thread(lambda: call(POLL_MS) if first == "poll" else call())
            assert lock.is_taken.wait(PATIENCE_S)
            refused(lambda: second(client))
            way.release()
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def prepare(client: Any) -> None:
    match client:
        case strandline.Consumer():
            client.subscribe(["t"])
            while not client.assignment:
                client.poll()
        case strandline.ShareConsumer():
            client.subscribe(["t"])
            client.poll()


def test_calls_of_threads_may_follow_one_another(broker: BrokerThread, name: str) -> None:
    producer = strandline.Producer(settings(broker))
    for _ in range(3):
        in_a_thread(lambda: producer.send(name, b"x")).join()
    assert producer.flush().delivered == 3
    in_a_thread(producer.close).join()


def test_threads_share_a_producer(broker: BrokerThread, name: str) -> None:
    with strandline.Admin(settings(broker)) as admin:
        admin.create_topic(name)
    with strandline.Producer({**settings(broker), "linger.ms": 0, "batch.size": 200}) as producer:

        def send(thread: int) -> None:
            for number in range(200):
                producer.send(name, b"%d:%d" % (thread, number))
                if number % 20 == 0:
                    producer.flush().raise_failure()

        threads = [in_a_thread(partial(send, thread)) for thread in range(4)]
        for each in threads:
            each.join()
        producer.flush().raise_failure()
    found: dict[int, list[int]] = {}
    with strandline.Consumer(settings(broker)) as consumer:
        at = TopicPartition(name, 0)
        consumer.assign([at])
        consumer.seek_to_beginning(at)
        while sum(map(len, found.values())) < 800:
            for record in consumer.poll():
                thread, number = map(int, (record.value or b"").split(b":"))
                found.setdefault(thread, []).append(number)
    assert found == {thread: list(range(200)) for thread in range(4)}


class Wanted:
    """A lock of which is known when a call has to wait for it."""

    def __init__(self) -> None:
        self.is_wanted = threading.Event()
        self._lock = threading.RLock()
        self.release = self._lock.release

    def acquire(self, *, blocking: bool = True) -> bool:
        taken = self._lock.acquire(blocking)
        if not taken:
            self.is_wanted.set()
        return taken


@pytest.mark.parametrize("transaction", [True, False])
def test_the_end_of_a_block_waits_for_the_call_of_another_thread(
    broker: BrokerThread, name: str, transaction: bool
) -> None:
    chosen = {**settings(broker), "transactional.id": name} if transaction else settings(broker)
    order = []
    producer = strandline.Producer(chosen)
    lock: Any = Wanted()
    producer._use.lock = lock
    is_in_call = threading.Event()

    def call() -> None:
        lock.acquire()
        is_in_call.set()
        lock.is_wanted.wait(PATIENCE_S)
        order.append("call")
        lock.release()

    with producer.transaction() if transaction else producer:
        producer.send(name, b"x")
        thread = in_a_thread(call)
        assert is_in_call.wait(PATIENCE_S)
    order.append("end")
    thread.join()
    assert order == ["call", "end"]
    producer.close()
