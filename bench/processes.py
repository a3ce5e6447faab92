"""What the kernel says about a process and its children: CPU time and resident memory.

Broker CPU per request is the sturdiest figure of a benchmark on a shared machine: other work
changes how long a request waits, hardly what it costs. CPU time is read in the kernel's ticks
(10 ms as a rule), so that a run has to last a second or so to be read to a few per cent.
The parsers are pure; the functions below them read `/proc`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
KIB = 1024


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """From `/proc/<pid>/stat`. `cpu_ticks`: user and system, all threads, the ended too."""

    parent_pid: int
    cpu_ticks: int


@dataclass(frozen=True, slots=True)
class MachineTimes:
    """From the first line of `/proc/stat`: ticks of all processors together."""

    busy_ticks: int
    steal_ticks: int


def parse_process_stat(text: str) -> ProcessTimes:
    """The command name may hold blanks and brackets: fields count from the last bracket."""
    fields = text.rpartition(")")[2].split()
    return ProcessTimes(parent_pid=int(fields[1]), cpu_ticks=int(fields[11]) + int(fields[12]))


def parse_resident_bytes(status: str, *, peak: bool = False) -> int:
    """`VmRSS` of `/proc/<pid>/status`, or `VmHWM`, its `peak`; 0 for a process that has ended but
    was not yet reaped."""
    for line in status.splitlines():
        if line.startswith("VmHWM:" if peak else "VmRSS:"):
            return int(line.split()[1]) * KIB
    return 0


def parse_machine_stat(text: str) -> MachineTimes:
    """Busy is user, nice, system, interrupts and softirqs; not idle, iowait, steal, or guests
    (which user time already contains)."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, text.splitlines()[0].split()[1:9]
    )
    return MachineTimes(user + nice + system + irq + softirq, steal)


def seconds_of_ticks(ticks: int) -> float:
    """Kernel ticks as seconds."""
    return ticks / os.sysconf("SC_CLK_TCK")


def process_tree(pid: int) -> list[int]:
    """`pid` and all its descendants."""
    children: dict[int, list[int]] = {}
    for child, times in _all_processes():
        children.setdefault(times.parent_pid, []).append(child)
    found = [pid]
    for parent in found:  # grows while it is walked: breadth first
        found.extend(children.get(parent, ()))
    return found


def cpu_seconds(pid: int) -> float:
    """CPU time that the living processes of the tree have used so far."""
    return seconds_of_ticks(
        sum(times.cpu_ticks for member in process_tree(pid) if (times := _times_of(member)))
    )


def own_cpu_seconds(pid: int) -> float:
    """CPU time that this one process has used so far; 0 if it has ended."""
    times = _times_of(pid)
    return 0.0 if times is None else seconds_of_ticks(times.cpu_ticks)


def resident_bytes(pid: int) -> int:
    """Resident memory of the tree. Pages that two of its processes share count twice."""
    return sum(_resident_bytes_of(member) for member in process_tree(pid))


def machine_busy_seconds() -> float:
    """CPU time of everything on this machine since it started."""
    return seconds_of_ticks(parse_machine_stat((PROC / "stat").read_text()).busy_ticks)


def _all_processes() -> Iterator[tuple[int, ProcessTimes]]:
    for entry in PROC.iterdir():
        if entry.name.isdecimal() and (times := _times_of(int(entry.name))):
            yield int(entry.name), times


def _times_of(pid: int) -> ProcessTimes | None:
    try:
        return parse_process_stat((PROC / str(pid) / "stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None  # it ended between the listing and the reading


def _resident_bytes_of(pid: int) -> int:
    try:
        return parse_resident_bytes((PROC / str(pid) / "status").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return 0
