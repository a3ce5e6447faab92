"""The public clients on a real broker: what is written, read, sought, committed and managed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

import strandline
from strandline.errors import ErrorCode, InvalidSetting, ProtocolError
from strandline.types import TopicPartition
from tests.client.conftest import PATIENCE_S, BrokerThread

PATIENCE_MS = PATIENCE_S * 1000


def settings(broker: BrokerThread, **more: Any) -> dict[str, Any]:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {"bootstrap.servers": broker.address, "retry.backoff.ms": 10, **named}


def read(consumer: strandline.Consumer, count: int) -> list[strandline.ConsumerRecord]:
    """So many records."""
    found: list[strandline.ConsumerRecord] = []
    while len(found) < count:
        polled = consumer.poll(PATIENCE_MS)
        assert polled, f"only {len(found)} of {count} records came"
        found += polled
    return found


def write(broker: BrokerThread, topic: str, count: int) -> None:
    with strandline.Admin(settings(broker)) as admin:
        admin.create_topic(topic, partitions=2)
    with strandline.Producer(settings(broker)) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % 2, timestamp_ms=1000 + number)


def test_what_is_written_is_read(broker: BrokerThread, name: str) -> None:
    with strandline.Producer(settings(broker, compression_type="gzip")) as producer:
        delivery = producer.send(name, b"v", key=b"k", headers=[("h", b"1")], timestamp_ms=5)
        result = producer.flush()
        assert (result.delivered, delivery.result(), producer.buffered_bytes) == (1, 0, 0)
        assert producer.partitions_for(name) == [0]
    with strandline.Consumer(settings(broker, auto_offset_reset="earliest")) as consumer:
        consumer.assign(consumer.partitions_for(name))
        assert read(consumer, 1) == [(name, 0, 0, 5, b"k", b"v", (("h", b"1"),))]
        assert consumer.position(TopicPartition(name, 0)) == 1


def test_what_lingers_goes_out_by_itself(broker: BrokerThread, name: str) -> None:
    with strandline.Producer(settings(broker, linger_ms=0)) as producer:
        delivery = producer.send(name, b"v")
        while not delivery.is_done:
            producer.poll()
        assert delivery.result() == 0


def test_leaving_raises_what_was_not_written(broker: BrokerThread, name: str) -> None:
    with strandline.Admin(settings(broker)) as admin:
        admin.create_topic(name, configs={"max.message.bytes": "200"})
    with pytest.raises(ProtocolError) as refused, strandline.Producer(settings(broker)) as producer:
        producer.send(name, bytes(1000))
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_an_exception_tells_of_records_that_it_leaves_behind(
    broker: BrokerThread, name: str
) -> None:
    mine = settings(broker, linger_ms=60_000)

    def leave(*, flushes: bool) -> None:
        with strandline.Producer(mine) as producer:
            producer.send(name, b"x")
            if flushes:
                producer.flush()
            raise KeyError

    async def leave_async() -> None:
        async with strandline.AsyncProducer(mine) as producer:
            await producer.send(name, b"x")
            raise KeyError

    with pytest.raises(KeyError) as left:
        leave(flushes=True)
    assert not hasattr(left.value, "__notes__")
    calls: list[Callable[[], object]] = [
        lambda: leave(flushes=False),
        lambda: asyncio.run(leave_async()),
    ]
    for call in calls:
        with pytest.raises(KeyError) as left:
            call()
        (note,) = left.value.__notes__
        assert re.fullmatch(r"The producer was closed with \d+ bytes of records of which .*", note)


def test_places_in_a_log(broker: BrokerThread, name: str) -> None:
    write(broker, name, 20)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    with strandline.Consumer(settings(broker, auto_offset_reset="earliest")) as consumer:
        consumer.assign([first, second])
        assert consumer.assignment == [first, second]
        assert consumer.beginning_offsets([first]) == {first: 0}
        assert consumer.end_offsets([first, second]) == {first: 10, second: 10}
        consumer.seek_to_end()
        assert consumer.poll(0) == []
        with pytest.raises(TypeError, match="float"):
            consumer.poll(1.0)  # type: ignore[arg-type]
        consumer.seek(first, 9)
        assert [each.value for each in read(consumer, 1)] == [b"18"]
        consumer.seek_to_time(1017, second)
        assert [each.value for each in read(consumer, 2)] == [b"17", b"19"]
        consumer.seek_to_beginning(first)
        assert len(read(consumer, 10)) == 10
        with pytest.raises(ProtocolError, match="is not assigned"):
            consumer.position(TopicPartition(name, 7))


def test_a_group_goes_on_where_it_was(broker: BrokerThread, name: str) -> None:
    write(broker, name, 10)
    at = [TopicPartition(name, 0), TopicPartition(name, 1)]
    mine = settings(broker, group_id=name, auto_offset_reset="earliest")
    with strandline.Consumer(mine) as consumer:
        consumer.assign(at)
        read(consumer, 10)
        consumer.seek(at[1], 3)
        consumer.commit()
        assert consumer.committed(at) == {at[0]: 5, at[1]: 3}
        consumer.commit({at[0]: 4})
    with strandline.Consumer({**mine, "auto.offset.reset": "none"}) as consumer:
        consumer.assign(at)
        assert sorted(each.value or b"" for each in read(consumer, 3)) == [b"7", b"8", b"9"]
    with strandline.Admin(settings(broker)) as admin:
        assert name in [each.group for each in admin.list_groups()]
        assert admin.group_offsets(name) == {at[0]: 4, at[1]: 3}
        admin.alter_group_offsets(name, {at[0]: 0})
        assert admin.group_offsets(name)[at[0]] == 0
        assert admin.describe_group(name).members == ()
        admin.delete_group(name)
        assert name not in [each.group for each in admin.list_groups()]


def test_without_a_place_to_begin_none_is_guessed(broker: BrokerThread, name: str) -> None:
    write(broker, name, 1)
    with strandline.Consumer(settings(broker, auto_offset_reset="none")) as consumer:
        consumer.assign([TopicPartition(name, 0)])
        with pytest.raises(ProtocolError, match="no committed offset"):
            consumer.poll()
        with pytest.raises(InvalidSetting, match=r"group\.id is missing"):
            consumer.commit()


def test_topics_are_made_changed_and_deleted(broker: BrokerThread, name: str) -> None:
    with strandline.Admin(settings(broker)) as admin:
        admin.create_topic(name, partitions=1, configs={"retention.ms": "1000"})
        with pytest.raises(ProtocolError) as refused:
            admin.create_topic(name)
        assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        admin.create_partitions(name, 3)
        assert sorted(admin.describe_topic(name).partitions) == [0, 1, 2]
        assert name in [each.name for each in admin.list_topics()]
        assert admin.topic_config(name)["retention.ms"] == "1000"
        admin.alter_topic_config(name, set_to={"cleanup.policy": "compact"}, reset=["retention.ms"])
        config = admin.topic_config(name)
        assert (config["cleanup.policy"], config["retention.ms"]) == ("compact", "604800000")
        (alive,) = admin.describe_cluster().brokers
        assert "log.dirs" in admin.broker_config(alive.broker_id)
        assert admin.delete_topics([name, "no-such-topic"])[name] is None
        with pytest.raises(ProtocolError, match="There is no topic"):
            admin.describe_topic(name)


def test_records_are_deleted_up_to_an_offset(broker: BrokerThread, name: str) -> None:
    write(broker, name, 10)
    at = TopicPartition(name, 0)
    with strandline.Admin(settings(broker)) as admin:
        assert admin.delete_records({at: 3}) == {at: 3}
    with strandline.Consumer(settings(broker)) as consumer:
        assert consumer.beginning_offsets([at]) == {at: 3}


def share(consumers: list[strandline.Consumer], counts: list[int]) -> None:
    """Poll until each has so many partitions. Everything was read and committed before."""
    for _ in range(10_000):
        if [len(each.assignment) for each in consumers] == counts:
            return
        assert [each.poll(20) for each in consumers] == [[] for _ in consumers]
    pytest.fail(f"{[each.assignment for each in consumers]}")


def test_members_of_a_group_share_a_topic_and_hand_over(broker: BrokerThread, name: str) -> None:
    write(broker, name, 20)
    mine = settings(broker, group_id=name, auto_offset_reset="earliest")
    mine |= {"heartbeat.interval.ms": 50, "session.timeout.ms": 10_000}
    told: list[tuple[str, int]] = []
    with strandline.Consumer(mine) as first:
        first.subscribe(
            [name],
            on_assigned=lambda at: told.append(("assigned", len(at))),
            on_revoked=lambda at: told.append(("revoked", len(at))),
        )
        assert len(read(first, 20)) == 20
        assert told == [("assigned", 2)]
        with pytest.raises(ProtocolError, match="the group assigns"):
            first.assign([TopicPartition(name, 0)])
        first.commit()
        assert sum(first.committed(first.assignment).values()) == 20
        with strandline.Consumer(mine) as second:
            second.subscribe([name])
            share([first, second], [1, 1])
            assert {*first.assignment, *second.assignment} == {
                TopicPartition(name, 0),
                TopicPartition(name, 1),
            }
        share([first], [2])
    assert ("revoked", 2) in told
    with strandline.Admin(settings(broker)) as admin:
        assert admin.describe_group(name).state == "Empty"


def test_a_subscription_needs_a_group_and_no_assignment(broker: BrokerThread, name: str) -> None:
    write(broker, name, 1)
    consumer = strandline.Consumer(settings(broker))
    with pytest.raises(InvalidSetting, match=r"group\.id is missing"):
        consumer.subscribe([name])
    with strandline.Consumer(settings(broker, group_id=name)) as consumer:
        consumer.assign([TopicPartition(name, 0)])
        with pytest.raises(ProtocolError, match="Partitions are assigned"):
            consumer.subscribe([name])
