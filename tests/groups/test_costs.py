"""What the coordinator does for one group or member costs no more beside many others."""

from __future__ import annotations

from collections.abc import Callable

from strandline.types import NO_TOPIC_ID
from tests.groups.test_transactional_offsets import pending_commit
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


def open_transactions(count: int) -> Busy:
    """A world with so many open transactions, each with an offset of a group of its own."""
    world = Busy()
    for number in range(count):
        pending_commit(world, 5, producer=number, group=f"g{number}")
    return world


def test_a_commit_beside_many_open_transactions() -> None:
    def cost(count: int) -> int:
        world = open_transactions(count)
        return lines_of(lambda: world.commit((0, 1), group="other"))

    assert grows_with(200, cost) < 1.1


def test_expiry_and_deleted_topics_beside_many_open_transactions() -> None:
    def cost(count: int) -> int:
        world = open_transactions(count)
        gone = [("other", NO_TOPIC_ID)]

        def look_at_all() -> None:
            world.advance(world.settings.offsets_retention_check_interval_ms)
            world.run(world.coordinator.topics_deleted(gone, world.now))

        return lines_of(look_at_all)

    assert grows_with(200, cost) < 2.5
