"""Backing off, on a clock that only moves when it is slept on."""

from __future__ import annotations

from random import Random

import pytest

from strandline.client.retry import BlockingBackoff, PutOff, retrying
from strandline.client.settings import ClientSettings
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import TopicPartition


class FakeClock:
    def __init__(self) -> None:
        self.now_ms = 0
        self.slept: list[int] = []

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def sleep_ms(self, duration_ms: int) -> None:
        self.slept.append(duration_ms)
        self.now_ms += duration_ms


def backoff(clock: FakeClock, timeout_ms: int) -> BlockingBackoff:
    settings = ClientSettings(retry_backoff_ms=100, retry_backoff_max_ms=400)
    return BlockingBackoff(settings, clock, Random(1), timeout_ms=timeout_ms)


def test_waits_double_up_to_the_largest_and_end_at_the_deadline() -> None:
    clock = FakeClock()
    waiting = backoff(clock, 2000)
    while waiting.maybe_wait():
        continue
    assert clock.now_ms <= 2000
    for slept, nominal in zip(clock.slept, (100, 200, 400, 400, 400), strict=False):
        assert 0.8 * nominal <= slept <= 1.2 * nominal
    assert len(clock.slept) >= 4


def test_a_retriable_error_is_retried_after_preparing() -> None:
    events: list[str] = []

    def attempt() -> int:
        events.append("attempt")
        if len(events) < 4:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return 7

    result = retrying(attempt, backoff(FakeClock(), 10_000), lambda: events.append("prepare"))
    assert result == 7
    assert events == ["attempt", "prepare", "attempt", "prepare", "attempt"]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_other_errors_are_not_retried(code: ErrorCode) -> None:
    clock = FakeClock()

    def attempt() -> None:
        raise ProtocolError(code)

    with pytest.raises(ProtocolError):
        retrying(attempt, backoff(clock, 10_000), lambda: None)
    assert clock.slept == []


def test_the_last_error_is_raised_when_time_is_up() -> None:
    clock = FakeClock()

    def attempt() -> None:
        raise ProtocolError(ErrorCode.NOT_COORDINATOR, f"At {clock.now_ms}.")

    with pytest.raises(ProtocolError, match=r"At [1-9]"):
        retrying(attempt, backoff(clock, 1000), lambda: None)


def put_off() -> PutOff:
    return PutOff(ClientSettings(retry_backoff_ms=100, retry_backoff_max_ms=400), Random(1))


def test_a_partition_is_put_off_alone_and_longer_each_time() -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    waiting = put_off()
    assert not waiting
    assert waiting.wait_ms(0, 5000) == 5000
    waits: list[int] = []
    now_ms = 0
    for _ in range(4):
        waiting.put_off([first], now_ms, now_ms)
        assert waiting.is_put_off(first, now_ms)
        assert not waiting.is_put_off(second, now_ms)
        waits.append(waiting.wait_ms(now_ms, 5000))
        now_ms += waits[-1]
        assert not waiting.is_put_off(first, now_ms)
    for waited, nominal in zip(waits, (100, 200, 400, 400), strict=True):
        assert 0.8 * nominal <= waited <= 1.2 * nominal
    assert waiting
    assert waiting.wait_ms(now_ms, 5000) == 5000  # it is being tried
    waiting.end([first])
    assert not waiting


def test_what_took_long_to_fail_is_put_off_for_as_long() -> None:
    at = TopicPartition("t", 0)
    waiting = put_off()
    waiting.put_off([at], 1_000, 31_000)
    assert waiting.is_put_off(at, 60_999)
    assert not waiting.is_put_off(at, 61_000)
