"""Produce requests whose batches take long: in slices, with other clients served in between."""

from __future__ import annotations

from itertools import count

import pytest

from strandline.errors import ErrorCode
from strandline.node.handlers import produce_slices
from strandline.node.handlers.produce import ProduceHandler
from strandline.node.request_time import RequestTime
from strandline.protocol.messages.produce import ProduceRequest
from tests.current import current
from tests.node.messages import batch, fetch, produce, produced, values
from tests.node.world import Client, World

PARTITIONS = 7
PER_SLICE = 3


@pytest.fixture
def slow() -> World:
    """Looks into three batches in the time of a slice."""
    world = World()
    world.create_topic("orders", PARTITIONS)
    ticks = count(10**9, produce_slices.SLICE_NS * 2 // 5)
    world.node.quotas.stopwatch = lambda: next(ticks)
    return world


def to_all(value: bytes, *, producer_id: int = -1, sequence: int = -1) -> ProduceRequest:
    epoch = -1 if producer_id < 0 else 0
    data = batch(value, producer_id=producer_id, epoch=epoch, sequence=sequence)
    return produce({("orders", number): data for number in range(PARTITIONS)})


def appended(world: World) -> int:
    return sum(world.replica("orders", number).log.log_end_offset for number in range(PARTITIONS))


def codes(client: Client) -> list[int]:
    [topic] = client.answers[-1].responses
    return [each.error_code for each in topic.partition_responses]


def test_a_long_request_goes_on_in_later_turns(slow: World) -> None:
    client, other = slow.connect(), slow.connect()
    client.send(to_all(b"a"), 9)
    assert appended(slow) == PER_SLICE
    slow.turn()
    assert current(client.answers) == []
    assert not current(client.connection.wants_input), "what is behind it would come before it"
    assert produced(other.ask(produce(batch(b"b"), partition=PARTITIONS - 1), 9)).base_offset == 0
    seen = {appended(slow)}
    for _ in range(PARTITIONS):
        slow.advance(1)
        seen.add(appended(slow))
    assert seen == {4, 7, 8}, "a slice in each turn"
    assert codes(client) == [0] * PARTITIONS
    [topic] = client.answers[-1].responses
    assert [each.base_offset for each in topic.partition_responses] == [0] * 6 + [1]
    assert client.connection.wants_input
    # `Client` overwrites its frame as soon as it is received: the records are the request's own.
    assert values(other.ask(fetch(("orders", PARTITIONS - 1, 0)), 11)) == [b"b", b"a"]
    slow.check()


def test_what_was_received_behind_it_is_appended_behind_it(slow: World) -> None:
    client = slow.connect()
    for sequence in range(3):
        client.send(to_all(b"%d" % sequence, producer_id=5, sequence=sequence), 9)
    slow.advance(100)
    assert [codes(client)] * 3 == [[0] * PARTITIONS] * 3
    assert len(client.answers) == 3
    assert values(slow.connect().ask(fetch(("orders", 3, 0)), 11)) == [b"0", b"1", b"2"]
    slow.check()


def test_several_long_requests_take_turns(slow: World) -> None:
    clients = [slow.connect() for _ in range(3)]
    for client in clients:
        client.send(to_all(b"a"), 9)
    before = appended(slow)
    slow.advance(1)
    assert appended(slow) == before + PER_SLICE, "one slice in a turn, however many wait"
    slow.advance(100)
    assert [codes(client) for client in clients] == [[0] * PARTITIONS] * 3


def test_a_client_that_goes_away_is_no_hindrance(slow: World) -> None:
    gone, client = slow.connect(), slow.connect()
    gone.send(to_all(b"a"), 9)
    client.send(to_all(b"b"), 9)
    gone.close()
    slow.advance(100)
    assert codes(client) == [0] * PARTITIONS
    assert appended(slow) == 2 * PARTITIONS
    slow.check()


def test_where_too_much_waits_the_rest_is_refused(
    slow: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_slices, "KEPT_BYTES_MAX", 1)
    first, second = slow.connect(), slow.connect()
    first.send(to_all(b"a"), 9)
    second.send(to_all(b"b"), 9)
    slow.turn()
    assert codes(second) == [0] * PER_SLICE + [ErrorCode.REQUEST_TIMED_OUT] * (
        PARTITIONS - PER_SLICE
    )
    slow.advance(100)
    assert codes(first) == [0] * PARTITIONS
    second.send(to_all(b"b"), 9)
    slow.advance(100)
    assert codes(second) == [0] * PARTITIONS, "there is room again"


def test_a_bug_in_a_later_slice_closes_that_connection_only(
    slow: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = slow.connect(), slow.connect()
    client.send(to_all(b"a"), 9)
    other.send(to_all(b"b"), 9)

    def bug(*args: object) -> None:
        raise ValueError("a bug of ours")

    monkeypatch.setattr(ProduceHandler, "_append", bug)
    slow.advance(1)
    monkeypatch.undo()
    slow.advance(100)
    assert client.closed == "PRODUCE failed: a bug of ours"
    assert codes(other) == [0] * PARTITIONS
    assert len(slow.bugs) == 1


def test_the_time_of_each_slice_counts() -> None:
    """For the quota of request time; what passes in between does not."""
    spent: list[float] = []
    ticks = iter(milliseconds * 1_000_000 for milliseconds in (0, 10, 500, 520, 520))
    time = RequestTime(lambda: next(ticks), lambda request, percent, now_ms: spent.append(percent))
    time.handled()
    time.goes_on()
    time.answered(None)
    assert spent == [pytest.approx(100 * 30 / 1000)]
