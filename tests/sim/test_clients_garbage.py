"""Garbage: that it is garbage, and that brokers take it as such."""

from __future__ import annotations

from random import Random

import pytest

from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.framing import split_frames
from strandline.records.batch import verify_crc
from strandline.records.produced_framing import begins_with_transactional_batch
from strandline.records.rules import AppendRules
from strandline.records.validation import validate_client_batch
from strandline.sim.clients.batches import WALL_MS
from strandline.sim.clients.garbage import MISCHIEF, GarbageClient
from strandline.sim.clients.lies import LIES
from strandline.sim.clients.make import make_client
from strandline.sim.clients.tries import PATIENCE_US
from strandline.sim.plan import ClientSpec, Options
from strandline.sim.silent import Silent
from strandline.sim.streams import Streams
from strandline.sim.world import World
from tests.sim.clients_stage import Stage


class Bugs(Silent):
    """Collects tracebacks."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def bug(self, broker_id: object, sentence: str) -> None:
        """See `Observer`."""
        self.found.append(sentence)


@pytest.mark.parametrize("what", [*sorted(MISCHIEF), *sorted(LIES)])
def test_a_broker_answers_garbage_with_an_error_or_hangs_up(what: str) -> None:
    """Each kind, many times, at a real node: no traceback, and nothing in the log."""
    world = World(Options(seed=3, brokers=1))
    bugs = Bugs()
    world.observers.append(bugs)
    world.start_all()
    assert world.run_until(lambda: world.is_settled())
    spec = ClientSpec("garbage", "x", {"every": "5ms", "lies": "yes"})
    client = make_client(world, spec)
    assert isinstance(client, GarbageClient)
    if what in LIES:
        # Every tick sends a request that is refused at once, and the lie.
        client.repertoire, client.lies = ["unknown API"], [what]
    else:
        client.repertoire, client.lies = [what], []
    client.start()
    world.run_for(200)
    world.run_for(PATIENCE_US // 1000)
    client.finish()
    assert bugs.found == []
    assert client.counters[f"garbage: {what}"] > 20
    answered = client.counters["garbage answered"] + client.counters["garbage hung up on"]
    if what == "half a frame":
        assert client.counters["garbage given up"] > 0
    else:
        assert answered > 20
        assert client.counters["garbage ignored"] == 0
    assert not world.image.topics
    world.close()


@pytest.mark.parametrize("what", sorted(MISCHIEF))
def test_garbage_is_drawn_from_its_stream_alone(what: str) -> None:
    make = MISCHIEF[what]
    data = make(Streams(1)("a"), "t")
    assert data == make(Streams(1)("a"), "t")
    if what != "impossible size":
        frames, _ = split_frames(memoryview(data))
        assert len(frames) == (what != "half a frame")


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("lie", sorted(LIES))
def test_a_lie_is_one_that_a_leader_refuses(lie: str, seed: int) -> None:
    batch = bytearray(LIES[lie](Random(seed)))
    size = len(batch)
    assert verify_crc(batch, 0, size)
    if lie == "a transaction":
        assert begins_with_transactional_batch(batch)
        return
    with pytest.raises(ProtocolError) as refused:
        validate_client_batch(batch, AppendRules(), WALL_MS)
    assert refused.value.code in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)


def test_it_tells_lies_unless_it_is_not_to() -> None:
    client = Stage().make("garbage")
    assert isinstance(client, GarbageClient)
    assert client.lies == list(LIES)
    silent = Stage().make("garbage", lies="no")
    assert isinstance(silent, GarbageClient)
    assert silent.lies == []
