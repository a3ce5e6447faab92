"""One member of the consumer protocol: joining, reconciling, and what it does when refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from strandline.client.consumer_group.member import Phase
from strandline.client.group_events import (
    GenerationJoined,
    MemberFailed,
    PartitionsAssigned,
    PartitionsRevoked,
)
from strandline.client.group_members import as_it_is_now
from strandline.client.group_offsets import CommitResult
from strandline.client.group_requests import Committed
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.types import Offset, TopicPartition
from tests.client.consumer_group_stage import IDS, ConsumerStage, reported
from tests.client.group_stage import COORDINATOR, LOST
from tests.current import current

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
FIVE = {T0: Committed(Offset(5))}


# -- Joining -------------------------------------------------------------------------------------


def test_a_member_tells_everything_when_it_joins_and_then_only_what_changes() -> None:
    stage = ConsumerStage()
    stage.find()
    joining = stage.beat(epoch=3, t=(0, 1))
    body = joining.body
    assert (joining.to, body.member_epoch, body.rebalance_timeout_ms) == (COORDINATOR, 0, 60_000)
    assert (body.subscribed_topic_names, body.subscribed_topic_regex) == (["t"], None)
    assert body.topic_partitions == []
    assert len(body.member_id) == 22  # a UUID in base 64, drawn by the member (KIP-1082)
    stage.names("t")
    owning = stage.beat(epoch=3)
    assert (reported(owning), owning.body.member_epoch) == ({"t": [0, 1]}, 3)
    assert (owning.body.subscribed_topic_names, owning.body.rebalance_timeout_ms) == (None, -1)
    stage.offsets(t0=5)
    quiet = stage.beat(epoch=3)
    assert (quiet.body.topic_partitions, quiet.body.subscribed_topic_names) == (None, None)
    assert quiet.body.member_id == body.member_id


def test_partitions_are_read_when_their_report_is_acknowledged() -> None:
    stage = ConsumerStage()
    stage.find()
    stage.beat(epoch=1, t=(0, 1))
    stage.names("t")
    stage.beat(epoch=1)
    asked = stage.offsets(t0=5)
    group = asked.body.groups[0]
    assert (group.member_id, group.member_epoch) == (stage.member.membership.member_id, 1)
    assert asked.body.require_stable
    who = stage.member.membership.member_id
    assert list(stage.events) == [
        GenerationJoined(1, who, False, "", ()),
        GenerationJoined(1, who, False, "", (T0, T1)),
        PartitionsAssigned({T0: Committed(Offset(5)), T1: None}),
    ]


def test_what_a_member_says_of_itself() -> None:
    class Settled(ConsumerStage):
        remote_assignor = "range"

    stage = Settled(instance_id="one")
    stage.member.subscribe(["u", "t"], stage.now_ms, pattern="v.*")
    stage.find()
    body = stage.beat(t=()).body
    assert (body.instance_id, body.server_assignor) == ("one", "range")
    assert (body.subscribed_topic_names, body.subscribed_topic_regex) == (["t", "u"], "v.*")
    stage.member.subscribe(["t"], stage.now_ms)
    stage.step()
    body = stage.beat().body
    assert (body.subscribed_topic_names, body.subscribed_topic_regex) == (["t"], "")
    assert (body.instance_id, body.server_assignor) == ("one", None)


def test_partitions_wait_for_the_names_of_their_topics() -> None:
    stage = ConsumerStage()
    stage.find()
    stage.beat(t=(0,), u=(0,))
    stage.names("t")
    assert reported(stage.beat()) == {"t": [0]}
    stage.offsets()
    stage.wait(300)
    stage.names("t", "u")
    assert reported(stage.beat()) == {"t": [0], "u": [0]}
    stage.offsets()
    assert stage.member.owned == (T0, TopicPartition("u", 0))


def test_a_heartbeat_that_may_not_have_been_heard_is_followed_by_one_that_tells_everything() -> (
    None
):
    stage = ConsumerStage()
    stage.settle(0)
    stage.wait(1_000)
    stage.take(ApiKey.CONSUMER_GROUP_HEARTBEAT).answer(LOST)
    stage.wait(200)
    stage.find()
    body = stage.take(ApiKey.CONSUMER_GROUP_HEARTBEAT).body
    assert (body.subscribed_topic_names, body.rebalance_timeout_ms) == (["t"], 60_000)
    assert (len(body.topic_partitions), body.member_epoch) == (1, 1)


# -- Reconciliation ------------------------------------------------------------------------------


def test_what_goes_is_given_up_and_committed_before_it_is_reported() -> None:
    stage = ConsumerStage()
    stage.settle(0, 1)
    stage.beat(t=(0,))
    assert stage.event() == PartitionsRevoked((T1,), is_lost=False)
    assert stage.member.phase is Phase.GIVING_UP
    stage.wait(1_000)
    assert reported(stage.beat()) is None  # it has both still
    told: list[CommitResult] = []
    stage.member.commit(FIVE, told.append, stage.now_ms, stage.now_ms + 1_000)
    stage.member.revoked(stage.now_ms)
    stage.step()
    committed = stage.committed().body
    assert committed.generation_id_or_member_epoch == 1
    assert [each.code for each in told] == [ErrorCode.NONE]
    assert reported(stage.beat(epoch=2)) == {"t": [0]}
    assert [event.generation for event in stage.events if isinstance(event, GenerationJoined)] == [
        1,
        2,
    ]
    assert stage.member.owned == (T0,)


def test_what_is_given_up_is_reported_at_once_though_a_heartbeat_is_under_way() -> None:
    stage = ConsumerStage()
    stage.settle(0, 1)
    stage.beat(t=(0,))
    stage.wait(1_000)
    under_way = stage.take(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    stage.member.revoked(stage.now_ms)
    stage.step()
    stage.requests.append(under_way)
    stage.beat()
    assert reported(stage.take(ApiKey.CONSUMER_GROUP_HEARTBEAT)) == {"t": [0]}


def test_a_new_target_meanwhile_is_reached_afterwards() -> None:
    stage = ConsumerStage()
    stage.settle(0, 1)
    stage.beat(t=(0,))
    stage.events.clear()
    stage.beat(t=(2,))
    assert not stage.events
    stage.member.revoked(stage.now_ms)
    stage.step()
    assert reported(stage.beat()) == {"t": [0]}
    assert stage.event() == PartitionsRevoked((T0,), is_lost=False)
    stage.member.revoked(stage.now_ms)
    stage.step()
    assert reported(stage.beat(epoch=2)) == {"t": [2]}
    stage.offsets()
    assert stage.events[-1] == PartitionsAssigned({T2: None})


def test_what_the_program_was_not_told_of_goes_without_a_word() -> None:
    stage = ConsumerStage()
    stage.find()
    stage.beat(t=(0,))
    stage.names("t")
    stage.beat(t=())  # before its offset is known
    assert reported(stage.take(ApiKey.CONSUMER_GROUP_HEARTBEAT)) == {}
    assert not any(isinstance(event, PartitionsRevoked) for event in stage.events)
    assert not stage.requests


def test_a_topic_that_was_made_anew_is_another_topic() -> None:
    stage = ConsumerStage()
    stage.settle(0)
    old, IDS["t"] = IDS["t"], UUID(int=99)
    try:
        stage.beat(t=(0,))
        assert stage.event() == PartitionsRevoked((T0,), is_lost=False)
        stage.member.revoked(stage.now_ms)
        stage.step()
        assert reported(stage.beat()) == {}
        stage.names("t")
        assert reported(stage.beat()) == {"t": [0]}
        stage.offsets()
        assert stage.events[-1] == PartitionsAssigned({T0: None})
    finally:
        IDS["t"] = old


# -- Refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND],
)
def test_a_member_that_is_fenced_has_lost_its_partitions_and_joins_again(code: ErrorCode) -> None:
    stage = ConsumerStage()
    stage.settle(0, 1)
    before = stage.beat(code).body.member_id
    assert stage.event() == PartitionsRevoked((T0, T1), is_lost=True)
    assert not stage.member.is_in_generation
    stage.wait(2_000)
    assert not stage.requests  # first the program must know
    stage.member.revoked(stage.now_ms)
    stage.step()
    again = stage.beat(epoch=9, t=(0,)).body
    assert (again.member_id, again.member_epoch, again.topic_partitions) == (before, 0, [])
    assert reported(stage.beat(epoch=9)) == {"t": [0]}


def test_a_member_that_is_fenced_while_it_gives_up_loses_the_rest() -> None:
    stage = ConsumerStage()
    stage.settle(0, 1)
    stage.beat(t=(0,))
    given_up = stage.event()
    stage.beat(ErrorCode.FENCED_MEMBER_EPOCH)
    assert as_it_is_now(given_up, stage.member) == PartitionsRevoked((T1,), is_lost=True)
    stage.member.revoked(stage.now_ms)
    stage.step()
    assert stage.event() == PartitionsRevoked((T0,), is_lost=True)
    stage.member.revoked(stage.now_ms)
    stage.step()
    assert stage.beat(t=()).body.member_epoch == 0


def test_a_member_that_may_not_join_yet_asks_again_after_a_wait() -> None:
    stage = ConsumerStage()
    stage.find()
    stage.beat(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    stage.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert not stage.requests
    assert stage.beat(t=()).body.member_epoch == 0
    assert stage.member.phase is Phase.MEMBER


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_what_will_not_change_ends_the_member_with_the_coordinators_sentence(
    code: ErrorCode,
) -> None:
    stage = ConsumerStage()
    stage.find()
    stage.beat(code, message="This is why.")
    event = stage.event()
    assert isinstance(event, MemberFailed)
    assert (event.error.code, event.error.message) == (code, "This is why.")
    assert (stage.member.phase, stage.member.wake_ms) == (Phase.OVER, None)


def test_a_coordinator_without_the_protocol_is_told_of_by_the_settings_name() -> None:
    stage = ConsumerStage()
    stage.find()
    stage.beat(ErrorCode.UNSUPPORTED_VERSION)
    event = stage.event()
    assert isinstance(event, MemberFailed)
    assert "group.protocol=classic" in event.error.message


# -- Offsets -------------------------------------------------------------------------------------


def test_a_commit_with_a_stale_epoch_is_made_again_with_the_next_one() -> None:
    stage = ConsumerStage()
    stage.settle(0)
    told: list[CommitResult] = []
    stage.member.commit(FIVE, told.append, stage.now_ms, stage.now_ms + 10_000)
    stage.step()
    stage.committed(ErrorCode.STALE_MEMBER_EPOCH)
    stage.beat(epoch=2)  # at once
    stage.wait(300)
    assert stage.committed().body.generation_id_or_member_epoch == 2
    assert [(each.code, each.generation) for each in told] == [(ErrorCode.NONE, 2)]


def test_a_commit_is_not_made_again_by_who_is_no_member_any_more() -> None:
    stage = ConsumerStage()
    stage.settle(0)
    told: list[CommitResult] = []
    stage.member.commit(FIVE, told.append, stage.now_ms, stage.now_ms + 10_000)
    stage.step()
    stage.committed(ErrorCode.STALE_MEMBER_EPOCH)
    stage.beat(ErrorCode.FENCED_MEMBER_EPOCH)
    stage.wait(300)
    assert [each.code for each in told] == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert not stage.requests


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_offsets_that_are_refused_to_a_stale_member_are_asked_for_again(code: ErrorCode) -> None:
    stage = ConsumerStage()
    stage.find()
    stage.beat(t=(0,))
    stage.names("t")
    stage.beat()
    stage.offsets_refused(code)
    stage.beat(epoch=2)
    stage.wait(300)
    assert stage.offsets(t0=4).body.groups[0].member_epoch == 2
    assert stage.events[-1] == PartitionsAssigned({T0: Committed(Offset(4))})


def test_a_last_commit_does_not_wait_for_a_topic_that_is_gone() -> None:
    stage = ConsumerStage()
    stage.settle(0)
    told: list[CommitResult] = []
    later = stage.now_ms + 10_000
    stage.member.commit(FIVE, told.append, stage.now_ms, later, is_last=True)
    stage.step()
    stage.committed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert [each.code for each in told] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


# -- Going ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instance_id", "also_static", "epoch"),
    [(None, False, -1), ("one", False, -2), ("one", True, -1)],
)
def test_a_member_that_goes_says_for_how_long(
    instance_id: str | None, also_static: bool, epoch: int
) -> None:
    stage = ConsumerStage(instance_id=instance_id)
    stage.settle(0)
    stage.member.leave(stage.now_ms, "the consumer is closed", also_static=also_static)
    assert current(stage.member.is_leaving)
    stage.step()
    gone = stage.beat().body
    assert (gone.member_epoch, gone.instance_id) == (epoch, instance_id)
    assert not stage.member.is_leaving
    assert stage.member.phase is Phase.OVER


def test_a_program_that_does_not_poll_leaves_and_comes_back_with_its_next_call() -> None:
    stage = ConsumerStage()
    stage.settle(0)
    stage.member.polled(stage.now_ms)
    while not stage.events:
        stage.beat(epoch=1) if stage.requests else stage.wait(1_000, polls=False)
    assert stage.event() == PartitionsRevoked((T0,), is_lost=True)
    assert stage.beat().body.member_epoch == -1
    stage.member.revoked(stage.now_ms)
    stage.wait(5_000, polls=False)
    assert (stage.member.phase, list(stage.requests)) == (Phase.OUT, [])
    stage.member.polled(stage.now_ms)
    stage.step()
    assert stage.beat(t=(0,)).body.member_epoch == 0
