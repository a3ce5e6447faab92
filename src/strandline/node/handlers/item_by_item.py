"""Requests whose items stand for themselves: one that cannot be keeps no other from being done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from strandline.cluster.controller import Refusal
from strandline.errors import ProtocolError

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

    def outcomes(self, results: Iterable[Result]) -> list[Refusal | Result]:
        """What becomes of all items, in their order, from the results of the wishes."""
        decided = iter(results)
        return [refusal or next(decided) for refusal in self._early]

    def failed(self, error: ProtocolError) -> list[Refusal]:
        """The same, if none of the wishes could be carried out."""
        return [refusal or Refusal.of(error) for refusal in self._early]
