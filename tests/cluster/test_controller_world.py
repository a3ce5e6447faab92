"""The decisions under every order of deaths, restarts, old views and new controllers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.types import BrokerId
from tests.cluster.replica_world import World

BROKERS = st.integers(1, 5)
TARGETS = st.lists(BROKERS, min_size=3, max_size=3, unique=True)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["hear", "hear all", "govern", "settle"]), BROKERS, BROKERS),
    st.tuples(
        st.sampled_from(["produce", "replicate", "fetch", "join", "leave"]), BROKERS, BROKERS
    ),
    st.tuples(st.sampled_from(["kill", "stop", "start", "expire", "announce"]), BROKERS, BROKERS),
    st.tuples(st.sampled_from(["stand", "office dies"]), BROKERS, BROKERS),
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
        case "join":
            for leader in world.brokers.values():
                world.propose_join(leader, other)
        case "leave":
            for leader in world.brokers.values():
                world.propose_leave(leader, other)
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


@settings(max_examples=300)
@given(st.integers(1, 3), st.lists(STEPS, max_size=60))
def test_nothing_is_lost_and_everything_comes_right(min_isr: int, steps: list[Step]) -> None:
    """I-12, I-18, I-19, I-23, I-31, I-32, I-33, I-48, I-51, with unclean elections forbidden."""
    world = World(min_isr)
    for step in steps:
        take(world, *step)
    world.heal()
