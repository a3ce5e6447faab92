"""Being stopped from outside: Ctrl-C with something left to finish, and readers that go away."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType


class Stop:
    """Set by the first Ctrl-C inside the `with` block; a second one interrupts as usual, and says
    with `is_abandoned` that nothing is to be waited for any more.

    With `terminate`, SIGTERM sets it as well, however often it comes: wrappers pass it on twice.
    With `ends_when`, the first Ctrl-C says on standard error what the command still waits for: the
    end of the sentence "Stopping when ...", without a full stop.
    """

    def __init__(self, *, terminate: bool = False, ends_when: str | None = None) -> None:
        self.is_set = self.is_abandoned = False
        self._is_interrupted = False
        self._ends_when = ends_when
        self._numbers = (signal.SIGINT, signal.SIGTERM) if terminate else (signal.SIGINT,)

    def __enter__(self) -> Stop:
        self._before = {each: signal.signal(each, self._on_signal) for each in self._numbers}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        # It interrupts whatever is going on, and what is left half done may fail in its place: a
        # lock that was to be taken again is released without being held.
        if self.is_abandoned and error is not None and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from error

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_interrupted and number == signal.SIGINT:
            self.is_abandoned = True
            signal.default_int_handler(number, frame)
        self.is_set = True
        if number == signal.SIGINT:
            self._is_interrupted = True
            if self._ends_when is not None:
                _say(f"Stopping when {self._ends_when}. Ctrl-C again stops at once.")


def _say(sentence: str) -> None:
    """For signal handlers: these may run in the middle of a buffered write to standard error, which
    cannot be called a second time then. On a terminal `^C` stands in the line already."""
    # A reader of standard error that is gone must not keep the command from finishing.
    with suppress(OSError):
        descriptor = sys.stderr.fileno()
        start = "\n" if os.isatty(descriptor) else ""
        os.write(descriptor, f"{start}{sentence}\n".encode())


@contextmanager
def ends_with_its_reader() -> Iterator[None]:
    """End the command, as done, when the reader of its output closes the pipe (`... | head`)."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # What is buffered can go nowhere, and Python must not try again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
