"""Readers: where they stand, what they refuse to believe, and what they report."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from strandline.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from strandline.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from strandline.records.builder import build_batch
from strandline.records.record import Record
from strandline.sim.clients.client import SimClient, place_of
from strandline.sim.clients.reader import Reader
from strandline.sim.history.operations import Assigned, EndSeen, Polled, StartSeen
from strandline.types import NO_OFFSET, LeaderEpoch, Offset, TopicPartition
from tests.sim.clients_stage import TOPIC_ID, Asked, Stage

AT = TopicPartition("t", 0)
PLACE = place_of(AT, TOPIC_ID)


def batch(offset: int, *values: bytes, epoch: int = 0) -> bytes:
    records = [Record(NO_OFFSET, 1_700_000_000_000, None, value) for value in values]
    return build_batch(records, base_offset=Offset(offset), leader_epoch=LeaderEpoch(epoch))


def consuming(stage: Stage, **options: str) -> SimClient:
    stage.lead("t", 0, 1)
    client = stage.make("consumer", "c", topic="t", **options)
    client.start()
    return client


def standing(stage: Stage, **options: str) -> tuple[SimClient, Asked]:
    """A consumer that has its position (0), and its first fetch."""
    client = consuming(stage, **options)
    offsets_told(stage.next_request(ApiKey.LIST_OFFSETS), 0)
    return client, fetch(stage)


def fetch(stage: Stage) -> Asked:
    return stage.next_request(ApiKey.FETCH)


def offsets_told(asked: Asked, offset: int, code: ErrorCode = ErrorCode.NONE) -> None:
    part = ListOffsetsPartitionResponse(error_code=code, offset=offset)
    topic = ListOffsetsTopicResponse(name="t", partitions=[part])
    asked.answer(ListOffsetsResponse(topics=[topic]))


def epoch_told(asked: Asked, epoch: int, end: int) -> None:
    part = EpochEndOffset(leader_epoch=epoch, end_offset=end)
    topic = OffsetForLeaderTopicResult(topic="t", partitions=[part])
    asked.answer(OffsetForLeaderEpochResponse(topics=[topic]))


def fetched(asked: Asked, data: bytes = b"", *, session: int = 0, **more: Any) -> None:
    """Answer a fetch with these bytes of t-0; the high watermark is far away unless given."""
    fields = {"high_watermark": 1000, "last_stable_offset": 1000, "log_start_offset": 0, **more}
    part = PartitionData(partition_index=0, records=memoryview(data), **fields)
    topic = FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[part])
    asked.answer(FetchResponse(session_id=session, responses=[topic]))


def offset_of(asked: Asked) -> int:
    (topic,) = asked.body.topics
    (partition,) = topic.partitions
    offset: int = partition.fetch_offset
    return offset


def kinds(client: SimClient) -> list[str]:
    return [finding.invariant for finding in client.findings]


def test_what_is_read_is_in_the_history() -> None:
    stage = Stage()
    _, asked = standing(stage)
    fetched(asked, batch(0, b"a", b"b:xxx"))
    stage.run(2)
    assert stage.history == [
        Assigned("c", PLACE, 0),
        Polled("c", PLACE, [(0, b"a"), (1, b"b")], asked_at=1, leader_epoch=0),
    ]
    assert fetch(stage).body.topics[0].partitions[0].fetch_offset == 2


def test_a_fetch_into_a_batch_gives_its_rest_and_a_cut_off_batch_nothing() -> None:
    stage = Stage()
    consuming(stage, _from="1")
    fetched(fetch(stage), batch(0, b"a", b"b") + batch(2, b"c")[:-1])
    stage.run(2)
    (polled,) = [event for event in stage.history if isinstance(event, Polled)]
    assert polled.records == [(1, b"b")]


def test_a_wrong_checksum_is_found_and_not_read() -> None:
    stage = Stage()
    client, asked = standing(stage)
    damaged = bytearray(batch(0, b"a"))
    damaged[-3] ^= 1
    fetched(asked, bytes(damaged))
    stage.run(2)
    assert kinds(client) == ["I-47"]
    assert not any(isinstance(event, Polled) for event in stage.history)
    assert offset_of(fetch(stage)) == 0


def test_damage_by_the_network_is_no_violation() -> None:
    stage = Stage()
    client, asked = standing(stage, sessions="no")
    damaged = bytearray(batch(0, b"a"))
    damaged[-3] ^= 1
    asked.wire.is_damaged = True
    fetched(asked, bytes(damaged))
    again = fetch(stage)
    assert (kinds(client), again.wire is asked.wire) == ([], False)
    fetched(again, batch(0, b"a"))
    stage.run(2)
    assert client.counters["records read"] == 1


@pytest.mark.parametrize(
    ("isolation", "marks"),
    [
        ("uncommitted", {"high_watermark": 1}),
        ("committed", {"high_watermark": 1000, "last_stable_offset": 1}),
    ],
)
def test_what_lies_beyond_the_mark_must_not_be_sent(isolation: str, marks: dict[str, int]) -> None:
    stage = Stage()
    client, asked = standing(stage, isolation=isolation)
    fetched(asked, batch(0, b"a") + batch(1, b"b"), **marks)
    stage.run(2)
    assert kinds(client) == ["I-26"]


def test_a_position_before_the_log_is_honestly_reset() -> None:
    stage = Stage()
    client, asked = standing(stage)
    fetched(asked, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    offsets_told(stage.next_request(ApiKey.LIST_OFFSETS), 40)
    assert offset_of(fetch(stage)) == 40
    assert stage.history[1:] == [StartSeen("c", PLACE, 40), Assigned("c", PLACE, 40)]
    assert client.findings == []


def read_up_to_two(stage: Stage, **options: str) -> tuple[SimClient, Asked]:
    """A consumer that has read offsets 0 and 1 in epoch 0, and its next fetch."""
    client, asked = standing(stage, sessions="no", **options)
    fetched(asked, batch(0, b"a", b"b"))
    return client, fetch(stage)


@pytest.mark.parametrize(("profile", "found"), [("safe", ["I-25"]), ("beyond", [])])
def test_what_was_read_must_not_be_behind_the_end(profile: str, found: list[str]) -> None:
    stage = Stage(profile=profile)
    client, asked = read_up_to_two(stage)
    fetched(asked, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    offsets_told(stage.next_request(ApiKey.LIST_OFFSETS), 0)
    assert offset_of(fetch(stage)) == 0
    stage.run(10)
    assert kinds(client) == found


@pytest.mark.parametrize(("start", "found"), [(3, []), (0, ["I-25"])])
def test_log_starts_of_two_leaders_are_not_compared(start: int, found: list[str]) -> None:
    """Seed 60183: the leader of epoch 0 has deleted what was read, that of epoch 1 not yet."""
    stage = Stage()
    client, asked = read_up_to_two(stage)
    stage.lead("t", 0, 2, 1)
    client.cluster.hint(AT, TOPIC_ID, LeaderIdAndEpoch(leader_id=2, leader_epoch=1))
    fetched(asked, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    question = stage.next_request(ApiKey.LIST_OFFSETS)
    assert question.broker_id == 2
    offsets_told(question, 0)
    asked = fetch(stage)
    assert offset_of(asked) == 0
    stage.run(10)
    assert client.findings == []
    # What the new leader itself says counts as before.
    fetched(asked, batch(0, b"a", b"b", epoch=1))
    fetched(fetch(stage), error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    offsets_told(stage.next_request(ApiKey.LIST_OFFSETS), start)
    stage.run(10)
    assert kinds(client) == found


def test_of_another_incarnation_nothing_is_concluded() -> None:
    stage = Stage()
    client, asked = read_up_to_two(stage)
    stage.topic_ids["t"] = UUID(int=8)
    fetched(asked, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    offsets_told(stage.next_request(ApiKey.LIST_OFFSETS), 0)
    stage.run(100)
    assert client.findings == []


def test_a_new_leader_is_asked_whether_it_has_what_was_read() -> None:
    stage = Stage()
    client, asked = read_up_to_two(stage)
    client.cluster.hint(AT, TOPIC_ID, LeaderIdAndEpoch(leader_id=2, leader_epoch=1))
    fetched(asked)
    question = stage.next_request(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    (part,) = question.body.topics[0].partitions
    assert (question.broker_id, part.leader_epoch, part.current_leader_epoch) == (2, 0, 1)
    epoch_told(question, 0, 2)
    asked = fetch(stage)
    assert (asked.broker_id, offset_of(asked)) == (2, 2)
    assert client.findings == []


def test_a_truncation_is_found_and_the_reader_goes_back() -> None:
    stage = Stage()
    client, asked = read_up_to_two(stage)
    client.cluster.hint(AT, TOPIC_ID, LeaderIdAndEpoch(leader_id=2, leader_epoch=1))
    fetched(asked)
    epoch_told(stage.next_request(ApiKey.OFFSET_FOR_LEADER_EPOCH), 0, 1)
    assert offset_of(fetch(stage)) == 1
    assert stage.history[-1] == Assigned("c", PLACE, 1)
    stage.run(10)
    assert kinds(client) == ["I-25"]


def test_an_answer_about_a_position_that_has_moved_since_takes_no_reader_back() -> None:
    stage = Stage()
    client, asked = read_up_to_two(stage)
    client.cluster.hint(AT, TOPIC_ID, LeaderIdAndEpoch(leader_id=1, leader_epoch=1))
    client.pump()
    question = stage.next_request(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    fetched(asked, batch(2, b"c", epoch=1))
    epoch_told(question, 0, 2)
    epoch_told(stage.next_request(ApiKey.OFFSET_FOR_LEADER_EPOCH), 1, 3)
    assert offset_of(fetch(stage)) == 3
    assert client.findings == []


def test_without_epochs_nothing_is_asked() -> None:
    stage = Stage()
    client, asked = read_up_to_two(stage, check_epochs="no")
    client.cluster.hint(AT, TOPIC_ID, LeaderIdAndEpoch(leader_id=2, leader_epoch=1))
    fetched(asked)
    asked = fetch(stage)
    assert (asked.broker_id, asked.body.topics[0].partitions[0].current_leader_epoch) == (2, -1)


def test_a_recommended_follower_is_read_until_it_errs() -> None:
    stage = Stage()
    client, asked = standing(stage, rack="b", sessions="no")
    assert asked.body.rack_id == "b"
    fetched(asked, preferred_read_replica=3)
    asked = fetch(stage)
    assert asked.broker_id == 3
    fetched(asked, batch(0, b"a"))
    asked = fetch(stage)
    # It may be cut off from all who know what was deleted.
    assert stage.history[-1] == Polled("c", PLACE, [(0, b"a")], asked_at=-1)
    fetched(asked, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    asked = fetch(stage)
    assert (asked.broker_id, offset_of(asked)) == (1, 1)
    assert client.counters["out of range"] == 1


def test_a_follower_that_answers_too_late_is_still_a_follower() -> None:
    stage = Stage()
    client, asked = read_up_to_two(stage, rack="b")
    fetched(asked, preferred_read_replica=3)
    late = fetch(stage)
    assert late.broker_id == 3
    stage.run(5_001)
    client.cluster.stale()
    client.pump()
    asked = fetch(stage)
    assert asked.broker_id == 1
    asked.wire.reset()
    stage.run(2)
    fetched(late, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    offsets_told(stage.next_request(ApiKey.LIST_OFFSETS), 0)
    stage.run(100)
    assert client.findings == []


def test_a_topic_made_anew_is_read_from_its_beginning() -> None:
    stage = Stage()
    client, asked = read_up_to_two(stage)
    stage.topic_ids["t"] = other = UUID(int=8)
    fetched(asked, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    offsets_told(stage.next_request(ApiKey.LIST_OFFSETS), 0)
    asked = fetch(stage)
    assert (asked.body.topics[0].topic_id, offset_of(asked)) == (other, 0)
    assert stage.history[-1] == Assigned("c", place_of(AT, other), 0)
    assert client.findings == []


def test_reading_to_the_end_ends_there() -> None:
    stage = Stage()
    stage.lead("t", 0, 1)
    client = stage.make("consumer", "last", topic="t", to_end="yes")
    client.start()
    offsets_told(stage.next_request(ApiKey.LIST_OFFSETS), 2)
    offsets_told(stage.next_request(ApiKey.LIST_OFFSETS), 0)
    fetched(fetch(stage), batch(0, b"a"))
    fetched(fetch(stage), batch(1, b"b"))
    stage.run(50)
    assert client.is_done
    assert client.findings == []


def test_reading_to_the_end_in_vain_is_reported() -> None:
    stage = Stage()
    client = consuming(stage, to_end="yes")
    stage.down = {1}
    stage.run(70_000)
    assert client.is_done
    assert kinds(client) == ["I-50"]


def test_finishing_waits_for_what_was_asked() -> None:
    stage = Stage()
    client, asked = standing(stage)
    client.finish()
    stage.run(100)
    waits = not client.is_done
    assert waits
    fetched(asked, batch(0, b"a"))
    stage.run(100)
    assert client.is_done
    assert isinstance(stage.history[-1], Polled)
    assert not stage.requests


def test_a_reader_whose_session_is_lost_asks_for_everything_again() -> None:
    stage = Stage()
    client, asked = standing(stage)
    assert isinstance(client, Reader)
    fetched(asked, batch(0, b"a"), session=5)
    asked = fetch(stage)
    assert (asked.body.session_id, asked.body.session_epoch) == (5, 1)
    asked.answer(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    asked = fetch(stage)
    assert (asked.body.session_id, asked.body.session_epoch, offset_of(asked)) == (0, 0, 1)


# -- ends ----------------------------------------------------------------------------------------


def test_an_end_counts_if_the_topic_is_still_the_same() -> None:
    stage = Stage()
    stage.lead("t", 0, 1)
    client = stage.make("ends", "e", topic="t", every="10ms")
    client.start()
    offsets_told(stage.next_request(ApiKey.LIST_OFFSETS), 12)
    stage.run(3)
    assert stage.history == [EndSeen("e", PLACE, 12)]
    asked = stage.next_request(ApiKey.LIST_OFFSETS)
    stage.topic_ids["t"] = UUID(int=8)
    offsets_told(asked, 3)
    stage.run(3)
    assert stage.history == [EndSeen("e", PLACE, 12)]
    client.finish()
    for late in stage.requests:
        offsets_told(late, 3)
    stage.run(100)
    assert client.is_done
