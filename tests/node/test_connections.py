"""Connections: order of answers, limits in flight, malformed input, clients that go away, bugs."""

from __future__ import annotations

import logging
import struct

import pytest

from strandline.errors import ErrorCode, InvariantViolated
from strandline.node.connection import UNSENT_BYTES_MAX, Connection
from strandline.node.outbox import Outbox
from strandline.node.purgatory import Purgatory, Watched
from strandline.node.request import Request
from strandline.node.timers import Callback, Timer, Timers
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import REQUEST_ELEMENTS_MAX
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.wire import varint
from strandline.storage.log_reader import LogSlice
from strandline.storage.memory_files import MemoryFiles
from strandline.types import ANONYMOUS, USER, Instant, Offset, Principal
from tests.current import current
from tests.node.messages import batch, fetch, list_offsets, produce, produced, values
from tests.node.world import World


def versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="test", client_software_version="1")


def test_answers_keep_the_order_of_requests_behind_one_that_waits(world: World) -> None:
    client = world.connect()
    client.send(fetch(("orders", 0, 0), max_wait_ms=500), 11)
    client.send(versions(), 3)
    client.send(list_offsets(-1), 7)
    world.turn()
    assert client.answers == []
    world.advance(500)
    # `Client` checks that correlation ids come in the order of the requests.
    assert [type(answer).__name__ for answer in client.answers] == [
        "FetchResponse",
        "ApiVersionsResponse",
        "ListOffsetsResponse",
    ]


def test_a_request_says_who_asks_from_where_and_by_which_listener(world: World) -> None:
    alice = Principal(USER, "alice")
    connection = world.node.open_connection("10.1.2.3", "SECURE", alice)
    request = Request(connection, world.node.outbox, ApiKey.METADATA, 12, 1, None, None)
    assert str(request.principal) == "User:alice"
    assert (connection.client_host, connection.listener) == ("10.1.2.3", "SECURE")
    assert str(world.node.open_connection("h", "PLAINTEXT").principal) == str(ANONYMOUS)
    assert str(ANONYMOUS) == "User:ANONYMOUS"


def test_a_produce_behind_a_waiting_fetch_of_the_same_client_wakes_it(world: World) -> None:
    client = world.connect()
    for value in (b"warm up", b"the fast path", b"again"):
        client.ask(produce(batch(value)), 9)
    client.send(fetch(("orders", 0, 3), max_wait_ms=500), 11)
    client.send(produce(batch(b"a")), 9)
    world.turn()
    assert values(client.answers[-2]) == [b"a"]
    assert produced(client.answers[-1]).base_offset == 3


def test_the_limit_in_flight_stops_the_reading(world: World) -> None:
    client = world.connect()
    maximum = client.connection.in_flight_max
    for _ in range(maximum):
        assert client.connection.wants_input
        client.send(fetch(("orders", 0, 0), max_wait_ms=500), 11)
    assert not client.connection.wants_input
    world.turn()
    assert not client.connection.wants_input
    world.advance(500)
    assert len(client.answers) == maximum
    assert client.connection.wants_input


def test_answers_that_have_not_left_stop_the_reading() -> None:
    """Also those that wait for one before them; what stays in a log takes no memory."""
    connection = Connection(1, "localhost", "PLAINTEXT", in_flight_max=10)
    file = MemoryFiles().open("/log", create=True)
    waiting, large, records = (connection.open_slot() for _ in range(3))
    connection.fill(records, [LogSlice(file, 0, 2 * UNSENT_BYTES_MAX, Offset(0), Offset(1))])
    assert current(connection.wants_input)
    connection.fill(large, [bytes(UNSENT_BYTES_MAX), b"."])
    assert not current(connection.wants_input)
    connection.take_outgoing()
    assert not current(connection.wants_input)
    connection.fill(waiting, [b"."])
    assert not current(connection.wants_input)
    assert len(connection.take_outgoing()) == 4
    assert current(connection.wants_input)


def test_a_client_that_goes_away_leaves_nothing(world: World) -> None:
    clients = [world.connect() for _ in range(20)]
    for client in clients:
        for _ in range(10):
            client.send(fetch(("orders", 0, 0), max_wait_ms=60_000), 11)
    world.turn()
    assert len(world.node.purgatory) == 200
    timers = len(world.node.timers)
    for client in clients:
        client.close()
    assert len(world.node.purgatory) == 0
    assert len(world.replica("orders").waiters) == 0
    assert len(world.node.timers) == timers - 200


def test_cancelled_timers_are_swept() -> None:
    timers = Timers()
    live = timers.schedule(10_000_000, lambda now: None)
    for round_ in range(100):
        for timer in [timers.schedule(1_000_000 + i, lambda now: None) for i in range(100)]:
            timer.cancel()
        assert len(timers) == 1
        assert len(timers._heap) < 3000, round_
    assert timers.next_deadline_ms() == live.at_ms


def test_a_sweep_in_the_middle_of_due_timers_loses_and_repeats_nothing() -> None:
    timers = Timers()
    ran: list[int] = []

    def note(number: int) -> Callback:
        return lambda now: ran.append(number)

    later = [timers.schedule(50, note(number)) for number in range(3000)]

    def cancel_most(now: Instant) -> None:
        for timer in later[:2900]:
            timer.cancel()

    timers.schedule(10, cancel_most)
    timers.run_due(Instant(100, 0))
    assert ran == list(range(2900, 3000))
    assert len(timers) == 0
    assert timers.next_deadline_ms() is None
    timers.run_due(Instant(200, 0))
    assert len(ran) == 100


def test_timers_run_in_order_and_those_they_add_wait_for_the_next_turn() -> None:
    """Else a timer that is always due would be the end of all other work."""
    timers = Timers()
    ran: list[str] = []

    def first(now: Instant) -> None:
        ran.append("first")
        timers.schedule(now.monotonic_ms - 1, lambda now: ran.append("added"))

    timers.schedule(5, lambda now: ran.append("second"))
    timers.schedule(4, first)
    timers.run_due(Instant(5, 0))
    assert ran == ["first", "second"]
    assert len(timers) == 1
    assert timers.next_deadline_ms() == 4
    timers.run_due(Instant(5, 0))
    assert ran == ["first", "second", "added"]


def test_what_a_failing_timer_added_still_runs() -> None:
    timers = Timers()
    ran: list[str] = []

    def first(now: Instant) -> None:
        timers.schedule(now.monotonic_ms, lambda now: ran.append("added"))

    def second(now: Instant) -> None:
        raise ValueError("the second one")

    timers.schedule(4, first)
    timers.schedule(4, second)
    timers.schedule(4, lambda now: ran.append("third"))
    with pytest.raises(ValueError, match="the second one"):
        timers.run_due(Instant(5, 0))
    timers.run_due(Instant(5, 0))
    assert ran == ["third", "added"]


def test_a_sweep_counts_only_what_it_removes() -> None:
    """Here most of what is cancelled was added in this turn, and does not run in it."""
    timers = Timers()
    added: list[Timer] = []

    def add(now: Instant) -> None:
        added.extend(timers.schedule(1, lambda now: None) for _ in range(3000))

    def cancel(now: Instant) -> None:
        for timer in added[:2900]:
            timer.cancel()

    timers.schedule(4, add)
    timers.schedule(5, cancel)
    timers.run_due(Instant(5, 0))
    assert len(timers) == 100
    timers.run_due(Instant(5, 0))
    assert len(timers) == 0


# -- malformed input -------------------------------------------------------------------------


def test_a_request_of_very_many_elements_closes_its_connection(world: World) -> None:
    """Small as they are in the frame: nothing else is served while they are read."""
    client = world.connect()
    most = [MetadataRequestTopic(name="")] * REQUEST_ELEMENTS_MAX
    client.send(MetadataRequest(topics=most, allow_auto_topic_creation=False), 9)
    world.turn()
    assert len(client.answers) == 1
    client.send(MetadataRequest(topics=[*most, most[0]]), 9)
    world.turn()
    assert "too many elements" in (client.closed or "")


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        struct.pack(">hhih", 18, 3, 1, -1) + varint(1001) + b"\x63\x00" * 1001 + b"\x01\x01\x00",
        b"\0",
        b"\0\x12\0\0\0\0\0",
        struct.pack(">hhih", 18, 0, 1, -2),
        struct.pack(">hhih", 18, 0, 1, 5),
        struct.pack(">hhih", 18, 0, 1, 2) + b"\xff\xff",
        struct.pack(">hhih", 18, 3, 1, -1),
        struct.pack(">hhih", 99, 0, 1, -1),
        struct.pack(">hhih", -1, 0, 1, -1),
        struct.pack(">hhih", 4, 0, 1, -1),
        struct.pack(">hhih", 1, 99, 1, -1),
        struct.pack(">hhih", 1, -1, 1, -1),
        struct.pack(">hhih", 0, 2, 1, -1),
        struct.pack(">hhih", 3, 1, 1, -1) + b"\x7f\xff\xff\xff",
    ],
    ids=lambda frame: frame.hex(),
)
def test_a_frame_that_makes_no_sense_closes_its_connection(world: World, frame: bytes) -> None:
    client, other = world.connect(), world.connect()
    client.send_frame(frame)
    world.turn()
    assert client.closed
    assert client.answers == []
    assert other.ask(versions(), 3).error_code == 0


@pytest.mark.parametrize("version", [5, 77, 32767])
def test_api_versions_answers_versions_of_the_future(world: World, version: int) -> None:
    client = world.connect()
    client.send_frame(struct.pack(">hhih", 18, version, 7, 4) + b"test" + b"\0whatever")
    client.asked.append((ApiKey.API_VERSIONS, 0, 7))
    world.turn()
    (answer,) = client.answers
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(v.api_key, v.max_version) for v in answer.api_keys] == [(18, 4)]
    assert client.ask(versions(), 4).error_code == 0


def test_api_versions_names_what_is_routed_and_nothing_else(world: World) -> None:
    answer = world.connect().ask(versions(), 4)
    named = {version.api_key for version in answer.api_keys}
    assert {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS} <= named
    for key in KNOWN:
        client = world.connect()
        if key != ApiKey.API_VERSIONS:
            client.send_frame(struct.pack(">hhih", key, -1, 7, -1))
            world.turn()
            assert client.closed
            assert ("is not served" in client.closed) or ("not known" in client.closed)


@pytest.mark.parametrize("name", ["", "-", "with space", "ü", "x" * 10 + "\n"])
def test_a_software_name_that_is_not_allowed(world: World, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert world.connect().ask(request, 3).error_code == ErrorCode.INVALID_REQUEST


def test_an_old_client_gets_the_table_in_version_0(world: World) -> None:
    client = world.connect()
    client.send(ApiVersionsRequest(), 0)
    world.turn()
    assert isinstance(client.answers[0], ApiVersionsResponse)


def test_bytes_behind_a_request_are_left_alone(world: World) -> None:
    client = world.connect()
    frame, key, correlation_id = client.frame(versions(), 3)
    client.send_frame(frame + b"trailing")
    client.asked.append((key, 3, correlation_id))
    world.turn()
    assert client.answers[0].error_code == 0


def test_requests_before_a_malformed_one_are_answered(world: World) -> None:
    client = world.connect()
    client.send(versions(), 3)
    client.send_frame(b"\0")
    world.turn()
    assert len(client.answers) == 1
    assert client.closed


# -- bugs ------------------------------------------------------------------------------------


class Broken:
    """An operation with a bug."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.armed = False

    def try_complete(self, now: Instant) -> bool:
        if self.armed:
            raise InvariantViolated("a bug")
        return False

    def expire(self, now: Instant) -> None:
        raise InvariantViolated("a bug")

    def check(self) -> None:
        """It waits for nothing."""


class Fine:
    """An operation that completes when it is woken."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.armed = False

    def try_complete(self, now: Instant) -> bool:
        return self.armed

    def expire(self, now: Instant) -> None:
        raise AssertionError("it was woken in time")

    def check(self) -> None:
        """It waits for nothing."""


@pytest.mark.parametrize("by_time", [False, True])
def test_a_bug_in_one_parked_request_closes_that_connection_only(
    by_time: bool, caplog: pytest.LogCaptureFixture
) -> None:
    timers, outbox = Timers(), Outbox()
    purgatory = Purgatory(timers, outbox)
    watched = Watched()
    broken = Broken(Connection(1, "broken", "PLAINTEXT", 10))
    fine = Fine(Connection(2, "fine", "PLAINTEXT", 10))
    now = Instant(0, 0)
    for operation, deadline_ms in ((broken, 10), (fine, 20)):
        purgatory.complete_or_park(operation, [watched], deadline_ms=deadline_ms, now=now)
    with caplog.at_level(logging.CRITICAL):
        if by_time:
            timers.run_due(Instant(10, 0))
        broken.armed = fine.armed = True
        purgatory.changed(watched)
        purgatory.wake(now)
    assert broken.connection.closing
    assert fine.connection.closing is None
    assert len(purgatory) == 0
    assert len(timers) == 0
    assert [effect.connection for effect in outbox.take()] == [1]  # type: ignore[union-attr]


def test_a_bug_in_a_handler_closes_that_connection_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlucky, other = world.connect(), world.connect()
    unlucky.send(fetch(("orders", 0, 0), max_wait_ms=500), 11)
    other.send(fetch(("orders", 0, 0), max_wait_ms=500), 11)

    def bug(*args: object) -> None:
        raise KeyError("a bug of ours")

    with monkeypatch.context() as patch:
        patch.setattr(type(world.node.replicas), "hosted", bug)
        unlucky.send(list_offsets(-1), 7)
        world.turn()
    assert unlucky.closed
    assert [bug for bug in world.bugs if "a bug of ours" in bug]
    world.bugs.clear()
    assert other.closed is None
    world.advance(500)
    assert len(other.answers) == 1


def test_a_bug_in_what_counts_for_a_quota_closes_that_connection_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(*args: object) -> None:
        raise KeyError("a bug of ours")

    unlucky, other = world.connect(), world.connect()
    world.node.quotas.is_limited = True
    with monkeypatch.context() as patch:
        patch.setattr(type(world.node.quotas), "produced", bug)
        unlucky.send(produce(batch(b"x")), 9)
        world.turn()
    assert unlucky.closed
    assert [bug for bug in world.bugs if "a bug of ours" in bug]
    world.bugs.clear()
    assert produced(other.ask(produce(batch(b"x")), 9)).error_code == ErrorCode.NONE


def test_a_bug_in_periodic_work_is_not_the_end_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []

    def bug(*args: object) -> None:
        ran.append(world.monotonic_ms)
        raise KeyError("a bug of ours")

    with monkeypatch.context() as patch:
        patch.setattr(type(world.directory), "write_high_watermarks", bug)
        world.advance(30_000)
    assert len(ran) >= 5
    assert world.bugs
    world.bugs.clear()
    world.advance(30_000)
    assert b"orders 0" in world.files.read_bytes("/data/replication-offset-checkpoint")


def test_an_answer_cannot_be_given_twice() -> None:
    connection = Connection(1, "client", "PLAINTEXT", 10)
    slot = connection.open_slot()
    connection.fill(slot, [b"once"])
    with pytest.raises(InvariantViolated):
        connection.fill(slot, [b"twice"])
    assert connection.take_outgoing() == [b"once"]


def test_an_all_topics_request_and_one_for_none(world: World) -> None:
    client = world.connect()
    answer = client.ask(MetadataRequest(topics=None), 9)
    assert [topic.name for topic in answer.topics] == ["orders"]
    assert client.ask(MetadataRequest(topics=[]), 9).topics == []
    assert answer.brokers[0].port == 9092
    assert answer.controller_id == 1
