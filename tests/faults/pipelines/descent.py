"""The processes below one: what a pipeline consists of, and which of them to kill.

A pipeline is a driver (the command, in Python), Spark's JVM below it, and Python workers below
that, which are forked by daemons. On Linux, from /proc.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path


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


def java_below(pid: int) -> list[int]:
    """Spark's JVM."""
    return [each for each in descendants(pid) if _command(each)[:1] and "java" in _command(each)[0]]


def workers_below(pid: int) -> list[int]:
    """Python processes that do Spark's work, their daemons included."""
    return [each for each in descendants(pid) if any("pyspark" in word for word in _python(each))]


def kill(pid: int) -> bool:
    """SIGKILL; whether the process was there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _python(pid: int) -> list[str]:
    words = _command(pid)
    return words[1:] if words and "python" in words[0] else []


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _parent(entry: Path) -> int | None:
    try:
        after_name = (entry / "stat").read_text().rpartition(")")[2]
    except OSError:
        return None
    return int(after_name.split()[1])
