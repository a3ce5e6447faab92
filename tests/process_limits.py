"""Limits of other processes, which Linux alone has a call for."""

from __future__ import annotations

import resource
import sys


def limits_of(pid: int, what: int) -> tuple[int, int]:
    """The soft and the hard limit of a process; `what` is one of `resource.RLIMIT_...`."""
    if sys.platform == "linux":
        return resource.prlimit(pid, what)
    raise NotImplementedError("This system tells a process its own limits only.")


def set_limits(pid: int, what: int, limits: tuple[int, int]) -> None:
    """Give a process another soft and hard limit."""
    if sys.platform == "linux":
        resource.prlimit(pid, what, limits)
    else:
        raise NotImplementedError("This system sets a process's own limits only.")
