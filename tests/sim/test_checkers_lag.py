"""I-53: who stays behind leaves the in-sync set, if the leader was able to see to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.sim.checkers import checkers
from tests.sim.checked_world import AT, Checked
from tests.sim.mutants import mutated


@pytest.fixture
def checked() -> Iterator[Checked]:
    world = Checked(replica_lag_time_max_ms="500", controller_socket_timeout_ms="1000")
    world.write()
    assert world.found == []
    yield world
    world.close()


def leave_behind(checked: Checked, ms: int) -> None:
    """A follower is cut off from its leader only, and lacks a record for so long."""
    checked.isolate(3)
    checked.write(acks=1, settle=False)
    for _ in range(ms // 100):
        checked.world.run_for(100)
        checked.checkers.sweep()


def test_i53_a_laggard_stays_in_sync(checked: Checked) -> None:
    with mutated("laggards-leave"):
        leave_behind(checked, 6_000)
    assert set(checked.found) == {"I-53"}
    assert checked.checkers.violations[0].partition == str(AT)


def test_a_laggard_that_leaves_breaks_nothing(checked: Checked) -> None:
    leave_behind(checked, 6_000)
    assert checked.state.in_sync_replicas == (1, 2)
    assert checked.found == []


def test_who_has_everything_may_be_cut_off_for_long(checked: Checked) -> None:
    with mutated("laggards-leave"):
        checked.isolate(3)
        for _ in range(60):
            checked.world.run_for(100)
            checked.checkers.sweep()
    assert checked.found == []


def test_a_leader_that_cannot_reach_the_store_keeps_a_laggard(checked: Checked) -> None:
    with mutated("laggards-leave"):
        checked.world.store.cut(checked.state.leader, silent=True)
        leave_behind(checked, 4_000)
    assert checked.found == []


def test_of_a_time_in_which_it_did_not_look_nothing_is_known(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 105011452: the store may have been away all that time."""
    with mutated("laggards-leave"):
        leave_behind(checked, 1_000)
        checked.checkers._steps = -1_000_000  # no look comes by itself
        with monkeypatch.context() as patch:
            patch.setattr(checkers, "LOOK_US", 1 << 60)
            checked.world.run_for(5_000)
        checked.checkers.sweep()
        assert checked.found == []
        leave_behind(checked, 1_000)
        assert checked.found == []
        leave_behind(checked, 5_000)
    assert set(checked.found) == {"I-53"}
