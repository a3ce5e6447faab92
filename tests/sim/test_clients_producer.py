"""Producers: what they send, what they conclude, and what they tell the history."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from strandline.client.produce_queues import DOUBTS_MAX
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.init_producer_id import InitProducerIdResponse
from strandline.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from strandline.protocol.produce_errors import is_definite
from strandline.records.batch import parse_header
from strandline.records.record import read_records
from strandline.sim.clients.batches import value_of
from strandline.sim.clients.client import PATIENCE_US, SimClient, place_of
from strandline.sim.history.operations import Acknowledged, Refused, Sent
from strandline.types import TopicPartition
from tests.sim.clients_stage import TOPIC_ID, Asked, Stage

PLACE = place_of(TopicPartition("t", 0), TOPIC_ID)
CALM = {"records": "1", "size": "0", "compressed": "0", "large": "0", "strange_times": "0"}

NEW_LEADER = LeaderIdAndEpoch(leader_id=2, leader_epoch=1)


def producing(stage: Stage, **options: str) -> SimClient:
    stage.lead("t", 0, 1)
    client = stage.make("producer", "p", topic="t", **{**CALM, "every": "10ms", **options})
    client.start()
    return client


def idempotent(stage: Stage, **options: str) -> SimClient:
    """An idempotent producer that has its identity."""
    client = producing(stage, idempotent="yes", **options)
    identify(stage, 100)
    return client


def identify(stage: Stage, producer_id: int) -> None:
    asked = stage.next_request(ApiKey.INIT_PRODUCER_ID)
    asked.answer(InitProducerIdResponse(producer_id=producer_id))


def records_of(asked: Asked) -> memoryview:
    (topic,) = asked.body.topic_data
    (partition,) = topic.partition_data
    records: memoryview = partition.records
    return records


def values_of(asked: Asked) -> list[bytes | None]:
    return [value_of(record.value) for record in read_records(records_of(asked))]


def told(asked: Asked, code: ErrorCode = ErrorCode.NONE, offset: int = -1, **more: Any) -> None:
    """Answer a produce of one partition."""
    part = PartitionProduceResponse(error_code=code, base_offset=offset, **more)
    topic = TopicProduceResponse(name="t", topic_id=TOPIC_ID, partition_responses=[part])
    asked.answer(ProduceResponse(responses=[topic]))


def produce(stage: Stage) -> Asked:
    return stage.next_request(ApiKey.PRODUCE)


def test_values_are_in_the_history_before_and_after() -> None:
    stage = Stage()
    producing(stage)
    asked = produce(stage)
    assert asked.broker_id == 1
    assert values_of(asked) == [b"p-1"]
    assert stage.history == [Sent("p", PLACE, b"p-1")]
    told(asked, offset=7)
    stage.run(2)
    assert stage.history[1:] == [Acknowledged(PLACE, b"p-1", 7)]


def test_what_one_leader_acknowledges_says_in_which_epoch() -> None:
    stage = Stage()
    stage.lead("t", 0, 1, epoch=4)
    stage.make("producer", "p", topic="t", acks="1", every="10ms", **CALM).start()
    told(produce(stage), offset=7)
    stage.run(2)
    assert stage.history[1:] == [Acknowledged(PLACE, b"p-1", 7, leader_epoch=4)]


def test_what_a_leader_acknowledges_while_its_epoch_ends_says_nothing() -> None:
    stage = Stage()
    stage.lead("t", 0, 1, epoch=4)
    stage.make("producer", "p", topic="t", acks="1", every="10ms", **CALM).start()
    asked = produce(stage)
    stage.lead("t", 0, 1, epoch=5)
    told(asked, offset=7)
    stage.run(2)
    assert stage.history[1:] == [Acknowledged(PLACE, b"p-1", 7)]


def test_a_plain_producer_does_not_repeat_what_may_be_written_and_starts_a_new_order() -> None:
    stage = Stage()
    producing(stage)
    produce(stage).wire.reset()
    asked = produce(stage)
    assert values_of(asked) == [b"p-2"]
    assert stage.history == [Sent("p", PLACE, b"p-1"), Sent("p/1", PLACE, b"p-2")]


def test_a_plain_producer_goes_on_with_what_was_never_sent() -> None:
    stage = Stage()
    client = producing(stage)
    stage.down = {1}
    stage.run(300)
    stage.down = set()
    assert values_of(produce(stage)) == [b"p-1"]
    assert stage.history[:1] == [Sent("p", PLACE, b"p-1")]
    assert client.counters["outcome unknown"] == 0


def test_a_definite_error_refuses_the_values_for_good() -> None:
    stage = Stage()
    producing(stage)
    told(produce(stage), ErrorCode.NOT_ENOUGH_REPLICAS)
    asked = produce(stage)
    assert values_of(asked) == [b"p-2"]
    assert stage.history[1:] == [Refused(PLACE, b"p-1"), Sent("p", PLACE, b"p-2")]


@pytest.mark.parametrize(
    ("code", "with_all", "with_one"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, True, True),
        (ErrorCode.INVALID_RECORD, True, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False, True),
        (ErrorCode.REQUEST_TIMED_OUT, False, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, False, False),
        (ErrorCode.KAFKA_STORAGE_ERROR, False, False),
    ],
)
def test_which_errors_are_definite(code: ErrorCode, with_all: bool, with_one: bool) -> None:
    assert is_definite(code, -1) is with_all
    assert is_definite(code, 1) is with_one


def test_acks_0_says_nothing_about_outcomes() -> None:
    stage = Stage()
    client = producing(stage, acks="0")
    first, second = produce(stage), produce(stage)
    assert (first.body.acks, values_of(second)) == (0, [b"p-2"])
    assert client.outstanding == 0
    assert [event.producer for event in stage.history if isinstance(event, Sent)] == ["p/1", "p/1"]
    assert all(isinstance(event, Sent) for event in stage.history)


def test_a_hint_leads_to_the_new_leader_at_once() -> None:
    stage = Stage()
    producing(stage, acks="1")
    told(produce(stage), ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=NEW_LEADER)
    assert produce(stage).broker_id == 2


def test_a_plain_producer_does_not_overtake_itself_at_a_new_leader() -> None:
    stage = Stage()
    client = producing(stage, in_flight="3")
    first = produce(stage)
    client.cluster.hint(TopicPartition("t", 0), TOPIC_ID, NEW_LEADER)
    stage.run(100)
    assert not stage.requests
    told(first, offset=0)
    assert produce(stage).broker_id == 2


def test_an_idempotent_one_may_since_brokers_know_the_order() -> None:
    stage = Stage()
    client = settled(stage)
    assert produce(stage).broker_id == 1
    client.cluster.hint(TopicPartition("t", 0), TOPIC_ID, NEW_LEADER)
    assert produce(stage).broker_id == 2


def test_several_partitions_of_one_leader_share_a_request() -> None:
    stage = Stage()
    stage.lead("t", 1, 1)
    producing(stage, partition="0,1")
    (topic,) = produce(stage).body.topic_data
    assert [part.index for part in topic.partition_data] == [0, 1]


def test_recipes_make_what_was_ordered() -> None:
    stage = Stage()
    producing(stage, large="100", large_size="4000", compressed="100", keys="2", records="5")
    batch = records_of(produce(stage))
    assert parse_header(batch).is_compressed
    records = list(read_records(batch))
    assert all(len(record.value or b"") > 4000 for record in records)
    assert {record.key for record in records} <= {b"k0", b"k1"}


def test_finishing_brings_the_last_through_and_is_done() -> None:
    stage = Stage()
    client = producing(stage)
    asked = produce(stage)
    client.finish()
    stage.run(100)
    waits = not client.is_done
    assert waits
    told(asked, offset=0)
    while not client.is_done:
        stage.run(30)
        for late in list(stage.requests):
            told(late, offset=1)
        stage.requests.clear()
    sent = [event for event in stage.history if isinstance(event, Sent)]
    assert len(sent) == len(stage.history) - len(sent)
    assert (client.outstanding, client.findings) == (0, [])


def test_what_cannot_be_brought_through_is_reported_when_patience_ends() -> None:
    stage = Stage()
    client = producing(stage)
    stage.run(50)
    client.finish()
    stage.down = {1, 2, 3}
    for wire in stage.wires:
        wire.reset()
    stage.run(PATIENCE_US // 1000 + 100)
    assert client.is_done
    assert [finding.invariant for finding in client.findings] == ["I-50"]


def test_a_deleted_topic_keeps_no_producer_waiting() -> None:
    stage = Stage()
    client = producing(stage)
    told(produce(stage), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    stage.leaders.clear()
    client.cluster.stale()
    stage.run(1_000)
    client.finish()
    stage.run(16_000)
    assert client.is_done
    assert client.findings == []


# -- idempotent ----------------------------------------------------------------------------------


def sequence_of(asked: Asked) -> tuple[int, int]:
    header = parse_header(records_of(asked))
    return header.producer_id, header.base_sequence


def settled(stage: Stage, **options: str) -> SimClient:
    """An idempotent producer whose first batch was acknowledged."""
    client = idempotent(stage, **{"in_flight": "5", **options})
    told(produce(stage), offset=0)
    return client


def test_the_first_batch_goes_alone() -> None:
    stage = Stage()
    idempotent(stage, in_flight="5")
    first = produce(stage)
    stage.run(100)
    assert not stage.requests
    told(first, offset=0)
    assert [sequence_of(produce(stage)) for _ in range(3)] == [(100, 1), (100, 2), (100, 3)]


def test_what_is_unknown_is_repeated_byte_for_byte_in_order_and_one_by_one() -> None:
    stage = Stage()
    client = settled(stage, in_flight="3")
    batches = [produce(stage) for _ in range(3)]
    batches[0].wire.reset()
    for lost in batches:
        again = produce(stage)
        assert bytes(records_of(again)) == bytes(records_of(lost))
        if lost is not batches[-1]:
            stage.run(50)
            assert not stage.requests, "the next was sent before this one was decided"
        told(again, offset=sequence_of(again)[1])
    assert [sequence_of(produce(stage))[1] for _ in range(2)] == [4, 5]
    stage.run(50)  # the next ones may go out before the last answer is heard
    assert client.counters["retry acknowledged"] == 3
    sent = [event.value for event in stage.history if isinstance(event, Sent)]
    assert len(sent) == len(set(sent))


def test_a_duplicate_is_a_success_without_an_offset() -> None:
    stage = Stage()
    settled(stage)
    told(produce(stage), ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    stage.run(3)
    assert stage.history[-1] in stage.history
    assert Acknowledged(PLACE, b"p-2", None) in stage.history


def test_out_of_order_behind_a_batch_that_failed_only_came_too_early() -> None:
    stage = Stage()
    client = settled(stage)
    first, second = produce(stage), produce(stage)
    told(first, ErrorCode.NOT_ENOUGH_REPLICAS)
    told(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.requests.clear()
    again = produce(stage)
    assert sequence_of(again) == sequence_of(first)
    assert client.counters["number refused"] == 0


def test_out_of_order_of_the_oldest_needs_a_new_identity_from_it_on() -> None:
    stage = Stage()
    client = settled(stage)
    first, second = produce(stage), produce(stage)
    client.finish()
    stage.requests.clear()
    told(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.run(50)
    assert not stage.requests, "what is on its way behind it may be written yet"
    told(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.starts_at = 8  # by which the further refusals are excused
    for _ in range(DOUBTS_MAX):
        told(produce(stage), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    identify(stage, 200)
    numbers = []
    while not client.is_done:
        if stage.requests:
            asked = produce(stage)
            numbers.append((sequence_of(asked), values_of(asked)))
            told(asked, offset=9)
        stage.run(10)
    assert numbers[:2] == [((200, 0), [b"p-2"]), ((200, 1), [b"p-3"])]
    assert not any(isinstance(event, Refused) for event in stage.history)
    assert client.counters["number refused"] == 1 + DOUBTS_MAX
    [finding] = client.findings
    assert (finding.invariant, finding.partition) == ("I-54", "t-0")


def test_what_may_be_written_is_not_numbered_anew() -> None:
    stage = Stage()
    client = settled(stage, in_flight="2")
    first, second = produce(stage), produce(stage)
    client.finish()
    second.wire.reset()
    told(first, offset=1)
    stage.requests.clear()
    again = produce(stage)
    stage.compacted = {"t"}  # which is why a broker may have lost count
    told(again, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    for _ in range(DOUBTS_MAX):
        told(produce(stage), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.run(50)
    unknown = values_of(again)[0]
    assert unknown not in [event.value for event in stage.history if isinstance(event, Refused)]
    assert client.counters["outcome unknown"] == 1
    assert (client.counters["number refused"], client.findings) == (1 + DOUBTS_MAX, [])


def test_out_of_order_from_a_leader_that_was_deposed_before_is_no_finding() -> None:
    stage = Stage()
    client = settled(stage)
    asked = produce(stage)
    told(produce(stage), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.epochs_behind = 1
    told(asked, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.run(10)
    assert len(client.findings) == 1, "it may have been the leader when it was asked"
    stage.requests.clear()
    told(produce(stage), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.run(10)
    assert len(client.findings) == 1
    assert client.counters["number refused by a deposed leader"] == 1


def test_out_of_order_where_the_repeated_batch_may_be_deleted_is_no_finding() -> None:
    stage = Stage()
    client = settled(stage)
    stage.starts_at = 8  # the first batch, which was acknowledged, lies at 0
    told(produce(stage), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.run(10)
    assert client.findings == []
    assert client.counters["lost count behind a deletion"] == 1


def test_out_of_order_behind_a_later_batch_that_a_forgetful_leader_took_is_no_finding() -> None:
    """Seed 104002016: what was written before was deleted, and any number is taken then."""
    stage = Stage()
    client = settled(stage)
    first, second = produce(stage), produce(stage)
    stage.starts_at = 8
    told(second, offset=8)
    told(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.run(10)
    assert client.findings == []
    assert client.counters["lost count behind a deletion"] == 1


def test_out_of_order_behind_an_earlier_batch_that_was_taken_again_is_no_finding() -> None:
    """Seed 118002400: the batch with the number before is deleted, and the one before that is there
    again."""
    stage = Stage()
    client = settled(stage)
    earlier, before = produce(stage), produce(stage)
    told(before, offset=9)
    stage.starts_at = 10
    told(earlier, offset=10)
    told(produce(stage), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.run(10)
    assert client.findings == []
    assert client.counters["lost count behind a deletion"] == 1


def test_out_of_order_where_the_repeated_batch_may_be_compacted_away_is_no_finding() -> None:
    stage = Stage()
    client = settled(stage)
    stage.compacted = {"t"}
    produce(stage).wire.reset()
    stage.requests.clear()
    told(produce(stage), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.run(10)
    assert client.findings == []
    assert client.counters["lost count behind a compaction"] == 1


def test_out_of_order_of_one_that_was_sent_behind_another_is_sent_again() -> None:
    stage = Stage()
    client = settled(stage)
    first, second = produce(stage), produce(stage)
    told(first, offset=6)
    told(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.run(5)
    assert client.findings == []
    assert client.counters["number refused"] == 0


def test_behind_a_refused_batch_the_numbering_begins_anew() -> None:
    stage = Stage()
    client = settled(stage)
    refused, behind = produce(stage), produce(stage)
    stage.requests.clear()
    told(refused, ErrorCode.INVALID_TIMESTAMP)
    told(behind, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    identify(stage, 200)
    assert Refused(PLACE, b"p-2") in stage.history
    again = produce(stage)
    assert (sequence_of(again), values_of(again)) == ((200, 0), [b"p-3"])
    assert client.findings == []


def test_the_numbers_of_a_refused_batch_are_free_while_none_follow() -> None:
    stage = Stage()
    settled(stage, in_flight="1")
    told(produce(stage), ErrorCode.INVALID_TIMESTAMP)
    assert sequence_of(produce(stage)) == (100, 1)


def test_batches_for_a_former_topic_are_never_sent_to_the_new_one() -> None:
    stage = Stage()
    client = settled(stage)
    first = produce(stage)
    stage.topic_ids["t"] = UUID(int=8)
    told(first, ErrorCode.NOT_ENOUGH_REPLICAS)
    for asked in list(stage.requests):
        told(asked, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.requests.clear()
    asked = produce(stage)
    assert asked.body.topic_data[0].topic_id == UUID(int=8)
    assert b"p-2" not in values_of(asked)
    assert Refused(PLACE, b"p-2") in stage.history
    assert client.counters["batch for a former topic"] >= 1
