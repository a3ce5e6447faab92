"""Disks of which a call fails: for `MemoryFiles.on_call`, which is called in front of each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from strandline.errors import StorageError

OnCall = Callable[[str, str], None]


def failing_call(number: int, *, sticky: bool = False) -> OnCall:
    """The call with that number fails, counted from 1; with `sticky` so do all behind it."""
    calls = count(1)

    def on_call(operation: str, path: str) -> None:
        at = next(calls)
        if at == number or (sticky and at > number):
            raise StorageError(f"Cannot {operation} {path}: injected.")

    return on_call
