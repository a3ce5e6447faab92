"""Waiting for something that the cluster metadata brings: an office filled, a leader elected.

The observer of changes calls `changed`; a waiting caller names its condition. Conditions are
checked again now and then even without a change, because some depend on time as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_LOOK_AGAIN_S: Final = 0.05


class Watch:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Something is different: have every condition looked at."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def for_ever_until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds, which only a change can bring about."""
        while not condition():
            await self._changed.wait()

    async def until(self, condition: Callable[[], bool], *, timeout_s: float) -> bool:
        """Wait until the condition holds; whether it did in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not condition():
            left_s = deadline - loop.time()
            if left_s <= 0:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, _LOOK_AGAIN_S)):
                    await self._changed.wait()
        return True
