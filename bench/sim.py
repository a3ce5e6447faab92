"""`python -m bench.sim`: how fast the simulator is, on one core, and what its checkers cost.

Each seed's default plan runs twice, with all checkers and with none, in turns. Both runs do the
same things (their trace hashes are compared), so the difference of their CPU times is the checkers.
Goals: 10,000 checked events per second and 50 simulated seconds per second. The plans of seeds are
crowded on purpose, with timers of a few hundred milliseconds; the second goal is for the default
timers, which `--plan bench/default-timers.txt` has.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench.environment import processor_name
from bench.goals import Goal
from strandline.sim.options import draw_plan
from strandline.sim.plan import BEYOND, DAMAGE, SAFE, STRICT, Plan
from strandline.sim.run import run
from strandline.sim.text import parse_plan
from strandline.sim.verdict import Verdict

SEEDS: Final = 40
SLOWEST: Final = 5

GOALS: Final = (
    Goal("checked events/s on one core", "sim", "events_per_second", at_least=10_000),
    Goal("simulated seconds per second", "sim", "simulated_per_second", at_least=50),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One seed: what its run was, and the CPU time it took with checkers and without."""

    seed: int
    events: int
    simulated_s: float
    checked_s: float
    unchecked_s: float
    is_good: bool
    is_same: bool
    """Whether both runs did the same."""


@dataclass(frozen=True, slots=True)
class Figures:
    """All seeds together. Rates are totals over totals: of CPU seconds of one core."""

    seeds: int
    events: int
    events_per_second: float
    unchecked_events_per_second: float
    simulated_per_second: float
    seeds_per_second: float
    seed_cpu_s_median: float
    seed_cpu_s_max: float
    checkers_share: float
    """Of the CPU time of a checked run."""

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Figures:
        """What these samples come to. There must be one at least."""
        events = sum(sample.events for sample in samples)
        checked_s = sum(sample.checked_s for sample in samples)
        unchecked_s = sum(sample.unchecked_s for sample in samples)
        return cls(
            seeds=len(samples),
            events=events,
            events_per_second=events / checked_s,
            unchecked_events_per_second=events / unchecked_s,
            simulated_per_second=sum(sample.simulated_s for sample in samples) / checked_s,
            seeds_per_second=len(samples) / checked_s,
            seed_cpu_s_median=statistics.median(sample.checked_s for sample in samples),
            seed_cpu_s_max=max(sample.checked_s for sample in samples),
            checkers_share=1 - unchecked_s / checked_s,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0; or 1 if a run broke an invariant, or the checkers changed what happens."""
    given = _parser().parse_args(arguments)
    seeds = range(given.first, given.first + given.seeds)
    plans: Iterable[Plan] = (draw_plan(seed, given.profile) for seed in seeds)
    if given.plan is not None:
        plans = [parse_plan(given.plan.read_text())]
    samples = []
    for sample in measure(plans):
        samples.append(sample)
        if given.verbose:
            print(line_of(sample), file=sys.stderr)
    figures = Figures.of(samples)
    print(page(figures, samples))
    if given.json is not None:
        data = {"figures": asdict(figures), "samples": [asdict(sample) for sample in samples]}
        given.json.write_text(json.dumps(data, indent=1) + "\n")
    return 0 if all(sample.is_good and sample.is_same for sample in samples) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.sim", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--seeds", type=_count, default=SEEDS, help=f"how many (default: {SEEDS})")
    add("--first", type=int, default=0, help="the first of them (default: 0)")
    add("--profile", choices=(STRICT, DAMAGE, BEYOND, SAFE), help="default: as each seed draws it")
    add("--plan", type=Path, metavar="FILE", help="run this plan instead of seeds")
    add("--json", type=Path, metavar="FILE", help="write every figure there, too")
    add("--verbose", action="store_true", help="a line for each seed as it ends")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seeds")
    return int(text)


def measure(
    plans: Iterable[Plan], *, clock: Callable[[], float] = time.process_time
) -> Iterator[Sample]:
    """Run each plan both ways. What goes first changes from seed to seed."""
    for plan in plans:
        seed = plan.options.seed
        taken_s: dict[bool, float] = {}
        verdicts: dict[bool, Verdict] = {}
        for is_checked in (True, False) if seed % 2 else (False, True):
            began_s = clock()
            verdicts[is_checked] = run(plan, is_checked=is_checked)
            taken_s[is_checked] = clock() - began_s
        verdict = verdicts[True]
        yield Sample(
            seed=seed,
            events=verdict.events,
            simulated_s=verdict.simulated_us / 1_000_000,
            checked_s=taken_s[True],
            unchecked_s=taken_s[False],
            is_good=verdict.is_good,
            is_same=verdict.trace_hash == verdicts[False].trace_hash,
        )


def page(figures: Figures, samples: Sequence[Sample]) -> str:
    """What is printed: one table, the goals, and what is remarkable about single seeds."""
    rows = (
        ("seeds", f"{figures.seeds:,}"),
        ("events", f"{figures.events:,}"),
        ("checked events/s", f"{figures.events_per_second:,.0f}"),
        ("events/s without checkers", f"{figures.unchecked_events_per_second:,.0f}"),
        ("share of the checkers", f"{figures.checkers_share:.0%}"),
        ("simulated s/s", f"{figures.simulated_per_second:,.1f}"),
        ("seeds/s", f"{figures.seeds_per_second:,.2f}"),
        ("CPU of a seed, median", f"{figures.seed_cpu_s_median:.3f} s"),
        ("CPU of a seed, largest", f"{figures.seed_cpu_s_max:.3f} s"),
    )
    lines = [
        f"{processor_name(Path('/proc/cpuinfo').read_text())}, Python "
        f"{'.'.join(map(str, sys.version_info[:3]))}, one core",
        "",
        "| figure | value |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in rows),
        "",
        *(_verdict_on(goal, figures) for goal in GOALS),
        "",
        "The slowest seeds:",
        *map(line_of, sorted(samples, key=lambda sample: -sample.checked_s)[:SLOWEST]),
    ]
    for what, seeds in (
        ("An invariant was broken in", [each.seed for each in samples if not each.is_good]),
        ("The checkers changed what happens in", [s.seed for s in samples if not s.is_same]),
    ):
        if seeds:
            lines += ["", f"{what} seed {', '.join(map(str, seeds))}."]
    return "\n".join(lines)


def line_of(sample: Sample) -> str:
    """One seed."""
    return (
        f"seed {sample.seed}: {sample.checked_s:.2f} s for {sample.events:,} events in "
        f"{sample.simulated_s:.1f} simulated s"
    )


def _verdict_on(goal: Goal, figures: Figures) -> str:
    measured: float = getattr(figures, goal.metric)
    verdict = "met" if goal.is_met_by(measured) else "missed"
    return f"{goal.title}: {measured:,.0f}, goal {goal.bound}: {verdict}"


if __name__ == "__main__":
    sys.exit(main())
