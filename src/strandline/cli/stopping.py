"""Being stopped from outside: Ctrl-C with something left to finish, and readers that go away."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Set by the first Ctrl-C inside the `with` block; a second one interrupts as usual.

    With `terminate`, SIGTERM sets it as well, however often it comes: wrappers pass it on twice.
    """

    def __init__(self, *, terminate: bool = False) -> None:
        self.is_set = False
        self._numbers = (signal.SIGINT, signal.SIGTERM) if terminate else (signal.SIGINT,)

    def __enter__(self) -> Stop:
        self._before = {each: signal.signal(each, self._on_signal) for each in self._numbers}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.is_set = True
        if number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)


@contextmanager
def ends_with_its_reader() -> Iterator[None]:
    """End the command, as done, when the reader of its output closes the pipe (`... | head`)."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # What is buffered can go nowhere, and Python must not try again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
