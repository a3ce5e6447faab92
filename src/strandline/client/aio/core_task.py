"""A task that drives a sans-I/O core on an event loop, as `core_thread` does in a thread.

A program that blocks the loop blocks the task, too. This file must not know what the core is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from strandline.client.aio.cluster import AsyncClusterClient
from strandline.client.aio.connection import now_ms
from strandline.client.channel import RequestFailed
from strandline.client.coordinator_client import Ask, Outcome, not_sent
from strandline.client.core_thread import Core
from strandline.errors import ProtocolError


class CoreTask:
    """See the module. Made on the event loop to which it belongs."""

    def __init__(
        self,
        core: Core,
        cluster: AsyncClusterClient,
        name: str,
        *,
        turned: Callable[[], None],
    ) -> None:
        """The connections of `cluster`, which is the task's from now on, are used, and others for
        what brokers keep waiting. `turned` is called after each round of steps, and at the end."""
        self._core = core
        self._turned = turned
        self._cluster = cluster
        self._waiting = AsyncClusterClient(
            cluster.bootstrap, cluster.settings, router=cluster.router
        )
        self._woken = asyncio.Event()
        """Set when the task has something to do."""
        self._in_flight: set[Ask] = set()
        self._arrived: list[tuple[Ask, Outcome]] = []
        self._is_closing = False
        self.task = asyncio.create_task(self._run(), name=name)
        self.task.add_done_callback(lambda _: turned())

    # -- The program -------------------------------------------------------------------------

    def wake(self) -> None:
        """The core may have something to do."""
        self._woken.set()

    @property
    def has_ended(self) -> bool:
        """Whether it drives no longer."""
        return self.task.done()

    def raise_failure(self) -> None:
        """Raise what the task has ended of, if it has."""
        if self.task.done() and not self.task.cancelled():
            self.task.result()

    async def close(self, timeout_ms: int) -> None:
        """End the task as soon as the core has left, or the time is up."""
        self._is_closing = True
        self._woken.set()
        try:
            await asyncio.wait({self.task}, timeout=timeout_ms / 1000)
        finally:
            self.task.cancel()
            await self._cluster.close()
            await self._waiting.close()
            await asyncio.gather(self.task, return_exceptions=True)
        self.raise_failure()

    # -- The task ----------------------------------------------------------------------------

    async def _run(self) -> None:
        while await self._turn():
            await self._sleep()

    async def _turn(self) -> bool:
        """Do what is due; False when all is over."""
        arrived, self._arrived = self._arrived, []
        for ask, outcome in arrived:
            self._core.answered(ask, outcome, now_ms())
        while asks := self._core.step(now_ms()):
            for ask in asks:
                await self._send(ask)
        self._turned()
        return not self._is_closing or self._core.is_leaving

    async def _sleep(self) -> None:
        wake_ms = self._core.wake_ms
        loop = asyncio.get_running_loop()
        when = None if wake_ms is None else max(loop.time(), wake_ms / 1000)
        try:
            async with asyncio.timeout_at(when):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()

    async def _send(self, ask: Ask) -> None:
        cluster = self._waiting if ask.may_wait else self._cluster
        try:
            if ask.to is None:
                connection = await cluster.any_connection()
            else:
                connection = await cluster.connection_to(ask.to)
            answer = connection.send(
                ask.key, ask.request, highest=ask.highest, timeout_ms=ask.timeout_ms
            )
        except ProtocolError as error:
            self._core.answered(ask, not_sent(error), now_ms())
            return
        self._in_flight.add(ask)
        answer.add_done_callback(partial(self._take_answer, ask))

    def _take_answer(self, ask: Ask, answer: asyncio.Future[Any]) -> None:
        self._in_flight.discard(ask)
        error = answer.exception()
        outcome = answer.result() if error is None else RequestFailed(_text(error), was_sent=True)
        self._arrived.append((ask, outcome))
        self._woken.set()


def _text(error: BaseException) -> str:
    return error.message if isinstance(error, ProtocolError) else str(error)
