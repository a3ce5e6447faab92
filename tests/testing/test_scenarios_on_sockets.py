"""Scenarios X-1 to X-4 of the replication specification on real brokers: sockets, files, elections.

The same scenarios run on nodes in virtual time in `tests/scenarios`. Each row is that of the
specification's table: the leader's log end and high watermark, what it knows of its followers' log
ends, the followers' own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from strandline.node.replica import Replica
from strandline.replication.in_sync import Committed, Expanding, InSyncState, Shrinking
from strandline.testing import Cluster
from strandline.types import BrokerId
from tests.testing.slow_links import IMPATIENT, PATIENT, Steps

UNCLEAN = {"unclean.leader.election.enable": True}
SAVED_OFTEN = {"replica.high.watermark.checkpoint.interval.ms": 20}
"""High watermarks are in their file soon after they have moved, for those who lose their memory."""


@contextmanager
def steps_of(replicas: int, settings: Mapping[str, object], **configs: object) -> Iterator[Steps]:
    """A topic with so many replicas, on brokers of which one more is the controller."""
    with Cluster(brokers=replicas + 1, session_timeout_ms=500, settings=settings) as cluster:
        steps = Steps(cluster, **configs)
        yield steps
        steps.close()


def test_x1_two_replicas() -> None:
    with steps_of(2, IMPATIENT) as steps:
        (_, b) = steps.replicas
        assert steps.row() == ((0, 0), 0, (0, 0))
        m0 = steps.produce(b"m0")
        assert steps.row() == ((1, 0), 0, (0, 0))
        steps.fetch(b)
        assert steps.row() == ((1, 0), 0, (1, 0))
        assert not m0.is_acknowledged
        steps.arrives(b)
        assert steps.row() == ((1, 1), 1, (1, 0))
        assert m0.code == 0
        steps.returns(b)
        assert steps.row() == ((1, 1), 1, (1, 1))


def test_x1b_a_fetch_that_waits_is_answered_by_the_produce() -> None:
    with steps_of(2, {**PATIENT, "replica.fetch.wait.max.ms": 4000}) as steps:
        (_, b) = steps.replicas
        steps.waits(b)
        m0 = steps.produce(b"m0")
        assert steps.at(steps.leader) == (1, 0)
        steps.wait_for_answer(b)
        assert steps.row() == ((1, 0), 0, (0, 0))
        steps.returns(b)
        assert steps.row() == ((1, 0), 0, (1, 0))
        steps.waits(b)
        assert m0.code == 0
        assert steps.row() == ((1, 1), 1, (1, 0))
        assert not steps.is_answered(b), "a high watermark alone must not end the waiting"
        steps.wait_for_answer(b)
        steps.returns(b)
        assert steps.row() == ((1, 1), 1, (1, 1))


def test_x2_three_replicas() -> None:
    with steps_of(3, IMPATIENT) as steps:
        (_, b, c) = steps.replicas
        assert steps.row() == ((0, 0), 0, 0, (0, 0), (0, 0))
        m0 = steps.produce(b"m0")
        assert steps.row() == ((1, 0), 0, 0, (0, 0), (0, 0))
        steps.fetch(b)
        assert steps.row() == ((1, 0), 0, 0, (1, 0), (0, 0))
        steps.fetch(b)
        assert steps.row() == ((1, 0), 1, 0, (1, 0), (0, 0))
        steps.fetch(c)
        assert steps.row() == ((1, 0), 1, 0, (1, 0), (1, 0))
        m1 = steps.produce(b"m1")
        assert steps.row() == ((2, 0), 1, 0, (1, 0), (1, 0))
        assert not m0.is_acknowledged
        steps.fetch(c)
        assert steps.row() == ((2, 1), 1, 1, (1, 0), (2, 1))
        assert m0.code == 0
        steps.fetch(b)
        assert steps.row() == ((2, 1), 1, 1, (2, 1), (2, 1))
        steps.fetch(c)
        assert steps.row() == ((2, 1), 1, 2, (2, 1), (2, 1))
        assert not m1.is_acknowledged
        steps.fetch(b)
        assert steps.row() == ((2, 2), 2, 2, (2, 2), (2, 1))
        assert m1.code == 0
        steps.fetch(c)
        assert steps.row() == ((2, 2), 2, 2, (2, 2), (2, 2))


def test_x2b_a_slow_follower_holds_the_high_watermark_back_until_its_removal_is_committed() -> None:
    quick = {**IMPATIENT, "replica.lag.time.max.ms": 2000}
    with steps_of(3, quick) as steps:
        (a, b, c) = steps.replicas
        steps.silence(a)  # What the leader proposes from here on is not decided before it may.
        m0 = steps.produce(b"m0")
        while not steps.see(a, lambda replica: isinstance(_in_sync(replica), Shrinking)):
            steps.fetch(b)  # B goes on fetching; C says nothing.
        assert steps.see(a, _in_sync) == Shrinking(
            frozenset(map(BrokerId, (a, b, c))), frozenset({BrokerId(c)})
        )
        assert steps.row() == ((1, 0), 1, 0, (1, 0), (0, 0))
        assert not m0.is_acknowledged, "a removal that is only proposed counts already"
        steps.unsilence(a)
        while steps.in_sync != {a, b}:
            steps.fetch(b)
        steps.wait_until(a, lambda replica: replica.log.high_watermark == 1, "m0 is committed")
        assert m0.code == 0
        m1 = steps.produce(b"m1")
        steps.fetch(b)
        steps.fetch(b)
        assert m1.code == 0
        assert steps.row() == ((2, 2), 2, 0, (2, 2), (0, 0))
        steps.silence(a)
        steps.fetch(c)
        assert steps.row() == ((2, 2), 2, 0, (2, 2), (2, 2))
        assert isinstance(steps.see(a, _in_sync), Committed), "C was let in before it was there"
        steps.arrives(c)
        change = steps.see(a, _in_sync)
        assert isinstance(change, Expanding)
        assert (change.members, change.joining) == (frozenset({a, b}), c)
        m2 = steps.produce(b"m2")
        steps.fetch(b)
        steps.fetch(b)
        assert steps.row() == ((3, 2), 3, 2, (3, 2), (2, 2))
        assert not m2.is_acknowledged, "who is about to join does not count yet"
        steps.returns(c)
        steps.fetch(c)
        steps.fetch(c)
        assert m2.code == 0
        assert steps.row() == ((3, 3), 3, 3, (3, 2), (3, 3))
        steps.unsilence(a)
        steps.release(b)
        steps.release(c)
        steps.cluster.wait_until_in_sync("t")
        assert steps.in_sync == {a, b, c}


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("b_writes_first", [False, True])
def test_x3_what_was_committed_survives_a_leader_change_right_behind_it(
    acks: int, b_writes_first: bool
) -> None:
    # With acks=all the specification wants two replicas in sync (B-8): then a leader that is alone
    # commits nothing.
    min_in_sync = 1 if acks == 1 else 2
    settings = {**IMPATIENT, **SAVED_OFTEN, **UNCLEAN}
    with steps_of(2, settings, min_insync_replicas=min_in_sync) as steps:
        a, b = steps.replicas
        cluster = steps.cluster
        m0 = steps.produce(b"m0", acks=acks)
        steps.fetch(b)
        steps.fetch(b)
        assert m0.code == 0
        assert steps.row() == ((1, 1), 1, (1, 1))
        steps.wait_for_checkpoint(b)
        m1 = steps.produce(b"m1", acks=acks)
        steps.fetch(b)
        steps.arrives(b)
        assert m1.code == 0
        assert steps.row() == ((2, 2), 2, (2, 1))

        # The answer to B is lost: B dies and comes back, and does not reach A.
        cluster.kill(b)
        steps.forget(b)
        cluster.partition({a}, {b}, metadata_with={a, b, steps.controller})
        cluster.start(b)
        assert steps.at(b) == (2, 1), "a follower must not truncate before a leader says so"
        cluster.kill(a)
        assert cluster.wait_for_leader("t", other_than=a) == b
        steps.leader = b
        alone = (2, 2) if min_in_sync == 1 else (2, 1)
        steps.wait_until(b, lambda each: each.is_leading, "B leads")
        assert steps.at(b) == alone
        assert steps.remote == {a: -1}
        assert steps.in_sync == {b}
        assert steps.epoch_starts(b) == [0, 2]
        if b_writes_first:
            assert steps.produce(b"m2", acks=1).code == 0

        cluster.start(a)
        end = 3 if b_writes_first else 2
        assert steps.at(a) == (2, 2)
        steps.follow_slowly(a)
        steps.fetch(a)
        assert steps.contents(a) == [b"m0", b"m1", b"m2"][:end]
        steps.release(a)
        cluster.wait_until_in_sync("t")
        if not b_writes_first:
            assert steps.produce(b"m2").code == 0
        steps.wait_until(a, lambda each: each.log.high_watermark == 3, "A has everything")
        assert steps.row() == ((3, 3), 3, (3, 3))
        assert steps.contents(a) == steps.contents(b) == [b"m0", b"m1", b"m2"]
        assert steps.epoch_starts(a) == steps.epoch_starts(b) == [0, 2]


def test_x4_logs_that_diverged_in_a_power_loss_agree_again() -> None:
    """B leads although A, which is complete, is away: that takes an unclean election (D-12)."""
    with steps_of(2, {**IMPATIENT, **SAVED_OFTEN, **UNCLEAN}) as steps:
        a, b = steps.replicas
        cluster = steps.cluster
        steps.produce(b"m0")
        steps.fetch(b)
        steps.fetch(b)
        steps.wait_for_checkpoint(b)
        m1 = steps.produce(b"m1")
        steps.fetch(b)
        steps.arrives(b)
        assert m1.code == 0
        assert steps.row() == ((2, 2), 2, (2, 1))
        steps.wait_for_checkpoint(a)

        # The power fails for all of them at once, and m1 was not on B's disk.
        cluster.kill()
        steps.forget(b)
        steps.lose_last_batch(b)
        cluster.partition({a}, {b}, metadata_with={a, b, steps.controller})
        cluster.start(b, steps.controller)
        assert cluster.wait_for_leader("t", other_than=a) == b
        steps.leader = b
        steps.wait_until(b, lambda each: each.is_leading, "B leads")
        assert steps.at(b) == (1, 1)
        assert steps.contents(b) == [b"m0"]
        assert steps.produce(b"m1x", acks=1).code == 0
        assert steps.at(b) == (2, 2)
        assert steps.epoch_starts(b) == [0, 1]

        cluster.start(a)
        assert steps.row() == ((2, 2), -1, (2, 2)), "it was truncated without asking"
        assert steps.contents(a) == [b"m0", b"m1"]
        steps.follow_slowly(a)
        steps.fetch(a)
        assert steps.row() == ((2, 2), -1, (1, 1)), "a fetch that diverges moved the remote state"
        steps.fetch(a)
        assert steps.row() == ((2, 2), 1, (2, 2))
        assert steps.epoch_starts(a) == [0, 1]
        steps.fetch(a)
        assert steps.row() == ((2, 2), 2, (2, 2))
        assert steps.contents(a) == steps.contents(b) == [b"m0", b"m1x"]
        cluster.wait_until_in_sync("t")


def _in_sync(replica: Replica) -> InSyncState:
    assert replica.leader is not None
    return replica.leader.in_sync
