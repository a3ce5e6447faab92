"""Seeds whose brokers differ: what is drawn, and that the oracle judges by what was promised."""

from __future__ import annotations

from strandline.sim.options import draw_plan
from strandline.sim.plan import Options
from strandline.sim.unequal import SINCE
from tests.sim.faults_stage import stage

SEEDS = range(SINCE, SINCE + 150)


def test_seeds_that_are_named_elsewhere_have_equal_brokers() -> None:
    plans = [draw_plan(seed) for seed in range(100)]
    assert not any(plan.options.minimums for plan in plans)
    assert not any(action.verb == "restore-disk" for plan in plans for action in plan.actions)


def test_files_topics_and_disks_differ_in_some_seeds() -> None:
    plans = [draw_plan(seed) for seed in SEEDS]
    different = [plan for plan in plans if len(set(plan.options.minimums)) > 1]
    assert any(
        "min.insync.replicas" not in topic.configs
        for plan in different
        for topic in plan.options.topics
    )
    assert any(
        action.verb == "alter-config" and "min.insync.replicas" in action.options
        for plan in different
        for action in plan.actions
    )
    assert any(action.verb == "restore-disk" for plan in plans for action in plan.actions)
    for plan in plans:
        assert len(plan.options.minimums) in (0, plan.options.brokers)
        assert list(plan.actions) == sorted(plan.actions, key=lambda action: action.at_us)


def test_every_broker_is_started_with_its_own_file() -> None:
    with stage(minimums=(1, 2, 3)) as it:
        found = [each.config.min_insync_replicas for each in it.world.machines.values()]
    assert found == [1, 2, 3]
    options = Options(seed=1, settings={"min.insync.replicas": "2"})
    assert [options.minimum(broker) for broker in (1, 2, 3)] == [2, 2, 2]


def test_the_budget_goes_by_the_smallest_file() -> None:
    """A leader with 1 acknowledges what one power cut may lose."""
    for minimums, is_refused in (((2, 2, 2), False), ((2, 1, 2), True)):
        with stage(minimums=minimums) as it:
            it.do("power-cut 3 mode=none down=100ms")
            assert bool(it.skipped) is is_refused


def test_a_restored_disk_has_what_it_had_at_the_clean_stop() -> None:
    with stage() as it:
        it.run(500)
        it.do("restore-disk 2 after=1s down=50ms")
        assert it.world.run_until(lambda: it[2].life == 2)
        copied = it.log_end(3)
        assert it.world.run_until(lambda: it[2].life == 3 and it[2].is_up)
        assert any("an older copy" in note for note in it.world.notes)
        assert it[2].last_start_was_clean, "its marker is one"
        assert it.log_end(2) <= copied < it.log_end(1)
        it.settle()
