"""A task that is a group's member for a program, so that it beats while the program awaits.

This file is the program's side of a `core_task` that drives a `group_member`, by connections of its
own: a JoinGroup may wait for minutes, and what is behind it on its connection waits too. A program
that blocks the loop for longer than `max.poll.interval.ms` finds that it has left the group. What
the program does with its partitions is the affair of `group_consumer`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from strandline.client.aio.cluster import AsyncClusterClient
from strandline.client.aio.connection import now_ms
from strandline.client.aio.core_task import CoreTask
from strandline.client.api.refusals import closed
from strandline.client.group_events import GroupEvent
from strandline.client.group_members import as_it_is_now, make_member
from strandline.client.group_offsets import CommitResult
from strandline.client.group_requests import Committed
from strandline.client.group_settings import GroupSettings
from strandline.types import TopicPartition

_LEAVE_MS: Final = 3_000
"""How long a member that goes waits for its coordinator to hear of it."""


class GroupTask:
    """See the module. Made on the event loop to which it belongs."""

    def __init__(self, cluster: AsyncClusterClient, settings: GroupSettings) -> None:
        """The task takes addresses and settings of `cluster`, but connections of its own."""
        own = AsyncClusterClient(cluster.bootstrap, cluster.settings)
        self._member = make_member(settings, own.router, own.random)
        self._events: deque[GroupEvent] = deque()
        self._happened = asyncio.Event()
        """Set when there are events, or the task has ended."""
        self._task = CoreTask(self._member, own, "strandline-group", turned=self._take_events)

    # -- The program -------------------------------------------------------------------------

    @property
    def is_member(self) -> bool:
        """Whether the coordinator has let it into a generation, and it is not known to be out."""
        return self._member.is_in_generation

    def subscribe(self, topics: Iterable[str], pattern: str | None = None) -> None:
        """Read these topics, and those that match the pattern."""
        self._member.subscribe(topics, now_ms(), pattern)
        self._task.wake()

    def polled(self) -> None:
        """The program is alive."""
        self._task.raise_failure()
        before = self._member.phase
        self._member.polled(now_ms())
        if self._member.phase is not before:
            self._task.wake()

    def first_event(self) -> GroupEvent | None:
        """What has happened to the membership and is not handled yet."""
        self._take_events()
        self._task.raise_failure()
        return as_it_is_now(self._events[0], self._member) if self._events else None

    def event_handled(self) -> None:
        """The program has done what the first event asks for."""
        self._events.popleft()

    async def wait_for_event(self, wait_ms: int) -> None:
        """Wait until there is an event, or the time is up."""
        self._happened.clear()
        if self._events or self._task.has_ended:
            return
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._happened.wait()
        except TimeoutError:
            return

    def revoked(self) -> None:
        """The program has given up what `PartitionsRevoked` named."""
        self._member.revoked(now_ms())
        self._task.wake()

    async def commit(
        self,
        offsets: Mapping[TopicPartition, Committed],
        timeout_ms: int,
        *,
        is_last: bool = False,
    ) -> CommitResult:
        """Commit and wait for the outcome; it is tried again until the time is up, or the wait is
        cancelled: what the program commits then must not be undone by another attempt."""
        result: asyncio.Future[CommitResult] = asyncio.get_running_loop().create_future()

        def told(outcome: CommitResult) -> None:
            if not result.done():
                result.set_result(outcome)

        self._task.raise_failure()
        until_ms = now_ms() + timeout_ms
        pending = self._member.commit(offsets, told, now_ms(), until_ms, is_last=is_last)
        self._task.wake()
        ends: set[asyncio.Future[Any]] = {result, self._task.task}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pending.withdraw()
            raise
        if not result.done():
            self._task.raise_failure()
            raise closed("consumer")
        return result.result()

    def commit_soon(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit once, and do not wait for the outcome."""
        self._member.commit(offsets, _not_awaited, now_ms())
        self._task.wake()

    async def close(self) -> None:
        """Leave the group and end the task."""
        self._member.leave(now_ms(), "the consumer is closed")
        await self._task.close(_LEAVE_MS)

    def _take_events(self) -> None:
        self._events.extend(self._member.events())
        if self._events or self._task.has_ended:
            self._happened.set()


def _not_awaited(result: CommitResult) -> None:
    """Whatever it is: the next commit stands for this one too."""
