"""Being stopped from outside: Ctrl-C with something left to finish, and readers that go away."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Set by the first Ctrl-C inside the `with` block; a second one interrupts as usual."""

    def __init__(self) -> None:
        self.is_set = False

    def __enter__(self) -> Stop:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *exception: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.is_set = True
        signal.signal(number, signal.default_int_handler)


@contextmanager
def ends_with_its_reader() -> Iterator[None]:
    """End the command, as done, when whoever reads its output closes the pipe (`... | head`)."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # What is buffered can go nowhere, and Python must not try again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
