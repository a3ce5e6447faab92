"""A task that is a group's member for a program, so that it beats while the program awaits.

This file drives a `group_member` on the event loop, by connections of its own: a JoinGroup may wait
for minutes, and what is behind it on its connection waits too. A program that blocks the loop
blocks the heartbeats, too; one that does so for longer than `max.poll.interval.ms` finds that it
has left the group. What the program does with its partitions is the affair of `group_consumer`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from strandline.client.aio.cluster import AsyncClusterClient
from strandline.client.aio.connection import now_ms
from strandline.client.channel import RequestFailed
from strandline.client.coordinator_client import Ask, Outcome, not_sent
from strandline.client.group_events import GroupEvent
from strandline.client.group_members import as_it_is_now, make_member
from strandline.client.group_offsets import CommitResult
from strandline.client.group_requests import Committed
from strandline.client.group_settings import GroupSettings
from strandline.errors import ProtocolError
from strandline.types import TopicPartition

_LEAVE_MS: Final = 3_000
"""How long a member that goes waits for its coordinator to hear of it."""


class GroupTask:
    """See the module. Made on the event loop to which it belongs."""

    def __init__(self, cluster: AsyncClusterClient, settings: GroupSettings) -> None:
        """The task takes addresses and settings of `cluster`, but connections of its own."""
        self._cluster = AsyncClusterClient(cluster.bootstrap, cluster.settings)
        self._member = make_member(settings, self._cluster.router, self._cluster.random)
        self._events: deque[GroupEvent] = deque()
        self._happened = asyncio.Event()
        """Set when there are events, or the task has ended."""
        self._woken = asyncio.Event()
        """Set when the task has something to do."""
        self._in_flight: set[Ask] = set()
        self._arrived: list[tuple[Ask, Outcome]] = []
        self._is_closing = False
        self._task = asyncio.create_task(self._run(), name="strandline-group")

    # -- The program -------------------------------------------------------------------------

    @property
    def is_member(self) -> bool:
        """Whether the coordinator has let it into a generation, and it is not known to be out."""
        return self._member.is_in_generation

    def subscribe(self, topics: Iterable[str], pattern: str | None = None) -> None:
        """Read these topics, and those that match the pattern."""
        self._member.subscribe(topics, now_ms(), pattern)
        self._woken.set()

    def polled(self) -> None:
        """The program is alive."""
        self._raise_failure()
        before = self._member.phase
        self._member.polled(now_ms())
        if self._member.phase is not before:
            self._woken.set()

    def first_event(self) -> GroupEvent | None:
        """What has happened to the membership and is not handled yet."""
        self._take_events()
        self._raise_failure()
        return as_it_is_now(self._events[0], self._member) if self._events else None

    def event_handled(self) -> None:
        """The program has done what the first event asks for."""
        self._events.popleft()

    async def wait_for_event(self, wait_ms: int) -> None:
        """Wait until there is an event, or the time is up."""
        self._happened.clear()
        if self._events or self._task.done():
            return
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._happened.wait()
        except TimeoutError:
            return

    def revoked(self) -> None:
        """The program has given up what `PartitionsRevoked` named."""
        self._member.revoked(now_ms())
        self._woken.set()

    async def commit(
        self,
        offsets: Mapping[TopicPartition, Committed],
        timeout_ms: int,
        *,
        is_last: bool = False,
    ) -> CommitResult:
        """Commit and wait for the outcome; it is tried again until the time is up."""
        result: asyncio.Future[CommitResult] = asyncio.get_running_loop().create_future()

        def told(outcome: CommitResult) -> None:
            if not result.done():
                result.set_result(outcome)

        self._raise_failure()
        self._member.commit(offsets, told, now_ms(), now_ms() + timeout_ms, is_last=is_last)
        self._woken.set()
        ends: set[asyncio.Future[Any]] = {result, self._task}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            self._raise_failure()
        return result.result()

    def commit_soon(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit once, and do not wait for the outcome."""
        self._member.commit(offsets, _not_awaited, now_ms())
        self._woken.set()

    async def close(self) -> None:
        """Leave the group and end the task."""
        self._member.leave(now_ms(), "the consumer is closed")
        self._is_closing = True
        self._woken.set()
        try:
            await asyncio.wait({self._task}, timeout=_LEAVE_MS / 1000)
        finally:
            self._task.cancel()
            await self._cluster.close()
            await asyncio.gather(self._task, return_exceptions=True)
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    # -- The task ----------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while await self._turn():
                await self._sleep()
        finally:
            self._happened.set()

    async def _turn(self) -> bool:
        """Do what is due; False when all is over."""
        arrived, self._arrived = self._arrived, []
        for ask, outcome in arrived:
            self._member.answered(ask, outcome, now_ms())
        while asks := self._member.step(now_ms()):
            for ask in asks:
                await self._send(ask)
        self._take_events()
        return not self._is_closing or self._member.is_leaving

    async def _sleep(self) -> None:
        wake_ms = self._member.wake_ms
        loop = asyncio.get_running_loop()
        when = None if wake_ms is None else max(loop.time(), wake_ms / 1000)
        try:
            async with asyncio.timeout_at(when):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()

    async def _send(self, ask: Ask) -> None:
        try:
            if ask.to is None:
                connection = await self._cluster.any_connection()
            else:
                connection = await self._cluster.connection_to(ask.to)
            answer = connection.send(
                ask.key, ask.request, highest=ask.highest, timeout_ms=ask.timeout_ms
            )
        except ProtocolError as error:
            self._member.answered(ask, not_sent(error), now_ms())
            return
        self._in_flight.add(ask)
        answer.add_done_callback(partial(self._take_answer, ask))

    def _take_answer(self, ask: Ask, answer: asyncio.Future[object]) -> None:
        self._in_flight.discard(ask)
        error = answer.exception()
        outcome = answer.result() if error is None else RequestFailed(_text(error), was_sent=True)
        self._arrived.append((ask, outcome))
        self._woken.set()

    def _take_events(self) -> None:
        self._events.extend(self._member.events())
        if self._events:
            self._happened.set()


def _text(error: BaseException) -> str:
    return error.message if isinstance(error, ProtocolError) else str(error)


def _not_awaited(result: CommitResult) -> None:
    """Whatever it is: the next commit stands for this one too."""
