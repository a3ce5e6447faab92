"""Requests about many partitions, decided so many at a time.

A decision is written in one multi, and ZooKeeper takes a multi of about a megabyte at most. So a
long request becomes several decisions, each made from the image that the one before it left, and is
answered when all are made. If one fails, those before it stay done: the answer says it for each.
One that the store does not take for what it is about is made again in two halves, until what cannot
be written is alone and is refused alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain, groupby
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from strandline.cluster.controller import (
    BYTES_PER_MULTI,
    PARTITIONS_PER_MULTI,
    Decision,
    Refusal,
)
from strandline.cluster.image import ClusterImage
from strandline.errors import ErrorCode, ProtocolError
from strandline.node.controller import Controller, NotToBeWritten
from strandline.node.controller_loop import ControllerLoop
from strandline.types import Instant

Item = TypeVar("Item")
Result = TypeVar("Result")
_Item = TypeVar("_Item", contravariant=True)
_Result = TypeVar("_Result", covariant=True)


_Portion: TypeAlias = list[list[Item]]
"""What is decided about at once; the items of each inner list have one key."""


_HALF_DONE: Final = Refusal(
    ErrorCode.REQUEST_TIMED_OUT,
    "This was not done: the controller changed when a part of the request was done already.",
)
"""Instead of NOT_CONTROLLER: Kafka's clients repeat the whole request when any of its results has
that, and are refused what they themselves have made."""


def _no_bytes(item: object) -> int:
    del item
    return 0


class Decide(Protocol[_Item, _Result]):
    """Decides about some of the items of a request."""

    def __call__(self, image: ClusterImage, items: Sequence[_Item], /) -> Decision[_Result]: ...


class InBatches(Generic[Item, Result]):
    """One request on its way through its decisions, each of which has a turn of its own."""

    def __init__(
        self,
        controller: Controller | ControllerLoop,
        decide: Decide[Item, Result],
        items: Sequence[Item],
        *,
        key: Callable[[Item], Hashable],
        refused: Callable[[Item, Refusal], Result],
        size: Callable[[Item], int] = _no_bytes,
    ) -> None:
        """Items with one key are decided about together: a request may name a thing twice. What
        only the controller may decide has the loop as its `controller`.

        `refused` is the result of an item that could not be done. `size` is about how many bytes an
        item has written, beside a few hundred.
        """
        self._controller = controller
        self._decide = decide
        self._refused = refused
        self._left = _portions(items, key, size)
        self.results: list[Result] = []
        """Of what is done so far."""

    def carry_out(
        self,
        *,
        done: Callable[[Sequence[Result], Instant], None],
        failed: Callable[[ProtocolError, Instant], None] | None = None,
        now: Instant,
    ) -> None:
        """Decide all, and tell the results of all. `failed` is told instead if there is none: for
        requests that can be refused as a whole."""
        # Also without any items: whether this is the controller may be part of the answer.
        portion: _Portion[Item] = self._left.popleft() if self._left else []

        def go_on(at: Instant) -> None:
            self.carry_out(done=done, failed=failed, now=at)

        def portion_done(results: tuple[Result, ...], at: Instant) -> None:
            self.results += results
            if self._left:
                # Not from here: where nothing is to be written this is called at once.
                self._controller.in_another_turn(go_on, at)
            else:
                done(self.results, at)

        def portion_failed(error: ProtocolError, at: Instant) -> None:
            if isinstance(error, NotToBeWritten) and len(portion) > 1:
                middle = len(portion) // 2
                self._left.extendleft((portion[middle:], portion[:middle]))
                self._controller.in_another_turn(go_on, at)
            elif isinstance(error, NotToBeWritten):
                portion_done(tuple(self._refusals(portion, Refusal.of(error))), at)
            elif failed is not None and not self.results:
                failed(error, at)
            else:
                is_half_done = error.code is ErrorCode.NOT_CONTROLLER and self.results
                refusal = _HALF_DONE if is_half_done else Refusal.of(error)
                self.results += self._refusals(chain(portion, *self._left), refusal)
                done(self.results, at)

        self._controller.carry_out(
            lambda image: self._decide(image, list(chain.from_iterable(portion))),
            done=portion_done,
            failed=portion_failed,
            now=now,
        )

    def _refusals(self, groups: Iterable[list[Item]], refusal: Refusal) -> Iterable[Result]:
        """One result for what is named twice."""
        for group in groups:
            for result, _ in groupby(self._refused(item, refusal) for item in group):
                yield result


def _portions(
    items: Sequence[Item], key: Callable[[Item], Hashable], size: Callable[[Item], int]
) -> deque[_Portion[Item]]:
    """The items in their order, but for those with one key, which are all where the first is."""
    together: dict[Hashable, list[Item]] = {}
    for item in items:
        together.setdefault(key(item), []).append(item)
    portions: deque[_Portion[Item]] = deque()
    room = 0
    for group in together.values():
        group_bytes = sum(map(size, group))
        is_too_much = 0 < group_bytes > room
        if not portions or is_too_much or len(portions[-1]) >= PARTITIONS_PER_MULTI:
            portions.append([])
            room = BYTES_PER_MULTI
        portions[-1].append(group)
        room -= group_bytes
    return portions
