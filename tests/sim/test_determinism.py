"""I-52: the same seed gives the same run, in any process and whatever strings hash to."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from random import Random

from strandline.sim.plan import LatencySpec, Options
from strandline.sim.world import World
from strandline.types import TopicPartition
from tests.sim.callers import Writer, create_topic

SEEDS = (11, 12, 13)
_ROOT = Path(__file__).resolve().parents[2]


def run(seed: int) -> str:
    """A run in which much goes wrong; its hash, and how many events it had."""
    options = Options(
        seed=seed,
        disks=2,
        settings={"min.insync.replicas": "2"},
        latency=LatencySpec(spike_us=50_000, spikes_per_mille=5),
        store_lag_us=20_000,
        drifts_ppm=(0, 300, -300),
    )
    world = World(options)
    world.start_all()
    world.run_until(world.is_settled)
    create_topic(world, "t", (1, 2, 3), (2, 3, 1))
    create_topic(world, "u", (3, 1, 2))
    for number, name in enumerate("ttu"):
        Writer(world, f"w{number}", TopicPartition(name, number % 2 if name == "t" else 0))
    random = Random(seed)
    for _ in range(6):
        machine = world[random.randint(1, 3)]
        match random.randrange(6):
            case 0:
                machine.kill()
            case 1:
                machine.power_cut()
            case 2:
                machine.pause()
            case 3:
                machine.stop()
            case 4:
                machine.crash_in(random.randint(1, 40))
            case _:
                world.store.expire(machine.broker_id)
        world.run_for(random.choice((30, 800, 4_000)))
        machine.resume()
        machine.start()
    world.run_for(5_000)
    outcome = f"{world.trace_hash} {world.schedule.events}"
    world.close()
    return outcome


@cache
def first_run(seed: int) -> str:
    """`run`, once for all tests."""
    return run(seed)


def test_the_same_seed_gives_the_same_run_again() -> None:
    assert run(SEEDS[0]) == first_run(SEEDS[0])


def test_another_seed_gives_another_run() -> None:
    assert first_run(SEEDS[0]) != first_run(SEEDS[1])


def test_a_run_does_not_depend_on_what_strings_hash_to() -> None:
    runs = [_start(hash_seed) for hash_seed in ("1", "4242")]
    first, second = (process.communicate(timeout=120)[0] for process in runs)
    assert first == second
    assert first.split("\n")[: len(SEEDS)] == [first_run(seed) for seed in SEEDS]


def _start(hash_seed: str) -> subprocess.Popen[str]:
    code = "import sys; from tests.sim.test_determinism import run\n"
    code += "for seed in map(int, sys.argv[1:]): print(run(seed))"
    environment = os.environ | {
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join((str(_ROOT / "src"), str(_ROOT))),
    }
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, SEEDS)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
    )
