"""What the coordinator does for one group or member costs no more beside many others."""

from __future__ import annotations

from collections.abc import Callable

from tests.groups.world import World
from tests.lines import lines_of


class Busy(World):
    """A world without checks, which look at everything after each event."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator.check = lambda: None  # type: ignore[method-assign]


def grows_with(count: int, cost: Callable[[int], int]) -> float:
    """How many times as much twice as many cost."""
    return cost(2 * count) / cost(count)


def test_the_ends_of_many_appends() -> None:
    """They come at once when a slow follower is left out of the in-sync set."""

    def cost(count: int) -> int:
        world = Busy()
        world.hold = True
        for number in range(count):
            world.commit((0, 1), group=f"g{number}")
        return lines_of(world.release)

    assert grows_with(200, cost) < 2.5
