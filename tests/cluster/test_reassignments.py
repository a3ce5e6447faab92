"""Partitions that move: with a new controller at every step, with changes, with cancellation."""

from __future__ import annotations

import pytest

from strandline.cluster.controller import (
    OngoingReassignment,
    ReassignmentRequest,
    alter_reassignments,
    become_controller,
    list_reassignments,
    reconcile,
    step_down,
)
from strandline.cluster.controller.events import LeaderElected, PartitionMoved
from strandline.cluster.store import BadVersion
from strandline.errors import ErrorCode
from strandline.types import BrokerId, LeaderEpoch, TopicPartition
from tests.cluster.story import NOW_MS, Policy, Story, session_of

ONE, TWO, THREE, FOUR = BrokerId(1), BrokerId(2), BrokerId(3), BrokerId(4)
T0 = TopicPartition("t", 0)


def wish(*replicas: int, number: int = 0) -> ReassignmentRequest:
    return ReassignmentRequest(
        TopicPartition("t", number), [BrokerId(broker) for broker in replicas]
    )


CANCEL = ReassignmentRequest(T0, None)


def move(
    story: Story, *wishes: ReassignmentRequest, may_change_factor: bool = True
) -> list[ErrorCode | None]:
    decision = alter_reassignments(
        story.image, wishes, story.policy, may_change_replication_factor=may_change_factor
    )
    return [answer.refusal.code if answer.refusal else None for answer in story.follow(decision)]


def assigned(story: Story) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Replicas, adding, removing."""
    partition = story.partition()
    return partition.replicas, partition.adding, partition.removing


def leads(story: Story) -> tuple[int, int, tuple[int, ...]]:
    partition = story.partition()
    return partition.leader, partition.leader_epoch, partition.in_sync_replicas


@pytest.mark.parametrize("failovers", range(2))
def test_x13_a_partition_moves_to_other_brokers(failovers: int) -> None:
    """The nodes of the specification, 2.6, with the controller replaced before every write."""
    story = Story(6)
    story.place("t", [1, 2, 3])
    reign = iter(range(1, 6))

    def fail_over() -> None:
        if failovers:
            number = next(reign)
            late = reconcile(story.image, story.policy).operations
            story.do(step_down(story.image, BrokerId(number)))
            successor = BrokerId(number + 1)
            operations = become_controller(story.image, successor, now_ms=NOW_MS)
            story.do(operations, session_of(number + 1))
            if late:
                with pytest.raises(BadVersion):
                    story.do(late)

    assert move(story, wish(4, 5, 6)) == [None]
    assert assigned(story) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    assert leads(story) == (1, 0, (1, 2, 3)), "followers are told by the assignment"
    assert list_reassignments(story.image) == [
        OngoingReassignment(T0, (4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))  # type: ignore[arg-type]
    ]
    for members in ((1, 2, 3, 4), (1, 2, 3, 4, 5)):
        fail_over()
        assert story.reconcile() == []
        story.shrink(*members)
        assert leads(story) == (1, 0, tuple(sorted(members, key=[4, 5, 6, 1, 2, 3].index)))
    fail_over()
    story.shrink(1, 2, 3, 4, 5, 6)
    fail_over()
    moved, elected = story.reconcile()
    assert moved == PartitionMoved(T0, (FOUR, BrokerId(5), BrokerId(6)), (ONE, TWO, THREE))
    assert str(moved) == "t-0 has moved to [4, 5, 6]; [1, 2, 3] gave it up."
    assert elected == LeaderElected(T0, FOUR, ONE, LeaderEpoch(1), (FOUR, BrokerId(5), BrokerId(6)))
    assert assigned(story) == ((4, 5, 6), (), ())
    assert leads(story) == (4, 1, (4, 5, 6))
    assert story.partition().in_sync_epochs.keys() == {4, 5, 6}
    assert story.image.topics["t"].node.adding_replicas == {}
    assert list_reassignments(story.image) == []


def test_f20_a_target_that_dies_holds_the_move_up_and_loses_nothing() -> None:
    story = Story(6)
    story.place("t", [1, 2, 3])
    move(story, wish(4, 5, 6))
    story.shrink(1, 2, 3, 4, 5)
    story.leave(4)
    story.reconcile()
    story.shrink(1, 2, 3, 5, 6)
    assert story.reconcile() == []
    assert assigned(story) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    story.join(4)
    story.shrink(1, 2, 3, 4, 5, 6)
    story.leave(1)
    events = story.reconcile()
    assert [type(event) for event in events] == [PartitionMoved, LeaderElected]
    assert leads(story) == (4, 1, (4, 5, 6))


def test_r45_all_of_the_target_must_be_in_sync() -> None:
    """KAFKA-15665: not only those that are added."""
    story = Story(4)
    story.place("t", [1, 2, 3])
    story.shrink(1, 3)
    move(story, wish(2, 4))
    story.shrink(1, 3, 4)
    assert story.reconcile() == []
    assert assigned(story) == ((2, 4, 1, 3), (4,), (1, 3))
    story.shrink(1, 2, 3, 4)
    story.reconcile()
    assert assigned(story) == ((2, 4), (), ())


def test_a_leader_that_stays_gets_a_new_epoch_when_others_leave() -> None:
    story = Story(3)
    story.place("t", [1, 2])
    assert move(story, wish(1, 3)) == [None]
    story.shrink(1, 2, 3)
    [event] = story.reconcile()
    assert isinstance(event, PartitionMoved)
    assert leads(story) == (1, 1, (1, 3))


def test_a_reassignment_to_fewer_replicas_waits_for_none() -> None:
    story = Story(3)
    story.place("t", [1, 2, 3], [1, 2, 3])
    assert move(story, wish(3, 2), wish(3, 2, 1, number=1)) == [None, None]
    story.reconcile()
    assert assigned(story) == ((3, 2), (), ())
    assert leads(story) == (3, 1, (3, 2))
    other = story.partition(number=1)
    assert (other.replicas, other.leader, other.leader_epoch) == ((3, 2, 1), ONE, 0)


def test_the_same_target_changes_nothing() -> None:
    story = Story(3)
    story.place("t", [1, 2])
    zxid = story.tree.zxid
    assert move(story, wish(1, 2)) == [None]
    assert story.tree.zxid == zxid


def test_a_cancelled_move_gives_up_what_it_added() -> None:
    story = Story(4)
    story.place("t", [1, 2])
    assert move(story, CANCEL) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    move(story, wish(3, 4))
    story.shrink(1, 2, 3)
    assert move(story, CANCEL) == [None]
    assert assigned(story) == ((1, 2), (), ())
    assert leads(story) == (1, 1, (1, 2))
    assert story.reconcile() == []


def test_a_cancelled_move_takes_leadership_back() -> None:
    story = Story(4)
    story.place("t", [1, 2])
    move(story, wish(3, 4))
    story.shrink(1, 2, 3)
    story.leave(1)
    story.reconcile()
    assert leads(story) == (3, 1, (3, 2))
    assert move(story, CANCEL) == [None]
    assert leads(story) == (2, 2, (2,))
    assert story.partition().elr == ()
    assert story.reconcile() == []


def test_a_move_is_not_cancelled_if_only_what_it_added_is_in_sync() -> None:
    story = Story(4)
    story.place("t", [1, 2])
    move(story, wish(3, 4))
    story.shrink(1, 3)
    story.leave(1)
    story.reconcile()
    assert leads(story) == (3, 1, (3,))
    assert move(story, CANCEL) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert assigned(story) == ((3, 4, 1, 2), (3, 4), (1, 2))


@pytest.mark.parametrize("other", [CANCEL, wish(4, 2)], ids=["cancelled", "changed"])
def test_a_move_goes_on_while_committed_records_need_what_it_added(
    other: ReassignmentRequest,
) -> None:
    """With 2 and 3 in sync the high watermark moves: 2 alone must not be left (seed 120000330)."""
    story = Story(4, policy=Policy(min_isr=2))
    story.place("t", [1, 2])
    story.leave(1)
    story.reconcile()
    assert (leads(story), story.partition().elr) == ((2, 1, (2,)), (1,))
    move(story, wish(3, 2))
    story.join(1)
    story.shrink(2, 3)
    assert (leads(story), story.partition().elr) == ((2, 1, (3, 2)), ())
    before = assigned(story)
    assert move(story, other) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert assigned(story) == before


def test_a_move_can_be_cancelled_while_the_eligible_leaders_are_enough() -> None:
    story = Story(4, policy=Policy(min_isr=2))
    story.place("t", [1, 2])
    story.leave(1)
    story.reconcile()
    move(story, wish(3, 4))
    assert move(story, CANCEL) == [None]
    assert (leads(story)[2], story.partition().elr) == ((2,), (1,))


def test_a_cancelled_move_leaves_no_crashed_member_alone() -> None:
    """The member that crashed is back, and the controller has not looked yet."""
    story = Story(4)
    story.place("t", [1])
    move(story, wish(3, 4))
    story.shrink(1, 3)
    story.restart(1, is_clean=False)
    assert move(story, CANCEL) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    story.reconcile()
    assert leads(story)[0] == 3


def test_another_target_keeps_the_original_and_what_both_targets_have() -> None:
    story = Story(5)
    story.place("t", [1, 2])
    move(story, wish(3, 4))
    story.shrink(1, 2, 3, 4)
    decision = alter_reassignments(story.image, [wish(4, 5)], story.policy)
    story.follow(decision)
    assert assigned(story) == ((4, 5, 1, 2), (4, 5), (1, 2))
    assert leads(story) == (1, 1, (4, 1, 2))
    story.shrink(1, 2, 4, 5)
    story.reconcile()
    assert (assigned(story)[0], leads(story)) == ((4, 5), (4, 2, (4, 5)))


def test_members_that_crashed_stay_so_when_a_move_is_changed() -> None:
    story = Story(4, policy=Policy(min_isr=2))
    story.place("t", [1, 2])
    move(story, wish(3, 4))
    story.shrink(1, 2, 3)
    story.restart(2, is_clean=False)
    move(story, CANCEL)
    story.reconcile()
    assert leads(story) == (1, 1, (1,))
    assert (story.partition().elr, story.partition().last_known_elr) == ((), (TWO,))


def test_wishes_are_refused_with_kafkas_codes() -> None:
    story = Story(4)
    story.place("t", [1, 2], [1, 2])
    story.leave(2)
    codes = move(
        story,
        ReassignmentRequest(TopicPartition("x", 0), [ONE]),
        wish(1, number=9),
        wish(),
        wish(3, 4, number=1),
    )
    assert codes == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        None,
    ]
    assert move(story, wish(1, 1)) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert move(story, wish(1, 9)) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert move(story, wish(2, 3)) == [None], "2 is away and may keep what it has"
    assert move(story, wish(1), wish(3)) == [ErrorCode.INVALID_REQUEST]
    assert move(story, wish(1), may_change_factor=False) == [ErrorCode.INVALID_REPLICATION_FACTOR]
    assert move(story, wish(4, 1), may_change_factor=False) == [None]


def test_the_factor_is_kept_if_it_is_that_of_the_target_of_a_move() -> None:
    """As Kafka 4.3.1 compares: with the replicas that there will be, not with those there were."""
    story = Story(4)
    story.place("t", [1, 2, 3])
    assert move(story, wish(1, 4)) == [None]
    assert move(story, wish(1, 2, 4), may_change_factor=False) == [
        ErrorCode.INVALID_REPLICATION_FACTOR
    ]
    assert move(story, wish(1, 2), may_change_factor=False) == [None]
    assert move(story, CANCEL, may_change_factor=False) == [None], "a cancellation may"


def test_the_order_of_the_in_sync_set_is_not_worth_a_write() -> None:
    """A write would move the partition epoch, and proposals under way would be refused."""
    story = Story(4)
    story.place("t", [1, 2, 3])
    assert move(story, wish(3, 2, 4)) == [None]
    before = story.partition()
    assert (before.replicas, before.in_sync_replicas) == ((3, 2, 4, 1), (1, 2, 3))
    story.rewrite(in_sync_replicas=(1, 3, 2))
    assert story.reconcile() == []
    assert story.partition().in_sync_replicas == (1, 3, 2)
    story.leave(2)
    story.reconcile()
    assert story.partition().in_sync_replicas == (3, 1)


def test_only_what_is_asked_for_is_listed() -> None:
    story = Story(3)
    story.place("t", [1], [1], [1])
    move(story, wish(2), wish(3, number=1))
    listed = list_reassignments(
        story.image, [TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("x", 0)]
    )
    assert [ongoing.partition.partition for ongoing in listed] == [1]
    assert [ongoing.partition.partition for ongoing in list_reassignments(story.image)] == [0, 1]


def test_a_wish_from_an_old_image_is_refused() -> None:
    story = Story(3)
    story.place("t", [1, 2])
    late = alter_reassignments(story.image, [wish(2, 3)], story.policy)
    move(story, wish(1, 3))
    with pytest.raises(BadVersion):
        story.do(late.operations)
