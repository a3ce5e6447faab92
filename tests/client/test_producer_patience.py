"""How long a producer tries: programs that pause, brokers that are away, hang up or say nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from strandline.client.admin import Admin
from strandline.client.clock import SystemClock
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer, ProducerSettings
from tests.client.conftest import FAST
from tests.client.test_producer import LosesAnAnswer, read_all


class Keeps(LosesAnAnswer):
    """Takes the first produce, and says nothing of it while the connection lasts."""

    def _spoil(self, request: bytes, answer: bytes) -> bytes | None:
        return b"" if super()._spoil(request, answer) is None else answer


class ClockAhead(SystemClock):
    """A clock that can be put forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


def test_what_has_waited_for_the_program_has_its_whole_time_for_attempts(
    broker: Any, name: str
) -> None:
    clock = ClockAhead()
    with ClusterClient(broker.address, FAST, clock=clock) as cluster:
        producer = Producer(cluster)
        delivery = producer.send(name, b"v")
        clock.ahead_ms = 200_000  # the program has paused for longer than the delivery timeout
        producer.flush().raise_failure()
        assert delivery.result() == 0


def test_records_are_taken_while_the_broker_is_away(start_broker_at: Callable[..., Any]) -> None:
    broker = start_broker_at()
    with ClusterClient(broker.address, FAST) as cluster:
        producer = Producer(cluster, ProducerSettings(linger_ms=0))
        producer.send("t", b"before")
        producer.flush().raise_failure()
        broker.stop()
        for _ in range(5):
            producer.send("t", b"during")
            producer.poll()
        broker.start()
        assert producer.flush().delivered == 5


def test_a_record_is_not_sent_unanswered_to_a_broker_that_has_hung_up(
    start_broker_at: Callable[..., Any],
) -> None:
    broker = start_broker_at()
    with ClusterClient(broker.address, FAST) as cluster:
        producer = Producer(cluster, ProducerSettings(acks=0))
        producer.send("t", b"before")
        producer.flush().raise_failure()
        broker.stop()
        broker.start()
        producer.send("t", b"after")
        producer.flush().raise_failure()
        assert [record.value for record in read_all(cluster, "t")[0]] == [b"before", b"after"]


def test_a_batch_on_its_way_is_given_up_when_its_time_is_over(
    start_broker_at: Callable[..., Any],
) -> None:
    """The broker has it and does not say so: no other record may get its number."""
    proxy = Keeps()
    broker = start_broker_at(f"advertised.listeners=PLAINTEXT://127.0.0.1:{proxy.port}")
    proxy.target = ("127.0.0.1", broker.port)
    try:
        with ClusterClient(f"127.0.0.1:{proxy.port}", FAST) as cluster:
            Admin(cluster).topics.create("t")
            producer = Producer(cluster, ProducerSettings(delivery_timeout_ms=2000))
            producer.send("t", b"unanswered")
            (failed,) = producer.flush().failed
            assert failed.maybe_written
            waited = re.search(r"did not answer Produce within (\d+) ms", failed.error.message)
            assert waited is not None
            assert int(waited[1]) <= 2000
            producer.send("t", b"next")
            producer.flush().raise_failure()
            found = [record.value for record in read_all(cluster, "t")[0]]
    finally:
        proxy.close()
    assert found == [b"unanswered", b"next"]
