"""How far a long command is: a bar on a terminal, a line now and then in a log.

Everything goes to standard error: standard output is for results.
"""

from __future__ import annotations

import sys
import time
from typing import Final

import click

_EVERY_S: Final = 0.2
_EVERY_S_IN_LOGS: Final = 10.0
_WIDTH: Final = 30


class ProgressBar:
    """Counts towards a total, or without end if there is none. To be used with `with`."""

    def __init__(self, total: int | None, noun: str) -> None:
        self._total = total
        self._noun = noun
        self._done = 0
        self._extra = ""
        self._is_watched = sys.stderr.isatty()
        self._began_s = self._shown_s = time.monotonic()

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._is_watched:
            click.echo("\r\x1b[K", err=True, nl=False)

    def advance(self, extra: str = "") -> None:
        """One more is done; `extra` is said behind the numbers."""
        self._done += 1
        self._extra = extra
        now_s = time.monotonic()
        if now_s - self._shown_s >= (_EVERY_S if self._is_watched else _EVERY_S_IN_LOGS):
            self._shown_s = now_s
            self._show()

    def say(self, line: str) -> None:
        """A line on standard output that stays, above the bar."""
        if self._is_watched:
            click.echo("\r\x1b[K", err=True, nl=False)
        click.echo(line)
        if self._is_watched:
            self._show()

    def _show(self) -> None:
        line = self.text()
        if self._is_watched:
            click.echo(f"\r\x1b[K{line}", err=True, nl=False)
        else:
            click.echo(line, err=True)

    def text(self) -> str:
        """The line as it is now."""
        passed_s = time.monotonic() - self._began_s
        if self._total is None:
            return f"{self._done:,} {self._noun} in {passed_s:.0f} s{self._extra}"
        filled = _WIDTH * self._done // self._total
        left_s = passed_s / self._done * (self._total - self._done) if self._done else 0.0
        bar = "#" * filled + "-" * (_WIDTH - filled)
        return (
            f"[{bar}] {self._done:,} of {self._total:,} {self._noun}, "
            f"{left_s:.0f} s left{self._extra}"
        )
