"""Many seeds in several processes, and what they come to.

Every seed is a run of its own, so they are given out one by one and the results come as they are
ready. Of every `TWICE_ONE_OF` seeds one is run a second time in another process, which has another
hash seed (unless PYTHONHASHSEED is set): the traces must be the same (I-52). A run that takes too
long, a process that dies and a mistake of the simulator itself are results too, each with its seed:
a sweep never hangs and never hides anything.

This is the one place of the simulator that knows processes and the real clock.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Final, TypeAlias

from strandline.sim.checkers.violations import Violation
from strandline.sim.options import draw_plan
from strandline.sim.plan import Plan
from strandline.sim.run import HarnessError, run
from strandline.sim.scenarios.script import BadScript
from strandline.sim.sometimes import STATES
from strandline.sim.verdict import Verdict

TWICE_ONE_OF: Final = 20
SEEDS_FOR_ALL_STATES: Final = 500
"""So many seeds reach every state that is counted: a state that they do not reach is put to the
test no more. Of the first so many, the rarest state is reached by several."""

CPU_SECONDS_MAX: Final = 120.0
"""How much processor time one seed may take before its process is ended."""

SECONDS_MAX: Final = 900.0
"""How long one seed may take, on however busy a machine, before its process is given up."""

Runner: TypeAlias = Callable[[int, str | None], "SeedResult"]
"""Runs a seed with a profile, or with that which the seed draws."""

HARNESS: Final = "HARNESS"
"""In place of an invariant: the simulator itself failed, or hung, or died."""


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What a sweep keeps of one seed."""

    seed: int
    profile: str
    violations: tuple[Violation, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    trace_hash: str = ""
    events: int = 0
    simulated_us: int = 0
    cpu_s: float = 0.0
    error: str | None = None
    """Why there is no verdict: the simulator failed, hung or died."""

    @property
    def is_good(self) -> bool:
        return not self.violations


@dataclass(slots=True)
class SweepResult:
    """All seeds together."""

    seeds: int = 0
    bad: dict[str, list[int]] = field(default_factory=dict)
    """By invariant, the seeds that broke it, smallest first."""
    violations: list[tuple[int, Violation]] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    """How often each state was reached, in all seeds together."""
    reached_in: Counter[str] = field(default_factory=Counter)
    """In how many seeds each state was reached; known states that never were have 0."""
    compared: int = 0
    """Seeds that were run twice."""
    events: int = 0
    simulated_us: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    was_stopped: bool = False
    """Whether the user ended it before all seeds were run."""
    is_as_drawn: bool = True
    """Whether seeds drew their profile themselves, and were run as they are."""

    @property
    def never_reached(self) -> list[str]:
        """Known states that no seed reached."""
        return [name for name, count in self.reached_in.items() if count == 0]

    @property
    def missed(self) -> list[str]:
        """States that are not reached by as many seeds as reach all: then the sweep has failed."""
        if not self.is_as_drawn or self.seeds < SEEDS_FOR_ALL_STATES:
            return []
        return [name for name in STATES if not self.reached_in[name]]

    @property
    def events_per_s(self) -> float:
        """Checked events per second of processor time."""
        return self.events / self.cpu_s if self.cpu_s else 0.0

    @property
    def simulated_per_s(self) -> float:
        """Simulated seconds per second of processor time."""
        return self.simulated_us / 1e6 / self.cpu_s if self.cpu_s else 0.0

    def add(self, result: SeedResult) -> None:
        """Count one seed."""
        self.seeds += 1
        self.events += result.events
        self.simulated_us += result.simulated_us
        self.cpu_s += result.cpu_s
        for name, count in result.counters.items():
            self.counters[name] += count
            self.reached_in[name] += count > 0
        self.violate(result.seed, result.violations)

    def violate(self, seed: int, violations: Iterable[Violation]) -> None:
        """Note what a seed broke."""
        for violation in violations:
            self.violations.append((seed, violation))
            seeds = self.bad.setdefault(violation.invariant, [])
            if seed not in seeds:
                seeds.append(seed)
                seeds.sort()


def run_seed(
    seed: int, profile: str | None = None, run_plan: Callable[[Plan], Verdict] = run
) -> SeedResult:
    """Run one seed in this process. What goes wrong with the simulator becomes a violation."""
    began = time.process_time()
    plan = draw_plan(seed, profile)
    try:
        verdict = run_plan(plan)
    except (HarnessError, BadScript) as error:
        cause = error.__cause__
        what = f"{error} {'' if cause is None else _where(cause)}"
        return failed(seed, plan.options.profile, what, time.process_time() - began)
    return SeedResult(
        seed,
        plan.options.profile,
        verdict.violations,
        verdict.counters,
        verdict.trace_hash,
        verdict.events,
        verdict.simulated_us,
        time.process_time() - began,
    )


def failed(seed: int, profile: str, what: str, cpu_s: float = 0.0) -> SeedResult:
    """The result of a seed that has no verdict."""
    return SeedResult(seed, profile, (Violation(HARNESS, what, 0),), cpu_s=cpu_s, error=what)


def sweep(
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    profile: str | None = None,
    minutes: float | None = None,
    twice_one_of: int = TWICE_ONE_OF,
    runner: Runner = run_seed,
    told: Callable[[SeedResult], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> SweepResult:
    """Run seeds until they, the time, or the patience of `stop` are at an end.

    Of every `twice_one_of` seeds one is run twice. `runner` runs each, in another process: it must
    be something that can be pickled. `told` hears of every result as it comes, in no
    certain order. `KeyboardInterrupt` ends the processes and gives back what is known so far.
    """
    began = time.monotonic()
    end = None if minutes is None else began + minutes * 60
    result = SweepResult(is_as_drawn=profile is None and runner is run_seed)
    tasks = _jobs(seeds, profile, runner, twice_one_of)
    hashes: dict[int, str] = {}

    def is_over() -> bool:
        return stop() or (end is not None and time.monotonic() >= end)

    try:
        with closing(_results(tasks, jobs, is_over)) as results:
            for job, each in results:
                other = hashes.setdefault(each.seed, each.trace_hash)
                if other != each.trace_hash:
                    result.violate(each.seed, [_differ(other, each.trace_hash)])
                if job.is_second:
                    result.compared += 1
                    continue
                result.add(each)
                if told is not None:
                    told(each)
        result.was_stopped = is_over()
    except KeyboardInterrupt:
        result.was_stopped = True
    result.wall_s = time.monotonic() - began
    return result


@dataclass(frozen=True, slots=True)
class _Job:
    seed: int
    profile: str | None
    runner: Runner
    is_second: bool = False


def _jobs(
    seeds: Iterable[int], profile: str | None, runner: Runner, twice_one_of: int
) -> Iterator[_Job]:
    """The seeds, some of them twice."""
    for number, seed in enumerate(seeds):
        yield _Job(seed, profile, runner)
        if number % twice_one_of == 0:
            yield _Job(seed, profile, runner, is_second=True)


def _differ(one: str, other: str) -> Violation:
    return Violation("I-52", f"Two runs of the seed have other traces: {one} and {other}.", 0)


def _where(error: BaseException) -> str:
    """The innermost frames of an exception."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return "in " + " < ".join(reversed(frames[-6:]))


# -- processes -------------------------------------------------------------------------------


def _results(
    jobs: Iterator[_Job], count: int, is_over: Callable[[], bool]
) -> Generator[tuple[_Job, SeedResult], None, None]:
    count = max(1, count)
    # One more than may work at a time: so one is always free that did not run a seed the last time.
    workers = [_Worker() for _ in range(count + 1)]
    try:
        while True:
            busy = [worker for worker in workers if worker.job is not None]
            while len(busy) < count and not is_over():
                job = next(jobs, None)
                if job is None:
                    break
                worker = next(each for each in workers if each.may_take(job))
                worker.give(job)
                busy.append(worker)
            if not busy:
                return
            for worker in _ready(busy):
                yield worker.take()
    finally:
        for worker in workers:
            worker.end()


def _ready(busy: list[_Worker]) -> list[_Worker]:
    """Those that have a result, or never will."""
    soonest = min(worker.patience_s for worker in busy)
    answered = set(wait([worker.connection for worker in busy], timeout=max(0.0, soonest)))
    return [worker for worker in busy if worker.connection in answered or worker.patience_s <= 0]


class _Worker:
    """A process that runs one seed at a time, and is replaced when it dies or hangs."""

    def __init__(self) -> None:
        self.job: _Job | None = None
        self.connection: Connection
        self._last_seed: int | None = None
        self._process: BaseProcess
        self._since = 0.0
        self._start()

    @property
    def patience_s(self) -> float:
        """How long it may still take."""
        return self._since + SECONDS_MAX - time.monotonic()

    def may_take(self, job: _Job) -> bool:
        """Whether it is free, and another one than that which ran the seed for the first time."""
        return self.job is None and not (job.is_second and self._last_seed == job.seed)

    def give(self, job: _Job) -> None:
        """Let it run a seed."""
        self.job = job
        self._last_seed = job.seed
        self._since = time.monotonic()
        with suppress(OSError):  # the process is dead, which shows when its result is taken
            self.connection.send(job)

    def take(self) -> tuple[_Job, SeedResult]:
        """What came of it."""
        job, self.job = self.job, None
        if job is None:
            raise HarnessError("A process that has nothing to do gave a result.")
        if not self.connection.poll():
            self._replace()
            return job, failed(job.seed, job.profile or "", f"No end after {SECONDS_MAX:.0f} s.")
        try:
            result = self.connection.recv()
        except (EOFError, OSError):
            code = self._replace()
            what = f"Its process died with code {code}."
            if code == -signal.SIGPROF:
                what = f"No end after {CPU_SECONDS_MAX:.0f} s of processor time."
            return job, failed(job.seed, job.profile or "", what)
        if not isinstance(result, SeedResult):
            raise HarnessError(f"A process gave {result!r} for a result.")
        return job, result

    def end(self) -> None:
        """End the process, whatever it does."""
        self.connection.close()
        self._process.kill()
        self._process.join()

    def _replace(self) -> int | None:
        self.connection.close()
        self._process.join(timeout=1.0)
        self._process.kill()
        self._process.join()
        code = self._process.exitcode
        self._start()
        return code

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()


def _work(connection: Connection) -> None:
    """What a process does: a seed comes, a result goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who gives the work
    # What is imported stays, and a run is over before its garbage counts: to look for it meanwhile
    # takes a tenth of the time.
    gc.freeze()
    gc.disable()
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        # A run that never ends is ended by its own processor time (SIGPROF). The time that passes
        # says nothing: others may have the machine.
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS_MAX)
        result = job.runner(job.seed, job.profile)
        gc.collect()
        with suppress(BrokenPipeError):  # the parent has ended the sweep
            connection.send(result)
