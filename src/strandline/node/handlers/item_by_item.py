"""Requests whose items stand for themselves: one that cannot be keeps no other from being done."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from strandline.cluster.controller import Decision, Refusal
from strandline.cluster.image import ClusterImage
from strandline.errors import ProtocolError
from strandline.node.controller import Controller
from strandline.node.handlers.batching import Decide, InBatches
from strandline.types import Instant

Item = TypeVar("Item")
Wish = TypeVar("Wish")
Result = TypeVar("Result")


class ItemByItem(Generic[Wish]):
    """The items of a request, those aside that cannot be understood."""

    def __init__(self, items: Iterable[Item], understand: Callable[[Item], Wish]) -> None:
        """`understand` raises `ProtocolError` for an item that cannot be."""
        self.wishes: list[Wish] = []
        self._early: list[Refusal | None] = []
        for item in items:
            try:
                self.wishes.append(understand(item))
                self._early.append(None)
            except ProtocolError as error:
                self._early.append(Refusal.of(error))

    def carry_out(
        self,
        controller: Controller,
        decide: Decide[Wish, Refusal | None],
        reply: Callable[[Sequence[Refusal | None]], None],
        *,
        key: Callable[[Wish], Hashable],
        now: Instant,
    ) -> None:
        """Decide the wishes in batches, and reply with what becomes of all items."""
        outcomes: dict[int, Refusal | None] = {}

        def decide_some(
            image: ClusterImage, some: Sequence[tuple[int, Wish]]
        ) -> Decision[tuple[int, Refusal | None]]:
            decision = decide(image, [wish for _, wish in some])
            numbers = (number for number, _ in some)
            results = tuple(zip(numbers, decision.results, strict=True))
            return Decision(results, decision.operations)

        def done(results: Sequence[tuple[int, Refusal | None]], at: Instant) -> None:
            del at
            outcomes.update(results)
            reply(self.outcomes(outcomes[number] for number in range(len(self.wishes))))

        InBatches(
            controller,
            decide_some,
            list(enumerate(self.wishes)),
            key=lambda item: key(item[1]),
            refused=lambda item, refusal: (item[0], refusal),
        ).carry_out(done=done, now=now)

    def outcomes(self, results: Iterable[Result]) -> list[Refusal | Result]:
        """What becomes of all items, in their order, from the results of the wishes."""
        decided = iter(results)
        return [refusal or next(decided) for refusal in self._early]
