"""Who waits for something that is tried again hears soon what it is."""

from __future__ import annotations

import socket

import pytest

from strandline.cli.connecting import Delay
from strandline.client.cluster import ClusterClient
from strandline.client.delivery import Batch
from strandline.client.produce_policy import ProducePolicy
from strandline.client.sending import Sender
from strandline.client.settings import ClientSettings
from strandline.errors import ErrorCode, ProtocolError
from strandline.records.codec import Codec
from strandline.types import NO_OFFSET, TopicPartition


class SetClock:
    """A clock that the test sets."""

    now_ms = 50_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def sleep_ms(self, milliseconds: int) -> None:
        self.now_ms += milliseconds


def test_the_cause_is_told_within_five_seconds_and_not_all_the_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = SetClock()
    delay = Delay(clock)
    error = ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full.")
    failed: list[int] = []
    for _ in range(700):
        delay.failed(error)
        if "Still trying after" in (text := capsys.readouterr().err):
            assert text.endswith("The disk is full.\n")
            failed.append(clock.now_ms - 50_000)
        clock.sleep_ms(100)
    assert failed == [3000, 63_000]


def test_what_works_again_is_no_delay(capsys: pytest.CaptureFixture[str]) -> None:
    clock = SetClock()
    delay = Delay(clock)
    for _ in range(5):
        delay.failed(ProtocolError(ErrorCode.NOT_CONTROLLER))
        clock.sleep_ms(11_000)
    assert capsys.readouterr().err == ""


def test_what_the_brokers_know_to_be_wrong_is_told_with_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = SetClock()
    asked: list[int] = []

    def causes() -> list[str]:
        asked.append(clock.now_ms)
        return ["orders-0: its only replica is on broker 2, which is gone"]

    delay = Delay(clock, causes)
    error = ProtocolError(ErrorCode.LEADER_NOT_AVAILABLE, "No broker leads partition orders-0.")
    for _ in range(50):
        delay.failed(error)
        clock.sleep_ms(100)
    assert asked == [53_000]
    assert capsys.readouterr().err.splitlines() == [
        "Still trying after 3 s: No broker leads partition orders-0.",
        "  orders-0: its only replica is on broker 2, which is gone",
    ]


def test_a_broker_that_does_not_answer_is_named_while_it_is_waited_for() -> None:
    """It is stopped, or its disk hangs: only after half a minute the answer counts as lost."""
    failed: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        settings = ClientSettings(request_timeout_ms=2500, operation_timeout_ms=2500)
        with ClusterClient(f"127.0.0.1:{port}", settings) as client:
            client.on_delay = lambda error: failed.append(error.message)
            with pytest.raises(ProtocolError, match="did not answer"):
                client.refresh()
    assert set(failed[:2]) == {f"The broker at 127.0.0.1:{port} has not answered ApiVersions yet."}


def test_a_batch_that_the_next_attempt_writes_is_no_delay() -> None:
    """However many of them there are: transactions that begin behind one another, for example."""
    clock = SetClock()
    told: list[ErrorCode] = []
    with ClusterClient("127.0.0.1:1", clock=clock) as client:
        client.on_delay = lambda error: told.append(error.code)
        sender = Sender(
            client,
            ProducePolicy(),
            codec=(Codec.NONE, None),
            append_timeout_ms=1000,
            is_idempotent=False,
        )
        at = TopicPartition("t", 0)
        for _ in range(50):
            batch = Batch(at, clock.now_ms)
            sender.failed(batch, ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS))
            clock.sleep_ms(100)
            sender.finished(batch, NO_OFFSET, None)
        assert told == []
        stuck = Batch(at, clock.now_ms)
        for _ in range(3):
            sender.failed(stuck, ProtocolError(ErrorCode.NOT_ENOUGH_REPLICAS))
            clock.sleep_ms(500)
        assert told == [ErrorCode.NOT_ENOUGH_REPLICAS]
