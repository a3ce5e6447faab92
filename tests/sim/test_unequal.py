"""Seeds whose brokers differ: what is drawn, and that the oracle judges by what was promised."""

from __future__ import annotations

from strandline.cluster.znodes import CLUSTER_DEFAULT, ConfigResource, ResourceKind
from strandline.sim.options import draw_plan
from strandline.sim.plan import Options
from tests.sim.faults_stage import T0, Stage, stage

SEEDS = range(150)


def test_files_topics_and_disks_differ_in_some_seeds() -> None:
    plans = [draw_plan(seed) for seed in SEEDS]
    different = [plan for plan in plans if len(set(plan.options.minimums)) > 1]
    assert any(
        "min.insync.replicas" not in topic.configs
        for plan in different
        for topic in plan.options.topics
    )
    for verb in ("alter-config", "alter-defaults"):
        assert any(
            action.verb == verb and "min.insync.replicas" in action.options
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


def test_the_default_of_all_brokers_is_changed_and_reset() -> None:
    """The topic of the stage has no setting of its own."""
    resource = ConfigResource(ResourceKind.BROKER, CLUSTER_DEFAULT)
    with stage() as it:
        it.do("alter-defaults min.insync.replicas=3 within=5s")
        assert it.world.run_until(
            lambda: it.world.image.overrides(resource) == {"min.insync.replicas": "3"}
        )
        assert it.world.run_until(lambda: minimum_of_the_leader(it) == 3)
        it.do("alter-defaults min.insync.replicas=- within=5s")
        assert it.world.run_until(lambda: not it.world.image.overrides(resource))
        assert it.world.run_until(lambda: minimum_of_the_leader(it) == 2)


def minimum_of_the_leader(it: Stage) -> int:
    replica = it.world.replica(it.state.leader, T0)
    return 0 if replica is None else replica.log.config.min_insync_replicas


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
