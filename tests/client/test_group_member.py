"""One group member: the way in, rebalances, and what it does after each refusal."""

from __future__ import annotations

import pytest

from strandline.client.consumer_protocol import read_assignment, read_subscription
from strandline.client.group_events import (
    GenerationJoined,
    MemberFailed,
    PartitionsAssigned,
    PartitionsRevoked,
)
from strandline.client.group_member import Phase
from strandline.client.group_offsets import CommitResult
from strandline.client.group_requests import Committed
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.heartbeat import HeartbeatResponse
from strandline.protocol.messages.join_group import JoinGroupResponse
from strandline.protocol.messages.sync_group import SyncGroupResponse
from strandline.types import LeaderEpoch, Offset, TopicPartition
from tests.client.group_stage import COORDINATOR, LOST, GroupStage, subscription

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
FATAL = (
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


# -- The way in ----------------------------------------------------------------------------------


def test_a_member_finds_its_coordinator_joins_and_learns_what_is_committed() -> None:
    stage = GroupStage()
    stage.find()
    joined = stage.join(7)
    assert (joined.to, joined.body.member_id) == (COORDINATOR, "")
    assert (joined.body.session_timeout_ms, joined.body.rebalance_timeout_ms) == (10_000, 60_000)
    assert joined.timeout_ms == 65_000
    synced = stage.sync(0, 1)
    assert (synced.body.generation_id, synced.body.member_id) == (7, "m-1")
    assert synced.body.assignments == []
    asked = stage.offsets(t0=5)
    assert asked.body.require_stable
    assert stage.event() == GenerationJoined(7, "m-1", False, "range", (T0, T1))
    assert stage.event() == PartitionsAssigned({T0: Committed(Offset(5)), T1: None})
    assert stage.member.phase is Phase.STABLE


def test_a_member_is_asked_for_an_id_first() -> None:
    stage = GroupStage()
    stage.find()
    asked = stage.take(ApiKey.JOIN_GROUP)
    asked.answer(
        JoinGroupResponse(
            error_code=ErrorCode.MEMBER_ID_REQUIRED, protocol_name="", member_id="m-9"
        )
    )
    assert stage.take(ApiKey.JOIN_GROUP).body.member_id == "m-9"


def test_the_leader_asks_for_the_topics_of_all_and_divides_them() -> None:
    stage = GroupStage(t=3, u=2)
    stage.find()
    stage.join(leads=True, others={"m-2": subscription("t", "u")})
    stage.metadata()
    asked = stage.take(ApiKey.SYNC_GROUP)
    assert {
        each.member_id: read_assignment(each.assignment) for each in asked.body.assignments
    } == {
        "m-1": (T0, T1),
        "m-2": (T2, TopicPartition("u", 0), TopicPartition("u", 1)),
    }


def test_a_leader_whose_assignment_stands_sends_none_but_watches_the_topics() -> None:
    stage = GroupStage(instance_id="static", t=2)
    stage.find()
    stage.join(leads=True, skips=True)
    stage.metadata()
    assert stage.sync(0, 1).body.assignments == []
    stage.offsets()
    stage.partitions["t"] = 3
    stage.router.forget(["t"])
    stage.wait(200)
    stage.metadata()
    assert stage.event() == GenerationJoined(1, "m-1", True, "range", (T0, T1))
    assert isinstance(stage.event(), PartitionsAssigned)
    assert stage.event() == PartitionsRevoked((T0, T1), is_lost=False)


def test_a_leader_waits_for_topics_and_divides_again_when_they_come() -> None:
    stage = GroupStage(u=1)
    stage.find()
    stage.join(leads=True)
    stage.metadata()
    assert read_assignment(stage.sync().body.assignments[0].assignment) == ()
    stage.partitions["t"] = 1
    stage.wait(200)
    stage.metadata()
    assert stage.join(2, leads=True).body.reason == "the partitions of the topics have changed"


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_every_assignor_is_offered_and_computed(assignor: str) -> None:
    stage = GroupStage(assignor)
    stage.find()
    joined = stage.join(leads=True, others={"m-2": subscription("t")})
    assert [each.name for each in joined.body.protocols] == [assignor]
    stage.metadata()
    parts = stage.take(ApiKey.SYNC_GROUP).body.assignments
    assert [len(read_assignment(each.assignment)) for each in parts] == [1, 1]


def test_a_member_offers_its_assignors_in_its_order_and_takes_what_the_group_chose() -> None:
    stage = GroupStage("roundrobin", "range", t=4)
    stage.find()
    joined = stage.join(leads=True, protocol="range", others={"m-2": subscription("t")})
    assert [each.name for each in joined.body.protocols] == ["roundrobin", "range"]
    stage.metadata()
    asked = stage.take(ApiKey.SYNC_GROUP)
    assert asked.body.protocol_name == "range"
    assert read_assignment(asked.body.assignments[0].assignment) == (T0, T1)


def test_static_members_say_their_name_everywhere() -> None:
    stage = GroupStage(instance_id="one")
    stage.find()
    asked = [stage.join(), stage.sync(0)]
    stage.offsets()
    asked.append(stage.beat())
    assert [each.body.group_instance_id for each in asked] == ["one"] * 3


# -- Rebalances ----------------------------------------------------------------------------------


def test_an_eager_member_gives_everything_up_before_it_joins_again() -> None:
    stage = GroupStage()
    stage.settle(0, 1)
    stage.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert stage.event() == PartitionsRevoked((T0, T1), is_lost=False)
    # It is a member still: it beats, and commits, while the program is busy with that.
    assert stage.beat(ErrorCode.REBALANCE_IN_PROGRESS).body.generation_id == 1
    told: list[CommitResult] = []
    stage.member.commit({T0: Committed(Offset(4))}, told.append, stage.now_ms)
    stage.member.revoked(stage.now_ms)
    stage.step()
    assert stage.committed().body.generation_id_or_member_epoch == 1
    assert [each.code for each in told] == [ErrorCode.NONE]
    asked = stage.join(2)
    assert read_subscription(asked.body.protocols[0].metadata).owned == ()
    stage.sync(1)
    stage.offsets(t1=9)
    assert stage.event() == GenerationJoined(2, "m-1", False, "range", (T1,))
    assert stage.event() == PartitionsAssigned({T1: Committed(Offset(9))})


def test_a_cooperative_member_keeps_reading_and_gives_up_only_what_moves() -> None:
    stage = GroupStage("cooperative-sticky")
    stage.settle(0, 1)
    stage.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    asked = stage.join(2)
    told = read_subscription(asked.body.protocols[0].metadata)
    assert (told.owned, told.generation) == ((T0, T1), 1)
    stage.sync(0)
    assert stage.event() == GenerationJoined(2, "m-1", False, "cooperative-sticky", (T0,))
    assert stage.event() == PartitionsRevoked((T1,), is_lost=False)
    stage.member.revoked(stage.now_ms)
    stage.step()
    asked = stage.join(3)
    told = read_subscription(asked.body.protocols[0].metadata)
    assert (told.owned, told.generation) == ((T0,), 2)
    stage.sync(0)
    assert stage.event() == GenerationJoined(3, "m-1", False, "cooperative-sticky", (T0,))
    assert not stage.events
    assert stage.member.phase is Phase.STABLE


def test_offsets_of_partitions_that_were_given_up_meanwhile_are_not_told() -> None:
    stage = GroupStage()
    stage.find()
    stage.join()
    stage.sync(0)
    late = stage.take(ApiKey.OFFSET_FETCH)
    stage.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.join(2)
    stage.sync(0)
    stage.requests.appendleft(late)
    stage.events.clear()
    stage.offsets(t0=3)
    assert not stage.events
    stage.wait(200)
    stage.offsets(t0=8)
    assert stage.event() == PartitionsAssigned({T0: Committed(Offset(8))})


def test_a_new_subscription_makes_the_group_divide_anew() -> None:
    stage = GroupStage("cooperative-sticky", t=1, u=1)
    stage.settle(0)
    stage.member.subscribe(["u"], stage.now_ms)
    stage.step()
    assert stage.event() == PartitionsRevoked((T0,), is_lost=False)
    stage.member.revoked(stage.now_ms)
    stage.step()
    asked = stage.join(2)
    assert read_subscription(asked.body.protocols[0].metadata).topics == ("u",)
    assert asked.body.reason == "the subscription has changed"


# -- Refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, None]
)
def test_a_coordinator_that_is_none_is_looked_for_and_the_generation_goes_on(
    code: ErrorCode | None,
) -> None:
    stage = GroupStage()
    stage.settle(0)
    stage.wait(1_000)
    asked = stage.take(ApiKey.HEARTBEAT)
    asked.answer(LOST if code is None else HeartbeatResponse(error_code=code))
    assert not stage.requests  # after a wait
    stage.wait(200)
    stage.find()
    assert stage.beat().body.generation_id == 1
    assert not stage.events


def test_a_member_that_is_not_known_has_lost_its_partitions_and_begins_anew() -> None:
    stage = GroupStage()
    stage.settle(0)
    stage.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert stage.event() == PartitionsRevoked((T0,), is_lost=True)
    told: list[CommitResult] = []
    stage.member.commit({T0: Committed(Offset(1))}, told.append, stage.now_ms)
    assert told[0].code is ErrorCode.UNKNOWN_MEMBER_ID
    stage.member.revoked(stage.now_ms)
    stage.step()
    assert stage.join(2).body.member_id == ""


def test_a_member_of_an_old_generation_keeps_its_id() -> None:
    stage = GroupStage("cooperative-sticky")
    stage.settle(0)
    stage.beat(ErrorCode.ILLEGAL_GENERATION)
    assert stage.event() == PartitionsRevoked((T0,), is_lost=True)
    stage.member.revoked(stage.now_ms)
    stage.step()
    asked = stage.join(2)
    assert asked.body.member_id == "m-1"
    assert read_subscription(asked.body.protocols[0].metadata).owned == ()


def test_what_is_left_is_lost_too_when_the_membership_ends_during_a_revocation() -> None:
    stage = GroupStage("cooperative-sticky")
    stage.settle(0, 1)
    stage.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.join(2)
    stage.sync(0)
    stage.event()
    assert stage.event() == PartitionsRevoked((T1,), is_lost=False)
    stage.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    stage.member.revoked(stage.now_ms)
    stage.step()
    assert stage.event() == PartitionsRevoked((T0,), is_lost=True)
    stage.member.revoked(stage.now_ms)
    stage.step()
    assert stage.join(3).body.member_id == ""


@pytest.mark.parametrize("key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
@pytest.mark.parametrize(
    ("code", "waits", "member_id"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, False, "m-1"),
        (ErrorCode.ILLEGAL_GENERATION, False, "m-1"),
        (ErrorCode.UNKNOWN_MEMBER_ID, False, ""),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True, "m-1"),
    ],
)
def test_after_a_refusal_on_the_way_in_the_member_joins_again(
    key: ApiKey, code: ErrorCode, waits: bool, member_id: str
) -> None:
    stage = GroupStage()
    stage.settle()
    stage.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    if key is ApiKey.JOIN_GROUP:
        refused: object = JoinGroupResponse(error_code=code, protocol_name="")
    else:
        stage.join(2)
        refused = SyncGroupResponse(error_code=code)
    stage.take(key).answer(refused)
    if waits:
        assert not stage.requests
        stage.wait(200)
    assert stage.join(3).body.member_id == member_id


@pytest.mark.parametrize("key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
def test_a_lost_connection_on_the_way_in_leads_to_the_coordinator_again(key: ApiKey) -> None:
    stage = GroupStage()
    stage.find()
    if key is ApiKey.SYNC_GROUP:
        stage.join()
    stage.take(key).answer(LOST)
    stage.wait(300)
    stage.find()
    stage.wait(300)
    stage.join(2)
    stage.sync(0)
    assert stage.member.owned == (T0,)


@pytest.mark.parametrize(
    "code",
    [
        *FATAL,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_VERSION,
    ],
)
def test_what_no_retry_mends_ends_the_member(code: ErrorCode) -> None:
    stage = GroupStage()
    stage.find()
    refused = JoinGroupResponse(error_code=code, protocol_name="")
    stage.take(ApiKey.JOIN_GROUP).answer(refused)
    failed = stage.event()
    assert isinstance(failed, MemberFailed)
    assert failed.error.code is code
    assert stage.member.phase is Phase.OVER
    assert stage.member.wake_ms is None


@pytest.mark.parametrize("code", FATAL)
def test_a_member_that_is_fenced_or_not_allowed_fails_with_its_heartbeat(code: ErrorCode) -> None:
    stage = GroupStage()
    stage.settle(0)
    stage.beat(code)
    failed = stage.event()
    assert isinstance(failed, MemberFailed)
    assert failed.error.code is code


def test_a_group_of_another_kind_is_refused() -> None:
    stage = GroupStage()
    stage.find()
    stage.take(ApiKey.JOIN_GROUP).answer(
        JoinGroupResponse(
            generation_id=1,
            protocol_type="connect",
            protocol_name="range",
            leader="m-0",
            member_id="m-1",
        )
    )
    assert isinstance(stage.event(), MemberFailed)


def test_a_group_that_may_not_be_used_ends_the_search_for_its_coordinator() -> None:
    stage = GroupStage()
    stage.find(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    stage.wait(200)
    stage.find(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(stage.event(), MemberFailed)


def test_a_heartbeat_without_an_answer_for_a_session_ends_the_connection() -> None:
    stage = GroupStage()
    stage.settle(0)
    stage.wait(1_000)
    asked = stage.take(ApiKey.HEARTBEAT)
    assert asked.timeout_ms == 5_000  # the request timeout is less than what is left of 10 s
    stage.wait(5_000)
    assert not stage.requests  # one at a time


# -- Offsets -------------------------------------------------------------------------------------


def test_offsets_of_open_transactions_are_waited_for() -> None:
    stage = GroupStage()
    stage.find()
    stage.join()
    stage.sync(0, 1)
    stage.event()
    stage.offsets((0, ErrorCode.UNSTABLE_OFFSET_COMMIT), t1=3)
    assert stage.event() == PartitionsAssigned({T1: Committed(Offset(3))})
    stage.wait(200)
    stage.offsets(t0=4)
    assert stage.event() == PartitionsAssigned({T0: Committed(Offset(4))})


def commit(stage: GroupStage, offset: int, *, for_ms: int | None = None) -> list[CommitResult]:
    told: list[CommitResult] = []
    committed = {T0: Committed(Offset(offset), LeaderEpoch(3), "note")}
    deadline_ms = None if for_ms is None else stage.now_ms + for_ms
    stage.member.commit(committed, told.append, stage.now_ms, deadline_ms)
    stage.step()
    return told


def test_a_commit_names_generation_epoch_and_note() -> None:
    stage = GroupStage()
    stage.settle(0)
    told = commit(stage, 7)
    asked = stage.committed()
    (part,) = asked.body.topics[0].partitions
    assert (asked.body.generation_id_or_member_epoch, asked.body.member_id) == (1, "m-1")
    assert (part.committed_offset, part.committed_leader_epoch, part.committed_metadata) == (
        7,
        3,
        "note",
    )
    assert [each.code for each in told] == [ErrorCode.NONE]


def test_a_commit_is_tried_again_until_its_deadline_and_without_one_once() -> None:
    stage = GroupStage()
    stage.settle(0)
    once = commit(stage, 7)
    stage.committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert [each.code for each in once] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    longer = commit(stage, 8, for_ms=1_000)
    stage.committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    stage.wait(200)
    stage.committed()
    assert [each.code for each in longer] == [ErrorCode.NONE]


def test_a_commit_waits_for_a_coordinator_until_its_deadline() -> None:
    stage = GroupStage()
    stage.settle(0)
    stage.wait(1_000)
    stage.take(ApiKey.HEARTBEAT).answer(LOST)
    assert [each.code for each in commit(stage, 7)] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    told = commit(stage, 7, for_ms=500)
    stage.wait(600)
    assert [each.code for each in told] == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_commit_that_shows_the_member_is_none_makes_it_begin_anew(code: ErrorCode) -> None:
    stage = GroupStage()
    stage.settle(0)
    told = commit(stage, 7, for_ms=1_000)
    stage.committed(code)
    assert [each.code for each in told] == [code]
    assert stage.event() == PartitionsRevoked((T0,), is_lost=True)


def test_a_commit_of_a_generation_that_is_over_means_nothing_to_the_next_one() -> None:
    stage = GroupStage("cooperative-sticky")
    stage.settle(0)
    commit(stage, 7)
    late = stage.take(ApiKey.OFFSET_COMMIT)
    stage.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.join(2)
    stage.sync(0)
    stage.events.clear()
    stage.requests.appendleft(late)
    stage.committed(ErrorCode.ILLEGAL_GENERATION)
    assert not stage.events
    assert stage.member.phase is Phase.STABLE


# -- Going ---------------------------------------------------------------------------------------


def test_a_member_leaves_with_a_reason_and_a_static_one_only_if_told() -> None:
    for instance_id, also_static, leaves in [
        (None, False, True),
        ("one", False, False),
        ("one", True, True),
    ]:
        stage = GroupStage(instance_id=instance_id)
        stage.settle(0)
        stage.member.leave(stage.now_ms, "the end", also_static=also_static)
        stage.step()
        assert len(stage.requests) == leaves
        if leaves:
            (gone,) = stage.take(ApiKey.LEAVE_GROUP).body.members
            assert (gone.member_id, gone.group_instance_id, gone.reason) == (
                "m-1",
                instance_id,
                "the end",
            )
        assert (stage.member.phase, stage.member.wake_ms) == (Phase.OVER, None)


def test_a_program_that_does_not_poll_loses_its_membership_and_gets_another() -> None:
    stage = GroupStage()
    stage.settle(0)
    for _ in range(59):
        stage.wait(1_000, polls=False)
        stage.beat()
    assert not stage.events
    stage.wait(1_000, polls=False)
    while stage.requests[0].key is ApiKey.HEARTBEAT:
        stage.requests.popleft()
    (gone,) = stage.take(ApiKey.LEAVE_GROUP).body.members
    assert "max.poll.interval.ms" in gone.reason
    assert stage.member.wake_ms is None
    stage.member.polled(stage.now_ms)
    stage.step()
    assert stage.event() == PartitionsRevoked((T0,), is_lost=True)
    stage.member.revoked(stage.now_ms)
    stage.step()
    assert stage.join(5).body.member_id == ""


def test_a_program_that_polls_too_late_has_left_though_no_step_came_between() -> None:
    """As of one that blocked the event loop: it is told the same as if a thread had beaten."""
    for commits in (False, True):
        stage = GroupStage()
        stage.settle(0)
        late_ms = stage.now_ms + 60_000
        results: list[CommitResult] = []
        if commits:
            stage.member.commit({T0: Committed(Offset(1))}, results.append, late_ms)
            assert results[0].code is ErrorCode.UNKNOWN_MEMBER_ID
        stage.member.polled(late_ms)
        stage.now_ms = late_ms
        stage.step()
        assert stage.take(ApiKey.LEAVE_GROUP).body.members
        assert stage.event() == PartitionsRevoked((T0,), is_lost=True)
