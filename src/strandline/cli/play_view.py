"""How a played scenario looks in a terminal: one strip of records for each replica.

    A  leader    m0  m1 ┃ m2     end 3  high watermark 2  epochs 0:0 1:2  in sync AB  knows B=2
                        `- the high watermark; each record has the colour of its leader epoch

This file turns frames of a document (`sim.scenarios.documents`) into lines. It knows no keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from strandline.cli.sim_colours import bad, dim, good, strong
from strandline.sim.checkers.invariants import INVARIANTS
from strandline.sim.scenarios.documents import Json, frame_at, moments

_EPOCH_COLOURS: Final = ("blue", "yellow", "magenta", "cyan", "green", "red")
_HIGH_WATERMARK: Final = "┃"
_LAST_STABLE: Final = "┆"
_CELLS_MAX: Final = 24


def screen(shown: Json, at: int) -> list[str]:
    """Everything at one moment of the time line: the step, and under it each run's replicas."""
    line = moments(shown)[at]
    lines = [strong(f"{shown['name']}  {shown['title']}"), ""]
    lines += _step(shown, line)
    for run in shown["runs"]:
        lines += ["", *_run_at(shown, run, line)]
    return lines


def whole(shown: Json) -> Iterator[str]:
    """Every frame of every run, one after the other: for pipes and files."""
    for run in shown["runs"]:
        title = run["frames"][0]["text"]
        yield strong(f"# {title}")
        if run["policy"]:
            yield dim(f"# played with {rules_text(run)}")
        for frame in run["frames"]:
            yield from (dim(f"# {note}") for note in frame["notes"])
            if frame["line"]:
                yield strong(frame["text"])
                if frame.get("meaning"):
                    yield dim(f"    {frame['meaning']}")
            yield from _happened(frame)
            if frame["kind"] != "expect":
                yield from _strips(frame)
        if not shown.get("is_recording"):
            yield from ending(run)
        yield ""


def ending(run: Json) -> Iterator[str]:
    """What became of a run."""
    for number, what in run["broken"].items():
        yield f"{bad(number)} is broken. {INVARIANTS[number]}"
        yield dim(f"    {what}")
    for unmet in run["unmet"]:
        yield bad(f"Not met: {unmet}")
    if not run["broken"]:
        yield good("No invariant was broken.")
    if not run["as_expected"]:
        yield bad("It did not go as the script says.")


def rules_text(run: Json) -> str:
    """The rules that a run was played with."""
    return ", ".join(f"{name}={value}" for name, value in run["policy"].items())


def _step(shown: Json, line: int) -> list[str]:
    """The step of the first run that has one at this line."""
    for run in shown["runs"]:
        frame = frame_at(run, line)
        if frame["line"] == line:
            notes = [dim(f"# {note}") for note in frame["notes"]]
            meant = [frame["meaning"]] if frame.get("meaning") else []
            return [*notes, strong(frame["text"]) if line else dim("the beginning"), *meant]
    return []


def _run_at(shown: Json, run: Json, line: int) -> Iterator[str]:
    frame = frame_at(run, line)
    is_here = frame["line"] == line
    if run["policy"]:
        yield click.style(rules_text(run), underline=True) + (
            "" if is_here else dim("  (this step is not played under this rule)")
        )
    yield from _strips(frame)
    if is_here:
        yield from _happened(frame)
    if line == moments(shown)[-1] and not shown.get("is_recording"):
        yield from ending(run)


def _happened(frame: Json) -> Iterator[str]:
    yield from (f"    > {event}" for event in frame["events"])
    yield from (bad(f"    ! {violation}") for violation in frame["violations"])
    yield from (bad(f"    ! not met: {unmet}") for unmet in frame["unmet"])
    if frame["kind"] == "expect" and not frame["unmet"]:
        yield good("    as expected")


def _strips(frame: Json) -> Iterator[str]:
    width = max((_plain_width(replica) for replica in frame["replicas"]), default=0)
    for replica in frame["replicas"]:
        yield f"  {_strip(replica, width)}"


def _strip(replica: Json, width: int) -> str:
    name = replica["name"]
    if replica["role"] == "down":
        return f"{strong(name)}  {dim('down')}"
    padding = " " * (width - _plain_width(replica))
    role = f"{replica['role']:8}"
    facts = f"end {replica['log_end']}  high watermark {replica['high_watermark']}"
    if _last_stable(replica) < replica["high_watermark"]:
        facts += f"  last stable {_last_stable(replica)}"
    if replica["log_start"]:
        facts = f"start {replica['log_start']}  {facts}"
    epochs = " ".join(f"{epoch}:{start}" for epoch, start in replica["epochs"])
    facts += f"  epochs {epochs or '-'}"
    if "in_sync" in replica:
        remote = " ".join(f"{other}={end}" for other, end in replica["remote"].items())
        facts += f"  in sync {''.join(replica['in_sync'])}{replica['change']}"
        facts += f"  knows {remote}" if remote else ""
    if replica["cut_off"]:
        facts += "  " + bad("cut off")
    return f"{strong(name)}  {role}  {_cells(replica)}{padding}  {dim(facts)}"


def _shown_records(replica: Json) -> list[list[object]]:
    records: list[list[object]] = replica["records"]
    return records[-_CELLS_MAX:]


def _cells(replica: Json) -> str:
    records = _shown_records(replica)
    text = "… " if len(records) < len(replica["records"]) else ""
    watermark, stable = replica["high_watermark"], _last_stable(replica)
    marked, held = False, stable >= watermark
    for offset, epoch, value in records:
        if not held and int(str(offset)) >= stable:
            text += _LAST_STABLE
            held = True
        if not marked and int(str(offset)) >= watermark:
            text += _HIGH_WATERMARK
            marked = True
        colour = _EPOCH_COLOURS[int(str(epoch)) % len(_EPOCH_COLOURS)]
        text += click.style(f" {value} ", fg="black", bg=colour, dim=marked)
    return text if marked else text + _HIGH_WATERMARK


def _last_stable(replica: Json) -> int:
    """Recordings of older releases do not have it."""
    stable = replica.get("last_stable")
    return int(replica["high_watermark"] if stable is None else stable)


def _plain_width(replica: Json) -> int:
    return len(click.unstyle(_cells(replica))) if replica["role"] != "down" else 0
