"""The client with delegation tokens: what it does, and that it finds nothing wrong."""

from __future__ import annotations

from strandline.sim.clients.make import make_client
from strandline.sim.clients.token_user import TokenUser
from strandline.sim.options import draw_plan
from strandline.sim.plan import ClientSpec, Options
from strandline.sim.tokens import KEY, TOKENS
from strandline.sim.world import World


def test_tokens_let_in_until_they_have_ended() -> None:
    world = World(Options(seed=3, brokers=2, settings={KEY: "key"}))
    world.start_all()
    assert world.run_until(lambda: world.is_settled())
    client = make_client(world, ClientSpec(TOKENS, "tokens1", {"every": "20ms", "life": "1s"}))
    assert isinstance(client, TokenUser)
    client.start()
    world.run_for(3000)
    for did in ("make", "renew", "shorten", "remove"):
        assert client.counters[f"tokens: {did} a token"], did
    assert client.counters["tokens let in"] > 5
    assert client.counters["tokens refused"] > 5
    client.finish()
    assert world.run_until(lambda: client.is_done)
    assert client.findings == []


def test_some_seeds_have_tokens() -> None:
    plans = [draw_plan(seed) for seed in range(100)]
    with_tokens = [each for each in plans if KEY in each.options.settings]
    assert 2 < len(with_tokens) < 20
    for plan in with_tokens:
        assert [each.kind for each in plan.clients].count(TOKENS) == 1
