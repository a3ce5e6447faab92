"""How long a client waits that is beyond a limit."""

from __future__ import annotations

from typing import Final

LONGEST_WAIT_MS: Final = 2**31 - 1
"""The most that an answer can tell, some 25 days."""


def wait_ms(excess: float, limit: float, unit_ms: float) -> int:
    """How long it takes to make up for `excess` at `limit` in `unit_ms` milliseconds.

    Limits of any size are served: some lie in the metadata that could not be set here.
    """
    if limit <= 0:
        return LONGEST_WAIT_MS
    return round(min(excess / limit * unit_ms, LONGEST_WAIT_MS))
