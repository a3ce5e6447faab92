"""The bandwidth limit: a moving average, and when it is low enough again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.replication.throttle import Throttle


def test_without_a_limit_nothing_waits() -> None:
    throttle = Throttle(None)
    throttle.record(10**12, 0)
    assert not throttle.is_exceeded(0)
    throttle.rate_bytes_per_s = 1
    assert throttle.is_exceeded(0)


def test_the_average_falls_with_time() -> None:
    throttle = Throttle(100)
    throttle.record(300, 0)
    assert throttle.delay_ms(0) == 3000
    assert throttle.delay_ms(1000) == 2000
    assert throttle.is_exceeded(2999)
    assert not throttle.is_exceeded(3000)


def test_what_fits_into_one_sample_does_not_wait() -> None:
    throttle = Throttle(100)
    throttle.record(100, 500)
    assert not throttle.is_exceeded(500)
    throttle.record(1, 600)
    assert throttle.delay_ms(600) == 410


def test_a_huge_answer_is_forgotten_with_its_sample() -> None:
    throttle = Throttle(100, samples=11, sample_ms=1000)
    throttle.record(10**9, 250)
    assert throttle.delay_ms(250) == 10_750
    assert not throttle.is_exceeded(11_000)
    throttle.record(50, 11_000)
    assert not throttle.is_exceeded(11_000)


def test_a_limit_of_zero_stops_everything_that_moved() -> None:
    throttle = Throttle(0)
    assert not throttle.is_exceeded(0)
    throttle.record(1, 0)
    assert throttle.delay_ms(0) == 11_000


@given(
    rate=st.integers(0, 500),
    traffic=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 2000)), max_size=20),
)
def test_the_delay_is_the_first_time_without_excess(
    rate: int, traffic: list[tuple[int, int]]
) -> None:
    throttle = Throttle(rate, samples=3, sample_ms=1000)
    now_ms = 0
    for pause_ms, size in traffic:
        now_ms += pause_ms
        throttle.record(size, now_ms)
    delay_ms = throttle.delay_ms(now_ms)
    assert 0 <= delay_ms <= 3000
    if delay_ms:
        assert throttle.is_exceeded(now_ms + delay_ms - 1)
    assert not throttle.is_exceeded(now_ms + delay_ms)


def test_a_steady_stream_with_pauses_keeps_to_the_limit() -> None:
    throttle = Throttle(1000)
    now_ms = moved = 0
    while now_ms < 60_000:
        throttle.record(700, now_ms)
        moved += 700
        now_ms += max(1, throttle.delay_ms(now_ms))
    assert 0.8 * 60_000 <= moved <= 1.2 * 60_000
