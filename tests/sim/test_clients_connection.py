"""Connections of simulated clients, and what a client believes of the cluster."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from strandline.client.channel import RequestFailed
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import LeaderIdAndEpoch
from strandline.protocol.messages.metadata import MetadataRequest
from strandline.sim.clients.client import SimClient
from strandline.sim.clients.cluster import REQUEST_TIMEOUT_US
from strandline.sim.scenarios.script import BadScript
from strandline.types import BrokerId, TopicPartition
from tests.sim.clients_stage import TOPIC_ID, Asked, Stage

AT = TopicPartition("t", 0)


def asking(stage: Stage) -> tuple[SimClient, list[Any]]:
    """A client that has asked broker 1 for metadata, and the outcomes that it has heard."""
    client = stage.make("ends", topic="t")
    outcomes: list[Any] = []
    connection = client.cluster.connection(BrokerId(1))
    assert connection is not None
    request = MetadataRequest(topics=[])
    client.cluster.ask(connection, ApiKey.METADATA, request, outcomes.append)
    client.cluster.ask(connection, ApiKey.METADATA, request, outcomes.append)
    return client, outcomes


def hold_metadata(stage: Stage) -> None:
    """Answer nothing by itself."""
    stage.serve = lambda: None  # type: ignore[method-assign]


def test_answers_belong_to_the_requests_in_their_order() -> None:
    stage = Stage()
    client, outcomes = asking(stage)
    assert client.outstanding == 2
    stage.run(10)
    assert [type(outcome).__name__ for outcome in outcomes] == ["MetadataResponse"] * 2
    assert client.outstanding == 0


def test_a_request_that_was_not_sent_has_a_known_outcome() -> None:
    stage = Stage()
    stage.down = {1}
    _, outcomes = asking(stage)
    stage.run(10)
    assert outcomes == [RequestFailed(was_sent=False, reason="connection refused")] * 2


def test_what_was_sent_before_the_connection_broke_may_have_arrived() -> None:
    stage = Stage()
    hold_metadata(stage)
    _, outcomes = asking(stage)
    stage.next_request(ApiKey.METADATA).wire.reset()
    stage.run(10)
    assert outcomes == [RequestFailed(was_sent=True, reason="reset")] * 2


def test_an_overdue_request_ends_its_connection_and_all_that_waits_on_it() -> None:
    stage = Stage()
    hold_metadata(stage)
    client, outcomes = asking(stage)
    stage.run(REQUEST_TIMEOUT_US // 1000 - 1)
    assert outcomes == []
    stage.run(2)
    assert [outcome.was_sent for outcome in outcomes] == [True, True]
    assert client.counters["request timed out"] == 1
    assert client.cluster.last_overdue_us > 0
    assert stage.wires[0].is_over


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_malformed_answer_is_the_broker_s_fault_unless_the_network_did_it(
    is_damaged: bool,
) -> None:
    stage = Stage()
    hold_metadata(stage)
    client, outcomes = asking(stage)
    asked = stage.next_request(ApiKey.METADATA)
    asked.wire.is_damaged = is_damaged
    asked.wire.reply(asked.correlation_id.to_bytes(4, "big") + b"\0\xff\xff")
    stage.run(10)
    assert all(isinstance(outcome, RequestFailed) for outcome in outcomes)
    client.done()
    assert [finding.invariant for finding in client.findings] == ([] if is_damaged else ["I-47"])
    assert client.counters["damaged answer"] == int(is_damaged)


def test_an_answer_with_another_s_correlation_id_is_no_answer() -> None:
    stage = Stage()
    hold_metadata(stage)
    client, outcomes = asking(stage)
    first = stage.next_request(ApiKey.METADATA)
    first.correlation_id += 1
    first.wire.asked[0] += 1
    first.answer(stage.metadata([]))
    stage.run(10)
    assert all(isinstance(outcome, RequestFailed) for outcome in outcomes)
    assert client.cluster.malformed


def test_a_client_that_is_done_has_nothing_open() -> None:
    stage = Stage()
    hold_metadata(stage)
    client, outcomes = asking(stage)
    client.done()
    assert [outcome.was_sent for outcome in outcomes] == [False, False]
    assert client.outstanding == 0
    assert client.cluster.connection(BrokerId(1)) is None
    stage.run(20_000)
    assert not stage.requests


# -- what is believed ----------------------------------------------------------------------------


def known(stage: Stage) -> SimClient:
    """A client that knows topic t."""
    client = stage.make("ends", topic="t")
    client.cluster.stale()
    stage.run(100)
    assert client.cluster.leader(AT) == (1, 3)
    return client


def test_metadata_is_asked_of_another_broker_if_one_is_gone() -> None:
    stage = Stage()
    stage.lead("t", 0, 1, 3)
    stage.down = {2, 3}
    client = stage.make("ends", topic="t")
    client.cluster.stale()
    stage.run(3_000)
    assert client.cluster.leader(AT) == (1, 3)


def test_an_older_epoch_is_not_believed_after_one_without_a_leader() -> None:
    """A broker cut off from the metadata store sends readers to the leader of before, whose log
    may end before what they have read."""
    stage = Stage()
    stage.lead("t", 0, 1, 3)
    client = known(stage)
    stage.lead("t", 0, -1, 4)
    client.cluster.stale()
    stage.run(2_000)
    assert client.cluster.leader(AT) is None
    stage.lead("t", 0, 2, 3)
    stage.run(2_000)
    assert client.cluster.leader(AT) is None
    stage.lead("t", 0, 1, 5)
    stage.run(2_000)
    assert client.cluster.leader(AT) == (1, 5)


def test_an_older_epoch_is_not_believed() -> None:
    stage = Stage()
    stage.lead("t", 0, 1, 3)
    client = known(stage)
    stage.lead("t", 0, 2, 2)
    client.cluster.stale()
    stage.run(2_000)
    assert client.cluster.leader(AT) == (1, 3)
    assert client.counters["stale metadata ignored"] > 0


def test_a_topic_with_another_id_is_another_topic() -> None:
    stage = Stage()
    stage.lead("t", 0, 1, 3)
    client = known(stage)
    stage.lead("t", 0, 2, 0)
    stage.topic_ids["t"] = UUID(int=8)
    client.cluster.stale()
    stage.run(2_000)
    assert client.cluster.leader(AT) == (2, 0)
    assert client.cluster.topic_id("t") == UUID(int=8)


def test_a_topic_that_is_gone_is_not_known_any_more() -> None:
    stage = Stage()
    stage.lead("t", 0, 1, 3)
    client = known(stage)
    stage.leaders.clear()
    client.cluster.stale()
    stage.run(2_000)
    assert client.cluster.view("t") is None
    assert client.cluster.leader(AT) is None


def test_a_hint_counts_if_its_epoch_is_newer() -> None:
    stage = Stage()
    stage.lead("t", 0, 1, 3)
    client = known(stage)
    client.cluster.hint(AT, TOPIC_ID, LeaderIdAndEpoch(leader_id=2, leader_epoch=3))
    assert client.cluster.leader(AT) == (1, 3)
    client.cluster.hint(AT, TOPIC_ID, LeaderIdAndEpoch(leader_id=2, leader_epoch=4))
    assert client.cluster.leader(AT) == (2, 4)


def test_drawn_versions_differ_between_clients_and_are_all_served() -> None:
    stage = Stage()
    clients = [stage.make("consumer", f"c{n}", topic="t", versions="drawn") for n in range(40)]
    spoken = [client.cluster.versions.of(ApiKey.FETCH) for client in clients]
    assert len(set(spoken)) > 8
    assert set(spoken) <= set(range(4, 19))
    named = [
        stage.make("consumer", f"n{n}", topic="t", versions="drawn", by="name") for n in (1, 2)
    ]
    assert all(client.cluster.versions.of(ApiKey.FETCH) < 13 for client in named)
    newest = stage.make("consumer", "new", topic="t", by="id")
    assert newest.cluster.versions.of(ApiKey.FETCH) == 18


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        ("dancer", {}, "none of producer"),
        ("producer", {}, "lacks topic"),
        ("producer", {"topic": "t", "colour": "red"}, "unknown options: colour"),
        ("producer", {"topic": "t", "acks": "2"}, "not one of all"),
        ("producer", {"topic": "t", "every": "soon"}, "soon"),
        ("producer", {"topic": "t", "records": "0"}, "no number from 1 on"),
        ("producer", {"topic": "t", "partition": "a"}, "no list of numbers"),
        ("producer", {"topic": "t", "large": "101"}, "per cent"),
        ("producer", {"topic": "t", "idempotent": "yes", "acks": "1"}, "acks=all"),
        ("producer", {"topic": "t", "idempotent": "yes", "in_flight": "6"}, "at most 5"),
        ("consumer", {"topic": "t", "_from": "noon"}, "neither earliest nor latest"),
    ],
)
def test_lines_that_make_no_sense_are_refused(
    kind: str, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(BadScript, match=reason):
        Stage().make(kind, **options)


def test_the_stage_itself_decodes_what_clients_send() -> None:
    stage = Stage()
    hold_metadata(stage)
    asking(stage)
    asked: Asked = stage.next_request(ApiKey.METADATA)
    assert (asked.broker_id, asked.version, asked.body.topics) == (1, 13, [])
