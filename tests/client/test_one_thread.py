"""Clients belong to one thread: calls of two at once are refused, and not mixed up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import strandline
from strandline.errors import ErrorCode, ProtocolError
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
        (strandline.Producer, "flush", lambda each: each.send("t", b"second")),
        (strandline.Producer, "flush", lambda each: each.close()),
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
        needed = {} if make in (strandline.Producer, strandline.Admin) else {"group.id": "g"}
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
        case strandline.Producer():
            client.send("t", b"first")
            client.flush()
            client.send("t", b"waits")
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
