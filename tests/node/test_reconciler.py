"""Keeping something true: one write at a time, refusals, pauses. Without a node."""

from __future__ import annotations

import logging
from threading import get_ident

import pytest

from strandline.cluster.controller import Decision
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import (
    BadVersion,
    Changes,
    Create,
    MultiTooLarge,
    StoreError,
    StoreUnavailable,
    Zxid,
)
from strandline.node.effects import WriteMetadata
from strandline.node.metadata import Metadata
from strandline.node.outbox import Outbox
from strandline.node.reconciler import Reconciler
from strandline.node.timers import Timers
from strandline.types import Instant


class Bench:
    """An order that wants `wanted` writes, and everything around it."""

    def __init__(self, wanted: int = 1) -> None:
        self.wanted = wanted
        self.is_broken = False
        self.done: list[int] = []
        self.outbox = Outbox()
        self.timers = Timers()
        self.metadata = Metadata(ClusterImage(), self.outbox)
        self.order: Reconciler[int] = Reconciler(
            self.metadata, self.timers, "sweep the floor", self.decide, self.told
        )
        self.now = Instant(0, 0)

    def decide(self, image: ClusterImage, now: Instant) -> Decision[int]:
        if self.is_broken:
            raise AssertionError("broken")
        if len(self.done) == self.wanted:
            return Decision(())
        return Decision((len(self.done),), (Create("/a"),))

    def told(self, results: tuple[int, ...], now: Instant) -> None:
        self.done += results

    def turn(self) -> list[WriteMetadata]:
        """A turn's writes."""
        self.timers.run_due(self.now)
        self.order.act(self.now)
        return [e for e in self.outbox.take() if isinstance(e, WriteMetadata)]

    def answer(self, write: WriteMetadata, error: StoreError | None = None) -> None:
        self.metadata.written(write.token, error, self.now)

    def image_moves(self) -> None:
        self.metadata.advance(Changes(Zxid(self.metadata.image.zxid + 1), ()))

    def pause_ms(self) -> int:
        """How long it takes until the order looks again."""
        deadline_ms = self.timers.next_deadline_ms()
        assert deadline_ms is not None
        return deadline_ms - self.now.monotonic_ms

    def pass_time(self, milliseconds: int) -> None:
        self.now = Instant(self.now.monotonic_ms + milliseconds, 0)


def test_nothing_is_looked_at_without_a_reason() -> None:
    bench = Bench()
    assert bench.turn() == []
    assert bench.order.is_at_rest


def test_one_write_is_under_way_and_success_leads_to_the_next_look() -> None:
    bench = Bench(wanted=2)
    bench.order.wake()
    (first,) = bench.turn()
    bench.order.wake()
    assert bench.turn() == []
    bench.answer(first)
    (second,) = bench.turn()
    assert bench.done == [0]
    bench.answer(second)
    assert bench.turn() == []
    assert bench.done == [0, 1]
    assert bench.order.is_at_rest


def test_a_refusal_by_a_newer_image_is_decided_again_at_once() -> None:
    bench = Bench()
    bench.order.wake()
    (write,) = bench.turn()
    bench.image_moves()
    bench.answer(write, BadVersion("/a"))
    (again,) = bench.turn()
    bench.answer(again)
    assert bench.done == [0]


def test_a_refusal_that_the_image_does_not_explain_waits_for_it_or_for_a_pause() -> None:
    bench = Bench()
    bench.order.wake()
    (write,) = bench.turn()
    bench.answer(write, BadVersion("/a"))
    assert bench.turn() == []
    bench.pass_time(bench.pause_ms())
    (write,) = bench.turn()
    bench.answer(write, BadVersion("/a"))
    assert bench.turn() == []
    bench.order.wake()  # the image has changed
    assert len(bench.turn()) == 1


def test_pauses_grow_while_the_store_is_away_and_one_warning_is_enough(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.order.wake()
    pauses = []
    with caplog.at_level(logging.WARNING):
        for _ in range(9):
            (write,) = bench.turn()
            bench.answer(write, StoreUnavailable("away"))
            pauses.append(bench.pause_ms())
            bench.pass_time(pauses[-1])
    assert pauses == [50, 100, 200, 400, 800, 1600, 2000, 2000, 2000]
    here = get_ident()  # clusters that tests share log from threads of their own
    assert [each.getMessage() for each in caplog.records if each.thread == here] == [
        "Could not sweep the floor, and will try again: away"
    ]
    (write,) = bench.turn()
    bench.answer(write)
    assert bench.done == [0]


def test_a_bug_in_the_decision_does_not_reach_the_turn(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.is_broken = True
    bench.order.wake()
    assert bench.turn() == []
    assert "could not be decided how to sweep the floor" in caplog.text
    bench.is_broken = False
    bench.pass_time(bench.pause_ms())
    assert len(bench.turn()) == 1


def test_what_is_too_large_is_decided_for_less_as_long_as_that_goes() -> None:
    bench = Bench()
    left = [True, True, False]
    bench.order = Reconciler(
        bench.metadata,
        bench.timers,
        "sweep the floor",
        bench.decide,
        bench.told,
        lessen=lambda: left.pop(0),
    )
    bench.order.wake()
    too_large = MultiTooLarge(request_bytes=2, request_bytes_max=1)
    for _ in range(3):
        [write] = bench.turn()
        bench.answer(write, too_large)
    assert (left, bench.turn()) == ([], [])
    bench.pass_time(bench.pause_ms())
    [write] = bench.turn()
    bench.answer(write)
    assert bench.done == [0]
