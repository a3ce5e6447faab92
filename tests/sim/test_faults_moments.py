"""Faults that wait for their moment, and what else the budget and the supervisor do."""

from __future__ import annotations

import pytest

from strandline.sim.plan import BEYOND
from tests.current import current
from tests.sim.faults_stage import T0, stage


@pytest.mark.parametrize(
    ("moment", "cause"),
    [
        ("controller-change", "store-expire controller"),
        ("epoch-change", "kill leader:t-0 down=5s"),
        ("in-sync-change", "cut 1 3 for=5s"),
        ("proposal", "cut 1 3 for=5s"),
    ],
)
def test_an_action_waits_for_its_moment(moment: str, cause: str) -> None:
    with stage() as it:
        it.do(f"pause 2 for=10ms when={moment} wait=20s")
        it.run(1_000)
        assert current(it.scene.done["pause"]) == 0
        it.do(cause)
        it.run(4_000)
        assert it.scene.done["pause"] == 1


def test_an_action_waits_no_longer_than_it_may() -> None:
    with stage() as it:
        it.do("kill 2 down=100ms when=controller-change wait=300ms")
        it.run(290)
        assert current(it[2].is_running)
        it.run(20)
        assert not it[2].is_running
        it.run(5_000)
        assert it[2].life == 2


def test_settings_move_the_budget_for_ever() -> None:
    with stage() as it:
        it.do("alter-config t min.insync.replicas=1")
        it.run(300)
        it.do("alter-config t min.insync.replicas=2")
        it.run(300)
        it.do("power-cut 2")
        assert "beyond the budget of t-0: none crashed already, 0 may" in it.skipped[0]


def test_a_minimum_that_is_asked_for_counts_at_once() -> None:
    with stage() as it:
        it.do("alter-config t min.insync.replicas=1", "power-cut 2")
        assert "beyond the budget of t-0: none crashed already, 0 may" in it.skipped[0]


@pytest.mark.parametrize(
    "change",
    [
        "alter-config t min.insync.replicas=1",
        "alter-config t min.insync.replicas=-",
        "alter-defaults min.insync.replicas=1",
    ],
)
def test_the_minimum_is_not_lowered_while_more_is_lost_than_it_allows(change: str) -> None:
    """A leader had lost its disk, and who had everything was forgotten (seed 119020031)."""
    with stage() as it:
        if change.endswith("-"):
            it.do("alter-config t min.insync.replicas=2")
            it.run(300)
            it.do("alter-defaults min.insync.replicas=1")
            it.run(300)
        it.do("power-cut 1 mode=none down=1s")
        assert not it[1].is_powered

        it.do("alter-config t min.insync.replicas=2")
        assert it.skipped == []
        it.do(change)
        (why,) = it.skipped
        assert "beyond the budget of t-0: 1 crashed already, 0 may then" in why

        it.run(2_500)
        it.settle()
        it.do(change)
        assert len(it.skipped) == 1


@pytest.mark.parametrize("how", ["kill 1 down=1s", "power-cut 1 mode=none down=1s"])
def test_beyond_what_is_promised_the_minimum_is_lowered_and_that_is_remembered(how: str) -> None:
    with stage(BEYOND) as it:
        it.do(how, "alter-config t min.insync.replicas=1")
        assert it.skipped == []
        assert it.scene.budget.is_exceeded is how.startswith("power-cut")


def test_the_minimum_of_all_is_not_that_of_a_topic_with_its_own() -> None:
    with stage() as it:
        it.do("alter-config t min.insync.replicas=2")
        it.run(300)
        it.do("power-cut 1 mode=none down=1s", "alter-defaults min.insync.replicas=1")
        assert it.skipped == []
        it.run(300)
        assert not it.scene.budget.is_exceeded


def test_a_replica_that_does_not_count_may_lose_everything() -> None:
    with stage() as it:
        it.do("power-cut 2 mode=none down=100ms")
        it.do("cut 3 all for=20s")
        it.run(4_000)
        assert 3 not in it.state.in_sync_replicas
        it.do("power-cut 3 mode=none")
        assert not it[3].is_powered
        assert not it.scene.budget.is_exceeded


def test_armed_crashes_count_until_they_have_struck() -> None:
    with stage() as it:
        it.do("crash-in 1 operations=100000 how=power")
        it.do("power-cut 2")
        assert "beyond the budget" in it.skipped[0]
        it[1].disarm()
        it.do("kill 1 down=100ms")
        it.run(2_000)
        it.settle()
        it.do("swap-disk 2")
        assert len(it.skipped) == 2, "a crash that may still come counts"


def test_a_machine_without_a_process_can_lose_its_power_and_its_disk() -> None:
    with stage(BEYOND) as it:
        lost: list[int] = []
        it.scene.on_loss = lost.append
        it.do("kill 2 down=20s", "kill 3 down=20s")
        it.do("power-cut 2 mode=none down=100ms", "swap-disk 3 down=100ms")
        assert lost == [2, 3]
        it.run(3_000)
        it.settle()


def test_skipped_actions_say_why() -> None:
    with stage(BEYOND) as it:
        it.do("kill 2 down=1s", "rot 2 path=.nothing")
        assert "there is nothing to damage" in it.skipped[0]


def test_a_former_topic_of_a_name_has_no_newest_leader_epoch() -> None:
    """Who leads it still leads by no means as the newest leader does (seed 119030577)."""
    with stage() as it:
        former = it.world.image.topics["t"].topic_id
        assert it.world.leader_epoch(T0, former) == it.world.leader_epoch(T0) == 0
        it.do("recreate-topic t partitions=1 replication=3")
        assert it.world.run_until(
            lambda: "t" in it.world.image.topics and it.world.image.topics["t"].topic_id != former
        )
        it.settle()
        assert it.world.leader_epoch(T0) == 0
        assert it.world.leader_epoch(T0, it.world.image.topics["t"].topic_id) == 0
        assert it.world.leader_epoch(T0, former) == -1
