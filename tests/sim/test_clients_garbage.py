"""Garbage: that it is garbage, and that brokers take it as such."""

from __future__ import annotations

import pytest

from strandline.protocol.framing import split_frames
from strandline.sim.clients.garbage import MISCHIEF, PATIENCE_US, GarbageClient
from strandline.sim.clients.make import make_client
from strandline.sim.observer import Silent
from strandline.sim.plan import ClientSpec, Options
from strandline.sim.streams import Streams
from strandline.sim.world import World
from tests.sim.clients_stage import Stage


class Bugs(Silent):
    """Collects tracebacks."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def bug(self, machine: object, sentence: str) -> None:
        """See `Observer`."""
        self.found.append(sentence)


@pytest.mark.parametrize("what", sorted(MISCHIEF))
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
    client.repertoire = [what]
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


def test_by_default_it_tells_no_lies() -> None:
    client = Stage().make("garbage")
    assert isinstance(client, GarbageClient)
    assert "nonsense" not in client.repertoire
    assert len(client.repertoire) == len(MISCHIEF) - 2
