"""The intruder: everything that it asks for is denied, and it notices what is not."""

from __future__ import annotations

import pytest

from strandline.sim.authorized import AUTHORIZER
from strandline.sim.clients.intruder import ATTEMPTS, Intruder
from strandline.sim.clients.make import make_client
from strandline.sim.options import draw_plan
from strandline.sim.plan import ClientSpec, Options
from strandline.sim.world import World
from tests.sim.callers import create_topic

SECURED = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
"""A cluster in which everyone else is a super user."""
OPEN = {**SECURED, "super.users": "User:ANONYMOUS;User:intruder"}


def visit(what: str, settings: dict[str, str]) -> Intruder:
    """The same thing again and again, at one broker with a topic."""
    world = World(Options(seed=3, brokers=1, settings=settings))
    world.start_all()
    assert world.run_until(lambda: world.is_settled())
    create_topic(world, "t", (1,))
    spec = ClientSpec("intruder", "intruder1", {"every": "20ms", "topic": "t"})
    client = make_client(world, spec)
    assert isinstance(client, Intruder)
    client.repertoire = [what]
    client.start()
    world.run_for(300)
    client.finish()
    return client


@pytest.mark.parametrize("what", ATTEMPTS)
def test_what_it_asks_for_is_denied(what: str) -> None:
    client = visit(what, SECURED)
    assert client.findings == []
    assert client.counters["intruder denied"] > 5


NOT_HERE = {"see groups", "commit an offset", "claim to be a follower"}
"""One broker without groups serves none of these to a super user either."""


@pytest.mark.parametrize("what", sorted({*ATTEMPTS} - NOT_HERE))
def test_it_notices_when_it_is_served(what: str) -> None:
    assert {each.invariant for each in visit(what, OPEN).findings} == {"I-58"}


def test_some_seeds_have_an_authorizer_and_an_intruder() -> None:
    plans = [draw_plan(seed) for seed in range(60)]
    secured = [each for each in plans if "authorizer.class.name" in each.options.settings]
    assert 0 < len(secured) < 20
    for plan in secured:
        assert [each.kind for each in plan.clients].count("intruder") == 1
