"""Each fault does what it says, and comes right again."""

from __future__ import annotations

import pytest

from strandline.sim.clients.make import ADMIN_VERBS
from strandline.sim.faults.catalogue import CATALOGUE, as_table
from strandline.sim.faults.kinds import KINDS
from strandline.sim.faults.nemesis import EXPECT, VERBS, check
from strandline.sim.options import draw_plan
from strandline.sim.plan import BEYOND
from strandline.sim.scenarios.script import BadScript
from tests.current import current
from tests.sim.faults_stage import T0, action, stage

# -- the catalogue ---------------------------------------------------------------------------


def test_every_fault_of_the_catalogue_has_one_row_that_says_where_it_comes_from() -> None:
    assert [row.fault for row in CATALOGUE] == [f"F-{number:02}" for number in range(1, 73)]
    for row in CATALOGUE:
        assert sum(map(bool, (row.made_by, row.nature, row.missing))) == 1, row
        assert f"| {row.fault} | {row.what} |" in as_table()


def test_every_action_of_the_catalogue_is_one_that_can_be_done() -> None:
    for row in CATALOGUE:
        for line in row.made_by:
            check(action(line))


def test_every_verb_is_in_the_catalogue_and_is_drawn() -> None:
    listed = {action(line).verb for row in CATALOGUE for line in row.made_by}
    assert not VERBS.keys() - listed
    drawn = {each.verb for seed in range(1500) for each in draw_plan(seed).actions}
    assert not VERBS.keys() - drawn
    assert not drawn - VERBS.keys() - set(ADMIN_VERBS)
    assert len(KINDS) == len({kind.draw for kind in KINDS})


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("murder 1", "There is no verb murder"),
        ("kill 1 dwn=3s", "kill has no option 'dwn'"),
        ("kill 1 when=soon", "There is no moment 'soon'"),
    ],
)
def test_mistakes_in_a_plan_are_refused_beforehand(line: str, complaint: str) -> None:
    with pytest.raises(BadScript, match=complaint):
        check(action(line))


@pytest.mark.parametrize(
    "line",
    [
        "lose-directory 1 what=all",
        "kill",
        "kill king",
        "pause 1 for=long",
        "power-cut 1 mode=much",
        "crash-in 1 how=so",
    ],
)
def test_mistakes_that_show_later_are_refused_too(line: str) -> None:
    with stage() as it, pytest.raises(BadScript):
        it.do(line)


def test_expect_is_for_others() -> None:
    check(action(f"{EXPECT} t-0 leader=2"))


# -- processes -------------------------------------------------------------------------------


def test_kill_and_start() -> None:
    with stage() as it:
        it.do("kill leader:t-0 down=700ms")
        assert not it[1].is_running
        assert it[1].is_powered
        it.run(600)
        assert not it[1].is_running
        it.run(200)
        assert it[1].life == 2
        it.settle()


def test_killing_the_dead_is_skipped() -> None:
    with stage() as it:
        it.do("kill 1 down=5s", "kill 1", "pause 1", "stop 1", "crash-in 1 operations=1")
        assert len(it.skipped) == 4
        assert it.scene.done == {"kill": 1}


def test_kill_all_and_whom_words_mean() -> None:
    with stage() as it:
        it.do("kill 2,3 down=3s")
        assert [each.is_running for each in it.world.machines.values()] == [True, False, False]
        it.do("kill all down=100ms")
        assert not any(each.is_running for each in it.world.machines.values())
        it.do("kill leader:no-0", "kill 9", "kill coordinator:g")
        assert len(it.skipped) == 3
        it.run(3_100)
        it.settle()


def test_power_cut_loses_what_was_not_synced_and_the_budget_counts_it() -> None:
    with stage() as it:
        it.do("power-cut 1 mode=none down=2s")
        assert not it[1].is_powered
        assert not it.scene.budget.is_exceeded
        it.do("power-cut 2 mode=none down=1s")
        assert it[2].is_running
        assert "beyond the budget of t-0: 1 crashed already, 1 may" in it.skipped[0]
        it.run(2_500)
        it.settle()
        it.do("power-cut 2 mode=none down=100ms")
        assert not it[2].is_running


def test_beyond_tolerance_everything_goes_and_is_remembered() -> None:
    with stage(BEYOND) as it:
        it.do("power-cut all mode=none down=100ms")
        assert not any(each.is_running for each in it.world.machines.values())
        assert it.scene.budget.is_exceeded


def test_pause_and_resume() -> None:
    with stage() as it:
        it.do("pause 2 for=1500ms", "pause 2 for=100ms")
        it.run(1_400)
        assert current(it[2].is_paused)
        it.run(200)
        assert not it[2].is_paused
        it.settle()
        assert it[2].life == 1


def test_stop_is_a_clean_end() -> None:
    with stage() as it:
        it.do("stop 1 down=300ms")
        assert it.world.run_until(lambda: not it[1].is_running)
        assert it.state.leader != 1
        it.settle()
        assert it[1].last_start_was_clean


def test_rolling_restart_stops_all_in_turn() -> None:
    with stage() as it:
        it.do("rolling-restart every=2s down=100ms")
        it.run(7_000)
        it.settle()
        assert [each.life for each in it.world.machines.values()] == [2, 2, 2]


def test_swapped_disk_is_empty() -> None:
    with stage() as it:
        it.do("swap-disk 2 down=50ms")
        it.run(100)
        it.settle()
        assert it[2].life == 2
        assert it.world.run_until(
            lambda: (
                (replica := it.world.replica(2, T0)) is not None and replica.log.log_end_offset > 0
            )
        )


def test_crash_in_counts_disk_operations() -> None:
    with stage() as it:
        it.do("crash-in 1 operations=10 how=kill down=100ms")
        assert it.world.run_until(lambda: it[1].life == 2)
        it.settle()


def test_crash_in_recovery_dies_again() -> None:
    with stage() as it:
        it.do("crash-in-recovery 3 times=2 operations=4 how=kill down=50ms")
        assert it.world.run_until(lambda: it[3].life == 4)
        it.settle()


def test_a_twin_is_refused() -> None:
    with stage(disks=2) as it:
        it.do("twin 1")
        assert not it.skipped
        assert not [note for note in it.world.notes if "BUG" in note]
        assert it[1].is_up


def test_election_storm_moves_the_leadership() -> None:
    with stage() as it:
        epoch = it.state.leader_epoch
        it.do("election-storm t-0 times=3 every=1500ms down=100ms")
        it.run(5_000)
        assert it.state.leader_epoch >= epoch + 3


@pytest.mark.parametrize("clog", ["yes", "no"])
def test_leader_dance_moves_the_leadership_without_a_death(clog: str) -> None:
    with stage() as it:
        epoch = it.state.leader_epoch
        leaders: set[int] = set()
        it.do(f"leader-dance t-0 times=3 every=400ms clog={clog}")
        for _ in range(15):
            it.run(100)
            leaders.add(it.state.leader)
        assert leaders == {1, 2, 3}
        assert it.state.leader_epoch >= epoch + 3
        it.settle()
        assert [each.life for each in it.world.machines.values()] == [1, 1, 1]


def test_the_last_one_standing_loses_its_power_and_another_one_leads() -> None:
    with stage() as it:
        it.do("last-standing t-0 after=4s for=6s down=3s")
        it.run(3_900)
        assert it.state.in_sync_replicas == (1,)
        eligible = it.state.elr
        assert eligible
        it.run(200)
        assert not it[1].is_powered
        it.run(2_500)
        assert it.state.leader in eligible
        it.settle()


# -- network ---------------------------------------------------------------------------------


def test_cut_ends_when_the_last_one_ends() -> None:
    with stage() as it:
        it.do("cut 1 2 for=4s", "cut 1 2 for=1s")
        it.run(3_000)
        assert set(it.state.in_sync_replicas) == {1, 3}
        it.run(1_500)
        it.settle()


@pytest.mark.parametrize("direction", ["1 2", "2 1"])
def test_one_direction_is_enough_to_fall_behind(direction: str) -> None:
    with stage() as it:
        it.do(f"cut-one-way {direction} for=4s")
        it.run(3_500)
        assert 2 not in it.state.in_sync_replicas
        it.run(1_000)
        it.settle()


def test_isolated_leader_loses_its_office() -> None:
    with stage() as it:
        it.do("isolate leader:t-0 store=yes clients=yes for=4s")
        it.run(3_500)
        assert it.state.leader in (2, 3)
        assert 1 not in it.world.image.brokers
        it.run(1_000)
        it.settle()


@pytest.mark.parametrize("one_way", ["in", "out", "no"])
def test_partition_separates_some_from_the_others(one_way: str) -> None:
    with stage() as it:
        it.do(f"partition 1,3 one-way={one_way} for=4s")
        it.run(3_500)
        assert set(it.state.in_sync_replicas) == {1, 3}
        it.run(1_000)
        it.settle()


def test_ring_leaves_neighbours_only() -> None:
    with stage(brokers=4) as it:
        it.do("ring for=4s")
        it.run(3_500)
        assert set(it.state.in_sync_replicas) == {1, 2}
        it.run(1_000)
        it.settle()
    with stage() as it:
        it.do("ring")
        assert it.skipped


@pytest.mark.parametrize(
    "line",
    [
        "clog 2 for=500ms",
        "clog 1 2 for=500ms",
        "swizzle for=400ms step=50ms",
        "stall 1 client:p1 for=500ms",
        "slow-link 1 factor=100 for=500ms",
        "flip client:p1 1 where=records",
        "flip 1 2 where=size",
        "cut clients 1 for=400ms",
    ],
)
def test_disturbances_of_links_pass(line: str) -> None:
    with stage() as it:
        it.do(line)
        assert not it.skipped
        it.run(1_500)
        it.settle()


def test_reset_breaks_connections() -> None:
    with stage() as it:
        before = it.world.network.counts.resets
        it.do("reset 1 2", "reset 3")
        assert it.world.network.counts.resets > before
        it.run(500)
        it.settle()


# -- store -----------------------------------------------------------------------------------


def test_store_cut_ends_the_session() -> None:
    with stage() as it:
        it.do("store-cut 1 for=3s")
        it.run(2_900)
        assert 1 not in it.world.image.brokers
        it.run(500)
        it.settle()


@pytest.mark.parametrize("who", ["2", "controller", "all"])
def test_expired_sessions_are_replaced(who: str) -> None:
    with stage() as it:
        epochs = {broker: image.epoch for broker, image in it.world.image.brokers.items()}
        it.do(f"store-expire {who}")
        it.run(3_000)
        it.settle()
        now = {broker: image.epoch for broker, image in it.world.image.brokers.items()}
        assert sum(now[broker] != epochs[broker] for broker in now) == (3 if who == "all" else 1)


def test_store_down_stops_changes() -> None:
    with stage() as it:
        zxid = it.world.image.zxid
        it.do("store-down for=2s")
        it.do("kill 3 down=100ms")
        it.run(1_800)
        assert it.world.image.zxid == zxid
        it.run(3_000)
        it.settle()


@pytest.mark.parametrize(
    "line",
    [
        "store-lag 1 lag=300ms for=1s",
        "store-lag controller lag=300ms torn=yes for=1s",
        "store-lose controller applied=yes",
        "store-lose controller applied=no",
        "store-reset all",
    ],
)
def test_disturbances_of_the_store_pass(line: str) -> None:
    with stage() as it:
        it.do(line)
        assert not it.skipped
        it.do("kill leader:t-0 down=200ms")
        it.run(3_000)
        it.settle()


# -- disks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "disk-fail 1 operation=append path=.log for=1s down=100ms",
        "disk-broken 1 dir=0 for=1s down=100ms",
        "disk-full 1 path=.log for=1s down=100ms",
    ],
)
def test_a_broken_disk_takes_nothing_until_it_is_healed_by_a_new_start(line: str) -> None:
    with stage() as it:
        end = it.log_end(1)
        it.do(line)
        for _ in range(9):
            it.run(100)
            assert it.log_end(1) in (end, -1), "it may be down, or has what it had"
        assert sum(it[1].disk.happened.values()) > 0
        it.run(2_000)
        it.settle()
        assert it[1].life >= 2, "without any directory left it ends, and is started again"
        assert it.world.run_until(lambda: it.log_end(1) > end)


def test_a_slow_disk_becomes_fast_again() -> None:
    with stage() as it:
        it.do("disk-slow 2 per=2ms for=500ms")
        it.run(400)
        it[2].disk.take_stall_us()
        it.run(2_000)
        it.settle()


@pytest.mark.parametrize("error", ["broken", "full"])
def test_a_failed_sync_is_counted_as_a_loss(error: str) -> None:
    with stage(log_flush_interval_messages="1") as it:
        it.do(f"fsync-fail 1 path=.log error={error} for=1s down=100ms")
        it.do("power-cut 2 mode=none")
        assert "beyond the budget" in it.skipped[0]
        directories = it[1].node.replicas.logs.directories
        it.run(3_000)
        assert any(each.offline_reason for each in directories), "what was lost is not served"
        it.settle()
        assert it[1].life >= 2


@pytest.mark.parametrize("line", ["rot 2 path=.log for=500ms", "lose-file 2 path=.log for=500ms"])
def test_damage_ends_with_a_new_disk_and_blocks_other_losses(line: str) -> None:
    with stage(log_flush_interval_messages="1") as it:
        it.do(line)
        assert it.scene.to_repair == {2: True}
        it.do("power-cut 1 mode=none")
        assert "beyond the budget" in it.skipped[0]
        it.run(3_000)
        assert not it.scene.to_repair
        it.settle()
        it.do("power-cut 1 mode=none")
        assert not it[1].is_running


@pytest.mark.parametrize(("what", "is_told"), [("log", True), ("disk", False), ("entry", True)])
def test_a_broker_starts_without_a_log_or_all_of_a_directory(what: str, is_told: bool) -> None:
    """It may still be elected when it comes back. Its other logs are there, and so is the marker of
    its clean end, unless all is gone."""
    with stage(disks=2, min_insync_replicas="3") as it:
        end = it.log_end(2)
        hosted = it.world.replica(2, T0)
        assert end > 0
        assert hosted is not None
        where = [*it[2].config.log_dirs].index(hosted.log.directory.rpartition("/")[0])
        it.do(f"lose-directory 2 what={what} dir={where} down=50ms")
        assert it.world.run_until(lambda: it[2].life == 2 and it[2].is_up)
        assert it.log_end(2) < end
        assert len(it[2].config.log_dirs) == (1 if what == "entry" else 2)
        assert any(" is gone" in each for each in it[2].start_notices) is is_told
        it.settle()


def test_the_only_directory_stays_in_the_configuration() -> None:
    with stage() as it:
        it.do("lose-directory 2 what=entry down=50ms")
        assert "no directory left" in it.skipped[0]


def test_a_lost_log_counts_as_lost_until_it_is_made_good() -> None:
    with stage() as it:
        it.do("lose-directory 2 down=50ms", "power-cut 1 mode=none")
        assert "beyond the budget" in it.skipped[0]
        assert it.world.run_until(lambda: it[2].life == 2 and it[2].is_up)
        it.settle()
        it.do("power-cut 1 mode=none")
        assert not it[1].is_running


@pytest.mark.parametrize("how", ["old", "gone"])
def test_tampered_tables_are_survived(how: str) -> None:
    with stage(replica_high_watermark_checkpoint_interval_ms="50") as it:
        # What is old is what a former process left.
        it.do("kill 2 down=10ms")
        it.run(2_000)
        it.do(f"tamper-checkpoint 2 path=replication-offset how={how} down=100ms")
        it.run(500)
        assert any("disk of 2: /data1" in note for note in it.world.notes)
        it.settle()


# -- clocks ----------------------------------------------------------------------------------


def test_clocks_are_set_and_set_right() -> None:
    with stage() as it:
        it.do("clock-jump 1 forward=10min for=1s", "clock-jump 1 back=4min for=500ms")
        ahead = it[1].clock.now.wall_ms - it[2].clock.now.wall_ms
        assert ahead == 6 * 60_000
        it.run(600)
        assert it[1].clock.now.wall_ms - it[2].clock.now.wall_ms == 10 * 60_000
        it.run(500)
        assert it[1].clock.now.wall_ms == it[2].clock.now.wall_ms


def test_clocks_drift_and_leap() -> None:
    with stage() as it:
        it.do("clock-drift 1 fast=50000 for=1s")
        it.run(2_000)
        gained = it[1].clock.now.monotonic_ms - it[2].clock.now.monotonic_ms
        assert 45 <= gained <= 55
        it.do("clock-leap 2")
        assert it[2].clock.now.wall_ms + 900 < it[3].clock.now.wall_ms


# -- the end of all faults -------------------------------------------------------------------


def test_the_end_of_all_faults_is_the_end_of_each() -> None:
    with stage(log_flush_interval_messages="1") as it:
        it.do(
            "cut 1 2 for=60s",
            "store-cut 2 for=60s",
            "pause 1 for=60s",
            "kill 3 down=60s",
            "disk-slow 2 per=1ms for=60s",
            "clock-jump 2 forward=10min for=60s",
            "crash-in 2 operations=1000 how=kill",
            "kill 2 when=controller-change wait=60s",
        )
        it.run(500)
        it.scene.end_all()
        it.run(5_000)
        it.settle()
        assert [each.life for each in it.world.machines.values()] == [1, 1, 2]
        assert it[2].clock.now.wall_ms == it[1].clock.now.wall_ms
