"""How long a run tries again, and what it says meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from strandline.lakehouse.pipeline.errors import PipelineFailed
from strandline.lakehouse.pipeline.events import Event, Notice

_DAY_S: Final = 86_400.0
_AGAIN_S: Final = 60.0
"""From telling that trouble lasts to telling it once more."""


class Patience:
    """Of one run, for `limit_s` seconds from the first trouble since all was well."""

    def __init__(self, limit_s: float, tell: Callable[[Event], None]) -> None:
        self._limit_s = limit_s
        self._tell = tell
        self._since_s: float | None = None
        """A topic may be quiet for any time before."""
        self._told = ""
        self._told_s = 0.0

    @property
    def is_tried(self) -> bool:
        """Whether there was trouble, and all has not been well since."""
        return self._since_s is not None

    def is_over(self) -> bool:
        """Whether trouble that there is now has lasted for too long."""
        now_s = time.monotonic()
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s > self._limit_s

    def tell(self, sentence: str) -> None:
        """Say what is the trouble, and until when it is tried again: at once, then now and then."""
        now_s = time.monotonic()
        since_s = now_s if self._since_s is None else self._since_s
        if sentence != self._told:
            self._say(
                f"{sentence} Trying again{_until(since_s + self._limit_s - now_s)} (--patience "
                f"{self._limit_s:g} s), from where the table ends."
            )
        elif now_s - self._told_s >= _AGAIN_S:
            self._say(f"Still trying after {now_s - since_s:.0f} s: {sentence}")
        else:
            return
        self._told, self._told_s = sentence, now_s

    def given_up(self, sentence: str) -> PipelineFailed:
        """What to raise when it is over, or when the run is to end in the middle of trouble."""
        tried = ""
        if self.is_over():
            tried = f" That was tried for {self._limit_s:g} s; --patience says for how long."
        return PipelineFailed(f"The table was not brought further: {sentence}{tried}")

    def renew(self) -> None:
        """All is well."""
        self._told, self._since_s = "", None

    def _say(self, sentence: str) -> None:
        self._tell(Notice(sentence))


def _until(left_s: float) -> str:
    """A time of the day, which says nothing of a later one; and "for ever" has none."""
    if left_s >= _DAY_S:
        return ""
    return f" until {datetime.now(UTC).astimezone() + timedelta(seconds=left_s):%H:%M:%S}"
