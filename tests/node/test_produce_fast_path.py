"""The fast path of a produce request against the general way, on the same bytes.

Two nodes get the same frames. One may use `ProduceFastPath`; the other forgets it before each
frame, so that every request goes the general way. Answers and log bytes must be the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.node.effects import Chunk
from strandline.node.produce_fast_path import ProduceFastPath
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import request_frame
from strandline.records.batch import iterate_headers
from strandline.records.codec import Codec
from strandline.storage.log_reader import LogSlice
from strandline.types import TopicId
from tests.node.messages import batch, produce
from tests.node.world import WALL_MS, Client, World, joined
from tests.records.lies import LIES, LOOSE_LIES, ODDITIES

_CONNECTIONS = 2
CLAIMS = {**LIES, **LOOSE_LIES, **ODDITIES}


@dataclass(frozen=True)
class Step:
    """One request: who sends it, its shape, its batch, and what is done to its bytes."""

    connection: int
    version: int
    topic: str
    acks: int
    producer_id: int
    epoch: int
    sequence: int
    count: int
    codec: Codec
    timestamp: int
    flip: tuple[int, int] | None
    cut: int
    behind: bytes
    milliseconds: int
    lie: str = ""
    """Which of the claims is sent in place of a good batch."""


class RawClient(Client):
    """Keeps bytes instead of reading them."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.received = bytearray()

    def take(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            assert not isinstance(chunk, LogSlice)
            self.received += chunk


class Side:
    """A node with two topics and some connections."""

    def __init__(self, *, short: bool) -> None:
        self.short = short
        self.taken = 0
        self.world = World()
        self.world.create_topic("orders")
        self.world.create_topic("other", segment_bytes="1048576", max_message_bytes="2000")
        self.world.create_topic("keyed", cleanup_policy="compact")
        self.clients = [self._connect() for _ in range(_CONNECTIONS)]

    def _connect(self) -> RawClient:
        client = RawClient(self.world)
        self.world.clients[client.connection.id] = client
        return client

    def send(self, step: Step, frame: bytes) -> tuple[bytes, str | None]:
        """The bytes that come back, and why the connection was closed."""
        client = self.clients[step.connection]
        if not self.short:
            client.connection.fast_path = None
        ends = self.world.replica("orders").log.log_end_offset
        client.send_frame(frame)
        self.world.turn()
        self.taken += self.world.replica("orders").log.log_end_offset - ends
        self.world.advance(step.milliseconds)
        received, client.received = bytes(client.received), bytearray()
        if client.closed is not None:
            self.clients[step.connection] = self._connect()
        return received, client.closed

    def topic_id(self, topic: str) -> TopicId:
        return self.world.replica(topic).topic_id


def frame_of(step: Step, topic_id: TopicId) -> bytes:
    data = batch(
        *[b"v" * 20] * step.count,
        producer_id=step.producer_id,
        epoch=step.epoch if step.producer_id >= 0 else -1,
        sequence=step.sequence if step.producer_id >= 0 else -1,
        codec=step.codec,
        timestamp=step.timestamp,
    )
    if step.lie:
        data = CLAIMS[step.lie].batch(step.timestamp, step.codec)
    by_id = {"topic_id": topic_id} if step.version >= 13 else {}
    message = produce(data, step.topic, acks=step.acks, **by_id)  # type: ignore[arg-type]
    chunks = request_frame(KNOWN[ApiKey.PRODUCE], step.version, 7, "test", message)
    frame = bytearray(joined(chunks))[4:]
    if step.flip is not None:
        at, mask = step.flip
        frame[at % len(frame)] ^= mask
    return bytes(frame[: len(frame) - step.cut] + step.behind)


STEPS = st.builds(
    Step,
    connection=st.integers(0, _CONNECTIONS - 1),
    version=st.sampled_from([3, 7, 8, 9, 9, 9, 13]),
    topic=st.sampled_from(["orders", "orders", "orders", "other", "keyed"]),
    acks=st.sampled_from([-1, -1, -1, 1, 0, 2]),
    producer_id=st.sampled_from([-1, -1, 5, 6]),
    epoch=st.integers(0, 1),
    sequence=st.integers(0, 6),
    count=st.sampled_from([1, 1, 1, 2, 120]),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD]),
    timestamp=st.sampled_from([WALL_MS, WALL_MS, -1, 0, WALL_MS + 10**10]),
    flip=st.none(),
    cut=st.sampled_from([0, 0, 0, 0, 1, 3]),
    behind=st.sampled_from([b"", b"", b"", b"", b"\0", b"tail"]),
    milliseconds=st.sampled_from([0, 1, 700_000]),
    lie=st.sampled_from(["", "", *CLAIMS]) | st.just(""),
)
FLIPS = st.tuples(st.integers(0, 250), st.sampled_from([1, 8, 128, 255]))
REUSES = st.tuples(st.integers(0, 2), st.integers(0, 6), st.none() | st.none() | FLIPS)


def compare(steps: list[Step]) -> tuple[Side, Side]:
    short, general = Side(short=True), Side(short=False)
    assert short.topic_id("orders") == general.topic_id("orders")
    for step in steps:
        frame = frame_of(step, short.topic_id(step.topic))
        assert short.send(step, frame) == general.send(step, frame), step
    for topic in ("orders", "other", "keyed"):
        assert short.world.log_bytes(topic) == general.world.log_bytes(topic)
        ours, theirs = (side.world.replica(topic).log for side in (short, general))
        assert ours.log_end_offset == theirs.log_end_offset
        assert ours.high_watermark == theirs.high_watermark
        ours.check()
    return short, general


@settings(
    max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.lists(STEPS, min_size=1, max_size=3), st.lists(REUSES, min_size=2, max_size=12))
def test_both_ways_do_the_same(
    shapes: list[Step], reuses: list[tuple[int, int, tuple[int, int] | None]]
) -> None:
    """A few shapes, each used several times: only what was seen before takes the fast path."""
    compare(
        [
            replace(shapes[index % len(shapes)], sequence=sequence, flip=flip)
            for index, sequence, flip in reuses
        ]
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from([3, 9, 13]),
    st.lists(st.tuples(st.integers(0, 250), st.integers(1, 255)), min_size=1, max_size=8),
)
def test_a_damaged_byte_behind_a_learnt_shape(version: int, flips: list[tuple[int, int]]) -> None:
    plain = Step(0, version, "orders", -1, -1, 0, 0, 2, Codec.NONE, WALL_MS, None, 0, b"", 0)
    steps = [plain, plain]
    for flip in flips:
        steps += [replace(plain, flip=flip), plain]
    compare(steps)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("name", CLAIMS)
def test_c4_a_lie_behind_a_learnt_shape(name: str, codec: Codec) -> None:
    """What a batch claims in its header is not believed on the fast path, either."""
    plain = Step(0, 9, "orders", -1, -1, 0, 0, 3, codec, WALL_MS, None, 0, b"", 0)
    short, general = compare([plain, plain, replace(plain, lie=name), plain])
    for side in (short, general):
        log = side.world.replica("orders").log
        assert log.log_end_offset == (9 + CLAIMS[name].count if name in ODDITIES else 9)
        for segment in log.segments.all:
            for _, header in iterate_headers(segment.log.read_at(0, segment.log.size)):
                assert WALL_MS <= header.max_timestamp <= WALL_MS + 2


def test_the_fast_path_is_taken_at_all() -> None:
    """Otherwise the comparison would compare nothing."""
    side = Side(short=True)
    plain = Step(0, 9, "orders", -1, -1, 0, 0, 1, Codec.NONE, WALL_MS, None, 0, b"", 0)
    frame = frame_of(plain, side.topic_id("orders"))
    side.send(plain, frame)
    path = side.clients[0].connection.fast_path
    assert path is not None
    assert path.maybe_handle(memoryview(bytearray(frame)), side.world.now)
    side.world.turn()
    assert side.world.replica("orders").log.log_end_offset == 2


@pytest.mark.parametrize("first_byte", [0x7F, 0x80, 0xFF])
def test_correlation_ids_may_be_negative(first_byte: int) -> None:
    """A client that counts on gets there."""
    plain = Step(0, 9, "orders", -1, -1, 0, 0, 1, Codec.NONE, WALL_MS, None, 0, b"", 0)
    compare([plain, plain, replace(plain, flip=(4, first_byte)), plain])


def test_a_full_disk_leaves_both_ways_alike() -> None:
    plain = Step(0, 9, "orders", -1, -1, 0, 0, 1, Codec.NONE, WALL_MS, None, 0, b"", 0)
    short, general = Side(short=True), Side(short=False)
    for full in (False, False, True, True, False):
        for side in (short, general):
            files = side.world.files
            files.capacity_bytes = files.used_bytes + (0 if full else 10_000)
        frame = frame_of(plain, short.topic_id("orders"))
        assert short.send(plain, frame) == general.send(plain, frame)
    assert short.world.log_bytes("orders") == general.world.log_bytes("orders")
    assert short.world.replica("orders").log.log_end_offset == 3


def learnt(world: World, client_id: str, ways: int) -> int:
    """How many requests are known of one client that asks in so many ways."""
    connection = world.connect().connection
    for number in range(ways):
        message = produce(batch(b"v"), acks=1)
        message.timeout_ms = number
        chunks = request_frame(KNOWN[ApiKey.PRODUCE], 9, 7, client_id, message)
        world.receive(connection, memoryview(bytearray(joined(chunks)))[4:])
        world.node.finish_turn(world.now)
    path = connection.fast_path
    assert isinstance(path, ProduceFastPath)
    return len(path._shapes)


def test_what_is_learnt_of_long_names_is_bounded() -> None:
    world = World()
    world.create_topic("orders")
    assert learnt(world, "a client", 1000) == 1000, "of one that writes to so many partitions"
    assert learnt(world, "c" * 32_000, 50) <= 8
