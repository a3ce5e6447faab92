"""What a process has open, for tests that nothing is left open."""

from __future__ import annotations

import gc
import os


def open_descriptors() -> frozenset[str]:
    """Each descriptor of this process with what it stands for.

    To be compared as sets: others that a former test has left may be closed at any time.
    """
    gc.collect()
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
        except FileNotFoundError:  # the one with which the list was read
            continue
    return frozenset(found)
