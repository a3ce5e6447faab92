"""Scenarios X-1 to X-5 of the replication specification on real nodes, step by step.

The same scenarios run on the pure core in `tests/scenarios`; here everything is real but sockets
and disk: requests in bytes, sessions, fetchers, elections by the controller.
"""

from __future__ import annotations

import pytest

from strandline.storage.leader_epochs import EpochEntry
from tests.node.cluster_load import values_of
from tests.node.cluster_steps import IMPATIENT, Steps, is_acknowledged
from tests.node.cluster_world import ClusterWorld

A, B, C = 1, 2, 3
UNCLEAN = (IMPATIENT, "unclean.leader.election.enable=true")


def contents(world: ClusterWorld, broker_id: int) -> list[bytes]:
    return list(values_of(world[broker_id], "t").values())


def epochs(world: ClusterWorld, broker_id: int) -> dict[int, int]:
    entries: tuple[EpochEntry, ...] = world.replica(broker_id, "t").log.leader_epochs.entries
    return {entry.epoch: entry.start_offset for entry in entries}


def test_x1_two_replicas() -> None:
    steps = Steps(A, B)
    assert steps.row() == ((0, 0), 0, (0, 0))
    client = steps.produce(b"m0")
    assert steps.row() == ((1, 0), 0, (0, 0))
    steps.fetch(B)
    assert steps.row() == ((1, 0), 0, (1, 0))
    assert not is_acknowledged(client)
    steps.arrives(B)
    assert is_acknowledged(client)
    steps.returns(B)
    assert steps.row() == ((1, 1), 1, (1, 1))
    steps.world.check()


def test_x1b_a_fetch_that_waits_is_answered_by_the_produce() -> None:
    steps = Steps(A, B, settings=())
    world = steps.world
    client = steps.produce(b"m0")
    assert steps.row() == ((1, 0), 0, (0, 0))
    steps.returns(B)
    assert steps.row() == ((1, 0), 0, (1, 0))
    steps.arrives(B)
    assert steps.row() == ((1, 1), 1, (1, 0))
    assert is_acknowledged(client)
    world.run(400)
    assert not world.is_held(A, B), "a high watermark alone must not end the waiting"
    world.run(200)
    steps.returns(B)
    assert steps.row() == ((1, 1), 1, (1, 1))
    world.check()


def test_x2_three_replicas() -> None:
    steps = Steps(A, B, C)
    assert steps.row() == ((0, 0), 0, 0, (0, 0), (0, 0))
    first = steps.produce(b"m0")
    assert steps.row() == ((1, 0), 0, 0, (0, 0), (0, 0))
    steps.fetch(B)
    assert steps.row() == ((1, 0), 0, 0, (1, 0), (0, 0))
    steps.fetch(B)
    assert steps.row() == ((1, 0), 1, 0, (1, 0), (0, 0))
    steps.fetch(C)
    assert steps.row() == ((1, 0), 1, 0, (1, 0), (1, 0))
    second = steps.produce(b"m1")
    assert steps.row() == ((2, 0), 1, 0, (1, 0), (1, 0))
    assert not is_acknowledged(first)
    steps.fetch(C)
    assert steps.row() == ((2, 1), 1, 1, (1, 0), (2, 1))
    assert is_acknowledged(first)
    steps.fetch(B)
    assert steps.row() == ((2, 1), 1, 1, (2, 1), (2, 1))
    steps.fetch(C)
    assert steps.row() == ((2, 1), 1, 2, (2, 1), (2, 1))
    assert not is_acknowledged(second)
    steps.fetch(B)
    assert steps.row() == ((2, 2), 2, 2, (2, 2), (2, 1))
    assert is_acknowledged(second)
    steps.fetch(C)
    assert steps.row() == ((2, 2), 2, 2, (2, 2), (2, 2))
    steps.world.check()


def test_x2b_a_slow_follower_holds_everybody_back_until_its_removal_is_committed() -> None:
    steps = Steps(A, B, C)
    world = steps.world
    client = steps.produce(b"m0")
    steps.fetch(B)
    steps.fetch(B)
    assert steps.at(A) == (1, 0)
    for _ in range(40):
        # B goes on fetching, C says nothing for longer than replica.lag.time.max.ms.
        steps.fetch(B)
        world.run(400)
    assert set(world.partition("t").in_sync_replicas) == {A, B}
    assert is_acknowledged(client)
    assert steps.at(A) == (1, 1)
    steps.fetch(C)
    steps.fetch(C)
    world.run(50)
    assert set(world.partition("t").in_sync_replicas) == {A, B, C}
    # And from now on C counts again.
    late = steps.produce(b"m1")
    steps.fetch(B)
    steps.fetch(B)
    assert not is_acknowledged(late)
    steps.fetch(C)
    steps.fetch(C)
    assert is_acknowledged(late)
    world.check()


@pytest.mark.parametrize("b_writes_first", [False, True])
def test_x3_what_was_committed_survives_a_leader_change_right_behind_it(
    b_writes_first: bool,
) -> None:
    steps = Steps(A, B, settings=UNCLEAN)
    world = steps.world
    steps.produce(b"m0")
    for _ in range(3):
        steps.fetch(B)
    client = steps.produce(b"m1")
    steps.fetch(B)
    steps.arrives(B)
    assert is_acknowledged(client)
    assert (steps.at(A), steps.at(B)) == ((2, 2), (2, 1))  # the answer to B is lost
    world.kill(B, expire=True)
    world.start(B)
    world.run(100)
    assert steps.at(B)[0] == 2, "a follower must not truncate before a leader says so"
    world.kill(A, expire=True)
    world.run_until(lambda: world.partition("t").leader == B)
    world.run(50)
    assert contents(world, B) == [b"m0", b"m1"]
    steps.release()
    steps.leader = B
    if b_writes_first:
        steps.produce(b"m2", acks=1)
    world.start(A)
    world.run_until(world.is_settled)
    if not b_writes_first:
        steps.produce(b"m2")
    world.run_until(lambda: world.are_logs_equal("t"))
    assert contents(world, A) == [b"m0", b"m1", b"m2"]
    world.check()


def test_x4_logs_that_diverged_in_a_power_loss_agree_again() -> None:
    """B leads although A, which is complete, is away: that takes an unclean election (D-12)."""
    steps = Steps(A, B, settings=UNCLEAN)
    world = steps.world
    steps.produce(b"m0")
    for _ in range(3):
        steps.fetch(B)
    world.sync(A, "t")
    world.sync(B, "t")
    steps.produce(b"m1")
    steps.fetch(B)
    steps.arrives(B)
    assert (steps.at(A), steps.at(B)) == ((2, 2), (2, 1))
    world.sync(A, "t")  # but B has not brought m1 to its disk
    world.power_cut(B, expire=True)
    world.power_cut(A, expire=True)
    steps.release()
    world.start(B)
    world.run_until(lambda: world.partition("t").leader == B)
    world.run(20)
    assert contents(world, B) == [b"m0"]
    steps.leader = B
    steps.produce(b"m1x", acks=1)
    assert steps.at(B) == (2, 2)
    world.start(A)
    world.run_until(world.is_settled)
    world.run_until(lambda: world.are_logs_equal("t"))
    assert contents(world, A) == [b"m0", b"m1x"]
    assert list(epochs(world, A).values()) == [0, 1]
    world.check()


def test_x5_several_quick_leader_changes_leave_no_difference() -> None:
    steps = Steps(A, B, settings=UNCLEAN)
    world = steps.world
    steps.produce(b"a0")
    for _ in range(3):
        steps.fetch(B)
    steps.produce(b"a1", acks=1)
    world.kill(A, expire=True)
    steps.release()
    world.run_until(lambda: world.partition("t").leader == B)
    world.run(20)
    steps.leader = B
    steps.produce(b"b1", acks=1)
    steps.produce(b"b2", acks=1)
    world.kill(B, expire=True)
    world.start(A)
    world.run_until(lambda: world.partition("t").leader == A)
    world.run(20)
    steps.leader = A
    steps.produce(b"a2", acks=1)
    assert contents(world, A) == [b"a0", b"a1", b"a2"]
    world.start(B)
    world.run_until(world.is_settled)
    world.run_until(lambda: world.are_logs_equal("t"))
    assert contents(world, B) == [b"a0", b"a1", b"a2"]
    assert epochs(world, B) == epochs(world, A)
    assert sorted(epochs(world, B).values()) == [0, 2]
    world.check()


def test_x6_a_leader_that_was_replaced_commits_nothing() -> None:
    before = Steps(A, B, C, settings=("min.insync.replicas=2",))
    world = before.world
    before.release()
    before.produce(b"m0")
    world.run(1000)
    world.cut({A}, {B, C}, and_metadata=True)
    zombie = before.produce(b"lost")
    weak = before.produce(b"lost too", acks=1)
    assert is_acknowledged(weak)
    world.run_until(lambda: world.partition("t").leader != A)
    assert world.offsets(A, "t") == (3, 1), "the zombie has committed something"
    assert not is_acknowledged(zombie)
    before.leader = world.partition("t").leader
    world.run(20)
    assert is_acknowledged(before.produce(b"m1"))
    world.heal()
    world.run_until(world.is_settled)
    world.run_until(lambda: world.are_logs_equal("t"))
    assert contents(world, A) == [b"m0", b"m1"]
    assert not is_acknowledged(zombie)
    world.check()
