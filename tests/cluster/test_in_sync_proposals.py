"""In-sync sets that leaders propose: every check, and what becomes of who is eligible."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from strandline.cluster.controller import (
    ElectionKind,
    InSyncProposal,
    alter_partitions,
    elect_leaders,
)
from strandline.cluster.store import BadVersion
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId, LeaderEpoch, TopicPartition
from tests.cluster.story import Policy, Story

ONE, TWO, THREE, FOUR = BrokerId(1), BrokerId(2), BrokerId(3), BrokerId(4)


def story_of(min_isr: int = 1) -> Story:
    """Broker 1 leads t-0; 1 and 2 are in sync, 3 is assigned, 4 is not."""
    story = Story(4, policy=Policy(min_isr))
    story.place("t", [1, 2, 3])
    story.shrink(1, 2)
    return story


def refusal(story: Story, proposal: InSyncProposal, *, sender: int | None = None) -> ErrorCode:
    before = story.tree.zxid
    answer = story.propose(proposal, sender=sender)
    assert answer.refusal is not None
    assert story.tree.zxid == before, "nothing was written"
    return answer.refusal.code


def test_a_follower_that_caught_up_joins_and_one_that_lags_leaves() -> None:
    story = story_of()
    answer = story.propose(story.proposal(3, 1, 2))
    partition = story.partition()
    assert (answer.refusal, answer.leader, answer.leader_epoch) == (None, ONE, 0)
    assert answer.in_sync_replicas == partition.in_sync_replicas == (1, 2, 3)
    assert answer.partition_epoch == partition.partition_epoch == 2
    assert partition.in_sync_epochs[THREE] == story.epoch(3)
    answer = story.propose(story.proposal(1))
    assert (answer.partition_epoch, story.partition().in_sync_replicas) == (3, (1,))
    assert story.reconcile() == []


def test_r32_a_proposal_whose_answer_was_lost_succeeds_again() -> None:
    """KAFKA-14144: before its partition epoch is found to be old."""
    story = story_of()
    proposal = story.proposal(1, 2, 3)
    first = story.propose(proposal)
    zxid = story.tree.zxid
    assert story.propose(proposal) == first
    assert story.tree.zxid == zxid


def test_a_proposal_of_the_set_as_it_is_moves_the_version_only() -> None:
    """So a leader that gave up another proposal makes sure that no attempt of it comes true."""
    story = story_of()
    given_up = story.proposal(1, 2, 3)
    members = story.partition().in_sync_replicas
    answer = story.propose(story.proposal(*members))
    assert (answer.refusal, answer.in_sync_replicas) == (None, members)
    assert answer.partition_epoch == story.partition().partition_epoch == 2
    assert story.partition().in_sync_replicas == members
    refused = story.propose(given_up)
    assert refused.refusal is not None
    assert refused.refusal.code == ErrorCode.INVALID_UPDATE_VERSION
    assert story.partition().partition_epoch == 2


def test_r32_of_two_decisions_from_one_image_only_one_is_written() -> None:
    """KAFKA-12686, F-64: the other one is decided again and finds its epoch old."""
    story = story_of()
    shrink = story.proposal(1)
    late = alter_partitions(story.image, ONE, story.epoch(1), [shrink], story.policy)
    story.leave(2)
    story.reconcile()
    story.propose(story.proposal(1, 3))
    with pytest.raises(BadVersion):
        story.do(late.operations)
    assert refusal(story, shrink) is ErrorCode.INVALID_UPDATE_VERSION


def test_f64_a_proposal_that_comes_after_an_election_is_fenced() -> None:
    story = story_of()
    proposal = story.proposal(1, 2, 3)
    story.follow(
        elect_leaders(story.image, ElectionKind.PREFERRED, [TopicPartition("t", 0)], story.policy)
    )
    story.announce_shutdown(1)
    story.reconcile()
    assert story.partition().leader == TWO
    assert refusal(story, proposal, sender=1) is ErrorCode.FENCED_LEADER_EPOCH


def test_the_whole_request_is_refused_if_its_sender_is_not_who_it_was() -> None:
    story = story_of()
    for broker, epoch in ((ONE, story.epoch(1) - 1), (BrokerId(9), 1)):
        with pytest.raises(ProtocolError) as refused:
            alter_partitions(story.image, broker, epoch, [story.proposal(1)], story.policy)
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_proposals_are_refused_with_kafkas_codes() -> None:
    story = story_of()
    good = story.proposal(1, 2, 3)
    newer_leader, newer_version = LeaderEpoch(1), good.partition_epoch + 1
    stranger = [(ONE, story.epoch(1)), (FOUR, story.epoch(4))]
    twice = [*good.members, good.members[0]]
    cases = [
        (replace(good, topic_id=UUID(int=999)), ErrorCode.UNKNOWN_TOPIC_ID),
        (replace(good, partition=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (replace(good, leader_epoch=newer_leader), ErrorCode.NOT_CONTROLLER),
        (replace(good, partition_epoch=newer_version), ErrorCode.NOT_CONTROLLER),
        (replace(good, leader_epoch=LeaderEpoch(-1)), ErrorCode.FENCED_LEADER_EPOCH),
        (replace(good, partition_epoch=0), ErrorCode.INVALID_UPDATE_VERSION),
        (replace(good, members=stranger), ErrorCode.INVALID_REQUEST),
        (replace(good, members=twice), ErrorCode.INVALID_REQUEST),
        (replace(good, members=good.members[1:]), ErrorCode.INVALID_REQUEST),
        (replace(good, members=[]), ErrorCode.INVALID_REQUEST),
        (replace(good, is_recovering=True), ErrorCode.INVALID_REQUEST),
        (
            replace(good, members=good.members[:1], is_recovering=True),
            ErrorCode.INVALID_REQUEST,
        ),
    ]
    items = [case for case, _ in cases]
    for item, code in cases:
        answer = alter_partitions(story.image, ONE, story.epoch(1), [item], story.policy)
        assert answer.operations == ()
        assert answer.results[0].refusal is not None, item
        assert answer.results[0].refusal.code is code, item
    assert refusal(story, good, sender=2) is ErrorCode.INVALID_REQUEST
    # One that is wrong does not keep another one from coming true.
    story.place("u", [1, 2])
    other = story.proposal(1, topic="u")
    results = story.follow(
        alter_partitions(story.image, ONE, story.epoch(1), [items[0], other], story.policy)
    )
    assert [result.refusal is None for result in results] == [False, True]
    assert story.partition("u").in_sync_replicas == (1,)


def test_a_partition_named_twice_is_refused() -> None:
    story = story_of()
    items = [story.proposal(1, 2, 3), story.proposal(1)]
    decision = alter_partitions(story.image, ONE, story.epoch(1), items, story.policy)
    assert decision.operations == ()
    assert [r.refusal and r.refusal.code for r in decision.results] == [
        ErrorCode.INVALID_REQUEST
    ] * 2


def test_r33_no_replica_joins_that_is_gone_or_shuts_down() -> None:
    """KAFKA-14140, KIP-841."""
    story = story_of()
    proposal = story.proposal(1, 2, 3)
    story.announce_shutdown(3)
    assert refusal(story, proposal) is ErrorCode.INELIGIBLE_REPLICA
    story.leave(3)
    assert refusal(story, proposal) is ErrorCode.INELIGIBLE_REPLICA


def test_a_leader_in_shutdown_may_add_a_follower_that_takes_over() -> None:
    story = story_of()
    story.shrink(1)
    story.announce_shutdown(1)
    assert story.reconcile() == []
    story.shrink(1, 2)
    story.reconcile()
    assert story.partition().leader == TWO


def test_x10_r34_a_follower_that_was_emptied_and_restarted_does_not_join() -> None:
    """KIP-903: what its former self had fetched says nothing about it."""
    story = story_of()
    proposal = story.proposal(1, 2, 3)
    story.restart(3, is_clean=False)
    assert refusal(story, proposal) is ErrorCode.INELIGIBLE_REPLICA
    assert story.partition().in_sync_replicas == (1, 2)
    # Having fetched anew it joins under its new epoch.
    story.shrink(1, 2, 3)
    assert story.partition().in_sync_epochs[THREE] == story.epoch(3)


def test_r34_a_member_that_restarted_must_leave_before_it_is_in_again() -> None:
    """Even if the leader, which did not notice, names its new epoch, or none."""
    story = story_of()
    story.restart(2, is_clean=False)
    for proposal in (story.proposal(1, 2, 3), story.proposal(1, 2)):
        assert refusal(story, proposal) is ErrorCode.INELIGIBLE_REPLICA
        blind = replace(proposal, members=[(broker, -1) for broker, _ in proposal.members[:3]])
        if len(blind.members) == 3:
            assert refusal(story, blind) is ErrorCode.INELIGIBLE_REPLICA
    story.reconcile()
    assert story.partition().in_sync_replicas == (1,)
    story.shrink(1, 2)
    assert story.partition().in_sync_epochs[TWO] == story.epoch(2)


def test_members_may_be_named_without_an_epoch() -> None:
    """By a leader that did not see them fetch yet."""
    story = story_of()
    story.shrink(1, 2, 3)
    proposal = story.proposal(1, 3)
    members = [(ONE, story.epoch(1)), (THREE, -1)]
    assert story.propose(replace(proposal, members=members)).refusal is None
    assert story.partition().in_sync_epochs[THREE] == story.epoch(3)


def test_a_replica_does_not_join_without_the_epoch_under_which_it_fetched() -> None:
    """It may have fetched before its present registration, with a disk that it lost since."""
    story = story_of()
    proposal = story.proposal(1, 2, 3)
    members = [(ONE, story.epoch(1)), (TWO, -1), (THREE, -1)]
    result = story.propose(replace(proposal, members=members))
    assert result.refusal is not None
    assert result.refusal.code is ErrorCode.INELIGIBLE_REPLICA
    assert story.partition().in_sync_replicas == (ONE, TWO)


def test_a_leader_that_restarted_proposes_nothing_before_it_is_elected_anew() -> None:
    story = story_of()
    story.restart(1, is_clean=True)
    assert refusal(story, story.proposal(1)) is ErrorCode.INVALID_UPDATE_VERSION


def test_below_the_minimum_those_that_leave_stay_eligible() -> None:
    story = story_of(min_isr=2)
    story.shrink(1)
    assert story.partition().elr == (TWO,)
    assert story.partition().in_sync_epochs == {ONE: story.epoch(1), TWO: story.epoch(2)}
    story.shrink(1, 3)
    assert story.partition().elr == ()
    assert story.partition().in_sync_epochs == {ONE: story.epoch(1), THREE: story.epoch(3)}


def test_a_member_that_crashed_and_is_left_out_is_not_eligible() -> None:
    """I-33: the leader is faster than the controller."""
    story = story_of(min_isr=2)
    story.restart(2, is_clean=False)
    story.shrink(1)
    assert story.partition().elr == ()
    assert story.partition().last_known_elr == (TWO,)
    assert story.reconcile() == []


def test_an_eligible_one_that_crashed_and_caught_up_joins_under_its_new_epoch() -> None:
    story = story_of(min_isr=2)
    story.shrink(1)
    story.restart(2, is_clean=False)
    story.shrink(1, 2)
    assert story.partition().in_sync_epochs[TWO] == story.epoch(2)
    assert story.reconcile() == []
