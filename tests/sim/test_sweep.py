"""Sweeps: several processes, seeds that fail in every way, determinism, an end before the end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

import pytest

from strandline.sim import sweep as sweeping
from strandline.sim.checkers.violations import Violation
from strandline.sim.sometimes import STATES
from strandline.sim.sweep import (
    HARNESS,
    SEEDS_FOR_ALL_STATES,
    SeedResult,
    SweepResult,
    failed,
    run_seed,
    sweep,
)


def test_a_sweep_runs_all_seeds_and_some_of_them_twice() -> None:
    told: list[int] = []
    result = sweep(range(1, 7), jobs=2, twice_one_of=3, told=lambda each: told.append(each.seed))
    assert sorted(told) == [1, 2, 3, 4, 5, 6]
    assert result.seeds == 6
    assert result.compared == 2
    assert not result.bad
    assert not result.was_stopped
    assert result.events > 6_000
    assert result.events_per_s > 100
    assert result.simulated_per_s > 1
    assert result.wall_s > 0
    assert result.reached_in["clean start"] == 6
    assert result.counters["clean start"] >= 6
    assert "clean start" not in result.never_reached
    assert set(result.never_reached) == {n for n, seeds in result.reached_in.items() if not seeds}


@pytest.mark.parametrize(
    ("seeds", "is_as_drawn", "missed"),
    [
        (SEEDS_FOR_ALL_STATES, True, ["fault twin", "topic deleted"]),
        (SEEDS_FOR_ALL_STATES - 1, True, []),
        (SEEDS_FOR_ALL_STATES, False, []),
    ],
)
def test_enough_seeds_must_reach_every_state(
    seeds: int, is_as_drawn: bool, missed: list[str]
) -> None:
    result = SweepResult(is_as_drawn=is_as_drawn)
    counters = {name: int(name not in ("topic deleted", "fault twin")) for name in STATES}
    for seed in range(seeds):
        result.add(SeedResult(seed, "safe", counters=counters))
    assert sorted(result.missed) == missed


def test_a_profile_or_another_runner_asks_for_no_state() -> None:
    assert sweep([], jobs=1).is_as_drawn
    assert not sweep([], profile="safe").is_as_drawn
    assert not sweep([], runner=_of_another_profile).is_as_drawn


def test_a_seed_gives_the_same_in_another_process() -> None:
    here = run_seed(6)
    there: list[SeedResult] = []
    sweep([6], told=there.append)
    assert there[0].trace_hash == here.trace_hash
    assert there[0].counters == here.counters


def test_the_second_run_is_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    give = sweeping._Worker.give

    def watched(worker: sweeping._Worker, job: Any) -> None:
        given.append((id(worker), job.seed))
        give(worker, job)

    monkeypatch.setattr(sweeping._Worker, "give", watched)
    result = sweep([5, 6], twice_one_of=1)
    assert result.compared == 2
    assert not result.bad
    assert [seed for _, seed in given] == [5, 5, 6, 6]
    assert len(set(given)) == 4


def _of_another_profile(seed: int, profile: str | None) -> SeedResult:
    return failed(seed, f"not {profile}", "it was not run")


def test_profile_and_runner_are_handed_on() -> None:
    told: list[SeedResult] = []
    sweep([1], profile="beyond", told=told.append)
    assert told[0].profile == "beyond"
    sweep([1], profile="beyond", runner=_of_another_profile, told=told.append)
    assert told[1].profile == "not beyond"


def test_a_sweep_can_be_stopped_and_be_limited_in_time() -> None:
    stopped = sweep(count(1), jobs=2, stop=lambda: True)
    assert stopped.was_stopped
    assert stopped.seeds == 0
    began = time.monotonic()
    limited = sweep(count(1), jobs=1, minutes=0.05)
    assert limited.was_stopped
    assert limited.seeds >= 1
    assert time.monotonic() - began < 30


def test_control_c_ends_the_processes_and_keeps_what_is_known() -> None:
    def interrupt(result: SeedResult) -> None:
        raise KeyboardInterrupt

    result = sweep(range(1, 20), jobs=2, told=interrupt)
    assert result.was_stopped
    assert result.seeds == 1


# -- what goes wrong -------------------------------------------------------------------------


def _die(connection: object) -> None:
    os._exit(3)


def _hang(connection: object) -> None:
    time.sleep(60)


def test_a_process_that_dies_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "_work", _die)
    result = sweep([5, 6])
    assert result.bad == {HARNESS: [5, 6]}
    assert "died with code 3" in result.violations[0][1].what


def test_a_process_that_hangs_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "_work", _hang)
    monkeypatch.setattr(sweeping, "SECONDS_MAX", 0.5)
    result = sweep([5])
    assert result.bad == {HARNESS: [5]}
    assert "No end after" in result.violations[0][1].what


def _spin(connection: Connection) -> None:
    vars(sweeping).update(CPU_SECONDS_MAX=0.5, run_seed=_never_end)  # of the new process only
    sweeping._work(connection)


def _never_end(*job: object) -> SeedResult:
    while True:
        pass


def test_a_run_that_never_ends_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "_work", _spin)
    result = sweep([5])
    assert result.bad == {HARNESS: [5]}
    assert "of processor time" in result.violations[0][1].what


def test_a_mistake_of_the_simulator_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise RuntimeError("oh")

    monkeypatch.setattr("strandline.sim.run.World", fail)
    result = run_seed(4)
    assert result.error is not None
    assert "seed 4" in result.error
    assert "in test_sweep.py" in result.error
    assert not result.is_good


def test_different_traces_are_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = count()

    def results(jobs: Iterator[Any], *_: object) -> Iterator[tuple[object, SeedResult]]:
        for job in jobs:
            yield job, SeedResult(job.seed, "safe", trace_hash=str(next(hashes)))

    monkeypatch.setattr(sweeping, "_results", results)
    result = sweep([3])
    assert result.bad == {"I-52": [3]}
    assert result.seeds == 1


def test_seeds_are_listed_once_by_invariant() -> None:
    result = SweepResult()
    violation = Violation("I-28", "gone", 1)
    result.add(SeedResult(9, "safe", (violation, violation)))
    result.add(SeedResult(4, "safe", (violation,)))
    result.add(failed(5, "safe", "it hung"))
    assert result.bad == {"I-28": [4, 9], HARNESS: [5]}
    assert result.seeds == 3
    assert SweepResult().events_per_s == SweepResult().simulated_per_s == 0
