"""Lines about what clients do wrong: as many as a person reads, the rest counted.

A client that is turned away comes again at once, and writes a line each time. So of one kind a few
lines are written within some seconds; how many were not is told with the first one after that.
"""

from __future__ import annotations

import logging
from typing import Final

LINES_MAX: Final = 20
WITHIN_MS: Final = 10_000


class SparingLog:
    """See the module. One for each kind of line."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._since_ms = 0
        self._written = 0
        self._left_out = 0

    def info(self, now_ms: int, template: str, *args: object) -> None:
        """Write the line, or count it. `now_ms` is of the monotonic clock."""
        if now_ms - self._since_ms >= WITHIN_MS:
            self._since_ms, self._written = now_ms, 0
            if self._left_out:
                template += " (%d more lines like it were left out before)"
                args = (*args, self._left_out)
                self._left_out = 0
        if self._written >= LINES_MAX:
            self._left_out += 1
            return
        self._written += 1
        self._log.info(template, *args)
