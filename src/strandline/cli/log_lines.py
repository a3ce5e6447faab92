"""Log lines for a person: what is said again and again is said once a minute, with a count.

What has run out stays so for a while, and every attempt fails alike. The first line of a kind is
written at once; its repetitions within a minute are counted, and told with the first line of any
kind that is written after the minute. A kind is a logger, a level and the text with its values.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TextIO

PAUSE_S: Final = 60.0
_KINDS_MAX: Final = 1000


@dataclass(slots=True)
class _Said:
    since_s: float
    record: logging.LogRecord
    repeated: int = 0


class SparingHandler(logging.StreamHandler[TextIO]):
    """See the module. Lines below WARNING tell what happened and are all written."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._said: dict[Any, _Said] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, or count it. Called under the handler's lock."""
        now_s = self._clock()
        self._tell_repeated(now_s)
        if record.levelno >= logging.WARNING:
            kind = (record.name, record.levelno, record.getMessage())
            said = self._said.get(kind)
            if said is not None:
                said.repeated += 1
                return
            if len(self._said) < _KINDS_MAX:
                self._said[kind] = _Said(now_s, record)
        super().emit(record)

    def _tell_repeated(self, now_s: float) -> None:
        """Kinds are in the order of their first lines, so the oldest stand in front."""
        while self._said:
            kind, said = next(iter(self._said.items()))
            if now_s - said.since_s < PAUSE_S:
                return
            del self._said[kind]
            if said.repeated:
                super().emit(_again(said))


def _again(said: _Said) -> logging.LogRecord:
    record = said.record
    times = "once more" if said.repeated == 1 else f"{said.repeated} times more"
    text = f"{record.getMessage()} ({times} within {PAUSE_S:.0f} s)"
    return logging.LogRecord(
        record.name, record.levelno, record.pathname, record.lineno, text, None, None
    )
