"""The decisions under every order of deaths, restarts, old views and new controllers."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.types import BrokerId
from tests.cluster.replica_world import World

BROKERS = st.integers(1, 5)
TARGETS = st.lists(BROKERS, min_size=3, max_size=3, unique=True)
KINDS = (
    ("hear", "hear all", "govern", "settle"),
    ("produce", "replicate", "fetch"),
    ("join", "leave", "join now", "leave now", "deliver", "deliver again"),
    ("kill", "stop", "start", "expire", "announce"),
    ("stand", "office dies"),
)
STEPS = st.one_of(
    *(st.tuples(st.sampled_from(kind), BROKERS, BROKERS) for kind in KINDS),
    st.tuples(st.just("administer"), st.integers(0, 2), TARGETS),
)
Step = tuple[str, int, int | list[int]]


def take(world: World, what: str, first: int, second: int | list[int]) -> None:
    if isinstance(second, list):
        world.administer(first, second)
        return
    one, other = world.brokers[BrokerId(first)], world.brokers[BrokerId(second)]
    match what:
        case "hear":
            world.hear(one)
        case "hear all":
            for broker in world.brokers.values():
                world.hear(broker)
        case "govern":
            world.govern(one)
        case "settle":
            while (office := world.in_office()) is not None:
                world.hear(office)
                if not world.govern(office):
                    break
        case "produce":
            for broker in world.brokers.values():
                world.produce(broker)
        case "replicate":
            for broker in (*world.brokers.values(), *world.brokers.values()):
                world.hear(broker)
                world.fetch(broker, 10)
        case "fetch":
            world.fetch(one, second)
        case "join" | "join now":
            for leader in world.brokers.values():
                world.propose_join(leader, other)
        case "leave" | "leave now":
            for leader in world.brokers.values():
                world.propose_leave(leader, other)
        case "deliver" | "deliver again":
            world.deliver(second, again=what == "deliver again")
        case "kill":
            world.kill(one, lost=second - 1)
        case "stop":
            world.stop(one)
        case "start":
            world.start(one)
        case "expire":
            world.expire(one)
        case "announce":
            world.announce(one)
        case "stand":
            world.stand(one)
        case "office dies":
            if (office := world.in_office()) is not None:
                world.expire(office)
        case _:
            raise AssertionError(what)
    if what.endswith("now"):
        world.deliver(-1)


@settings(max_examples=300)
@given(st.integers(1, 3), st.lists(STEPS, max_size=60))
def test_nothing_is_lost_and_everything_comes_right(min_isr: int, steps: list[Step]) -> None:
    """I-12, I-18, I-19, I-23, I-31, I-32, I-33, I-48, I-51, without unclean elections."""
    world = World(min_isr)
    for step in steps:
        take(world, *step)
    world.heal()


@settings(max_examples=100)
@given(st.integers(1, 3), st.booleans(), st.lists(STEPS, max_size=60))
def test_after_more_crashes_than_promised_replicas_agree_again(
    min_isr: int, is_unclean: bool, steps: list[Step]
) -> None:
    """F-06: records may be lost, but nobody leads unnoticed, and all is as it should be at last."""
    world = World(min_isr, is_unclean=is_unclean, is_beyond_promise=True)
    for step in steps:
        take(world, *step)
    world.heal()


@pytest.mark.parametrize("seed", range(150))
def test_long_histories(seed: int) -> None:
    """Where a list of steps that shrinks well does not go by itself."""
    random = Random(seed)
    world = World(random.choice([1, 2, 2, 3]))
    for _ in range(100):
        if random.random() < 0.08:
            take(world, "administer", random.randrange(3), random.sample(range(1, 6), 3))
        else:
            what = random.choice(random.choice(KINDS))
            take(world, what, random.randint(1, 5), random.randint(1, 5))
    world.heal()
