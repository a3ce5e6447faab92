"""The share consumer's core, with a coordinator and leaders that the test speaks for."""

from __future__ import annotations

import pytest

from strandline.client.share_group.settings import IMPLICIT
from strandline.client.share_thread import outcomes_of
from strandline.errors import CorruptRecords, ErrorCode, ProtocolError
from strandline.protocol.acknowledge_type import AckType
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from strandline.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
)
from strandline.records.builder import build_batch, build_control_batch
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record
from strandline.types import NO_OFFSET, Offset, ProducerEpoch, ProducerId, TopicPartition
from tests.client.share_stage import LOCK_MS, LOST, ShareStage, acknowledged, fetched
from tests.current import current

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
NONE = ErrorCode.NONE


def given(number: int, first: int, last: int, *, lacks: int | None = None) -> PartitionData:
    """Records of a partition that are the member's now, but for one that is not there."""
    data = b"".join(
        build_batch([Record(NO_OFFSET, 0, None, b"%d" % at)], base_offset=Offset(at))
        for at in range(first, last + 1)
        if at != lacks
    )
    acquired = [AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1)]
    return PartitionData(partition_index=number, records=data, acquired_records=acquired)


def offsets(stage: ShareStage) -> list[int]:
    return [each.offset for each in stage.end_poll()]


def polled(stage: ShareStage, *numbers: int, to: int = 1, first: int = 0, last: int = 1) -> None:
    """The program has records of partition 0, from its leader."""
    stage.settle(*numbers)
    stage.begin_poll()
    stage.answer_fetch(to, given(0, first, last))
    assert offsets(stage) == list(range(first, last + 1))


def say(stage: ShareStage, *said: int, at: TopicPartition = FIRST) -> None:
    for offset, kind in enumerate(said):
        stage.member.acknowledge(at, offset, AckType(kind))


def test_records_are_fetched_only_while_the_program_waits() -> None:
    """From each leader once at a time; a session is opened once, and goes on."""
    stage = ShareStage()
    stage.settle(0, 1)
    assert [key for key, _ in stage.sent] == []
    stage.begin_poll()
    assert sorted(stage.sent) == [("SHARE_FETCH", 1), ("SHARE_FETCH", 3)]
    asked = stage.answer_fetch(1, given(0, 0, 1))
    assert (asked.body.share_session_epoch, fetched(asked)) == (0, ([0], []))
    assert stage.member.has_news
    assert offsets(stage) == [0, 1]
    say(stage, 1, 2)
    stage.answer_fetch(3, given(1, 0, 0))
    assert stage.sent == [], "nothing waits"
    stage.begin_poll()
    asked = stage.take(ApiKey.SHARE_ACKNOWLEDGE, 1)  # there are records: nothing is fetched
    assert acknowledged(asked) == {0: [(0, 0, 1), (1, 1, 2)]}
    assert asked.body.share_session_epoch == 1
    assert offsets(stage) == [0]


def test_acknowledgements_go_along_with_the_next_fetch() -> None:
    stage = ShareStage(IMPLICIT)
    polled(stage, 0)
    stage.begin_poll()
    part = PartitionData(partition_index=0, acknowledge_error_code=ErrorCode.INVALID_RECORD_STATE)
    asked = stage.answer_fetch(1, part)
    assert acknowledged(asked) == {0: [(0, 1, 1)]}
    assert stage.member.take_outcomes() == [(FIRST, (0, 1), ErrorCode.INVALID_RECORD_STATE)]
    again = stage.answer_fetch(1)
    assert (again.body.share_session_epoch, fetched(again)) == (2, ([], []))


def test_offsets_without_a_record_are_said_to_be_gaps() -> None:
    """Those that compaction took, and markers of transactions; by the way, not at once."""
    stage = ShareStage()
    stage.settle(0)
    stage.begin_poll()
    part = given(0, 0, 3, lacks=1)
    marker = build_control_batch(
        EndTransactionMarker(ControlType.COMMIT, 0),
        timestamp=1,
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(0),
        base_offset=Offset(4),
    )
    part.records += marker
    part.acquired_records[0].last_offset = 4
    stage.answer_fetch(1, part)
    assert offsets(stage) == [0, 2, 3]
    assert stage.sent == []
    say(stage, 1)
    for offset in (2, 3):
        stage.member.acknowledge(FIRST, offset, AckType.ACCEPT)
    commit = stage.member.commit(stage.now_ms)
    stage.step()
    asked = stage.answer_acknowledge(1, (0, 0))
    assert acknowledged(asked) == {0: [(0, 0, 1), (1, 1, 0), (2, 3, 1), (4, 4, 0)]}
    assert commit.is_done
    assert stage.member.take_outcomes() == [(FIRST, (0, 2, 3), NONE)]


def test_bytes_that_are_no_records_are_released_and_told_once() -> None:
    stage = ShareStage()
    stage.settle(0)
    stage.begin_poll()
    part = given(0, 0, 1)
    part.records = part.records[:-1] + b"\xff"
    stage.answer_fetch(1, part)
    assert stage.member.has_news
    with pytest.raises(CorruptRecords, match="Records of partition t-0 cannot be read"):
        stage.end_poll()
    stage.begin_poll()
    assert acknowledged(stage.answer_acknowledge(1, (0, 0))) == {0: [(1, 1, 2)]}
    assert offsets(stage) == [0], "what could be read before it"
    say(stage, 1)
    stage.begin_poll()
    endless = given(0, 0, 1)
    endless.acquired_records[0].last_offset = 2**62
    stage.answer_fetch(1, endless)
    with pytest.raises(CorruptRecords, match="4611686018427387905 records"):
        stage.end_poll()


@pytest.mark.parametrize(
    "code", [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH]
)
def test_a_session_that_is_lost_begins_anew(code: ErrorCode) -> None:
    """What was acquired in it is acknowledged in vain, also what the program holds still."""
    stage = ShareStage()
    polled(stage, 0, last=1)
    say(stage, 1)
    commit = stage.member.commit(stage.now_ms)
    stage.step()
    asked = stage.take(ApiKey.SHARE_ACKNOWLEDGE, 1)
    asked.answer(ShareAcknowledgeResponse(error_code=code))
    assert commit.outcomes == {FIRST: code}
    stage.member.acknowledge(FIRST, 1, AckType.ACCEPT)
    assert stage.member.commit(stage.now_ms).outcomes == {FIRST: code}
    stage.begin_poll()
    assert stage.answer_fetch(1, given(0, 0, 0)).body.share_session_epoch == 0
    assert offsets(stage) == [0]


def test_a_lost_connection_ends_its_session() -> None:
    """Records of it that the program has not got are dropped; the leader is asked for anew, and
    tried again after a wait."""
    stage = ShareStage(max_poll_records=1)
    stage.settle(0)
    stage.begin_poll()
    stage.answer_fetch(1, given(0, 0, 2))
    assert offsets(stage) == [0]
    say(stage, 1)
    commit = stage.member.commit(stage.now_ms)
    stage.step()
    stage.take(ApiKey.SHARE_ACKNOWLEDGE, 1).answer(LOST)
    assert commit.outcomes == {FIRST: ErrorCode.NETWORK_EXCEPTION}
    assert current(stage.member.trouble) is not None
    stage.begin_poll()
    assert not stage.member.has_news
    stage.tell_leaders()
    assert ("SHARE_FETCH", 1) not in stage.sent
    stage.wait(200)
    assert stage.answer_fetch(1, given(0, 0, 0)).body.share_session_epoch == 0
    assert stage.member.trouble is None
    assert offsets(stage) == [0]


def test_another_leader() -> None:
    """It is fetched from there as soon as that is known, and forgotten at the old one; what the old
    one had handed out is acknowledged in vain."""
    stage = ShareStage()
    polled(stage, 0)
    say(stage, 1, 1)
    stage.begin_poll()
    part = PartitionData(
        partition_index=0,
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        acknowledge_error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=7),
    )
    stage.answer_fetch(1, part)
    assert stage.member.take_outcomes() == [(FIRST, (0, 1), ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert ("SHARE_FETCH", 3) in stage.sent, "the answer said who leads"
    stage.answer_fetch(3, given(0, 0, 1))
    assert offsets(stage) == [0, 1]
    say(stage, 1, 1)
    stage.tell_leaders(1, 1, epoch=8)  # and back again
    assert stage.member.commit(stage.now_ms).outcomes == {FIRST: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    stage.begin_poll()
    stage.wait(200)
    assert fetched(stage.answer_fetch(3)) == ([], [0])
    assert fetched(stage.answer_fetch(1)) == ([], []), "that session has it still"


def test_what_may_pass_is_acknowledged_again() -> None:
    stage = ShareStage()
    polled(stage, 0, last=0)
    say(stage, 1)
    commit = stage.member.commit(stage.now_ms, 5_000)
    stage.step()
    for _ in range(2):
        stage.answer_acknowledge(1, (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        assert not commit.is_done
        stage.wait(1_200)
    asked = stage.answer_acknowledge(1, (0, 0))
    assert (acknowledged(asked), asked.body.share_session_epoch) == ({0: [(0, 0, 1)]}, 3)
    assert commit.outcomes == {FIRST: NONE}


def test_an_outcome_that_does_not_come_in_time() -> None:
    stage = ShareStage()
    polled(stage, 0, last=0)
    say(stage, 1)
    commit = stage.member.commit(stage.now_ms, 5_000)
    stage.step()
    (error,) = outcomes_of(commit).values()
    assert error is not None
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    assert error.message == "It was not heard in time whether the acknowledgements count."


def test_records_whose_locks_ended_are_not_handed_to_the_program() -> None:
    stage = ShareStage()
    stage.settle(0)
    stage.begin_poll()
    stage.member.stop_polling()
    stage.answer_fetch(1, given(0, 0, 1))
    stage.wait(LOCK_MS - 1)
    assert current(stage.member.has_news)
    stage.wait(1)
    assert not stage.member.has_news
    stage.begin_poll()
    assert ("SHARE_FETCH", 1) in stage.sent


def test_records_of_a_partition_that_went_to_others_are_given_back() -> None:
    """Those that the program has not got; it can acknowledge the others."""
    stage = ShareStage(max_poll_records=1)
    polled_one_of = given(0, 0, 2)
    stage.settle(0)
    stage.begin_poll()
    stage.answer_fetch(1, polled_one_of)
    assert offsets(stage) == [0]
    stage.wait(1_000)
    stage.beat(t=())
    assert acknowledged(stage.answer_acknowledge(1, (0, 0))) == {0: [(1, 2, 2)]}
    assert not stage.member.has_news
    say(stage, 1)
    commit = stage.member.commit(stage.now_ms)
    stage.step()
    stage.answer_acknowledge(1, (0, 0))
    assert commit.outcomes == {FIRST: NONE}
    assert stage.member.take_outcomes() == [(FIRST, (0,), NONE)]


def test_renewed_locks() -> None:
    """Renewed alone, in a request that fetches nothing; a refused one ends the delivery."""
    stage = ShareStage()
    polled(stage, 0, last=1)
    say(stage, 4, 4)
    stage.begin_poll()
    asked = stage.answer_acknowledge(1, (0, 0))
    assert (acknowledged(asked), asked.body.is_renew_ack) == ({0: [(0, 1, 4)]}, True)
    assert stage.member.has_news
    assert offsets(stage) == [0, 1]
    say(stage, 4, 1)
    stage.begin_poll()
    assert stage.sent == [("SHARE_ACKNOWLEDGE", 1)]
    stage.answer_acknowledge(1, (0, ErrorCode.INVALID_RECORD_STATE))
    assert ("SHARE_FETCH", 1) in stage.sent
    stage.answer_fetch(1, given(0, 0, 0))
    assert offsets(stage) == [0]


def test_a_member_that_is_fenced_joins_again_with_its_id() -> None:
    """It has no partitions until then, and can acknowledge what it has."""
    stage = ShareStage()
    polled(stage, 0)
    before = stage.member.member_id
    stage.wait(1_000)
    stage.epoch = 5
    assert stage.beat(ErrorCode.FENCED_MEMBER_EPOCH).body.member_epoch == 1
    joining = stage.beat(t=(1,))
    assert (joining.body.member_epoch, joining.body.subscribed_topic_names) == (0, ["t"])
    assert joining.body.member_id == before
    say(stage, 1, 1)
    stage.begin_poll()
    asked = stage.answer_fetch(1)
    assert fetched(asked) == ([0], [0]), "what is only acknowledged is forgotten at once"
    assert acknowledged(asked) == {0: [(0, 1, 1)]}
    assert ("SHARE_FETCH", 3) in stage.sent
    stage.wait(1_000)
    assert stage.beat().body.member_epoch == 5


def test_a_coordinator_that_refuses_for_good() -> None:
    stage = ShareStage()
    stage.settle(0)
    stage.wait(1_000)
    stage.beat(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    for _ in range(2):
        with pytest.raises(ProtocolError, match="Access to group 'g' is not allowed"):
            stage.begin_poll()


def test_brokers_that_are_too_old() -> None:
    """For share groups, or for renewing locks, which ends that delivery alone."""
    stage = ShareStage()
    stage.settle(0)
    stage.wait(1_000)
    too_old = ProtocolError(ErrorCode.UNSUPPORTED_VERSION, "")
    stage.take(ApiKey.SHARE_GROUP_HEARTBEAT).answer(too_old)
    with pytest.raises(ProtocolError, match="does not serve share groups"):
        stage.begin_poll()
    stage = ShareStage()
    polled(stage, 0, last=0)
    say(stage, 4)
    commit = stage.member.commit(stage.now_ms)
    (ask,) = stage.member.step(stage.now_ms)
    with pytest.raises(ProtocolError, match="Broker 1 does not renew locks"):
        ask.request(1)
    stage.member.answered(ask, too_old, stage.now_ms)
    assert commit.outcomes == {FIRST: ErrorCode.UNSUPPORTED_VERSION}
    stage.begin_poll()
    assert stage.answer_fetch(1, given(0, 1, 1)).body.share_session_epoch == 1
    assert offsets(stage) == [1]


def test_a_partition_that_may_not_be_read_is_told_to_the_program() -> None:
    stage = ShareStage()
    stage.settle(0)
    stage.begin_poll()
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    stage.answer_fetch(1, PartitionData(partition_index=0, error_code=refused))
    with pytest.raises(ProtocolError, match="Access to topic 't' is not allowed"):
        stage.end_poll()
    assert stage.sent in ([], [("METADATA", None)]), "it is left alone for a while"


def test_closing() -> None:
    """What was said goes with the end of the session, after what is under way; then it leaves."""
    stage = ShareStage()
    polled(stage, 0)
    say(stage, 1)
    stage.member.close(stage.now_ms)
    stage.step()
    assert current(stage.member.is_leaving)
    asked = stage.answer_acknowledge(1, (0, 0))
    assert (acknowledged(asked), asked.body.share_session_epoch) == ({0: [(0, 0, 1)]}, -1)
    goodbye = stage.beat()
    assert goodbye.body.member_epoch == -1
    assert not stage.member.is_leaving
    assert stage.member.take_outcomes() == [(FIRST, (0,), NONE)]
    assert stage.member.wake_ms is None


def test_closing_while_a_leader_does_not_answer() -> None:
    """Its session counts as ended; the other one is ended as it should."""
    stage = ShareStage()
    stage.settle(0, 1)
    stage.begin_poll()
    stage.answer_fetch(3)
    stage.member.close(stage.now_ms)
    stage.step()
    for _ in range(2):
        first = next(each for each in stage.requests if each.key is not ApiKey.METADATA)
        stage.requests.remove(first)
        first.answer(LOST)
    stage.beat()
    assert not stage.member.is_leaving
