"""The fast path of a consumer's fetch against the general way, on the same bytes.

Two nodes get the same frames. One may use `ConsumerFastPath`; the other forgets it before each
frame, so that every fetch goes the general way. All bytes that come back must be the same, at once
and after waiting, and so must what is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.node.consumer_fast_path import ConsumerFastPath
from strandline.node.effects import Chunk
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import request_frame
from strandline.storage.log_reader import LogReader, LogSlice
from strandline.storage.transaction_index import AbortedTransaction
from strandline.types import Instant, Offset, ProducerId
from tests.node.messages import batch, fetch, produce
from tests.node.world import Client, World, joined

_CONNECTIONS = 2
TOPICS = ("orders", "other")


class RawClient(Client):
    """Keeps bytes instead of reading them."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.received = b""

    def take(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            if isinstance(chunk, LogSlice):
                data = chunk.file.read_at(chunk.position, chunk.length)
                assert len(data) == chunk.length
                self.received += data
            else:
                self.received += bytes(chunk)


@dataclass(frozen=True)
class Fetch:
    """One request: `wanted` are indexes of topics, partitions and offsets."""

    connection: int = 0
    version: int = 11
    wanted: tuple[tuple[int, int, int], ...] = ((0, 0, 0),)
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 50_000_000
    partition_max_bytes: int = 1_000_000
    isolation_level: int = 0
    leader_epoch: int = -1
    correlation_id: int = 7

    def frame(self, ids: dict[str, UUID]) -> bytes:
        wanted = [
            (ids[TOPICS[topic]] if self.version >= 13 else TOPICS[topic], partition, offset)
            for topic, partition, offset in self.wanted
        ]
        message = fetch(
            *wanted,
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            partition_max_bytes=self.partition_max_bytes,
            isolation_level=self.isolation_level,
            leader_epoch=self.leader_epoch if self.version >= 9 else -1,
        )
        chunks = request_frame(
            KNOWN[ApiKey.FETCH], self.version, self.correlation_id, "test", message
        )
        return joined(chunks)[4:]


@dataclass(frozen=True)
class Produce:
    """Records, or with a `count` of 0 something that happens to a topic."""

    topic: int
    partition: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Happens:
    """Time passes, or something is done to all topics."""

    what: str


Step = Fetch | Produce | Happens


class Side:
    """A node with two topics of two partitions, in small segments, and some connections."""

    def __init__(self, *, short: bool) -> None:
        self.short = short
        self.taken = 0
        self.world = World()
        for topic in TOPICS:
            self._create(topic)
        self.clients = [RawClient(self.world) for _ in range(_CONNECTIONS)]
        for client in self.clients:
            self.world.clients[client.connection.id] = client
        self.producer = self.world.connect()

    def _create(self, topic: str) -> None:
        self.world.create_topic(topic, 2, internal_segment_bytes="1000")

    @property
    def ids(self) -> dict[str, UUID]:
        return {topic: self.world.replica(topic).topic_id for topic in TOPICS}

    def do(self, step: Step, ids: dict[str, UUID]) -> list[bytes]:
        """The bytes that come back on each connection."""
        if isinstance(step, Fetch):
            client = self.clients[step.connection]
            if not self.short:
                client.connection.fast_path = None
            outbox = self.world.node.outbox
            before = outbox.fetched_at_once
            client.send_frame(step.frame(ids))
            self.taken += outbox.fetched_at_once - before
            self.world.turn()
        elif isinstance(step, Produce):
            topic, data = TOPICS[step.topic], [b"v" * size for size in step.sizes]
            answer = self.producer.ask(produce(batch(*data), topic, step.partition), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        elif step.what == "time":
            self.world.advance(300)
        elif step.what == "recreate":
            self.world.delete_topic("other")
            self._create("other")
        elif step.what == "cut":
            log = self.world.replica("orders").log
            if log.offsets.advance_start_to(Offset(log.high_watermark // 2)):
                self.world.replica("orders").changed()
            self.world.turn()
        received = [client.received for client in self.clients]
        for client in self.clients:
            client.received = b""
        return received

    @property
    def counted(self) -> tuple[int, list[int]]:
        """Fetches that were answered, and the bytes that left each partition."""
        meter = self.world.node.telemetry.settled_meters().apis.get("FETCH")
        replicas = sorted(self.world.node.replicas, key=lambda each: each.topic_partition)
        count = 0 if meter is None else meter.count
        return count, [each.traffic.bytes_out for each in replicas]


PLACES = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 14))
FETCHES = st.builds(
    Fetch,
    connection=st.integers(0, _CONNECTIONS - 1),
    version=st.sampled_from([4, 7, 8, 9, 11, 11, 12, 13, 16, 18]),
    wanted=st.lists(PLACES, min_size=1, max_size=4).map(tuple),
    max_wait_ms=st.sampled_from([0, 500]),
    min_bytes=st.sampled_from([0, 1, 1, 400]),
    max_bytes=st.sampled_from([0, 300, 50_000_000, 50_000_000]),
    partition_max_bytes=st.sampled_from([-1, 0, 250, 1_000_000, 1_000_000]),
    isolation_level=st.integers(0, 1),
    leader_epoch=st.sampled_from([-1, -1, 0, 1]),
)
PRODUCES = st.builds(
    Produce,
    topic=st.integers(0, 1),
    partition=st.integers(0, 1),
    sizes=st.lists(st.sampled_from([1, 20, 300]), min_size=1, max_size=3).map(tuple),
)
HAPPENS = st.sampled_from(["time", "time", "time", "recreate", "cut"]).map(Happens)
REUSES = st.tuples(st.integers(0, 2), st.lists(st.integers(0, 14), min_size=4, max_size=4))


def compare(steps: Iterable[Step]) -> tuple[Side, Side]:
    short, general = Side(short=True), Side(short=False)
    assert short.ids == general.ids
    first_ids = short.ids
    for step in steps:
        assert short.do(step, first_ids) == general.do(step, first_ids), step
    assert short.counted == general.counted
    assert general.taken == 0
    for side in (short, general):
        side.world.check()
    return short, general


def again(shape: Fetch, offsets: Iterable[int], correlation_id: int) -> Fetch:
    """The same request for other offsets."""
    wanted = tuple(
        (topic, partition, offset)
        for (topic, partition, _), offset in zip(shape.wanted, offsets, strict=False)
    )
    return replace(shape, wanted=wanted, correlation_id=correlation_id)


@settings(
    max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    st.lists(FETCHES, min_size=1, max_size=3),
    st.lists(PRODUCES, min_size=2, max_size=10),
    st.lists(REUSES | PRODUCES | HAPPENS, min_size=3, max_size=16),
)
def test_both_ways_do_the_same(
    shapes: list[Fetch],
    filling: list[Produce],
    then: list[tuple[int, list[int]] | Produce | Happens],
) -> None:
    """A few shapes, each used several times while things happen to what they ask for."""
    steps: list[Step] = [*filling]
    for number, each in enumerate(then):
        if isinstance(each, tuple):
            steps.append(again(shapes[each[0] % len(shapes)], each[1], number - 5))
        else:
            steps.append(each)
    compare(steps)


FULL = [Produce(0, 0, (20,)), Produce(0, 0, (300, 300)), Produce(0, 1, (1,)), Produce(1, 0, (5,))]


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_the_fast_path_is_taken(version: int, isolation_level: int) -> None:
    """Otherwise the comparison would compare nothing: with one partition and with several."""
    one = Fetch(version=version, isolation_level=isolation_level)
    three = replace(one, wanted=((0, 0, 1), (0, 1, 0), (1, 0, 0)), max_wait_ms=500)
    short, _ = compare([*FULL, one, one, again(one, [1], 9), three, again(three, [0, 0, 0], -1)])
    assert short.taken == 3


def test_a_known_shape_that_must_wait_is_parked_and_answered() -> None:
    waiting = Fetch(max_wait_ms=500, wanted=((0, 0, 0),))
    steps: list[Step] = [
        waiting,
        Happens("time"),
        Happens("time"),
        waiting,
        Produce(0, 0, (3,)),
        waiting,
    ]
    short, _ = compare(steps)
    assert short.taken == 1
    assert isinstance(short.clients[0].connection.fast_path, ConsumerFastPath)


def test_answers_keep_their_order_behind_one_that_waits() -> None:
    waiting = Fetch(max_wait_ms=500, wanted=((0, 1, 0),))
    ready = Fetch(correlation_id=8)
    short, _ = compare(
        [Produce(0, 0, (3,)), ready, waiting, ready, Happens("time"), Happens("time")]
    )
    assert short.taken == 1


def test_a_topic_made_anew_is_another_one() -> None:
    """By name it is read from its beginning, by its old id it is not known."""
    for version in (11, 13):
        one = Fetch(version=version, wanted=((1, 0, 0),))
        compare([*FULL, one, one, Happens("recreate"), one, Produce(1, 0, (9,)), one, one])


def test_aborted_transactions_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [AbortedTransaction(ProducerId(5), Offset(0), Offset(1), Offset(2))]
    one = Fetch(isolation_level=1)
    with monkeypatch.context() as patched:
        patched.setattr(LogReader, "aborted_transactions", lambda *_: found)
        short, _ = compare([*FULL, one, one])
    assert short.taken == 0


def test_a_client_whose_requests_never_come_again_is_not_learnt_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Learning costs more than decoding. A request that comes again pays for another one."""
    learnt: list[int] = []
    learn = ConsumerFastPath.learn

    def count(*got: Any) -> None:
        learnt.append(len(got[1]))
        learn(*got)

    monkeypatch.setattr(ConsumerFastPath, "learn", count)
    side = Side(short=True)
    for step in FULL:
        side.do(step, side.ids)
    for number in range(200):
        side.do(Fetch(partition_max_bytes=5000 + number), side.ids)
    path = side.clients[0].connection.fast_path
    assert len(learnt) == 64
    assert isinstance(path, ConsumerFastPath)
    assert not path.wants(memoryview(b"a request"))
    side.do(Fetch(partition_max_bytes=5063), side.ids)
    assert side.taken == 1
    side.do(Fetch(partition_max_bytes=1), side.ids)
    side.do(Fetch(partition_max_bytes=1), side.ids)
    assert (side.taken, len(learnt)) == (2, 65)


def test_no_quota_and_no_session_is_missed() -> None:
    """What is counted or remembered for each request never takes the fast path."""
    side = Side(short=True)
    world = side.world
    side.do(FULL[0], side.ids)
    client = world.connect()
    for epoch in (0, 1):
        client.ask(fetch(("orders", 0, 0), session=(0, epoch - 1)), 11)
    path = client.connection.fast_path
    assert isinstance(path, ConsumerFastPath)  # of the request without a session
    _, _, correlation_id = client.frame(fetch(("orders", 0, 0)), 11)
    frame, _, _ = client.frame(fetch(("orders", 0, 0), session=(0, 0)), 11)
    assert not path.maybe_handle(memoryview(frame), Instant(correlation_id, 0))
    world.node.quotas.is_limited = True
    limited = world.connect()
    limited.ask(fetch(("orders", 0, 0)), 11)
    assert limited.connection.fast_path is None
    world.node.connections.forget_fast_paths()
    assert client.connection.fast_path is None


@pytest.mark.parametrize(("partitions", "known"), [(64, 64), (100, 59)])
def test_what_is_learnt_of_many_partitions_is_bounded(partitions: int, known: int) -> None:
    """A client may ask for them in any order; librdkafka begins with another one each time."""
    world = World()
    world.create_topic("orders", 100)
    connection = world.connect().connection
    most = 0
    for first in range(partitions):
        order = [(first + number) % partitions for number in range(partitions)]
        message = fetch(*[("orders", number, 0) for number in order], max_wait_ms=0)
        chunks = request_frame(KNOWN[ApiKey.FETCH], 11, 7, "test", message)
        for _ in range(2):
            world.receive(connection, memoryview(bytearray(joined(chunks)))[4:])
            world.node.finish_turn(world.now)
        path = connection.fast_path
        assert isinstance(path, ConsumerFastPath)
        most = max(most, sum(len(each.shapes) for each in path._layouts.values()))
    assert most == known
