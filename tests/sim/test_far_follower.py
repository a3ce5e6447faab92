"""Seeds in which a follower comes back from far away."""

from __future__ import annotations

from strandline.sim.far_follower import with_far_follower
from strandline.sim.options import draw_plan
from strandline.sim.plan import BEYOND, Options, Plan
from strandline.sim.run import run
from strandline.sim.streams import Streams

SEEDS = range(150)


def is_far(plan: Plan) -> bool:
    return [(each.verb, each.words) for each in plan.actions] == [
        ("pause", ("follower:t-0",)),
        ("slow-link", ("outsider:t-0", "leader:t-0")),
    ]


def test_some_seeds_have_such_a_follower_and_nothing_else() -> None:
    found = [plan for plan in map(draw_plan, SEEDS) if is_far(plan)]
    assert 2 <= len(found) <= 20
    for plan in found:
        assert [client.kind for client in plan.clients] == ["producer"]
        first, second = (action.at_us for action in plan.actions)
        lag_us = int(plan.options.settings["replica.lag.time.max.ms"]) * 1_000
        assert second - first > lag_us  # else it never leaves
        assert second < plan.options.safety_us


def test_few_brokers_and_loss_are_for_other_seeds() -> None:
    def drawn(options: Options) -> bool:
        return any(
            is_far(with_far_follower(Plan(options), Streams(seed)("far follower")))
            for seed in SEEDS
        )

    assert drawn(Options(seed=1))
    assert not drawn(Options(seed=1, brokers=2))
    assert not drawn(Options(seed=1, profile=BEYOND))


def test_it_joins_again() -> None:
    plan = next(plan for plan in map(draw_plan, SEEDS) if is_far(plan))
    result = run(plan)
    assert not result.violations
