"""Incremental fetch sessions (KIP-227) through the wire."""

from __future__ import annotations

from uuid import uuid4

import pytest

from strandline.errors import ErrorCode
from strandline.node.fetch_sessions import EVICTION_AFTER_MS
from tests.node.messages import batch, fetch, fetched, produce, values
from tests.node.world import Client, World


@pytest.fixture
def client(world: World) -> Client:
    world.create_topic("other")
    return world.connect()


def open_session(client: Client) -> int:
    answer = client.ask(fetch(("orders", 0, 0), ("other", 0, 0), session=(0, 0)), 11)
    assert set(fetched(answer)) == {("orders", 0), ("other", 0)}
    assert answer.session_id != 0
    return int(answer.session_id)


def test_an_incremental_answer_has_only_what_changed(client: Client) -> None:
    session = open_session(client)
    assert fetched(client.ask(fetch(session=(session, 1)), 11)) == {}
    client.ask(produce(batch(b"a")), 9)
    answer = client.ask(fetch(session=(session, 2)), 11)
    assert set(fetched(answer)) == {("orders", 0)}
    assert answer.session_id == session
    assert values(answer) == [b"a"]
    # Going on behind it: nothing to read, and the high watermark was told.
    assert fetched(client.ask(fetch(("orders", 0, 1), session=(session, 3)), 11)) == {}


def test_a_changed_high_watermark_is_told_without_records(client: Client) -> None:
    session = open_session(client)
    client.ask(produce({("orders", 0): batch(b"a"), ("other", 0): batch(b"x" * 50_000)}), 9)
    answer = client.ask(fetch(("orders", 0, 1), session=(session, 1), max_bytes=1), 11)
    found = fetched(answer)
    assert found["orders", 0].high_watermark == 1
    assert not found["orders", 0].records


def test_a_waiting_incremental_fetch_is_woken(world: World, client: Client) -> None:
    session = open_session(client)
    client.send(fetch(session=(session, 1), max_wait_ms=5000), 11)
    world.turn()
    assert len(world.node.purgatory) == 1
    world.connect().ask(produce(batch(b"a"), "other"), 9)
    assert set(fetched(client.answers[-1])) == {("other", 0)}


def test_forgotten_partitions_are_not_read_any_more(client: Client) -> None:
    session = open_session(client)
    client.ask(produce({("orders", 0): batch(b"a"), ("other", 0): batch(b"b")}), 9)
    answer = client.ask(fetch(session=(session, 1), forgotten=(("orders", 0),)), 11)
    assert set(fetched(answer)) == {("other", 0)}


def test_a_session_without_partitions_ends(client: Client) -> None:
    session = open_session(client)
    forgotten = (("orders", 0), ("other", 0))
    answer = client.ask(fetch(session=(session, 1), forgotten=forgotten, max_wait_ms=5000), 11)
    assert answer.session_id == 0
    answer = client.ask(fetch(session=(session, 2)), 11)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 5, 2**31 - 1])
def test_a_wrong_epoch_is_refused_and_the_session_stays(client: Client, epoch: int) -> None:
    session = open_session(client)
    answer = client.ask(fetch(session=(session, epoch)), 11)
    assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert answer.responses == []
    assert client.ask(fetch(session=(session, 1)), 11).error_code == 0


def test_an_unknown_session_is_refused(client: Client) -> None:
    answer = client.ask(fetch(session=(12345, 1)), 11)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_closing_a_session(client: Client) -> None:
    session = open_session(client)
    answer = client.ask(fetch(("orders", 0, 0), session=(session, -1)), 11)
    assert (answer.error_code, answer.session_id) == (0, 0)
    assert set(fetched(answer)) == {("orders", 0)}
    answer = client.ask(fetch(session=(session, 1)), 11)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_by_name_cannot_go_on_by_id(world: World, client: Client) -> None:
    session = open_session(client)
    topic_id = world.replica("orders").topic_id
    answer = client.ask(fetch((topic_id, 0, 0), session=(session, 1)), 13)
    assert answer.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_c9_a_session_remembers_the_names_of_topics_that_are_deleted(
    world: World, client: Client
) -> None:
    """A deleted topic is unknown by its name, one that was made again has another id."""
    topic_id, never = world.replica("orders").topic_id, uuid4()
    wanted = ((topic_id, 0, 0), (never, 0, 0))
    session = client.ask(fetch(*wanted, session=(0, 0)), 13).session_id
    world.delete_topic("orders")
    answer = client.ask(fetch(session=(session, 1)), 13)
    assert {at[0]: found.error_code for at, found in fetched(answer).items()} == {
        topic_id: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        never: ErrorCode.UNKNOWN_TOPIC_ID,
    }
    world.create_topic("orders")
    answer = client.ask(fetch(session=(session, 2), max_wait_ms=5000), 13)
    assert fetched(answer)[topic_id, 0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    new_id = world.replica("orders").topic_id
    gone = ((topic_id, 0), (never, 0))
    answer = client.ask(fetch((new_id, 0, 0), session=(session, 3), forgotten=gone), 13)
    assert set(fetched(answer)) == {(new_id, 0)}


def test_an_error_is_told_again_and_its_end_is_told_too(world: World, client: Client) -> None:
    session = client.ask(fetch(("later", 0, 0), session=(0, 0)), 11).session_id
    for epoch in (1, 2):
        answer = client.ask(fetch(session=(session, epoch)), 11)
        assert fetched(answer)["later", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.create_topic("later")
    answer = client.ask(fetch(session=(session, 3)), 11)
    assert fetched(answer)["later", 0].error_code == 0
    assert fetched(client.ask(fetch(session=(session, 4)), 11)) == {}


def test_partitions_take_turns_when_the_budget_is_small(client: Client) -> None:
    session = open_session(client)
    data = batch(b"x" * 500)
    for _ in range(3):
        client.ask(produce({("orders", 0): data, ("other", 0): data}), 9)
    offsets = {"orders": 0, "other": 0}
    served = []
    for epoch in range(1, 7):
        wanted = [(name, 0, offset) for name, offset in offsets.items()] if epoch > 1 else []
        answer = client.ask(fetch(*wanted, session=(session, epoch), max_bytes=10), 11)
        for (name, _), partition in fetched(answer).items():
            if partition.records:
                served.append(name)
                offsets[str(name)] += 1
    assert offsets == {"orders": 3, "other": 3}
    assert served[:2] != ["orders", "orders"]


def test_a_full_cache_serves_newcomers_without_a_session() -> None:
    world = World("max.incremental.fetch.session.cache.slots=2")
    world.create_topic("orders")
    client = world.connect()

    def open_one() -> int:
        return int(client.ask(fetch(("orders", 0, 0), session=(0, 0)), 11).session_id)

    first, second = open_one(), open_one()
    assert first
    assert second
    assert open_one() == 0
    world.advance(EVICTION_AFTER_MS // 2)
    assert client.ask(fetch(session=(second, 1)), 11).error_code == 0
    world.advance(EVICTION_AFTER_MS // 2 + 1)
    third = open_one()
    assert third, "the idle session is evicted"
    assert (
        client.ask(fetch(session=(first, 1)), 11).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )
    assert client.ask(fetch(session=(second, 2)), 11).error_code == 0
    world.check()


def test_without_a_cache_there_are_no_sessions() -> None:
    world = World("max.incremental.fetch.session.cache.slots=0")
    world.create_topic("orders")
    answer = world.connect().ask(fetch(("orders", 0, 0), session=(0, 0)), 11)
    assert answer.session_id == 0
    assert set(fetched(answer)) == {("orders", 0)}
