"""A client's way into a cluster on an event loop: connections, and operations tried again.

This file drives a `router`. It must not know records or what the requests mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random, SystemRandom
from typing import TypeVar

from strandline.client.aio.connection import Connection, now_ms
from strandline.client.aio.operations import Again, Needed, Operations
from strandline.client.api.refusals import closed
from strandline.client.backoff import ExponentialBackoff
from strandline.client.cluster import ClusterClient
from strandline.client.lookups import broker_of, led_partition, topic_refusal
from strandline.client.metadata import (
    ClusterView,
    LeaderEndpoint,
    LeaderHint,
    PartitionInfo,
    TopicInfo,
)
from strandline.client.retry import is_worth_retrying
from strandline.client.router import Router
from strandline.client.settings import Address, ClientSettings, join_addresses
from strandline.errors import AuthenticationFailed, ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.find_coordinator import FindCoordinatorResponse
from strandline.protocol.messages.metadata import MetadataResponse
from strandline.types import BrokerId, TopicId, TopicPartition

T = TypeVar("T")


class Backoff:
    """Growing waits on an event loop, until a deadline."""

    def __init__(self, settings: ClientSettings, random: Random, timeout_ms: int) -> None:
        self._backoff = ExponentialBackoff(
            random, settings.retry_backoff_ms, settings.retry_backoff_max_ms
        )
        self._deadline_ms = now_ms() + timeout_ms

    async def maybe_wait(self) -> bool:
        """Sleep and return True, or return False if the deadline would pass meanwhile."""
        wait_ms = self._backoff.next_ms()
        if now_ms() + wait_ms > self._deadline_ms:
            return False
        await asyncio.sleep(wait_ms / 1000)
        return True


class AsyncClusterClient:
    """See the module. It belongs to one event loop."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        settings: ClientSettings,
        *,
        router: Router | None = None,
        what: str = "client",
    ) -> None:
        """Connects to nothing yet. See `ClusterClient` for `router`. `what` it is called when it is
        closed."""
        self.settings = settings
        self.random: Random = SystemRandom()
        self.bootstrap = tuple(bootstrap)
        self.router = router or Router(settings, self.random, self.bootstrap)
        """What is known; for those parts of the client that use it themselves."""
        self._connections: dict[Address, Connection] = {}
        self._opening: dict[Address, asyncio.Task[Connection]] = {}
        self._what = what
        self._closed = asyncio.Event()

    def check_open(self) -> None:
        """Raise `ProtocolError` for a client that is closed: no retry mends that."""
        if self._closed.is_set():
            raise closed(self._what)

    async def pause(self, duration_ms: int) -> None:
        """Wait so long, or until the client is closed."""
        try:
            async with asyncio.timeout(duration_ms / 1000):
                await self._closed.wait()
        except TimeoutError:
            return

    async def close(self) -> None:
        """Close all connections for good. What is not answered (acks 0) goes out before."""
        self._closed.set()
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        connections, self._connections = self._connections, {}
        await asyncio.gather(*(each.finish() for each in connections.values()))

    # -- Metadata ----------------------------------------------------------------------------

    @property
    def view(self) -> ClusterView:
        """What is known at the moment, without asking."""
        return self.router.view

    async def refresh(
        self, topics: Iterable[str] | None = (), *, may_create: bool = False
    ) -> ClusterView:
        """Ask for metadata: of some topics, of all (None), or of the brokers alone (none)."""
        names = None if topics is None else sorted(set(topics))
        request = self.router.metadata_request(names, may_create=may_create)

        async def attempt() -> MetadataResponse:
            connection = await self.any_connection()
            return await connection.call(ApiKey.METADATA, MetadataResponse, request)

        response = await self.retry(attempt)
        self.router.learn(response, now_ms(), is_of_all=names is None)
        return self.view

    def known_topic(self, name: str, partition: int | None = None) -> TopicInfo | None:
        """A topic, if what is known of it is fresh, and has the partition, if one is named."""
        return self.router.usable_topic(name, now_ms(), partition)

    async def topic(
        self, name: str, *, may_create: bool = False, partition: int | None = None
    ) -> TopicInfo:
        """See `ClusterClient.topic`."""
        known = self.known_topic(name, partition)
        if known is not None:
            return known
        wait_ms = self.settings.topic_wait_ms if may_create else 0
        backoff = Backoff(self.settings, self.random, wait_ms)
        while True:
            view = await self.refresh([name], may_create=may_create)
            found = view.topics.get(name)
            if found is not None:
                is_there = partition is None or partition in found.partitions
                if is_there or not await backoff.maybe_wait():
                    return found
                continue
            error, is_appearing = topic_refusal(view, name)
            if not is_appearing or not await backoff.maybe_wait():
                raise error

    async def partition(self, partition: TopicPartition) -> PartitionInfo:
        """A partition that has a leader; raises `ProtocolError` (LEADER_NOT_AVAILABLE) if not."""
        # This may be what brings the view.
        topic = await self.topic(partition.topic, partition=partition.partition)
        return led_partition(self.view, topic, partition)

    async def expect(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask until these partitions are known, for `topic_wait_ms`: they exist, as another member
        or another broker has said, and what is known here may be older than they are."""
        backoff = Backoff(self.settings, self.random, self.settings.topic_wait_ms)
        while unknown := self.router.unknown_topics(partitions):
            await self.refresh(unknown)
            if self.router.unknown_topics(partitions) and not await backoff.maybe_wait():
                return

    def known_leader(self, partition: TopicPartition) -> PartitionInfo:
        """As `partition`, from what is known, however old."""
        topic = self.view.topics.get(partition.topic)
        if topic is None:
            raise topic_refusal(self.view, partition.topic)[0]
        return led_partition(self.view, topic, partition)

    def hint(
        self,
        partition: TopicPartition,
        topic_id: TopicId,
        hint: LeaderHint | None,
        endpoints: Iterable[LeaderEndpoint],
    ) -> None:
        """An answer that names this topic said who leads (KIP-951). Metadata that is older will not
        be believed."""
        self.router.hint(partition, topic_id, hint, endpoints)

    def forget(self, topics: Iterable[str]) -> None:
        """Ask again for these topics before they are used next."""
        self.router.forget(topics)

    # -- Connections -------------------------------------------------------------------------

    async def connection_to(self, broker: BrokerId) -> Connection:
        """The connection to a broker, opened when first needed."""
        self.check_open()
        if broker not in self.view.brokers:
            await self.refresh()
        return await self._connect(broker_of(self.view, broker).address)

    def open_connection(self, broker: BrokerId) -> Connection | None:
        """The connection to a broker, if there is one."""
        info = self.view.brokers.get(broker)
        connection = None if info is None else self._connections.get(info.address)
        return None if connection is None or connection.closed else connection

    async def any_connection(self) -> Connection:
        """A connection to the first broker that can be reached, an open one if there is one."""
        self.check_open()
        for connection in self._connections.values():
            if not connection.closed:
                return connection
        candidates = self.router.candidates(now_ms())
        failures: list[str] = []
        for address in candidates:
            try:
                return await self._connect(address)
            except AuthenticationFailed:
                raise  # the other brokers would say the same
            except ProtocolError as error:
                self.check_open()
                failures.append(error.message)
        if len(failures) == 1:
            raise ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE, failures[0])
        raise ProtocolError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"None of the brokers {join_addresses(candidates)} can be reached: {failures[-1]}",
        )

    async def coordinator(self, group: str) -> Connection:
        """The connection to a group's coordinator."""
        known = self.router.coordinator(group)
        if known is None:
            request = self.router.coordinator_request(group)
            connection = await self.any_connection()
            response = await connection.call(
                ApiKey.FIND_COORDINATOR, FindCoordinatorResponse, request
            )
            known = self.router.learn_coordinator(group, response)
        return await self.connection_to(known)

    async def _connect(self, address: Address) -> Connection:
        self.check_open()
        connection = self._connections.get(address)
        if connection is not None and not connection.closed:
            return connection
        task = self._opening.get(address)
        if task is None:
            task = self._opening[address] = asyncio.create_task(self._open(address))
            task.add_done_callback(_seen)
        try:
            # Others may wait for it too: one that is cancelled does not end it.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if waiting is None or not waiting.cancelling():
                self.check_open()  # the attempt was cancelled, not what waits for it
            raise

    async def _open(self, address: Address) -> Connection:
        try:
            connection = await Connection.open(address, self.settings)
        except ProtocolError:
            self.router.failed(address, now_ms())
            raise
        finally:
            del self._opening[address]
        self.router.connected(address)
        served = connection.served
        self.router.learn_features(served.features_epoch, served.features)
        self._connections[address] = connection
        return connection

    # -- Operations --------------------------------------------------------------------------

    def backoff(self, timeout_ms: int | None = None) -> Backoff:
        """Growing waits; without a timeout, for as long as an operation may take."""
        if timeout_ms is None:
            timeout_ms = self.settings.operation_timeout_ms
        return Backoff(self.settings, self.random, timeout_ms)

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Do something until it succeeds, fails for good, or the operation's time is up."""
        backoff = self.backoff()
        while True:
            try:
                return await attempt()
            except ProtocolError as error:
                if not is_worth_retrying(error) or not await backoff.maybe_wait():
                    raise

    async def run(self, operation: Callable[[ClusterClient], T]) -> T:
        """Do what the blocking client does by this function, without blocking (`operations`)."""
        operations = Operations(self.bootstrap, self.settings, self.router)
        backoff = self.backoff()
        while True:
            try:
                return operations.attempt(operation)
            except Needed as needed:
                await needed.fulfil(self)
            except Again as again:
                if not await backoff.maybe_wait():
                    if not again.is_of_part:
                        raise again.error from None
                    operations.settle()
                    continue
                operations.begin()
                if again.is_of_controller:
                    await self.refresh()


def _seen(task: asyncio.Task[Connection]) -> None:
    """What wanted the connection may wait no longer, and then its error is of no interest."""
    if not task.cancelled():
        task.exception()
