"""`strandline.AsyncShareConsumer`: records of share groups, on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from operator import index
from typing import Self

from strandline.client.aio.cluster import AsyncClusterClient
from strandline.client.aio.connection import now_ms
from strandline.client.aio.core_task import CoreTask
from strandline.client.api.refusals import Use
from strandline.client.api.settings import sharing_of
from strandline.client.api.share_consumer import (
    CLOSE_MS,
    AcknowledgeType,
    OnAcknowledged,
    ack_type,
    tell_outcomes,
)
from strandline.client.arguments import several
from strandline.client.share_group.acknowledgements import ShareRecord
from strandline.client.share_group.core import ShareConsumerCore
from strandline.client.share_thread import outcomes_of
from strandline.errors import ProtocolError
from strandline.types import TopicPartition


class AsyncShareConsumer:
    """Takes records of topics like from a queue, as a member of a share group (KIP-932), on an
    event loop.

        settings = {"bootstrap.servers": "localhost:9092", "group.id": "workers"}
        async with strandline.AsyncShareConsumer(settings) as consumer:
            await consumer.subscribe(["work"])
            for record in await consumer.poll(timeout_ms=1000):
                print(record.value, record.delivery_count)
            await consumer.commit()

    - `settings`, `on_acknowledged` (a plain function): see `ShareConsumer`.

    A task of the loop sends heartbeats, so the program may await what it likes between its calls;
    locks end all the same. One task at a time calls. Connects to nothing yet. Raises
    `InvalidSetting` for an unknown setting or value. A context manager that closes it.
    """

    def __init__(
        self, settings: Mapping[str, object], *, on_acknowledged: OnAcknowledged | None = None
    ) -> None:
        sharing = sharing_of(settings)
        self._connecting = sharing.connecting
        self._settings = sharing.member
        self._on_acknowledged = on_acknowledged
        self._happened = asyncio.Event()
        """Set after each turn of the task."""
        self._driven: tuple[ShareConsumerCore, CoreTask] | None = None
        self._use = Use("share consumer")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def _drive(self) -> tuple[ShareConsumerCore, CoreTask]:
        """The core and what drives it, from the first call on."""
        self._use.check_open()
        if self._driven is None:
            own = AsyncClusterClient(self._connecting.bootstrap, self._connecting.client)
            core = ShareConsumerCore(self._settings, own.router, own.random)
            task = CoreTask(core, own, "strandline-share-group", turned=self._happened.set)
            self._driven = core, task
        self._driven[1].raise_failure()
        return self._driven

    async def _wait_for(self, condition: Callable[[], bool], timeout_ms: int) -> None:
        """Wait until something holds, or the time is up."""
        _, task = self._drive()
        task.wake()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not condition() and not task.has_ended:
                    self._happened.clear()
                    await self._happened.wait()
        except TimeoutError:
            return
        task.raise_failure()

    async def subscribe(self, topics: Iterable[str]) -> None:
        """See `ShareConsumer.subscribe`."""
        wanted = several(topics, "Topics")
        core, task = self._drive()
        core.subscribe(wanted, now_ms())
        task.wake()

    async def poll(self, timeout_ms: int = 500) -> list[ShareRecord]:
        """The records that come first within the time; see `ShareConsumer.poll`.

        If the call is cancelled, what comes meanwhile is returned by the next one.
        """
        core, _ = self._drive()
        self._tell(core)
        core.begin_poll(now_ms())
        try:
            await self._wait_for(lambda: core.has_news, index(timeout_ms))
        finally:
            core.stop_polling()
        return core.end_poll(now_ms())

    def acknowledge(self, record: ShareRecord, how: AcknowledgeType = "accept") -> None:
        """Say what became of a record of the last `poll`; see `ShareConsumer.acknowledge`. Nothing
        is sent yet, so there is nothing to await."""
        at = TopicPartition(record.topic, record.partition)
        self._drive()[0].acknowledge(at, record.offset, ack_type(how))

    async def commit(
        self, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, ProtocolError | None]:
        """Send what was said of records, and wait until the brokers have stored it; see
        `ShareConsumer.commit`."""
        core, _ = self._drive()
        if timeout_ms is None:
            timeout_ms = self._settings.operation_timeout_ms
        commit = core.commit(now_ms(), timeout_ms)
        try:
            await self._wait_for(lambda: commit.is_done, timeout_ms)
            return outcomes_of(commit)
        finally:
            self._tell(core)

    async def commit_soon(self) -> None:
        """Send what was said of records, and do not wait; `on_acknowledged` is told later."""
        core, task = self._drive()
        self._tell(core)
        core.commit(now_ms())
        task.wake()

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """For how long a record is locked, in milliseconds; None before the first answer."""
        return None if self._driven is None else self._driven[0].lock_ms

    async def close(self, *, timeout_ms: int = CLOSE_MS) -> None:
        """Send what was said of records, give back all others, leave the group, and close all
        connections; after `timeout_ms` without waiting any longer for answers."""
        self._use.is_closed = True
        driven, self._driven = self._driven, None
        if driven is not None and not self._use.is_inherited:
            core, task = driven
            core.close(now_ms())
            await task.close(timeout_ms)
            self._tell(core)

    def _tell(self, core: ShareConsumerCore) -> None:
        tell_outcomes(core.take_outcomes(), self._on_acknowledged)
