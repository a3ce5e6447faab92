"""What the log says while ZooKeeper cannot be used: once that it is so, sometimes still, once over.

Everything that makes it so comes again with every attempt to reconnect, for as long as it lasts;
a person wants to read it once. Knows the clock of the event loop and nothing of ZooKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

FIRST_REMINDER_S: Final = 10.0
LAST_REMINDER_S: Final = 600.0

log = logging.getLogger(__name__)


class Absence:
    """The time since ZooKeeper could last be used, if it cannot be used now."""

    def __init__(self) -> None:
        self._reason: str | None = None
        self._since_s = 0.0
        self._reminder: asyncio.TimerHandle | None = None

    def begin(self, reason: str) -> None:
        """ZooKeeper cannot be used. The reason is a sentence, said once while it stays the same."""
        is_first = self._reason is None
        if reason != self._reason:
            log.warning("%s", reason)
        self._reason = reason
        if is_first:
            self._since_s = asyncio.get_running_loop().time()
            self._remind_in(FIRST_REMINDER_S)

    def end(self) -> None:
        """ZooKeeper can be used, again or for the first time."""
        if self._reason is not None:
            log.info("ZooKeeper can be used again, after %.1f s.", self._lasted_s())
        self.forget()

    def forget(self) -> None:
        """Say nothing more."""
        self._reason = None
        if self._reminder is not None:
            self._reminder.cancel()
            self._reminder = None

    def _lasted_s(self) -> float:
        return asyncio.get_running_loop().time() - self._since_s

    def _remind_in(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._reminder = loop.call_later(delay_s, self._remind, delay_s)

    def _remind(self, delay_s: float) -> None:
        log.warning("%s That was %.0f s ago.", self._reason, self._lasted_s())
        self._remind_in(min(2 * delay_s, LAST_REMINDER_S))
