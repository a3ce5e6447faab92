"""Ctrl-C for commands that run until they are told to stop, and then have something to finish."""

from __future__ import annotations

import signal
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
