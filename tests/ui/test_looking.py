"""Looks at brokers of which some are slow."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from strandline.client.cluster import ClusterClient
from strandline.client.inspection import Document
from strandline.client.settings import Address, ClientSettings
from strandline.errors import ErrorCode, MalformedFrame, ProtocolError
from strandline.types import BrokerId
from strandline.ui.looking import Looking

ONE, TWO = BrokerId(1), BrokerId(2)
BROKERS = {ONE: Address("127.0.0.1", 1), TWO: Address("127.0.0.1", 2)}
LONG_S = 3600.0
"""A look that waits so long does not end within the time of a test."""


@pytest.fixture
def paused() -> Iterator[Event]:
    """Broker 2 answers as soon as this is set."""
    paused = Event()
    yield paused
    paused.set()


@pytest.fixture
def looking(paused: Event) -> Iterator[Looking]:
    looking = Looking(ClientSettings(), patience_s=LONG_S)
    yield looking
    paused.set()
    looking.close()


def test_one_that_is_silent_holds_up_one_look_only(looking: Looking, paused: Event) -> None:
    asked: list[int] = []

    def question(client: ClusterClient, broker_id: BrokerId) -> Document:
        asked.append(broker_id)
        if broker_id == TWO:
            assert paused.wait(LONG_S)
        return {"broker": broker_id}

    looking.patience_s = 0.01
    while not isinstance(looking.ask(BROKERS, question)[TWO], ProtocolError):
        pass
    looking.patience_s = LONG_S
    for _ in range(3):
        told = looking.ask(BROKERS, question)
        assert told[ONE] == {"broker": 1}
        silent = told[TWO]
        assert isinstance(silent, ProtocolError)
        assert silent.code is ErrorCode.REQUEST_TIMED_OUT
    assert asked.count(TWO) == 1, "It is not asked again before it has answered."
    paused.set()
    while isinstance(looking.ask(BROKERS, question)[TWO], ProtocolError):
        pass
    assert looking.ask(BROKERS, question) == {ONE: {"broker": 1}, TWO: {"broker": 2}}


def test_what_a_broker_refuses_is_told(looking: Looking) -> None:
    refusal = ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE, "It is down.")

    def question(client: ClusterClient, broker_id: BrokerId) -> Document:
        if broker_id == ONE:
            raise refusal
        raise MalformedFrame("It sent no JSON.")

    told = looking.ask(BROKERS, question)
    assert told[ONE] is refusal
    unread = told[TWO]
    assert isinstance(unread, ProtocolError)
    assert unread.message == "Its answer cannot be read: It sent no JSON."


def test_a_broker_that_is_gone_is_asked_no_more_and_one_that_moved_is_asked_anew(
    looking: Looking, paused: Event
) -> None:
    clients: dict[Address, BrokerId] = {}

    def question(client: ClusterClient, broker_id: BrokerId) -> Document:
        (address,) = client.bootstrap
        clients[address] = broker_id
        if address == BROKERS[TWO]:
            assert paused.wait(LONG_S)
        return {}

    looking.patience_s = 0.01
    looking.ask(BROKERS, question)
    looking.patience_s = LONG_S
    assert looking.ask({ONE: BROKERS[ONE]}, question) == {ONE: {}}
    moved = Address("127.0.0.1", 3)
    assert looking.ask({TWO: moved}, question) == {TWO: {}}, "Nobody waits for the old address."
    assert clients[moved] == TWO
