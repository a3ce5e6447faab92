"""Something that a task finds out, and that calls wait for which may end before.

Theory: were it given up when a call's time is up, calls that are shorter than a slow broker would
never get anywhere. This file must not know what is found out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

from strandline.client.aio.connection import now_ms

T = TypeVar("T")


class Finding(Generic[T]):
    """See the module."""

    def __init__(self, find: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._find = find
        self._task: asyncio.Task[T] | None = None

    async def result(self, wait_ms: int, others: Iterable[asyncio.Future[Any]]) -> T | None:
        """What is found; None if that takes longer, or one of the others is done before: the next
        call waits on. Raises what finding raises."""
        until_ms = now_ms() + wait_ms
        besides = set(others)
        while True:
            task = self._task = self._task or asyncio.create_task(self._find())
            left_ms = max(0, until_ms - now_ms())
            waited: set[asyncio.Future[Any]] = {task, *besides}
            await asyncio.wait(waited, timeout=left_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
            if self._task is not task:
                if left_ms:
                    continue  # another task has stopped it: it begins anew
                return None
            if not task.done():
                return None
            self._task = None
            return task.result()

    def stop(self) -> None:
        """What it is about has changed."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def close(self) -> None:
        """As `stop`; returns when nothing is left of it."""
        task = self._task
        self.stop()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)
