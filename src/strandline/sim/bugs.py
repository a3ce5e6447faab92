"""Collects tracebacks in the log: a node that logs one has a bug, although it goes on.

A caller that lets a node work names the machine first (`working`), so that a record that comes
meanwhile belongs to it; worlds beside each other do not hear each other's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar
from weakref import ref

Who = TypeVar("Who")

_LOGGER = logging.getLogger("strandline")


class BugWatch(Generic[Who]):
    """Collects what is logged with a traceback while a node works, from its creation to its end."""

    def __init__(self, told: Callable[[Who, str], None]) -> None:
        self.working: Who | None = None
        """Whose node is at work now. None: nothing that is logged is of this world."""
        self._told = told
        self._relay = _Relay(self)
        _LOGGER.addHandler(self._relay)

    def close(self) -> None:
        """Listen no more. Idempotent."""
        _LOGGER.removeHandler(self._relay)

    def heard(self, record: logging.LogRecord) -> None:
        """A record was logged."""
        if self.working is None or record.exc_info is None:
            return
        error = record.exc_info[1]
        self._told(self.working, f"{record.getMessage()}: {error!r} at {place_of(error)}")


class _Relay(logging.Handler):
    """Keeps no watch alive."""

    def __init__(self, watch: BugWatch[Who]) -> None:
        super().__init__(logging.WARNING)
        self._watch = ref(watch, lambda _: _LOGGER.removeHandler(self))

    def emit(self, record: logging.LogRecord) -> None:
        watch = self._watch()
        if watch is not None:
            watch.heard(record)


def place_of(error: BaseException | None) -> str:
    """Where an exception was raised: file and line of the innermost frame."""
    trace = None if error is None else error.__traceback__
    if trace is None:
        return "an unknown place"
    while trace.tb_next is not None:
        trace = trace.tb_next
    file = trace.tb_frame.f_code.co_filename.rsplit("/strandline/", 1)[-1]
    return f"{file}:{trace.tb_lineno}"


def is_of_simulator(place: str) -> bool:
    """Whether that is code which no broker has."""
    return place.startswith("sim/")


@contextmanager
def quiet() -> Iterator[None]:
    """Log only errors: thousands of runs would fill the log with warnings."""
    before = _LOGGER.level
    _LOGGER.setLevel(logging.ERROR)
    try:
        yield
    finally:
        _LOGGER.setLevel(before)
