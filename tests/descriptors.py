"""What a process has open, for tests that nothing is left open."""

from __future__ import annotations

import gc
import os


def targets() -> dict[int, str]:
    """What each descriptor of this process stands for."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[int(number)] = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the one with which the list was read
            continue
    return found


def open_descriptors() -> frozenset[tuple[int, str]]:
    """Each descriptor of this process with what it stands for.

    To be compared as sets, and only in a process of its own (`tests.alone`): in that of the tests
    clusters that tests share open and close files at any time.
    """
    gc.collect()
    return frozenset(targets().items())
