"""Plans: what a seed expands into, and that it is values only."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace

import pytest

from strandline.config.load import topic_config
from strandline.sim.clients.workload import Workload
from strandline.sim.faults.nemesis import check
from strandline.sim.faults.planner import CALM_ONE_OF
from strandline.sim.options import BEYOND_ONE_OF, draw_plan
from strandline.sim.pace import at_a_followers_pace
from strandline.sim.plan import (
    BEYOND,
    DAMAGE,
    DAMAGING,
    SAFE,
    STRICT,
    Action,
    ClientSpec,
    LatencySpec,
    Options,
    TopicSpec,
)
from strandline.sim.scenarios.script import BadScript
from strandline.sim.text import format_plan, parse_plan
from strandline.sim.world import World

SEEDS = range(300)


def test_a_seed_is_always_the_same_plan() -> None:
    assert [draw_plan(seed) for seed in range(20)] == [draw_plan(seed) for seed in range(20)]
    assert len({str(draw_plan(seed)) for seed in range(100)}) == 100


def test_a_plan_survives_being_written_down_and_being_sent() -> None:
    for seed in range(60):
        plan = draw_plan(seed)
        assert parse_plan(format_plan(plan)) == plan
        assert pickle.loads(pickle.dumps(plan)) == plan


def test_the_profile_is_drawn_or_given() -> None:
    drawn = [draw_plan(seed).options.profile for seed in SEEDS]
    assert 0.5 / BEYOND_ONE_OF < drawn.count(BEYOND) / len(drawn) < 2 / BEYOND_ONE_OF
    assert all(draw_plan(seed, BEYOND).options.allows_loss for seed in range(10))
    for seed in range(20):
        safe, strict, damage = (draw_plan(seed, each) for each in (SAFE, STRICT, DAMAGE))
        assert (strict.options.profile, damage.options.profile) == (STRICT, DAMAGE)
        assert safe in (strict, damage)
        assert not any(action.verb in DAMAGING for action in strict.actions)
        assert any(action.verb in DAMAGING for action in damage.actions)


def test_most_seeds_are_strict_and_those_that_damage_disks_say_so() -> None:
    drawn = [draw_plan(seed) for seed in SEEDS]
    profiles = Counter(plan.options.profile for plan in drawn)
    assert profiles.keys() == {STRICT, DAMAGE, BEYOND}
    assert profiles[STRICT] > len(drawn) / 2
    assert all(
        plan.options.profile
        == (DAMAGE if any(a.verb in DAMAGING for a in plan.actions) else STRICT)
        for plan in drawn
        if plan.options.profile != BEYOND
    )


def test_some_seeds_are_calm_and_kinds_of_faults_differ() -> None:
    plans = [draw_plan(seed) for seed in SEEDS]
    calm = sum(not plan.actions for plan in plans)
    assert 0.5 / CALM_ONE_OF < calm / len(plans) < 2 / CALM_ONE_OF
    verbs = [frozenset(action.verb for action in plan.actions) for plan in plans if plan.actions]
    assert len(set(verbs)) > 100
    assert sum("kill" in each for each in verbs) > len(verbs) / 2


def test_every_drawn_plan_can_be_made_and_done() -> None:
    for seed in range(40):
        plan = draw_plan(seed)
        world = World(plan.options)
        try:
            Workload(world, plan.clients)
            for topic in plan.options.topics:
                # One without the setting goes by the brokers' files, as far as its replicas reach.
                config = topic_config(topic.configs, world[1].config)
                has_its_own = "min.insync.replicas" in topic.configs
                assert config.min_insync_replicas <= topic.replication or not has_its_own
            for action in plan.actions:
                check(action)
                assert 0 < action.at_us < plan.options.safety_us
        finally:
            world.close()


def test_nothing_is_lossy_by_settings_in_the_safe_profile() -> None:
    for seed in SEEDS:
        options = draw_plan(seed, SAFE).options
        assert "unclean.leader.election.enable" not in options.settings


def producer(**options: str) -> ClientSpec:
    return ClientSpec(
        "producer", "p", {"partition": "0,1", "records": "3", "size": "200"} | options
    )


def test_followers_that_get_a_batch_per_fetch_are_not_left_behind() -> None:
    """Seed 6000513: 130 batches a second, and every fetch brought one, in 11 ms."""
    slow = LatencySpec(least_us=500, mean_us=5_000)
    limited = Options(seed=1, latency=slow, settings={"replica.fetch.max.bytes": "100"})
    reader = ClientSpec("ends", "e", {"every": "30ms"})
    clients = (producer(every="30ms"), producer(every="200ms"), producer(every="500ms"), reader)
    slowed = at_a_followers_pace(clients, limited)
    assert [each.options["every"] for each in slowed] == ["200ms", "200ms", "500ms", "30ms"]

    roomy = {"replica.fetch.max.bytes": "10000"}
    assert at_a_followers_pace(clients, replace(limited, settings=roomy)) == clients
    assert at_a_followers_pace(clients, replace(limited, settings={})) == clients
    assert at_a_followers_pace(clients, replace(limited, latency=LatencySpec())) == clients


def test_the_whole_answer_may_be_limited_too() -> None:
    slow = LatencySpec(least_us=500, mean_us=5_000, spike_us=250_000, spikes_per_mille=20)
    narrow = {"replica.fetch.max.bytes": "10000", "replica.fetch.response.max.bytes": "1"}
    options = Options(seed=1, latency=slow, settings=narrow)
    [slowed] = at_a_followers_pace([producer(every="30ms")], options)
    assert slowed.options["every"] == "150ms"
    assert slowed.options["records"] == "3"


def test_replicas_are_placed_by_rotation() -> None:
    assert TopicSpec("t", 3, 2).assignment(3) == ((1, 2), (2, 3), (3, 1))
    assert TopicSpec("t", 2, 5).assignment(2) == ((1, 2), (2, 1))


def test_options_by_broker() -> None:
    options = Options(seed=1, racks=("a", "b", "a"), drifts_ppm=(0, 5, 9))
    assert [options.rack(broker) for broker in (1, 2, 3)] == ["a", "b", "a"]
    assert options.drift_ppm(3) == 9
    assert replace(options, drifts_ppm=()).drift_ppm(3) == 0
    assert options.wall_offset_ms(2) == 0


def test_options_of_actions() -> None:
    action = Action(1_200_000, "kill", ("leader:t-0",), {"down": "3s", "times": "4"})
    assert str(action) == "at 1200ms kill leader:t-0 down=3s times=4"
    assert action.time_us("down", 1) == 3_000_000
    assert action.time_us("for", 7) == 7
    assert action.number("times", 1) == 4
    with pytest.raises(BadScript):
        action.number("down", 1)
    with pytest.raises(BadScript):
        action.word(1)
