"""Which quota counts, and how long a client must wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.quotas.bucket import Bucket
from strandline.quotas.entities import (
    CONNECTION_CREATION_RATE,
    DEFAULT,
    Entity,
    Limit,
    limit_of,
    limit_of_address,
)
from strandline.quotas.rate import Rate

ORDER = [
    (Entity("u", "c"), Entity("u", "c")),
    (Entity("u", DEFAULT), Entity("u", "c")),
    (Entity("u", None), Entity("u", None)),
    (Entity(DEFAULT, "c"), Entity("u", "c")),
    (Entity(DEFAULT, DEFAULT), Entity("u", "c")),
    (Entity(DEFAULT, None), Entity("u", None)),
    (Entity(None, "c"), Entity(None, "c")),
    (Entity(None, DEFAULT), Entity(None, "c")),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_most_exact_quota_counts(first: int) -> None:
    limits = {entity: {"a": float(at)} for at, (entity, _) in enumerate(ORDER) if at >= first}
    limits[Entity("other", "c")] = {"a": 99.0}
    assert limit_of(limits, "u", "c", "a") == Limit(first, ORDER[first][1])
    assert limit_of(limits, "u", "c", "b") is None


def test_each_limit_is_looked_for_by_itself() -> None:
    limits = {Entity("u", "c"): {"a": 1.0}, Entity("u", None): {"b": 2.0}}
    assert limit_of(limits, "u", "c", "b") == Limit(2.0, Entity("u", None))


def test_the_limit_of_an_address() -> None:
    limits = {Entity(None, None, "::1"): {CONNECTION_CREATION_RATE: 5.0}}
    assert limit_of_address(limits, "::1") == 5
    assert limit_of_address(limits, "::2") is None
    limits[Entity(None, None, DEFAULT)] = {CONNECTION_CREATION_RATE: 7.0}
    assert limit_of_address(limits, "::2") == 7


def test_a_bucket_lets_a_burst_through_and_fills_up_again() -> None:
    bucket = Bucket(burst_s=10)
    bucket.take(25, limit=2, now_ms=1000)
    assert bucket.throttle_ms(2, 1000) == 2500
    assert bucket.throttle_ms(2, 3000) == 500
    assert bucket.throttle_ms(2, 3500) == 0
    assert not bucket.is_idle(13_499)
    assert bucket.is_idle(13_500)
    bucket.take(1, limit=2, now_ms=60_000)
    assert bucket.throttle_ms(2, 60_000) == 0


def test_within_the_limit_nothing_waits() -> None:
    rate = Rate(11, 1000)
    for second in range(60):
        rate.note(1000, second * 1000)
        assert rate.throttle_ms(1100, second * 1000) == 0


def test_a_burst_waits_until_the_rate_of_the_window_is_the_limit() -> None:
    rate = Rate(11, 1000)
    rate.note(20_000, 0)
    # 20 kB in the ten seconds that a first sample stands for are 2 kB/s.
    assert rate.throttle_ms(1000, 0) == 10_000
    assert rate.throttle_ms(2000, 0) == 0


@pytest.mark.parametrize("limit", [-1.0, 0.0, 1e-310, 1e-300, 1e-7])
def test_a_limit_of_next_to_nothing_makes_wait_as_long_as_can_be_told(limit: float) -> None:
    """Such limits may lie in the metadata: other programs write there, too."""
    rate, bucket = Rate(11, 1000), Bucket(burst_s=10)
    rate.note(1e6, 0)
    bucket.take(1e6, limit, 0)
    assert rate.throttle_ms(limit, 0) == bucket.throttle_ms(limit, 0) == 2**31 - 1


def test_what_is_old_is_forgotten() -> None:
    rate = Rate(3, 1000)
    rate.note(10_000, 0)
    assert rate.throttle_ms(1000, 2_999) > 0
    assert rate.is_idle(3_000)
    assert rate.throttle_ms(1000, 3_000) == 0


@given(st.integers(100, 10_000), st.integers(1, 200_000), st.integers(2, 11), st.integers(1, 2_000))
def test_a_client_that_waits_as_told_stays_below_twice_its_limit(
    limit: int, size: int, windows: int, own_ms: int
) -> None:
    """Each request has `size` bytes and takes the client a while; then it waits as it is told."""
    rate, now_ms, total = Rate(windows, 1000), 0, 0
    for _ in range(60):
        rate.note(size, now_ms)
        total += size
        now_ms += rate.throttle_ms(limit, now_ms) + own_ms
    # As in Kafka, windows that have not been yet count as empty, again after each long wait.
    allowed = 2 * limit * (now_ms / 1000 + windows) + size
    assert total <= allowed
