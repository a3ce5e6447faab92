"""Brokers die, hang and lose each other at random while idempotent producers write with acks=all.

Whatever happens within the tolerance of the cluster: every acknowledged record is there once, at
the offset that was told, and in order; at the end all replicas hold the same (I-21, I-28 to I-30,
I-49). A seed gives one run; a failure names it.
"""

from __future__ import annotations

from random import Random

import pytest

from strandline.replication.leader import Leader
from strandline.types import Offset
from tests.node.cluster_load import Producer, values_of
from tests.node.cluster_world import ClusterWorld

STEPS = 8


class Faults:
    """What happens to the brokers. At most one of them is in trouble at a time."""

    def __init__(self, world: ClusterWorld, random: Random) -> None:
        self.world = world
        self.random = random
        self.told: list[str] = []

    def step(self) -> None:
        """Break something, wait, mend it, wait until all is well (or not quite)."""
        kind = self.random.choice(
            (self.kill, self.power_cut, self.pause, self.cut, self.cut_off, self.stop, self.expire)
        )
        victim = self.random.choice(list(self.world.machines))
        self.told.append(f"{self.world.schedule.now_ms}: {kind.__name__} {victim}")
        kind(victim)

    def kill(self, victim: int) -> None:
        self.world.kill(victim, expire=self.random.random() < 0.5)
        self._wait()
        self.world.start(victim)
        self._settle()

    def power_cut(self, victim: int) -> None:
        self.world.power_cut(victim, "any")
        self._wait()
        self.world.start(victim)
        # A second lossy crash before the first is made good may cost what was acknowledged.
        self.world.run_until(self.world.is_settled)

    def pause(self, victim: int) -> None:
        self.world.pause(victim)
        self._wait()
        self.world.resume(victim)
        self._settle()

    def cut(self, victim: int) -> None:
        self.world.cut({victim}, set(self.world.machines) - {victim})
        self._wait()
        self.world.heal()
        self._settle()

    def cut_off(self, victim: int) -> None:
        self.world.cut({victim}, set(self.world.machines) - {victim}, and_metadata=True)
        self._wait()
        self.world.heal()
        self._settle()

    def stop(self, victim: int) -> None:
        assert self.world.stop(victim)
        self._wait()
        self.world.start(victim)
        self._settle()

    def expire(self, victim: int) -> None:
        self.world[victim].expire()
        self._settle()

    def _wait(self) -> None:
        self.world.run(self.random.choice((10, 300, 3_000, 8_000, 20_000)))

    def _settle(self) -> None:
        if self.random.random() < 0.7:
            self.world.run_until(self.world.is_settled)
        else:
            self.world.run(self.random.choice((0, 100, 2_000)))


@pytest.mark.parametrize("seed", range(20))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    run(seed)


def test_a_leader_that_commits_on_its_own_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def commits_alone(
        leader: Leader, mark: Offset, end: Offset, *_: object, **__: object
    ) -> Offset:
        return end

    monkeypatch.setattr(Leader, "next_high_watermark", commits_alone)
    assert any(is_found(seed) for seed in range(300, 310))


def is_found(seed: int) -> bool:
    """Whether a run ends badly."""
    try:
        run(seed)
    except AssertionError:
        return True
    return False


def run(seed: int) -> None:
    """One run."""
    world = ClusterWorld(3, "min.insync.replicas=2", seed=seed)
    world.create_topic("t", (1, 2, 3), (2, 3, 1))
    producers = [Producer(world, "t", number) for number in (0, 1, 0)]
    faults = Faults(world, Random(f"{seed} faults"))
    try:
        for _ in range(STEPS):
            faults.step()
            world.check()
        world.run_until(world.is_settled)
        for producer in producers:
            producer.stop()
        world.run_until(lambda: all(producer.is_done for producer in producers))
        world.run_until(lambda: all(world.are_logs_equal("t", number) for number in (0, 1)))
        check(world, producers)
    except BaseException as error:
        error.add_note("\n".join([f"seed {seed}", *faults.told, str(world)]))
        raise


def check(world: ClusterWorld, producers: list[Producer]) -> None:
    """Everything that was acknowledged is there, where it was said to be, and once."""
    world.check()
    for number in (0, 1):
        found = values_of(world[1], "t", number)
        assert len(set(found.values())) == len(found), "something is there twice"
        for producer in producers:
            if producer.at.partition != number:
                continue
            assert producer.acknowledged, "nothing was ever acknowledged"
            for value, offset in producer.acknowledged.items():
                assert found.get(offset) == value
            mine = [v for v in found.values() if v.startswith(b"%d-" % producer.producer_id)]
            assert mine == [b"%d-%d" % (producer.producer_id, n) for n in range(len(mine))]
