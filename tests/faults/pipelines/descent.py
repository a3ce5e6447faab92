"""The processes below one: what a pipeline consists of, and which of them to kill.

A pipeline is a driver (the command, in Python), Spark's JVM below it, and Python workers below
that, which are forked by daemons. Where executors have JVMs of their own, these, and the Python
workers that write files, are below the workers of a standalone Spark. On Linux, from /proc.
"""

from __future__ import annotations

import os
import signal
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

_EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, parents before children."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parent = _parent(entry)
            if parent is not None:
                children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(0), [])
        found += below
        waiting += below
    return found


def jvm_below(pid: int) -> list[int]:
    """Spark's JVM that the command started; without executors of its own, it is that, too."""
    return [each for each in _java_below(pid) if _EXECUTOR not in _command(each)]


def executors_below(pid: int) -> list[int]:
    """The JVMs of executors, where they are processes of their own."""
    return [each for each in _java_below(pid) if _EXECUTOR in _command(each)]


def workers_below(*pids: int) -> dict[str, list[int]]:
    """Python processes that do Spark's work, by the module that they run, daemons included."""
    found: dict[str, list[int]] = {}
    for each in chain.from_iterable(map(descendants, pids)):
        words = _command(each)
        if words and "python" in words[0]:
            module = next((word for word in reversed(words) if word.startswith("pyspark.")), None)
            if module is not None:
                found.setdefault(module, []).append(each)
    return found


class Process(NamedTuple):
    """A process, and not another one that gets its number later."""

    pid: int
    began: str
    """In the kernel's own ticks; empty if it had ended already."""

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process of this number now."""
        return cls(pid, _state(pid)[1])

    def is_there(self) -> bool:
        """Whether it runs; one that ended and was not waited for does not."""
        state, began = _state(self.pid)
        return began == self.began and state not in ("", "Z", "X")


def kill(pid: int) -> bool:
    """SIGKILL; whether the process was there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _java_below(pid: int) -> list[int]:
    return [each for each in descendants(pid) if "java" in Path(_command(each)[0]).name]


def _command(pid: int) -> list[str]:
    """Its words; one empty word if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return [""]


def _state(pid: int) -> tuple[str, str]:
    """A letter, and when the process began; empty texts if there is none."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return words[0], words[19]


def _parent(entry: Path) -> int | None:
    try:
        after_name = (entry / "stat").read_text().rpartition(")")[2]
    except OSError:
        return None
    return int(after_name.split()[1])
