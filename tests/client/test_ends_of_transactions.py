"""Transactions whose commit was interrupted: the producer brings them to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import strandline
from strandline.client.sending import Sender
from strandline.client.transaction_state import State
from strandline.errors import ErrorCode, ProtocolError, TransactionFailed
from tests.client.conftest import PATIENCE_S, BrokerThread
from tests.client.stalling import behind
from tests.client.test_aio import run
from tests.client.transaction_checks import made, seen, settings


def transactional(broker: BrokerThread, name: str) -> dict[str, Any]:
    """What is left open is not ended by the coordinator while a test waits."""
    return settings(broker.address, transactional_id=name, transaction_timeout_ms=600_000)


class Interrupts:
    """Ctrl-C, once, while a producer waits with its transaction in a state."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, when: State) -> None:
        self.count = 0
        pump = Sender.pump

        def interrupted(sender: Sender, *, wait: bool) -> None:
            state = None if sender.transactions is None else sender.transactions.state
            if wait and state is when and not self.count:
                self.count += 1
                raise KeyboardInterrupt
            pump(sender, wait=wait)

        monkeypatch.setattr(Sender, "pump", interrupted)


@pytest.mark.parametrize("in_block", [False, True])
def test_an_interrupted_commit_is_finished(
    broker: BrokerThread, name: str, monkeypatch: pytest.MonkeyPatch, in_block: bool
) -> None:
    """By `close`, or at the end of the transaction's own block."""
    made(broker.address, name, 1)
    interrupts = Interrupts(monkeypatch, when=State.COMMITTING)
    with strandline.Producer(transactional(broker, name)) as producer:
        if in_block:
            with suppress(KeyboardInterrupt), producer.transaction():
                producer.send(name, b"committed")
            transactions = producer._producer._sender.transactions
            assert transactions is not None
            assert transactions.state is State.READY
        else:
            producer.begin()
            producer.send(name, b"committed")
            with suppress(KeyboardInterrupt):
                producer.commit()
    assert interrupts.count == 1
    assert seen(broker.address, name) == [b"committed"]


def test_an_interrupted_abort_is_finished(
    broker: BrokerThread, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(broker.address, name, 1)
    interrupts = Interrupts(monkeypatch, when=State.ABORTING)
    with strandline.Producer(transactional(broker, name)) as producer:
        producer.begin()
        producer.send(name, b"aborted")
        producer.flush().raise_failure()
        with suppress(KeyboardInterrupt):
            producer.abort()
    assert interrupts.count == 1
    assert seen(broker.address, name) == []  # nothing is open, which would end this early
    assert seen(broker.address, name, "read_uncommitted").count(b"aborted") == 1


def test_an_interrupted_commit_that_fails_is_aborted_and_told(
    broker: BrokerThread, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with strandline.Admin(settings(broker.address)) as admin:
        admin.create_topic(name, partitions=1, configs={"max.message.bytes": "1000"})
    Interrupts(monkeypatch, when=State.COMMITTING)
    producer = strandline.Producer(transactional(broker, name))
    producer.begin()
    producer.send(name, b"before")
    producer.flush().raise_failure()
    producer.send(name, bytes(2000))
    with suppress(KeyboardInterrupt):
        producer.commit()
    with pytest.raises(TransactionFailed) as failed:
        producer.close()
    assert failed.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert seen(broker.address, name) == []


@pytest.mark.parametrize("in_block", [False, True])
def test_a_commit_whose_task_is_cancelled_is_finished(
    broker: BrokerThread, name: str, in_block: bool
) -> None:
    made(broker.address, name, 1)

    async def block(producer: strandline.AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send(name, b"committed")

    async def work() -> None:
        mine = transactional(broker, name)
        async with strandline.AsyncProducer(mine) as producer:
            transactions = producer._sender.transactions
            assert transactions is not None
            if in_block:
                task = asyncio.create_task(block(producer))
            else:
                await producer.begin()
                await producer.send_and_wait(name, b"committed")
                task = asyncio.create_task(producer.commit())
            while transactions.state is not State.COMMITTING:  # noqa: ASYNC110
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
            if in_block:
                assert str(transactions.state.value) == State.READY.value

    run(work())
    assert seen(broker.address, name) == [b"committed"]


def test_a_commit_whose_time_is_up_is_finished_by_close(
    start_broker_at: Callable[..., BrokerThread],
) -> None:
    """After the block it can still be called again, too."""
    with behind(start_broker_at) as (way, mine):
        own: dict[str, Any] = {
            **mine,
            "transactional.id": "t",
            "default.api.timeout.ms": 1000,
            "request.timeout.ms": PATIENCE_S * 1000,
        }
        with strandline.Producer(own) as producer:
            for number in range(2):
                producer.begin()
                producer.send("t", b"%d" % number)
                producer.flush().raise_failure()
                way.hold()
                with pytest.raises(ProtocolError) as late:
                    producer.commit()
                assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
                way.release()
                if number == 0:
                    producer.commit()
        assert seen(str(mine["bootstrap.servers"]), "t") == [b"0", b"1"]
