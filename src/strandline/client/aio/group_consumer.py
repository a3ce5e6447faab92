"""Reading topics as a member of a consumer group, on an event loop.

This file joins what the group says (`group_task`) to what is read (`fetcher`), as `group_consumer`
does for threads. All that concerns the program happens inside of its own calls: partitions come and
go when it asks for records, and only there are the listener's functions called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from strandline.client.aio.cluster import AsyncClusterClient
from strandline.client.aio.connection import now_ms
from strandline.client.aio.fetcher import AsyncFetcher
from strandline.client.aio.group_task import GroupTask
from strandline.client.api.refusals import closed
from strandline.client.fetching import FetchedRecords
from strandline.client.group_events import (
    GenerationJoined,
    MemberFailed,
    PartitionsAssigned,
    PartitionsRevoked,
)
from strandline.client.group_members import check_pattern
from strandline.client.group_progress import GroupProgress, not_subscribed
from strandline.client.group_requests import Committed, Membership
from strandline.client.group_settings import GroupSettings
from strandline.records.record import Record
from strandline.types import Offset, TopicPartition

_SLICE_MS: Final = 250
"""So long at most records are waited for before the group is looked at again."""

Listener: TypeAlias = Callable[[Sequence[TopicPartition]], Awaitable[None] | None]
"""A function of the program's, `async` or not, that is told of partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncRebalanceListener:
    """What a program does when partitions come and go, as `group_consumer.RebalanceListener`."""

    assigned: Listener | None = None
    revoked: Listener | None = None
    lost: Listener | None = None


class AsyncGroupConsumer:
    """See the module. Made on the event loop to which it belongs."""

    def __init__(
        self, cluster: AsyncClusterClient, fetcher: AsyncFetcher, settings: GroupSettings
    ) -> None:
        """`cluster` and `fetcher` stay the caller's; the group assigns what `fetcher` reads."""
        self._fetcher = fetcher
        fetcher.outlive_topics()
        self._cluster = cluster
        self._settings = settings
        self._listener = AsyncRebalanceListener()
        self._task: GroupTask | None = GroupTask(cluster, settings)
        self._is_closing = False
        self._progress = GroupProgress(settings, now_ms())

    def subscribe(
        self,
        topics: Iterable[str],
        listener: AsyncRebalanceListener,
        *,
        pattern: str | None = None,
    ) -> None:
        """See `GroupConsumer.subscribe`."""
        check_pattern(self._settings, pattern)
        self._listener = listener
        self._member().subscribe(topics, pattern)

    @property
    def membership(self) -> Membership:
        """See `GroupConsumer.membership`."""
        return self._progress.membership

    # -- Records -----------------------------------------------------------------------------

    async def poll(self, timeout_ms: int) -> list[FetchedRecords]:
        """What comes first within the time; empty if nothing does. See `GroupConsumer.poll`."""
        deadline_ms = now_ms() + timeout_ms
        while True:
            task = await self._turn()
            left_ms = max(0, deadline_ms - now_ms())
            if self._fetcher.partitions:
                fetched = await self._fetcher.poll(min(left_ms, _SLICE_MS))
                if fetched:
                    return fetched
            else:
                await task.wait_for_event(left_ms)
                await self._handle_events(task)
            if now_ms() >= deadline_ms:
                return []

    async def next_record(self) -> tuple[TopicPartition, Record]:
        """The next record, however long that takes. All before it count as read."""
        while True:
            task = await self._turn()
            found = self._fetcher.unread.next()
            if found is not None:
                return found
            if self._fetcher.partitions:
                await self._fetcher.fetch(_SLICE_MS)
            else:
                await task.wait_for_event(_SLICE_MS)

    async def _turn(self) -> GroupTask:
        """What each call for records begins with."""
        if self._is_closing:  # by another task, which gives up what is read
            raise closed("consumer")
        task = self._member()
        task.polled()
        await self._handle_events(task)
        due = self._progress.due(self._fetcher.offsets, now_ms())
        if due:
            task.commit_soon(due)
        return task

    async def commit(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commit, and wait for it, with retries. Raises `ProtocolError` as `GroupConsumer`."""
        offered = {at: Committed(each) for at, each in offsets.items()}
        task = self._member()
        self._progress.committed(
            await task.commit(offered, self._cluster.settings.operation_timeout_ms)
        )

    async def close(self) -> None:
        """Commit (with `enable_auto_commit`) and leave the group."""
        task = self._task
        if task is None:
            return
        self._is_closing = True
        try:
            owned = tuple(self._fetcher.partitions)
            if owned:
                await self._give_up(task, PartitionsRevoked(owned, is_lost=not task.is_member))
        finally:
            self._task = None
            await task.close()

    def _member(self) -> GroupTask:
        if self._task is None:
            raise not_subscribed()
        return self._task

    # -- What the group says -----------------------------------------------------------------

    async def _handle_events(self, task: GroupTask) -> None:
        """An event is handled as a whole or, if that raises or is cancelled, by the next call
        again; but for what the program was told."""
        while (event := task.first_event()) is not None:
            match event:
                case GenerationJoined():
                    task.event_handled()
                    self._progress.joined(event)
                case PartitionsAssigned(committed):
                    await self._cluster.expect(committed)
                    await self._fetcher.add(self._progress.begin(committed))
                    task.event_handled()
                    await _tell(self._listener.assigned, tuple(committed))
                case PartitionsRevoked():
                    task.event_handled()
                    try:
                        await self._give_up(task, event)
                    finally:
                        task.revoked()
                case MemberFailed(error):
                    raise error

    async def _give_up(self, task: GroupTask, event: PartitionsRevoked) -> None:
        self._progress.generation = None
        try:
            if event.is_lost:
                await _tell(self._listener.lost, event.partitions)
            else:
                # What is refused here was read by this member and will be read again.
                last = self._progress.last(self._fetcher.offsets)
                await task.commit(last, self._cluster.settings.request_timeout_ms, is_last=True)
                await _tell(self._listener.revoked, event.partitions)
        finally:
            self._fetcher.drop(event.partitions)
            self._progress.gave_up(event.partitions)


async def _tell(listener: Listener | None, partitions: Sequence[TopicPartition]) -> None:
    if listener is not None:
        answer = listener(partitions)
        if answer is not None:
            await answer
