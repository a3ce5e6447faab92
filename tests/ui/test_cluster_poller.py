"""Looks at brokers of which some are slow."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from strandline.client.cluster import ClusterClient
from strandline.client.inspection import Document
from strandline.client.settings import Address, ClientSettings
from strandline.errors import ErrorCode, InvalidSetting, MalformedFrame, ProtocolError
from strandline.types import BrokerId
from strandline.ui.cluster_poller import ClusterPoller

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
def poller(paused: Event) -> Iterator[ClusterPoller]:
    poller = ClusterPoller(ClientSettings(), patience_s=LONG_S)
    yield poller
    paused.set()
    poller.close()


def test_one_that_is_silent_holds_up_one_look_only(poller: ClusterPoller, paused: Event) -> None:
    asked: list[int] = []

    def question(client: ClusterClient, broker_id: BrokerId) -> Document:
        asked.append(broker_id)
        if broker_id == TWO:
            assert paused.wait(LONG_S)
        return {"broker": broker_id}

    poller.patience_s = 0.01
    while not isinstance(poller.ask(BROKERS, question)[TWO], ProtocolError):
        pass
    poller.patience_s = LONG_S
    for _ in range(3):
        told = poller.ask(BROKERS, question)
        assert told[ONE] == {"broker": 1}
        silent = told[TWO]
        assert isinstance(silent, ProtocolError)
        assert silent.code is ErrorCode.REQUEST_TIMED_OUT
    assert asked.count(TWO) == 1, "It is not asked again before it has answered."
    paused.set()
    while isinstance(poller.ask(BROKERS, question)[TWO], ProtocolError):
        pass
    assert poller.ask(BROKERS, question) == {ONE: {"broker": 1}, TWO: {"broker": 2}}


def test_what_a_broker_refuses_is_told(poller: ClusterPoller) -> None:
    refusal = ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE, "It is down.")

    def question(client: ClusterClient, broker_id: BrokerId) -> Document:
        if broker_id == ONE:
            raise refusal
        raise MalformedFrame("It sent no JSON.")

    told = poller.ask(BROKERS, question)
    assert told[ONE] is refusal
    unread = told[TWO]
    assert isinstance(unread, ProtocolError)
    assert unread.message == "Its answer cannot be read: It sent no JSON."


def test_a_certificate_that_is_missing_is_told_of_the_brokers(poller: ClusterPoller) -> None:
    def question(client: ClusterClient, broker_id: BrokerId) -> Document:
        raise InvalidSetting("ssl.ca.location", "ssl.ca.location: the file a.pem cannot be read.")

    for told in poller.ask(BROKERS, question).values():
        assert isinstance(told, ProtocolError)
        assert told.message == "ssl.ca.location: the file a.pem cannot be read."


def test_a_broker_that_is_gone_is_asked_no_more_and_one_that_moved_is_asked_anew(
    poller: ClusterPoller, paused: Event
) -> None:
    clients: dict[Address, BrokerId] = {}

    def question(client: ClusterClient, broker_id: BrokerId) -> Document:
        (address,) = client.bootstrap
        clients[address] = broker_id
        if address == BROKERS[TWO]:
            assert paused.wait(LONG_S)
        return {}

    poller.patience_s = 0.01
    poller.ask(BROKERS, question)
    poller.patience_s = LONG_S
    assert poller.ask({ONE: BROKERS[ONE]}, question) == {ONE: {}}
    moved = Address("127.0.0.1", 3)
    assert poller.ask({TWO: moved}, question) == {TWO: {}}, (
        "The poller does not wait for the old address."
    )
    assert clients[moved] == TWO
