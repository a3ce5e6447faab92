"""How a scenario is shown to people: one line per replica, and short forms of long lists.

    A* 2/1 [m0 | m1] epochs{0:0} sync AB+C rem B=1 C=0
    |  | | |         |           |         `- log end of each follower, as the leader knows it
    |  | | |         |           `- the committed in-sync set, and the change of it in flight
    |  | | |         `- leader epochs and where they start
    |  | | `- records, those from the high watermark on behind a bar
    |  `-`- log end offset / high watermark
    `- a star leads

This file knows words, and changes nothing.
"""

from __future__ import annotations

import re

from strandline.replication.in_sync import Expanding, Shrinking
from strandline.replication.progress import Progress
from strandline.sim.scenarios.replica import Replica, name_of, names_of


def show(replica: Replica) -> str:
    """One replica in one line; see the module."""
    if not replica.is_running:
        return f"{replica.name}  down"
    if not replica.has_log:
        return f"{replica.name}  no replica"
    log, leader = replica.log, replica.leader
    entries = replica.entries()
    below = gather([e.value for e in entries if e.offset < log.high_watermark])
    above = gather([e.value for e in entries if e.offset >= log.high_watermark])
    records = " ".join([*below, "|", *above]) if above else " ".join(below)
    epochs = " ".join(f"{epoch}:{start}" for epoch, start in log.leader_epochs.entries)
    start = f" from {log.log_start_offset}" if log.log_start_offset else ""
    line = (
        f"{replica.name}{'*' if leader else ' '} {log.log_end_offset}/{log.high_watermark} "
        f"[{records}]{start} epochs{{{epochs}}}"
    )
    if replica.is_cut:
        line += " cut off"
    if replica.is_paused:
        line += " paused"
    if leader is None:
        return line
    remote = " ".join(f"{name_of(p.broker_id)}={p.log_end_offset}" for p in _sorted(replica))
    change = ""
    if isinstance(leader.in_sync, Expanding):
        change = f"+{name_of(leader.in_sync.joining)}"
    elif isinstance(leader.in_sync, Shrinking):
        change = f"-{names_of(leader.in_sync.leaving)}"
    return f"{line} sync {names_of(leader.in_sync.members)}{change} rem {remote}".rstrip()


def _sorted(replica: Replica) -> list[Progress]:
    return sorted(replica.leadership.progress.values(), key=lambda p: p.broker_id)


_ACKNOWLEDGED = re.compile(r"^(\w+) is acknowledged at (\d+)$")


def merge(events: list[str]) -> list[str]:
    """Acknowledgements of records that follow one another as one line."""
    merged: list[str] = []
    run: list[tuple[str, int]] = []
    for event in events:
        match = _ACKNOWLEDGED.match(event)
        found = None if match is None else (match[1], int(match[2]))
        if run and (found is None or found[1] != run[-1][1] + 1):
            merged.append(_acknowledged(run))
            run = []
        if found is None:
            merged.append(event)
        else:
            run.append(found)
    return [*merged, _acknowledged(run)] if run else merged


def _acknowledged(run: list[tuple[str, int]]) -> str:
    (value, first), (_, last) = run[0], run[-1]
    if len(run) == 1:
        return f"{value} is acknowledged at {first}"
    return f"{' '.join(gather([value for value, _ in run]))} are acknowledged at {first} to {last}"


_NUMBERED = re.compile(r"^([a-z]+)(\d+)$")
_RANGE = re.compile(r"^([a-z]+)(\d+)\.\.([a-z]+)(\d+)$")


def spread(word: str) -> list[str]:
    """`m0..m3` is m0 m1 m2 m3."""
    match = _RANGE.match(word)
    if match is None:
        return [word]
    return [f"{match[1]}{number}" for number in range(int(match[2]), int(match[4]) + 1)]


def gather(values: list[str]) -> list[str]:
    """The reverse of `spread`, for runs of four and more."""
    gathered: list[str] = []
    index = 0
    while index < len(values):
        length = _run_length(values[index:])
        if length >= 4:
            gathered.append(f"{values[index]}..{values[index + length - 1]}")
        else:
            length = 1
            gathered.append(values[index])
        index += length
    return gathered


def _run_length(values: list[str]) -> int:
    match = _NUMBERED.match(values[0])
    if match is None:
        return 1
    length = 1
    while length < len(values) and values[length] == f"{match[1]}{int(match[2]) + length}":
        length += 1
    return length
