"""What people read of a run, of many runs, and of a run that went wrong.

This file makes lines of text from plans and verdicts. It measures nothing: the caller says
how long a run took. Nothing here is ever read back; that is what `text` is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from strandline.numerals import counted
from strandline.sim.checkers.invariants import INVARIANTS
from strandline.sim.checkers.violations import Violation
from strandline.sim.plan import STRICT, Plan
from strandline.sim.text import format_plan
from strandline.sim.verdict import ReplicaRow, Verdict

LAST_EVENTS: Final = 30
SEEN_MAX: Final = 3
"""How many violations of one invariant are shown; their number says little."""
_WIDTH: Final = 100
_HEADERS: Final = (
    "PARTITION",
    "BROKER",
    "ROLE",
    "EPOCH",
    "START",
    "MARK",
    "END",
    "STABLE",
    "IN SYNC",
    "FOLLOWERS AT",
)


def show_verdict(verdict: Verdict) -> str:
    """Everything about one run, without the time that it took."""
    parts = [
        show_plan(verdict.plan),
        show_violations(verdict),
        show_replicas(verdict.replicas),
        show_counters(verdict.counters),
    ]
    if not verdict.is_good:
        parts.insert(2, show_last_events(verdict))
    return "\n\n".join(part for part in parts if part)


def show_plan(plan: Plan) -> str:
    """What was drawn: the header of the plan, its topics and clients, and how many actions."""
    header, *_ = format_plan(plan).split("\n\n", 1)
    lines = [line for line in header.splitlines() if not line.startswith(("title:", "world:"))]
    if plan.options.profile == STRICT:
        lines.insert(1, f"profile: {STRICT}")
    topics = (
        f"{topic.name} ({counted(topic.partitions, 'partition')} on "
        f"{counted(min(topic.replication, plan.options.brokers), 'broker')})"
        for topic in plan.options.topics
    )
    verbs = Counter(action.verb for action in plan.actions)
    lines += _list("topics:", topics)
    lines += _list("clients:", (f"{client.kind} {client.name}" for client in plan.clients))
    lines += _list("actions:", (f"{number} {verb}" for verb, number in sorted(verbs.items())))
    return "\n".join(lines)


def show_violations(verdict: Verdict) -> str:
    """The verdict in words."""
    if verdict.is_good:
        return "No invariant was broken."
    return "\n".join(line for rule, *seen in violations_of(verdict) for line in (rule, *seen))


def violations_of(verdict: Verdict) -> Iterator[list[str]]:
    """For each broken invariant the rule, and then what was seen instead; not all of it."""
    found: dict[str, list[Violation]] = {}
    for violation in verdict.violations:
        found.setdefault(violation.invariant, []).append(violation)
    for invariant, violations in found.items():
        lines = [f"{invariant} is broken. {INVARIANTS.get(invariant, '')}".rstrip()]
        for violation in violations[:SEEN_MAX]:
            where = "" if violation.partition is None else f"{violation.partition}, "
            lines.append(f"    {where}at {moment(violation.at_us)}: {violation.what}")
        if len(violations) > SEEN_MAX:
            lines.append(f"    and {len(violations) - SEEN_MAX} more like these")
        yield lines


def show_last_events(verdict: Verdict) -> str:
    """The end of the story up to the first violation, or as near to it as is known."""
    notes = list(verdict.notes)
    first = verdict.violations[0] if verdict.violations else None
    if first is not None:
        ends = [index for index, note in enumerate(notes) if first.what in note]
        if ends:
            notes = notes[: ends[0] + 1]
    return "\n".join(["The last events:", *(f"    {note}" for note in notes[-LAST_EVENTS:])])


def show_replicas(rows: Sequence[ReplicaRow]) -> str:
    """One line per replica: offsets, epoch, and what a leader knows of its followers."""
    return "\n".join(table(_HEADERS, [_cells(row) for row in rows])) if rows else ""


def _cells(row: ReplicaRow) -> tuple[str, ...]:
    offsets = (row.leader_epoch, row.log_start, row.high_watermark, row.log_end, row.last_stable)
    return (
        row.partition,
        str(row.broker),
        row.role,
        *("-" if offset < 0 else str(offset) for offset in offsets),
        " ".join(map(str, row.in_sync)),
        " ".join(f"{broker}:{end}" for broker, end in row.remote),
    )


def show_counters(counters: Mapping[str, int]) -> str:
    """Which of the states that should be seen at times were reached in a run."""
    states = {name: number for name, number in counters.items() if is_state(name)}
    if not states:
        return ""
    reached = [f"{name} {number:,}" for name, number in sorted(states.items()) if number]
    head = f"Reached {len(reached)} of {len(states)} states"
    return "\n".join(_list(f"{head}:", reached)) or f"{head}."


def show_measures(counters: Mapping[str, int]) -> str:
    """What else was counted: by clients, checkers, the network and the disks."""
    measures = sorted(name for name, number in counters.items() if number and not is_state(name))
    return "\n".join(_list("Counted:", (f"{name} {counters[name]:,}" for name in measures)))


def show_reached(reached_in: Mapping[str, int], seeds: int) -> str:
    """In how many seeds which state was reached: the rare ones, and those that never were."""
    states = {name: number for name, number in reached_in.items() if is_state(name)}
    rare = sorted((number, name) for name, number in states.items() if 0 < number * 50 < seeds)
    missed = sorted(name for name, number in states.items() if not number)
    lines = [f"{len(states) - len(missed)} of {len(states)} states were reached."]
    lines += _list("In few seeds:", (f"{name} {number}" for number, name in rare))
    return "\n".join([*lines, *_list("Not reached:", missed)])


def is_state(name: str) -> bool:
    """Whether a counter is of a state; what parts of the simulator measure has their name first."""
    return ": " not in name


def show_speed(*, events: int, simulated_us: int, cpu_s: float) -> str:
    """How much there was, and how fast it was per core."""
    cpu_s = max(cpu_s, 1e-6)
    simulated_s = simulated_us / 1e6
    return (
        f"{counted(events, 'event')} and {simulated_s:,.1f} simulated seconds in {cpu_s:,.2f} s of "
        f"CPU: {events / cpu_s:,.0f} events/s, {simulated_s / cpu_s:,.0f} simulated s/s."
    )


def moment(time_us: int) -> str:
    """A virtual time, as in the notes of a run."""
    return f"{time_us / 1000:.3f} ms"


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as needed; numbers to the right."""
    widths = [
        max(len(header), *(len(row[at]) for row in rows)) if rows else len(header)
        for at, header in enumerate(headers)
    ]
    right = [bool(rows) and all(_is_number(row[at]) for row in rows) for at in range(len(headers))]
    for row in (headers, *rows):
        cells = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        )
        yield "  ".join(cells).rstrip()


def _is_number(text: str) -> bool:
    return text == "-" or text.isdigit()


def _list(head: str, items: Iterable[str]) -> list[str]:
    """Items behind a head, separated by commas, on as many lines as needed."""
    lines: list[str] = []
    line = head
    found = list(items)
    for index, item in enumerate(found):
        piece = item if index == len(found) - 1 else f"{item},"
        if len(line) + 1 + len(piece) > _WIDTH and line.strip():
            lines.append(line)
            line = "   "
        line += f" {piece}"
    return [*lines, line] if found else []
