"""Requests that wait for a high watermark: order, deadlines, lost leadership, one answer each."""

from __future__ import annotations

import logging

import pytest

from strandline.errors import ErrorCode
from strandline.node.commit_queue import CommitQueue, Decided
from strandline.node.timers import Timers
from strandline.types import Instant, Offset

NONE = ErrorCode.NONE
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT


class Waiters:
    """A queue with named waiters, and what they were told."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.queue = CommitQueue(self.timers, self._due)
        self.told: list[tuple[str, ErrorCode]] = []

    def _due(self, now: Instant) -> None:
        self.queue.expire(now)

    def add(self, name: str, required: int, deadline_ms: int = 1000) -> None:
        self.queue.add(Offset(required), self._teller(name), deadline_ms)

    def _teller(self, name: str) -> Decided:
        def tell(code: ErrorCode, now: Instant) -> None:
            self.told.append((name, code))

        return tell

    def settle(self, high_watermark: int) -> list[str]:
        """Who is told by this high watermark."""
        before = len(self.told)
        self.queue.settle(Offset(high_watermark), NONE, Instant(0, 0))
        return [name for name, _ in self.told[before:]]

    def pass_time_to(self, at_ms: int) -> list[str]:
        before = len(self.told)
        self.timers.run_due(Instant(at_ms, 0))
        assert all(code is TIMED_OUT for _, code in self.told[before:])
        return [name for name, _ in self.told[before:]]


def test_a_high_watermark_decides_all_up_to_it_in_order() -> None:
    waiters = Waiters()
    for name, required in (("a", 1), ("b", 2), ("c", 2), ("d", 5)):
        waiters.add(name, required)
    assert waiters.settle(0) == []
    assert waiters.settle(2) == ["a", "b", "c"]
    assert waiters.settle(2) == []
    assert len(waiters.queue) == 1
    assert waiters.settle(9) == ["d"]
    assert not waiters.queue


def test_a_repeated_batch_does_not_wait_for_later_ones() -> None:
    waiters = Waiters()
    waiters.add("first", 3)
    waiters.add("second", 6)
    waiters.add("first again", 3)
    assert waiters.settle(3) == ["first", "first again"]
    assert waiters.settle(6) == ["second"]


def test_each_deadline_is_kept_with_one_timer() -> None:
    waiters = Waiters()
    waiters.add("patient", 1, deadline_ms=500)
    waiters.add("hasty", 2, deadline_ms=100)
    waiters.add("also patient", 3, deadline_ms=500)
    assert len(waiters.timers) == 1
    assert waiters.pass_time_to(99) == []
    assert waiters.pass_time_to(100) == ["hasty"]
    assert waiters.pass_time_to(499) == []
    assert waiters.settle(1) == ["patient"]
    assert waiters.pass_time_to(500) == ["also patient"]
    assert len(waiters.timers) == 0


def test_a_timer_without_a_waiter_serves_the_next() -> None:
    waiters = Waiters()
    waiters.add("a", 1, deadline_ms=100)
    assert waiters.settle(1) == ["a"]
    waiters.add("b", 2, deadline_ms=250)
    assert waiters.pass_time_to(100) == []
    assert waiters.pass_time_to(249) == []
    assert waiters.pass_time_to(250) == ["b"]


def test_lost_leadership_is_told_even_if_it_comes_back_at_once() -> None:
    waiters = Waiters()
    waiters.add("before", 1)
    waiters.queue.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    waiters.add("after", 1)
    assert len(waiters.queue) == 2
    waiters.settle(1)
    assert waiters.told == [("before", ErrorCode.NOT_LEADER_OR_FOLLOWER), ("after", NONE)]


def test_a_bug_in_one_answer_does_not_keep_the_others_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiters = Waiters()

    def bug(code: ErrorCode, now: Instant) -> None:
        raise KeyError("a bug of ours")

    waiters.queue.add(Offset(1), bug, 100)
    waiters.add("fine", 1)
    with caplog.at_level(logging.ERROR):
        assert waiters.settle(1) == ["fine"]
    assert "could not be told" in caplog.text
    assert not waiters.queue
