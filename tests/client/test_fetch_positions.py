"""What a reader's positions do: new leaders that have less, recommended replicas, resets."""

from __future__ import annotations

from uuid import UUID

import pytest

from strandline.client.fetch_positions import FetchPositions, Taken
from strandline.client.fetching import FetchSettings
from strandline.client.metadata import PartitionInfo
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from strandline.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from strandline.records.batch import HEADER_BYTES, parse_header
from strandline.records.builder import build_batch, join_batch
from strandline.records.record import Record
from strandline.types import NO_OFFSET, BrokerId, LeaderEpoch, Offset, TopicPartition

AT = TopicPartition("t", 0)
TOPIC_ID = UUID(int=7)
LEADER, FOLLOWER = BrokerId(1), BrokerId(2)
ALIVE = (LEADER, FOLLOWER)


def led(epoch: int) -> PartitionInfo:
    return PartitionInfo(0, LEADER, LeaderEpoch(epoch), (LEADER, FOLLOWER), (LEADER,))


def batch(epoch: int, count: int = 3, *, start: int = 0) -> memoryview:
    data = build_batch([Record(NO_OFFSET, 0, None, b"v")] * count, base_offset=Offset(start))
    header = parse_header(data)._replace(leader_epoch=LeaderEpoch(epoch))
    return memoryview(bytes(join_batch(header, data[HEADER_BYTES:])))


def fetch(
    positions: FetchPositions, data: PartitionData, *, epoch: int = 0, broker: BrokerId = LEADER
) -> Taken:
    """Ask a broker, which answers this."""
    wanted = {AT: positions.fetch_from(AT, TOPIC_ID, led(epoch))}
    topic = FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[data])
    taken = Taken()
    positions.take_in(broker, wanted, FetchResponse(responses=[topic]), 0, taken)
    for fetched in taken.fetched:
        positions.advance(fetched)
    return taken


def reading(*, resets: bool = True, epoch: int = 4) -> FetchPositions:
    """It has read three records that a leader wrote in an epoch."""
    positions = FetchPositions(FetchSettings(), resets=resets)
    positions.assign({AT: Offset(0)})
    fetch(positions, PartitionData(high_watermark=9, records=batch(epoch)), epoch=epoch)
    assert positions.offsets == {AT: 3}
    return positions


def told(positions: FetchPositions, epoch: int, **answer: int) -> list[TopicPartition]:
    """The leader of an epoch says where the asked one ends."""
    leaders = {AT: led(epoch)}
    (topic,) = positions.check_request(leaders).topics
    (asked,) = topic.partitions
    assert (asked.current_leader_epoch, asked.leader_epoch) == (epoch, 4)
    result = OffsetForLeaderTopicResult(topic="t", partitions=[EpochEndOffset(**answer)])
    return positions.checked(leaders, OffsetForLeaderEpochResponse(topics=[result]))


def test_only_a_new_leader_is_asked_whether_it_has_what_was_read() -> None:
    positions = reading()
    assert not positions.is_doubtful(AT, led(4))
    assert positions.is_doubtful(AT, led(5))
    assert told(positions, 5, leader_epoch=4, end_offset=3) == []
    assert not positions.is_doubtful(AT, led(5))
    positions.seek(AT, Offset(1))
    assert not positions.is_doubtful(AT, led(6)), "nothing was read before that"


def test_a_position_behind_the_end_of_its_epoch_goes_there() -> None:
    positions = reading()
    assert told(positions, 5, leader_epoch=3, end_offset=2) == []
    assert positions.offsets == {AT: 2}
    assert not positions.is_doubtful(AT, led(5))


@pytest.mark.parametrize("moves", ["read", "seek", "read there"])
def test_an_answer_about_a_position_that_has_moved_since_says_nothing(moves: str) -> None:
    """As in Kafka: a fetch was under way when it was asked, and brought records of a new epoch."""
    positions = reading()
    positions.check_request({AT: led(5)})
    if moves == "read":
        records = batch(5, start=3)
        fetch(positions, PartitionData(high_watermark=9, records=records), epoch=5)
    else:
        positions.seek(AT, Offset(5 if moves == "seek" else 3))
    now = dict(positions.offsets)
    ends_there = EpochEndOffset(leader_epoch=4, end_offset=2)
    result = OffsetForLeaderTopicResult(topic="t", partitions=[ends_there])
    response = OffsetForLeaderEpochResponse(topics=[result])
    assert positions.checked({AT: led(5)}, response) == []
    assert positions.offsets == now


def test_a_position_of_which_the_leader_knows_nothing_is_found_anew() -> None:
    assert told(reading(), 5) == [AT]


@pytest.mark.parametrize("answer", [{}, {"leader_epoch": 4, "end_offset": 2}])
def test_without_a_reset_lost_records_are_an_error(answer: dict[str, int]) -> None:
    with pytest.raises(ProtocolError, match="was cut below offset 3") as refused:
        told(reading(resets=False), 5, **answer)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_refused_question_leaves_the_doubt() -> None:
    positions = reading()
    with pytest.raises(ProtocolError) as refused:
        told(positions, 5, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert refused.value.retriable
    assert positions.is_doubtful(AT, led(5))
    positions.unchecked({AT: led(5)})
    assert not positions.is_doubtful(AT, led(5))


def test_a_refused_partition_keeps_no_other_from_being_checked() -> None:
    other = TopicPartition("t", 1)
    positions = reading()
    positions.add({other: Offset(0)})
    positions._standing[other].epoch = LeaderEpoch(4)
    leaders = {AT: led(5), other: led(5)}
    positions.check_request(leaders)
    answers = [
        EpochEndOffset(partition=0, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH),
        EpochEndOffset(partition=1, leader_epoch=4, end_offset=9),
    ]
    topic = OffsetForLeaderTopicResult(topic="t", partitions=answers)
    with pytest.raises(ProtocolError):
        positions.checked(leaders, OffsetForLeaderEpochResponse(topics=[topic]))
    assert positions.is_doubtful(AT, led(5))
    assert not positions.is_doubtful(other, led(5))


def test_a_recommended_replica_is_asked_for_a_while() -> None:
    positions = reading()
    fetch(positions, PartitionData(preferred_read_replica=FOLLOWER), epoch=4)
    assert positions.broker_for(AT, led(4), ALIVE, 1) == FOLLOWER
    assert positions.broker_for(AT, led(4), ALIVE, 400_000) == LEADER
    fetch(positions, PartitionData(preferred_read_replica=FOLLOWER), epoch=4)
    assert positions.broker_for(AT, led(4), [LEADER], 1) == LEADER
    fetch(positions, PartitionData(preferred_read_replica=FOLLOWER), epoch=4)
    positions.unanswered([AT])
    assert positions.broker_for(AT, led(4), ALIVE, 1) == LEADER


def test_out_of_range_of_a_replica_is_for_the_leader_to_say() -> None:
    positions = reading()
    fetch(positions, PartitionData(preferred_read_replica=FOLLOWER), epoch=4)
    missing = PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    taken = fetch(positions, missing, epoch=4, broker=FOLLOWER)
    assert (taken.lost, taken.failed) == ([], None)
    assert positions.broker_for(AT, led(4), ALIVE, 1) == LEADER
    assert fetch(positions, missing, epoch=4).lost == [AT]


def test_an_error_of_a_partition_is_kept_and_makes_its_topic_stale() -> None:
    taken = fetch(reading(), PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER), epoch=4)
    assert isinstance(taken.failed, ProtocolError)
    assert taken.failed.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert taken.stale == {"t"}
