"""Transactions of the public producers on a real broker."""

from __future__ import annotations

from typing import Any

import pytest

import strandline
from strandline.errors import ErrorCode, InvalidSetting, ProducerFailed, ProtocolError
from strandline.types import TopicPartition
from tests.client.conftest import BrokerThread
from tests.client.test_aio import run
from tests.client.transaction_checks import (
    check_a_timeout_ends_the_producer,
    check_a_zombie_is_fenced,
    check_commit_and_abort,
    check_offsets_are_part_of_it,
    made,
    seen,
    settings,
)


@pytest.mark.parametrize("version", [1, 2])
def test_only_what_is_committed_is_seen(broker: BrokerThread, name: str, version: int) -> None:
    check_commit_and_abort(broker.address, name, version, forces=version == 1)


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_are_part_of_a_transaction(broker: BrokerThread, name: str, version: int) -> None:
    check_offsets_are_part_of_it(broker.address, name, version, forces=version == 1)


def test_a_zombie_is_fenced(broker: BrokerThread, name: str) -> None:
    check_a_zombie_is_fenced(broker.address, name)


class Mishap(Exception):
    """Of the program."""


def happens(after: object) -> None:
    raise Mishap(f"after {after}")


def test_a_block_commits_or_aborts(broker: BrokerThread, name: str) -> None:
    made(broker.address, name, 1)
    with strandline.Producer(settings(broker.address, transactional_id=name)) as producer:
        with producer.transaction():
            producer.send(name, b"committed")
        with pytest.raises(Mishap), producer.transaction():
            happens(producer.send(name, b"aborted"))
        with producer.transaction():
            producer.send(name, b"given up")
            producer.abort()
        producer.begin()
        producer.send(name, b"left open")
        producer.flush().raise_failure()
    assert seen(broker.address, name) == [b"committed"]
    assert b"left open" in seen(broker.address, name, "read_uncommitted")


def test_a_refused_record_aborts_the_block_which_can_be_run_again(
    broker: BrokerThread, name: str
) -> None:
    with strandline.Admin(settings(broker.address)) as admin:
        admin.create_topic(name, partitions=1, configs={"max.message.bytes": "1000"})
    with strandline.Producer(settings(broker.address, transactional_id=name)) as producer:

        def work(size: int) -> None:
            with producer.transaction():
                producer.send(name, b"before")
                producer.flush()
                producer.send(name, b"x" * size)

        with pytest.raises(strandline.TransactionFailed, match="can be done again") as failed:
            work(2000)
        assert failed.value.code is ErrorCode.MESSAGE_TOO_LARGE
        work(10)
    assert seen(broker.address, name) == [b"before", b"x" * 10]


def test_a_transaction_that_is_open_for_too_long_ends_its_producer(
    broker: BrokerThread, name: str
) -> None:
    check_a_timeout_ends_the_producer(broker.address, name)


def test_the_same_on_an_event_loop(broker: BrokerThread, name: str) -> None:
    made(broker.address, name)
    at = TopicPartition(name, 0)

    async def mishap(producer: strandline.AsyncProducer) -> None:
        async with producer.transaction():
            happens(await producer.send_and_wait(name, b"aborted", partition=0))

    async def work() -> None:
        mine = settings(broker.address, transactional_id=name)
        reading = settings(broker.address, group_id=name)
        async with strandline.AsyncProducer(mine) as producer:
            async with producer.transaction():
                for number in range(100):
                    await producer.send(name, b"%d" % number, partition=number % 2)
            with pytest.raises(Mishap):
                await mishap(producer)
            async with strandline.AsyncConsumer(reading) as consumer:
                async with producer.transaction():
                    await producer.send_offsets({at: 7}, consumer.group_metadata)
                assert await consumer.committed([at]) == {at: 7}
            await producer.begin()
            await producer.send_and_wait(name, b"of the zombie", partition=0)
            async with strandline.AsyncProducer(mine) as successor:
                await successor.init_transactions()
            with pytest.raises(ProducerFailed):
                await producer.commit()

    run(work())
    found = seen(broker.address, name)
    assert found == [b"%d" % number for number in (*range(0, 100, 2), *range(1, 100, 2))]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"transactional_id": ""}, "transactional.id must not be empty"),
        ({"transactional_id": "t", "acks": "1"}, "transactional.id needs acks=all"),
        ({"transactional_id": "t", "enable_idempotence": "false"}, "needs enable.idempotence"),
        ({"transaction_timeout_ms": "5"}, "needs a transactional.id"),
    ],
)
def test_settings_that_make_no_sense_together(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidSetting, match=sentence):
        strandline.Producer(settings("localhost:1", **more))


def test_a_producer_without_an_id_has_no_transactions() -> None:
    producer = strandline.Producer(settings("localhost:1"))
    with pytest.raises(ProtocolError, match=r"transactional\.id") as refused:
        producer.begin()
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
