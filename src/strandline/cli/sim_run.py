"""One run of the simulator, as people see it."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from strandline.cli.output import print_json
from strandline.cli.sim_colours import bad, dim, good
from strandline.sim.options import draw_plan
from strandline.sim.plan import Plan
from strandline.sim.report import (
    moment,
    show_counters,
    show_last_events,
    show_measures,
    show_plan,
    show_replicas,
    show_speed,
    violations_of,
)
from strandline.sim.run import HarnessError, run
from strandline.sim.text import format_plan
from strandline.sim.verdict import Verdict
from strandline.version import VERSION


class OneRun(NamedTuple):
    """What was asked for."""

    seed: int
    profile: str | None = None
    minutes: float | None = None
    out: str | None = None
    verbose: bool = False
    as_json: bool = False


def print_plan(wanted: OneRun) -> None:
    """Print, or write to a file, what a seed would do."""
    write_scenario(format_plan(draw_plan(wanted.seed, wanted.profile)), wanted.out)


def show_seed(wanted: OneRun) -> None:
    """Run a seed and print what there is to say. Exits with 1 if an invariant is broken."""
    again = _command(wanted)
    plan = draw_plan(wanted.seed, wanted.profile)
    show_run(plan, wanted, again=again, shorter=f"{again} --shrink")


def show_run(plan: Plan, wanted: OneRun, *, again: str, shorter: str) -> None:
    """Run a plan and print what there is to say. Exits with 1 if an invariant is broken."""
    if not wanted.as_json:
        click.echo(show_plan(plan))
        click.echo()
    verdict, cpu_s = timed(
        lambda: run(
            plan,
            on_note=print_note if wanted.verbose and not wanted.as_json else None,
            on_phase=None if wanted.as_json or wanted.verbose else print_phase,
        )
    )
    if wanted.as_json:
        print_json(verdict_as_json(verdict, cpu_s))
    else:
        show_end(verdict, cpu_s, verbose=wanted.verbose)
        if not verdict.is_good:
            _show_ways(wanted, again=again, shorter=shorter)
    if not verdict.is_good:
        raise click.exceptions.Exit(1)


def show_end(verdict: Verdict, cpu_s: float, *, verbose: bool) -> None:
    """Everything that a run has to say at its end."""
    click.echo()
    show_violations(verdict)
    parts = [
        "" if verdict.is_good or verbose else show_last_events(verdict),
        show_replicas(verdict.replicas),
        show_counters(verdict.counters),
        show_measures(verdict.counters) if verbose else "",
        show_speed(events=verdict.events, simulated_us=verdict.simulated_us, cpu_s=cpu_s)
        + dim(f"\nTrace {verdict.trace_hash}."),
    ]
    for part in filter(None, parts):
        click.echo()
        click.echo(part)


def show_violations(verdict: Verdict) -> None:
    """What was broken, and what was seen."""
    if verdict.is_good:
        click.echo(good("No invariant was broken."))
    for rule, *seen in violations_of(verdict):
        click.echo(bad(rule))
        click.echo("\n".join(seen))


def timed(action: Callable[[], Verdict]) -> tuple[Verdict, float]:
    """What a run says, and the processor time that it took. A harness that fails ends all."""
    begin_s = time.process_time()
    try:
        verdict = action()
    except HarnessError as error:
        _fail_in_harness(error)
    return verdict, time.process_time() - begin_s


def _fail_in_harness(error: HarnessError) -> NoReturn:
    raise click.ClickException(str(error)) from error


def print_note(at_us: int, text: str) -> None:
    """One event, when it happens."""
    click.echo(f"{dim(moment(at_us))}: {text}")


def print_phase(phase: str, at_us: int) -> None:
    """A phase that has ended."""
    click.echo(f"{phase:10} until {moment(at_us)}")


def _show_ways(wanted: OneRun, *, again: str, shorter: str) -> None:
    click.echo()
    click.echo(f"Strandline {VERSION}, Python {platform.python_version()}, seed {wanted.seed}.")
    click.echo(f"Again:   {again}")
    click.echo(f"Shorter: {shorter}")


def _command(wanted: OneRun) -> str:
    words = ["strandline sim", f"--seed {wanted.seed}"]
    if wanted.profile is not None:
        words.append(f"--profile {wanted.profile}")
    return " ".join(words)


def verdict_as_json(verdict: Verdict, cpu_s: float) -> dict[str, Any]:
    """One run for programs."""
    return {
        "version": VERSION,
        "seed": verdict.seed,
        "profile": verdict.plan.options.profile,
        "plan": format_plan(verdict.plan),
        "violations": [
            {
                "invariant": each.invariant,
                "what": each.what,
                "at_us": each.at_us,
                "partition": each.partition,
            }
            for each in verdict.violations
        ],
        "phases": [{"name": name, "until_us": at_us} for name, at_us in verdict.phases],
        "replicas": [
            {
                "partition": row.partition,
                "broker": row.broker,
                "role": row.role,
                "leader_epoch": row.leader_epoch,
                "log_start": row.log_start,
                "high_watermark": row.high_watermark,
                "log_end": row.log_end,
                "last_stable": row.last_stable,
                "in_sync": list(row.in_sync),
                "remote": {str(broker): end for broker, end in row.remote},
            }
            for row in verdict.replicas
        ],
        "counters": dict(verdict.counters),
        "last_events": list(verdict.notes),
        "events": verdict.events,
        "simulated_us": verdict.simulated_us,
        "cpu_s": round(cpu_s, 3),
        "trace": verdict.trace_hash,
    }


def write_scenario(text: str, out: str | None) -> None:
    """To a file, or to standard output."""
    if out is None:
        click.echo(text, nl=False)
    else:
        Path(out).write_text(text)
