"""What the parts of a broker say of themselves: I-09, I-40, I-42, I-50."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.errors import ErrorCode, InvariantViolated
from strandline.groups.coordinator import GroupCoordinator
from strandline.node.commit_queue import CommitQueue
from strandline.node.controller_loop import ControllerLoop
from strandline.node.follower_role import FollowerRole
from strandline.node.follower_sessions import Followed, FollowerSession
from strandline.node.in_sync_changes import InSyncChanges
from strandline.node.purgatory import Purgatory
from strandline.node.replica import Replica
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.replication.in_sync import Committed
from strandline.sim.checkers.batches import Remains
from strandline.sim.checkers.log_model import LogModel
from strandline.types import BrokerId, LeaderEpoch
from tests.node.messages import batch, produce
from tests.sim.callers import Caller
from tests.sim.checked_world import AT, Checked, always, model_of


@pytest.fixture
def checked() -> Iterator[Checked]:
    world = Checked()
    world.write(5)
    assert world.found == []
    yield world
    world.close()


def wait_for_more(checked: Checked, *, offset: int = 5, bytes_min: int = 1) -> Caller:
    """A consumer that waits for more than there is."""
    topic = checked.world.image.topics["t"]
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=20_000,
        min_bytes=bytes_min,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=topic.topic_id, partitions=[partition])],
    )
    caller = Caller(checked.world, "reader", 1)
    caller.send(request, 13)
    checked.world.run_for(100)
    assert not caller.answers
    return caller


# -- Fetchers --------------------------------------------------------------------------------


def test_a_follower_without_a_fetcher(checked: Checked) -> None:
    checked.world[2].node.fetchers.forget(checked.replica(2))
    checked.checkers.at_phase_end()
    assert (
        "t-0 on broker 2: 0 fetchers fetch it, and it follows broker 1" in checked.only("I-09").what
    )


def test_a_leader_that_is_fetched(checked: Checked) -> None:
    node = checked.world[1].node
    node.fetchers.follow(
        checked.replica(1), checked.replica(2).host.broker_id, checked.world[1].now
    )
    checked.checkers.at_phase_end()
    assert (
        "t-0 on broker 1: 1 fetchers fetch it, and it follows no leader"
        in checked.only("I-09").what
    )


def test_a_follower_that_fetches_from_another_broker(checked: Checked) -> None:
    checked.replica(2).leader_id = checked.replica(3).host.broker_id
    checked.act(2)
    assert "it follows broker 3 in epoch 0, but is fetched from 1" in checked.only("I-09").what


def test_a_follower_that_fetches_in_an_old_epoch(checked: Checked) -> None:
    replica = checked.replica(2)
    replica.leader_epoch = type(replica.leader_epoch)(4)
    checked.act(2)
    assert "it follows broker 1 in epoch 4, but is fetched from 1" in checked.only("I-09").what


# -- Waiting ---------------------------------------------------------------------------------


def test_an_append_that_is_not_told_of_its_commit(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replica, "settle", always(None))
    caller = Caller(checked.world, "writer", 1)
    caller.send(produce(batch(b"x"), *AT, acks=-1, timeout_ms=30_000), 9)
    checked.world.run_for(1_000)
    assert not caller.answers
    assert "The high watermark is 6, but an append still waits for 6" in checked.only("I-40").what


@pytest.mark.parametrize(
    ("is_compacted", "was_taken", "is_found"),
    [(False, False, True), (True, False, True), (True, True, False)],
    ids=["not compacted", "compacted elsewhere", "compaction made room"],
)
def test_a_consumer_that_is_not_woken(
    checked: Checked,
    monkeypatch: pytest.MonkeyPatch,
    is_compacted: bool,
    was_taken: bool,
    is_found: bool,
) -> None:
    monkeypatch.setattr(LogModel, "is_compacted", property(always(is_compacted)))
    if was_taken:
        model_of(checked, 1).remains[5] = Remains({}, crc=0, horizon_ms=None, max_timestamp=0)
    caller = wait_for_more(checked)
    assert checked.found == []
    changed = Purgatory.changed

    def forgets(purgatory: Purgatory, watched: object) -> None:
        if not isinstance(watched, Replica):
            changed(purgatory, watched)  # type: ignore[arg-type]

    monkeypatch.setattr(Purgatory, "changed", forgets)
    checked.write(acks=1)
    assert not caller.answers
    if is_found:
        assert "A fetch of reader at broker 1 is parked, but" in checked.only("I-40").what
    else:
        assert checked.found == []


def test_a_consumer_that_waits_rightly_is_left_alone(checked: Checked) -> None:
    size = checked.replica(1).log.active.size // 5
    caller = wait_for_more(checked, bytes_min=2 * size)
    checked.write()
    assert not caller.answers
    assert checked.found == []
    checked.write()
    assert caller.answers
    assert checked.found == []


def test_a_follower_that_is_not_woken(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Followed, "on_change", always(None))
    checked.write(acks=1, settle=False)
    checked.world.run_for(20)
    assert "is parked, but" in checked.only("I-40").what


def test_a_request_that_no_event_would_wake(checked: Checked) -> None:
    wait_for_more(checked)
    for entry in checked.world[1].node.purgatory:
        for watched in entry.watched:
            watched.waiters.clear()
    checked.write()
    assert "is lost" in checked.only("I-40").what


def delete_records(checked: Checked) -> Caller:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=3)]
            )
        ],
        timeout_ms=20_000,
    )
    caller = Caller(checked.world, "admin", 1)
    caller.send(request, 2)
    checked.world.run_for(3_000)
    assert not caller.answers
    return caller


def test_a_deletion_that_is_not_told(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Purgatory, "_try", always(False))
    delete_records(checked)
    checked.checkers.sweep()
    assert "A deletion of admin waits, but" in checked.only("I-40").what


def test_a_request_whose_time_never_comes(checked: Checked) -> None:
    wait_for_more(checked)
    for entry in checked.world[1].node.purgatory:
        entry.timer.cancel()
    checked.checkers.sweep()
    assert "is lost" in checked.only("I-40").what


def test_a_request_that_waits_at_the_end(checked: Checked) -> None:
    wait_for_more(checked)
    checked.checkers.at_end()
    assert checked.found == []
    checked.isolate(2)
    delete_records(checked)
    checked.checkers.at_end()
    assert "A request of admin is still parked at broker 1" in checked.only("I-40").what


def test_an_append_that_is_undecided_at_the_end(checked: Checked) -> None:
    checked.isolate(2)
    caller = Caller(checked.world, "writer", 1)
    caller.send(produce(batch(b"x"), *AT, acks=-1, timeout_ms=30_000), 9)
    checked.world.run_for(100)
    checked.checkers.at_end()
    assert "1 appends to t-0 on broker 1 still wait" in checked.only("I-40").what


# -- Sessions --------------------------------------------------------------------------------


def quiet_partition(checked: Checked) -> tuple[FollowerSession, Followed]:
    for session in checked.world[1].node.routes.fetch_sessions or ():
        if isinstance(session, FollowerSession):
            for fetched in session.partitions.values():
                if isinstance(fetched, Followed) and fetched.replica is checked.replica(1):
                    return session, fetched
    raise AssertionError


def test_a_follower_that_is_not_told_a_high_watermark(checked: Checked) -> None:
    _, fetched = quiet_partition(checked)
    assert not fetched.is_news
    checked.checkers.at_phase_end()
    assert checked.found == []
    fetched.told_high_watermark = 4
    checked.checkers.at_phase_end()
    assert "a follower was told (5, 4, 0)" in checked.only("I-42").what


# -- Roles, proposals, groups ----------------------------------------------------------------


def test_a_leader_that_was_told_of_another_epoch(checked: Checked) -> None:
    replica = checked.replica(1)
    replica.leader_epoch = LeaderEpoch(4)
    checked.act(1)
    assert "It leads in epoch 0, and was told of epoch 4" in checked.only("I-11").what


def test_a_leader_that_follows_as_well(checked: Checked) -> None:
    replica = checked.replica(1)
    replica.following = FollowerRole(replica, replica.host)
    checked.checkers.at_phase_end()
    assert "It leads, and is to follow broker 1" in checked.only("I-09").what


def test_a_leader_that_is_not_in_sync_with_itself(checked: Checked) -> None:
    checked.leader().in_sync = Committed(frozenset({BrokerId(2), BrokerId(3)}))
    checked.checkers.at_phase_end()
    assert any("is not in sync with itself" in each.what for each in checked.checkers.violations)


def test_an_append_that_outlives_leadership(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CommitQueue, "fail_all", always(None))
    checked.isolate(2)
    caller = Caller(checked.world, "writer", 1)
    caller.send(produce(batch(b"x"), *AT, acks=-1, timeout_ms=30_000), 9)
    checked.world.run_for(100)
    checked.replica(1).retire(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(InvariantViolated, match="1 appends wait to be told that leadership was"):
        checked.replica(1).check()


def test_a_proposal_that_is_never_sent(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InSyncChanges, "propose", always(None))
    checked.isolate(2)
    checked.write(acks=1, settle=False)
    assert checked.world.run_until(lambda: "I-50" in checked.found)
    assert "which was never asked" in checked.only("I-50").what


def test_groups_are_checked_when_something_has_happened(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = checked.world[1].node
    asked: list[GroupCoordinator] = []
    monkeypatch.setattr(GroupCoordinator, "check", lambda self: asked.append(self))
    node.check(())
    assert asked == []
    node.groups.host.topics_deleted([], checked.world[1].now)
    node.check(())
    node.check(())
    assert len(asked) == 1


def controller_loop(checked: Checked) -> ControllerLoop:
    controller = checked.world.image.controller
    assert controller is not None
    return checked.world[controller].node.controller_loop


def test_a_controller_that_does_not_notice_its_election(checked: Checked) -> None:
    controller_loop(checked)._was_controller = False
    checked.checkers.sweep()
    assert "is the controller, and it has not noticed" in checked.only("I-18").what


def test_a_controller_that_does_not_try_again(checked: Checked) -> None:
    controller_loop(checked)._reconciler._failures = 1
    checked.checkers.sweep()
    assert "and that is not tried again" in checked.only("I-51").what
