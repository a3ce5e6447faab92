"""One answer made of several parts that come at different times.

A request about several groups may touch several partitions, each of which answers when its own
records are durable. A gathering holds the parts until the last one is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from strandline.errors import InvariantViolated

Part = TypeVar("Part")


class Gathering(Generic[Part]):
    """Collects `count` parts and hands all of them, in their order, to `finish`."""

    def __init__(self, count: int, finish: Callable[[tuple[Part, ...]], None]) -> None:
        self._parts: dict[int, Part] = {}
        self._count = count
        self._finish = finish
        if count == 0:
            finish(())

    def deliver(self, index: int, part: Part) -> None:
        """Part number `index` is there."""
        if index in self._parts:
            raise InvariantViolated(f"Part {index} of an answer is there twice.")
        self._parts[index] = part
        if len(self._parts) == self._count:
            self._finish(tuple(self._parts[index] for index in range(self._count)))
