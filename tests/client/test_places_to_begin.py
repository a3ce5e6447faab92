"""Where consumers begin: partitions that they keep, and those of which nothing says it (`none`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import strandline
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import TopicPartition
from tests.client.conftest import PATIENCE_S, BrokerThread
from tests.client.test_aio import read as read_async
from tests.client.test_aio import run
from tests.client.test_api import read, settings, write

PATIENCE_MS = PATIENCE_S * 1000


def none(broker: BrokerThread, **more: Any) -> dict[str, Any]:
    return settings(broker, auto_offset_reset="none", **more)


def parts(name: str) -> tuple[TopicPartition, TopicPartition]:
    return TopicPartition(name, 0), TopicPartition(name, 1)


# -- What is assigned again ----------------------------------------------------------------------


def test_a_partition_that_is_assigned_again_goes_on_where_it_is(
    broker: BrokerThread, name: str
) -> None:
    write(broker, name, 10)
    first, second = parts(name)
    mine = settings(broker, auto_offset_reset="latest", group_id=name)
    with strandline.Consumer(mine) as consumer:
        consumer.assign([first])
        consumer.seek(first, 2)
        record = next(iter(consumer))
        assert record.offset == 2
        consumer.commit({first: 0})  # this is for those that begin
        consumer.assign([first, second])
        assert consumer.assignment == [first, second]
        assert [consumer.position(each) for each in (first, second)] == [3, 5]
        assert [each.offset for each in read(consumer, 2)] == [3, 4], "what was fetched is left"
        consumer.assign([second])
        consumer.assign([first])
        assert consumer.position(first) == 0, "it was given up"


def test_the_same_on_an_event_loop(broker: BrokerThread, name: str) -> None:
    write(broker, name, 10)
    first, second = parts(name)

    async def work() -> None:
        mine = settings(broker, auto_offset_reset="latest")
        async with strandline.AsyncConsumer(mine) as consumer:
            await consumer.assign([first])
            await consumer.seek(first, 2)
            assert (await anext(aiter(consumer))).offset == 2
            await consumer.assign([first, second])
            assert [consumer.position(each) for each in (first, second)] == [3, 5]
            assert [each.offset for each in await read_async(consumer, 2)] == [3, 4]
            await consumer.assign([second])
            await consumer.assign([first])
            assert consumer.position(first) == 5

    run(work())


# -- Where nothing says where to begin -----------------------------------------------------------


def check_none(error: ProtocolError, partition: TopicPartition) -> None:
    assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert f"no committed offset of partition {partition}" in error.message


def test_a_program_says_by_seek_where_to_begin(broker: BrokerThread, name: str) -> None:
    write(broker, name, 10)
    first, second = parts(name)
    with strandline.Consumer(none(broker)) as consumer:
        consumer.assign([first, second])
        assert consumer.assignment == [first, second]
        consumer.seek(second, 3)
        for call in (consumer.poll, lambda: next(iter(consumer)), lambda: consumer.position(first)):
            with pytest.raises(ProtocolError) as refused:
                call()
            check_none(refused.value, first)
        assert consumer.position(second) == 3
        consumer.seek_to_beginning(first)
        assert len(read(consumer, 7)) == 7


def test_what_the_group_stores_meanwhile_is_where_to_begin(broker: BrokerThread, name: str) -> None:
    write(broker, name, 10)
    first, _ = parts(name)
    with strandline.Consumer(none(broker, group_id=name)) as consumer:
        consumer.assign([first])
        with pytest.raises(ProtocolError):
            consumer.poll()
        consumer.commit({first: 3})
        assert [each.offset for each in read(consumer, 2)] == [3, 4]


def test_a_partition_that_is_not_assigned_any_more_is_no_reason_to_raise(
    broker: BrokerThread, name: str
) -> None:
    write(broker, name, 10)
    first, second = parts(name)
    with strandline.Consumer(none(broker)) as consumer:
        consumer.assign([first, second])
        consumer.assign([second])
        consumer.seek(second, 3)
        assert [each.offset for each in read(consumer, 2)] == [3, 4]
        consumer.assign([])
        assert consumer.poll(0) == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_may_seek_or_commit(broker: BrokerThread, name: str, protocol: str) -> None:
    """It keeps its partitions, and is told of them."""
    write(broker, name, 10)
    first, second = parts(name)
    assigned: list[TopicPartition] = []
    mine = none(broker, group_id=name, group_protocol=protocol, enable_auto_commit="false")
    with strandline.Consumer(mine) as consumer:
        consumer.subscribe([name], on_assigned=assigned.extend)
        for _ in range(2):
            with pytest.raises(ProtocolError) as refused:
                read(consumer, 1)
            check_none(refused.value, first)
        assert consumer.assignment == sorted(assigned) == [first, second]
        consumer.seek(first, 2)
        with pytest.raises(ProtocolError) as refused:
            consumer.poll(PATIENCE_MS)
        check_none(refused.value, second)
        consumer.commit({second: 4})
        found = read(consumer, 4)
        assert sorted((each.partition, each.offset) for each in found) == [
            (0, 2),
            (0, 3),
            (0, 4),
            (1, 4),
        ]


def test_a_member_may_seek_when_it_is_told_of_its_partitions(
    broker: BrokerThread, name: str
) -> None:
    write(broker, name, 10)
    with strandline.Consumer(none(broker, group_id=name)) as consumer:

        def assigned(partitions: Sequence[TopicPartition]) -> None:
            for each in partitions:
                consumer.seek(each, 3)

        consumer.subscribe([name], on_assigned=assigned)
        assert len(read(consumer, 4)) == 4


@pytest.mark.parametrize("is_member", [False, True])
def test_a_program_on_an_event_loop_says_it_too(
    broker: BrokerThread, name: str, is_member: bool
) -> None:
    write(broker, name, 10)
    first, second = parts(name)

    async def work() -> None:
        async with strandline.AsyncConsumer(none(broker, group_id=name)) as consumer:
            if is_member:
                await consumer.subscribe([name])
            else:
                await consumer.assign([first, second])
            for _ in range(2):
                with pytest.raises(ProtocolError) as refused:
                    await read_async(consumer, 1)
                check_none(refused.value, first)
            with pytest.raises(ProtocolError, match="no committed offset"):
                consumer.position(first)
            assert consumer.assignment == [first, second]
            await consumer.seek(first, 2)
            with pytest.raises(ProtocolError) as refused:
                await anext(aiter(consumer))
            check_none(refused.value, second)
            await consumer.commit({second: 4})
            assert len(await read_async(consumer, 4)) == 4

    run(work())
