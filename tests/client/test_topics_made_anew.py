"""Topics that are deleted and made anew while they are read."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import pytest

import strandline
from strandline.client.fetch_positions import FetchPositions, Taken
from strandline.client.fetching import FetchSettings
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from strandline.types import NO_TOPIC_ID, BrokerId, Offset, TopicId, TopicPartition
from tests.client.conftest import PATIENCE_S, BrokerThread
from tests.client.test_aio import run
from tests.client.test_api import settings
from tests.client.test_fetch_positions import AT, led

OLD, NEW = UUID(int=7), UUID(int=8)
PATIENCE_MS = PATIENCE_S * 1000


def made(broker: BrokerThread, topic: str, prefix: bytes, count: int) -> None:
    """Make the topic, and write so many records into it."""
    with strandline.Admin(settings(broker)) as admin:
        admin.create_topic(topic, partitions=1)
    with strandline.Producer(settings(broker)) as producer:
        for number in range(count):
            producer.send(topic, prefix + b"%d" % number)


def made_anew(broker: BrokerThread, topic: str) -> None:
    """Delete it, and make it with 30 records."""
    with strandline.Admin(settings(broker)) as admin:
        assert admin.delete_topics([topic]) == {topic: None}
    deadline = time.monotonic() + PATIENCE_S
    while not is_made(broker, topic):
        assert time.monotonic() < deadline


def is_made(broker: BrokerThread, topic: str) -> bool:
    try:
        made(broker, topic, b"new", 30)
    except ProtocolError as error:
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return False  # it is gone only when all brokers have deleted it
        raise
    return True


def reading(broker: BrokerThread, group: str, **more: Any) -> dict[str, Any]:
    return settings(broker, group_id=group, auto_offset_reset="earliest", **more)


def values(records: list[strandline.ConsumerRecord]) -> list[bytes]:
    return [each.value or b"" for each in records]


@pytest.mark.parametrize("is_member", [True, False])
def test_a_topic_made_anew_is_read_from_where_the_reset_says(
    broker: BrokerThread, name: str, is_member: bool
) -> None:
    made(broker, name, b"old", 10)
    with strandline.Consumer(reading(broker, name)) as consumer:
        if is_member:
            consumer.subscribe([name])
        else:
            consumer.assign([TopicPartition(name, 0)])
        found: list[bytes] = []
        while len(found) < 10:
            found += values(consumer.poll(PATIENCE_MS))
        made_anew(broker, name)
        found = []
        while b"new29" not in found:
            found += values(consumer.poll(PATIENCE_MS))
        assert found == [b"new%d" % number for number in range(30)]


@pytest.mark.parametrize("is_member", [True, False])
def test_the_same_on_an_event_loop(broker: BrokerThread, name: str, is_member: bool) -> None:
    made(broker, name, b"old", 10)

    async def work() -> None:
        async with strandline.AsyncConsumer(reading(broker, name)) as consumer:
            if is_member:
                await consumer.subscribe([name])
            else:
                await consumer.assign([TopicPartition(name, 0)])
            found: list[bytes] = []
            while len(found) < 10:
                found += values(await consumer.poll(PATIENCE_MS))
            made_anew(broker, name)
            found = []
            while b"new29" not in found:
                found += values(await consumer.poll(PATIENCE_MS))
            assert found == [b"new%d" % number for number in range(30)]

    run(work())


def test_without_a_reset_the_program_is_told_and_seeks(broker: BrokerThread, name: str) -> None:
    made(broker, name, b"old", 10)
    at = TopicPartition(name, 0)
    with strandline.Consumer({**reading(broker, name), "auto.offset.reset": "none"}) as consumer:
        consumer.assign([at])
        consumer.seek(at, 5)
        assert len(consumer.poll(PATIENCE_MS)) == 5
        consumer.commit()
        made_anew(broker, name)
        for _ in range(2):
            with pytest.raises(ProtocolError, match="was deleted and made anew") as refused:
                consumer.poll(PATIENCE_MS)
            assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_ID
        consumer.seek_to_beginning(at)
        assert values(consumer.poll(PATIENCE_MS))[0] == b"new0"


def answered(positions: FetchPositions, told: TopicId, error: ErrorCode) -> TopicId:
    """Ask for what metadata tell, and answer so; the topic that was asked for."""
    topic_id = positions.topic_of(AT, told)
    asked = positions.fetch_from(AT, topic_id, led(1))
    topic = FetchableTopicResponse(
        topic="t", topic_id=topic_id, partitions=[PartitionData(error_code=error)]
    )
    positions.take_in(BrokerId(1), {AT: asked}, FetchResponse(responses=[topic]), 0, Taken())
    return topic_id


def test_a_topic_is_a_former_one_only_if_its_broker_and_metadata_say_so() -> None:
    positions = FetchPositions(FetchSettings(), resets=True)
    positions.assign({AT: Offset(3)})
    assert answered(positions, OLD, ErrorCode.NONE) == OLD
    assert not positions.is_of_former(AT, NEW), "metadata may be those of a broker that is behind"
    assert answered(positions, NEW, ErrorCode.UNKNOWN_TOPIC_ID) == OLD
    assert not positions.is_of_former(AT, OLD), "the broker may be behind"
    assert not positions.is_of_former(AT, NO_TOPIC_ID)
    assert positions.is_of_former(AT, NEW)
    assert answered(positions, OLD, ErrorCode.NONE) == OLD
    assert not positions.is_of_former(AT, NEW), "the broker has it again"
    answered(positions, OLD, ErrorCode.UNKNOWN_TOPIC_ID)
    positions.seek(AT, Offset(0))
    assert not positions.is_of_former(AT, NEW)
    assert answered(positions, NEW, ErrorCode.NONE) == NEW
