"""Requests about many partitions, decided so many at a time.

A decision is written in one multi, and ZooKeeper takes a multi of about a megabyte at most. So a
long request becomes several decisions, each made from the image that the one before it left, and is
answered when all are made. If one fails, those before it stay done: the answer says it for each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import Generic, Protocol, TypeVar

from strandline.cluster.controller import PARTITIONS_PER_MULTI, Decision
from strandline.cluster.image import ClusterImage
from strandline.errors import ProtocolError
from strandline.node.controller_loop import ControllerLoop
from strandline.types import Instant

Item = TypeVar("Item")
Result = TypeVar("Result")
_Item = TypeVar("_Item", contravariant=True)
_Result = TypeVar("_Result", covariant=True)


class Decide(Protocol[_Item, _Result]):
    """Decides about some of the items of a request."""

    def __call__(self, image: ClusterImage, items: Sequence[_Item], /) -> Decision[_Result]: ...


class InBatches(Generic[Item, Result]):
    """One request on its way through its decisions."""

    def __init__(
        self,
        controller: ControllerLoop,
        decide: Decide[Item, Result],
        items: Sequence[Item],
        *,
        key: Callable[[Item], Hashable],
    ) -> None:
        """Items with one key are decided about together: a request may name a thing twice."""
        self._controller_loop = controller
        self._decide = decide
        self._left = _batches(items, key)
        self._results: list[Result] = []

    def carry_out(
        self,
        *,
        done: Callable[[Sequence[Result], Instant], None],
        failed: Callable[[ProtocolError, Sequence[Result], Sequence[Item], Instant], None],
        now: Instant,
    ) -> None:
        """Decide all, on the controller only. `failed` is told what was done, and what was not."""
        # Also without any items: whether this is the controller is part of the answer.
        portion = self._left.pop(0) if self._left else []

        def portion_done(results: tuple[Result, ...], at: Instant) -> None:
            self._results += results
            if self._left:
                self.carry_out(done=done, failed=failed, now=at)
            else:
                done(self._results, at)

        def portion_failed(error: ProtocolError, at: Instant) -> None:
            failed(error, self._results, [*portion, *chain.from_iterable(self._left)], at)

        self._controller_loop.carry_out(
            lambda image: self._decide(image, portion),
            done=portion_done,
            failed=portion_failed,
            now=now,
        )


def _batches(items: Sequence[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """The items in their order, but for those with one key, which are all where the first is."""
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    together = list(groups.values())
    return [
        list(chain.from_iterable(together[start : start + PARTITIONS_PER_MULTI]))
        for start in range(0, len(together), PARTITIONS_PER_MULTI)
    ]
