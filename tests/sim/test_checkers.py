"""The checkers as a whole: quiet where all is well, loud where a rule is missing, and unseen."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from strandline.replication.leader import Leader
from strandline.sim import checkers as package
from strandline.sim.checkers import Checkers, Violation
from strandline.sim.checkers.invariants import BUG, INVARIANTS
from strandline.sim.checkers.violations import Findings
from strandline.sim.plan import Options
from strandline.sim.world import World
from strandline.types import Offset, TopicPartition
from tests.sim.callers import Writer, create_topic

STEPS = 5


def test_the_table_has_every_invariant_in_order() -> None:
    assert list(INVARIANTS) == [*(f"I-{number:02d}" for number in range(1, 61)), BUG]


def test_every_number_that_is_reported_is_in_the_table() -> None:
    files = Path(package.__file__).parent.glob("*.py")
    numbers = {n for file in files for n in re.findall(r'"(I-\d\d)"', file.read_text())}
    assert numbers <= INVARIANTS.keys()


def test_a_violation_is_written_down_once_per_partition() -> None:
    notes: list[str] = []
    findings = Findings(lambda: 17, notes.append)
    findings.add("I-14", "first", TopicPartition("t", 0))
    findings.add("I-14", "second", TopicPartition("t", 0))
    findings.add("I-14", "elsewhere", TopicPartition("t", 1))
    findings.add("I-48", "nowhere")
    assert findings.violations == [
        Violation("I-14", "first", 17, "t-0"),
        Violation("I-14", "elsewhere", 17, "t-1"),
        Violation("I-48", "nowhere", 17),
    ]
    assert notes == ["! I-14: first", "! I-14: elsewhere", "! I-48: nowhere"]


def run(seed: int, *, is_checked: bool = True) -> tuple[Checkers, str]:
    """Brokers die, hang and crash at file operations while producers write; one at a time."""
    world = World(Options(seed=seed, settings={"min.insync.replicas": "2"}))
    checkers = Checkers(world)
    if is_checked:
        world.observers.append(checkers)
    random = Random(seed)
    try:
        world.start_all()
        assert world.run_until(world.is_settled)
        create_topic(world, "t", (1, 2, 3), (2, 3, 1))
        writers = [Writer(world, f"w{n}", TopicPartition("t", n % 2)) for n in range(3)]
        for _ in range(STEPS):
            break_and_mend(world, random)
        checkers.at_phase_end()
        for writer in writers:
            writer.is_stopping = True
        assert world.run_until(lambda: all(writer.is_done for writer in writers))
        assert world.run_until(world.is_settled)
        world.run_for(3_000)
        checkers.at_end()
        return checkers, world.trace_hash
    finally:
        world.close()


def break_and_mend(world: World, random: Random) -> None:
    """Something happens to one broker; then all is well again."""
    machine = world[random.randint(1, 3)]
    match random.choice(("kill", "power", "pause", "stop", "crash")):
        case "kill":
            machine.kill()
        case "power":
            machine.power_cut()
        case "pause":
            machine.pause()
        case "stop":
            machine.stop()
        case _:
            machine.crash_in(random.randint(1, 60), random.choice(("kill", "power")))
    world.run_for(random.choice((50, 500, 3_000, 9_000)))
    machine.resume()
    machine.disarm()
    machine.start()
    assert world.run_until(world.is_settled), str(world)


@pytest.mark.parametrize("seed", range(3))
def test_what_brokers_survive_breaks_nothing(seed: int) -> None:
    checkers, _ = run(seed)
    assert checkers.violations == []
    for what in ("commits", "leaderships", "recoveries", "rehearsals", "starts", "storage sweeps"):
        assert checkers.counters[what] > 0, what


def test_checkers_do_not_change_a_run() -> None:
    assert run(4)[1] == run(4, is_checked=False)[1]


def test_a_leader_that_commits_alone_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def commits_alone(_: Leader, mark: Offset, end: Offset, *__: object, **___: object) -> Offset:
        return end

    monkeypatch.setattr(Leader, "next_high_watermark", commits_alone)
    checkers, _ = run(5)
    assert "I-14" in {violation.invariant for violation in checkers.violations}
