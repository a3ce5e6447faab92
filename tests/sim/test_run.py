"""Runs from beginning to end: phases, verdicts, determinism, and what broken clusters look like."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from strandline.replication.leader import Leader
from strandline.sim.checkers.violations import Violation
from strandline.sim.history.report import AnomalyKind
from strandline.sim.machine import Machine
from strandline.sim.options import draw_plan
from strandline.sim.phases import INVARIANT_OF, Bounds
from strandline.sim.plan import Action, ClientSpec, Options, Plan, TopicSpec
from strandline.sim.run import HarnessError, run
from strandline.sim.scenarios.script import BadScript
from strandline.sim.silent import Silent
from strandline.sim.sometimes import STATES
from strandline.sim.verdict import Verdict
from strandline.sim.world import World
from strandline.types import Offset

QUICK = {
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "1000",
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.wait.max.ms": "50",
    "replica.fetch.backoff.ms": "20",
    "replica.socket.timeout.ms": "1000",
    "controller.socket.timeout.ms": "1000",
}


def small_plan(*actions: Action, seed: int = 7, **options: Any) -> Plan:
    """One topic, a producer and a consumer, for three seconds."""
    return Plan(
        Options(
            seed=seed,
            settings=QUICK,
            topics=(TopicSpec("t", 1, 3, {"min.insync.replicas": "2"}),),
            safety_us=3_000_000,
            **options,
        ),
        (
            ClientSpec("producer", "p1", {"topic": "t", "idempotent": "yes", "every": "50ms"}),
            ClientSpec("consumer", "c1", {"topic": "t"}),
        ),
        actions,
    )


KILL = Action(500_000, "kill", ("leader:t-0",), {"down": "300ms"})
PAUSE = Action(1_500_000, "pause", ("leader:t-0",), {"for": "1500ms"})


def test_a_small_run_is_good_and_says_what_happened() -> None:
    verdict = run(small_plan(KILL, PAUSE))
    assert verdict.is_good, verdict.violations
    assert [name for name, _ in verdict.phases] == ["building", "safety", "liveness", "end"]
    assert verdict.seed == 7
    assert verdict.events > 500
    assert verdict.simulated_us > 3_000_000
    assert {row.broker for row in verdict.replicas} == {1, 2, 3}
    (leader,) = [row for row in verdict.replicas if row.role == "leads"]
    assert leader.in_sync == (1, 2, 3)
    assert leader.log_end == leader.high_watermark == leader.last_stable > 10
    assert {end for _, end in leader.remote} == {leader.log_end}
    assert any("kill leader:t-0" in note for note in verdict.notes)
    assert verdict.counters["fault kill"] == verdict.counters["fault pause"] == 1
    assert verdict.counters["leader changes"] >= 1
    assert verdict.counters["start after a crash"] == 1
    assert verdict.counters.keys() >= set(STATES)


@pytest.mark.parametrize("seed", range(1, 7))
def test_drawn_plans_are_good(seed: int) -> None:
    verdict = run(draw_plan(seed))
    assert verdict.is_good, verdict.violations


def test_the_same_plan_has_the_same_trace_whether_or_not_it_is_checked() -> None:
    plan = draw_plan(6)
    first, second, unchecked = run(plan), run(plan), run(plan, is_checked=False)
    assert first == second
    assert unchecked.trace_hash == first.trace_hash
    assert unchecked.events == first.events
    assert run(replace(plan, actions=plan.actions[1:])).trace_hash != first.trace_hash


def test_the_trace_does_not_depend_on_the_order_of_hash_tables() -> None:
    script = "import sys; from strandline.sim.sweep import run_seed; print(run_seed(6).trace_hash)"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1
    assert hashes != {""}


def test_one_broker_alone_is_a_cluster_too() -> None:
    plan = small_plan(KILL, brokers=1)
    settings = {**QUICK, "min.insync.replicas": "1"}
    topics = (TopicSpec("t", 1, 1, {"min.insync.replicas": "1"}),)
    verdict = run(replace(plan, options=replace(plan.options, settings=settings, topics=topics)))
    assert verdict.is_good, verdict.violations


def test_an_observer_gets_notes_phases_and_expectations() -> None:
    notes: list[str] = []
    phases: list[str] = []
    expected: list[Action] = []
    ends: list[World] = []
    expect = Action(1_000_000, "expect", ("t-0",), {"leader": "2"})

    def hear_of_expectation(world: World, action: Action) -> None:
        assert world.image.topics
        expected.append(action)

    verdict = run(
        small_plan(expect),
        on_expect=hear_of_expectation,
        on_note=lambda _, text: notes.append(text),
        on_phase=lambda name, _: phases.append(name),
        on_end=ends.append,
    )
    assert verdict.is_good
    assert expected == [expect]
    assert phases == ["building", "safety", "liveness", "end"]
    assert "safety is over" in notes
    assert len(ends) == 1
    assert run(small_plan(expect)).is_good, "without an observer nothing is expected"


def test_observers_are_told() -> None:
    class Watch(Silent):
        lives = 0

        def started(self, machine: Machine) -> None:
            Watch.lives += 1

    run(small_plan(KILL), observers=[Watch()])
    assert Watch.lives == 4


# -- what goes wrong -------------------------------------------------------------------------


def stuck_after(plan: Plan, **options: Any) -> Verdict:
    """A run whose brokers cannot reach each other any more once faults have ended."""

    def cut(world: World, _: Action) -> None:
        world.network.heal = lambda: None  # type: ignore[method-assign]
        for one in world.machines:
            for other in world.machines:
                if one != other:
                    world.network.cut(one, other)

    never = Action(2_900_000, "expect")
    return run(replace(plan, actions=(*plan.actions, never)), on_expect=cut, **options)


def test_what_never_comes_right_is_a_violation() -> None:
    verdict = stuck_after(small_plan())
    assert not verdict.is_good
    broken = {violation.invariant for violation in verdict.violations}
    assert "I-49" in broken
    assert any("In vain for" in violation.what for violation in verdict.violations)
    assert list(verdict.violations) == sorted(verdict.violations, key=lambda each: each.at_us)


def test_a_run_can_end_with_its_first_violation() -> None:
    short = stuck_after(small_plan(), stop_at_violation=True)
    assert short.violations
    assert [name for name, _ in short.phases] == ["building", "safety", "end"]


def test_a_cluster_that_never_comes_up_is_a_violation() -> None:
    plan = small_plan()
    verdict = run(replace(plan, options=replace(plan.options, store_latency_us=90_000_000)))
    assert [(each.invariant, each.what) for each in verdict.violations] == [
        ("I-48", "In vain for 60s: the brokers come up.")
    ]


def test_a_leader_that_commits_on_its_own_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def commits_alone(
        leader: Leader, mark: Offset, end: Offset, *_: object, **__: object
    ) -> Offset:
        return end

    monkeypatch.setattr(Leader, "next_high_watermark", commits_alone)
    verdict = run(small_plan(KILL, PAUSE))
    assert {each.invariant for each in verdict.violations} & {"I-14", "I-17", "I-23"}


def test_mistakes_of_a_plan_are_raised_as_they_are() -> None:
    with pytest.raises(BadScript):
        run(small_plan(Action(0, "murder")))
    with pytest.raises(BadScript):
        run(replace(small_plan(), clients=(ClientSpec("spy", "s"),)))


def test_mistakes_of_the_simulator_name_the_seed() -> None:
    def fail(world: World, action: Action) -> None:
        raise RuntimeError("oh")

    with pytest.raises(HarnessError, match="seed 7") as caught:
        run(small_plan(Action(0, "expect")), on_expect=fail)
    assert isinstance(caught.value.__cause__, RuntimeError)


# -- bounds and names ------------------------------------------------------------------------


def test_bounds_follow_the_settings_up_to_a_limit() -> None:
    short = Bounds(Options(seed=1, settings=QUICK))
    long = Bounds(Options(seed=1))
    assert short.controller_us < long.controller_us
    assert short.in_sync_us < long.in_sync_us
    assert Bounds(Options(seed=1, liveness_us=5_000_000)).in_sync_us == 5_000_000


def test_every_anomaly_breaks_an_invariant() -> None:
    assert set(INVARIANT_OF) == set(AnomalyKind)
    assert str(Violation("I-28", "gone", 5)) == "I-28: gone"
