"""Whom a client asks: what is fresh, who is left alone, who coordinates a group."""

from __future__ import annotations

from random import Random

import pytest

from strandline.client.router import Router
from strandline.client.settings import Address, ClientSettings
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from strandline.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.types import BrokerId, TopicPartition

BOOTSTRAP = Address("boot", 9092)
SETTINGS = ClientSettings(
    metadata_age_max_ms=1000, reconnect_backoff_ms=100, reconnect_backoff_max_ms=200
)


def broker(number: int) -> Address:
    return Address("b", number)


def told(*brokers: int, topics: tuple[str, ...] = ("t",), leader: int = 1) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host="b", port=n) for n in brokers],
        topics=[
            MetadataResponseTopic(
                name=name, partitions=[MetadataResponsePartition(leader_id=leader, leader_epoch=3)]
            )
            for name in topics
        ],
    )


@pytest.fixture
def router() -> Router:
    return Router(SETTINGS, Random(1), [BOOTSTRAP])


def test_a_topic_is_fresh_until_it_is_old_or_forgotten(router: Router) -> None:
    assert not router.is_fresh("t", 0)
    router.learn(told(1), 100)
    assert router.is_fresh("t", 1099)
    assert not router.is_fresh("t", 1100)
    router.learn(told(1), 2000)
    router.forget(["t", "unheard of"])
    assert not router.is_fresh("t", 2000)
    assert router.topic("t") is not None  # what is believed may still be used


def test_that_there_is_no_topic_is_fresh_too_and_all_of_them_end_what_is_not_told(
    router: Router,
) -> None:
    refused = MetadataResponseTopic(name="u", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    router.learn(MetadataResponse(topics=[refused]), 0)
    assert router.is_fresh("u", 0)
    router.learn(told(1), 0, is_of_all=True)
    assert not router.is_fresh("u", 0)


def test_a_refused_question_about_metadata_changes_nothing(router: Router) -> None:
    router.learn(told(1), 0)
    refused = MetadataResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(ProtocolError):
        router.learn(refused, 0)
    assert router.topic("t") is not None


def test_a_partition_has_a_leader_or_none(router: Router) -> None:
    assert router.leader(TopicPartition("t", 0)) is None
    router.learn(told(1, leader=-1), 0)
    assert router.leader(TopicPartition("t", 0)) is None
    router.learn(told(1), 0)
    found = router.leader(TopicPartition("t", 0))
    assert found is not None
    assert (found.leader, found.leader_epoch) == (1, 3)


def test_requests_for_metadata_suit_their_version(router: Router) -> None:
    assert router.metadata_request(None)(0).topics == []
    assert router.metadata_request(None)(1).topics is None
    assert router.metadata_request(["t"], may_create=True)(4).allow_auto_topic_creation
    assert not router.metadata_request(["t"])(4).allow_auto_topic_creation


def test_the_brokers_that_metadata_names_come_before_those_to_begin_with(router: Router) -> None:
    assert router.candidates(0) == [BOOTSTRAP]
    router.learn(told(1, 2, 3), 0)
    orders = {tuple(router.candidates(0)) for _ in range(100)}
    assert {order[-1] for order in orders} == {BOOTSTRAP}
    assert {order[0] for order in orders} == {broker(1), broker(2), broker(3)}


def test_a_broker_that_failed_is_left_alone_for_longer_each_time(router: Router) -> None:
    router.learn(told(1, 2), 0)
    router.failed(broker(1), 0)
    assert 80 <= router.left_alone_until_ms(broker(1)) <= 120
    assert router.candidates(0) == [broker(2), BOOTSTRAP, broker(1)]
    assert router.candidates(120) == [broker(2), BOOTSTRAP, broker(1)], "it failed last time"
    router.failed(broker(1), 1000)
    assert 1160 <= router.left_alone_until_ms(broker(1)) <= 1240
    router.connected(broker(1))
    router.failed(broker(1), 2000)
    assert 2080 <= router.left_alone_until_ms(broker(1)) <= 2120


@pytest.mark.parametrize("has_list", [False, True])
def test_a_coordinator_is_known_with_its_address_until_it_is_forgotten_or_gone(
    router: Router, has_list: bool
) -> None:
    request = router.coordinator_request("g")
    assert (request(3).key, request(4).coordinator_keys) == ("g", ["g"])
    response = FindCoordinatorResponse(node_id=7, host="b", port=7)
    if has_list:
        named = Coordinator(node_id=7, host="b", port=7)
        response = FindCoordinatorResponse(coordinators=[named])
    assert router.coordinator("g") is None
    assert router.learn_coordinator("g", response) == 7
    assert router.coordinator("g") == 7
    assert router.view.brokers[BrokerId(7)].address == broker(7)
    router.learn(told(1), 0)
    assert router.coordinator("g") is None
    router.learn_coordinator("g", response)
    router.forget_coordinator("g")
    assert router.coordinator("g") is None


def test_no_coordinator_is_an_error(router: Router) -> None:
    response = FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id=-1)
    with pytest.raises(ProtocolError, match="no coordinator for group 'g'"):
        router.learn_coordinator("g", response)
    assert router.coordinator("g") is None
