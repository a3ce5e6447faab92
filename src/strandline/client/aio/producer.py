"""`strandline.AsyncProducer`: records in, outcomes out, on an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from strandline.client.aio.cluster import AsyncClusterClient
from strandline.client.aio.connection import now_ms
from strandline.client.aio.sending import AsyncSender
from strandline.client.api.refusals import Use, note_unwritten
from strandline.client.api.settings import producing_of
from strandline.client.arguments import a_name, a_number
from strandline.client.delivery import Delivery, FlushResult
from strandline.client.group_requests import Membership
from strandline.client.outgoing_records import Headers, Part, checked_size, outgoing_record
from strandline.client.transaction_errors import needed, overdue
from strandline.client.transaction_manager import TransactionManager
from strandline.client.transaction_requests import offsets_of_group
from strandline.client.transaction_state import State
from strandline.errors import ProducerFailed, ProtocolError, TransactionFailed
from strandline.records.batch import HEADER_BYTES
from strandline.types import Offset, TopicPartition


class AsyncProducer:
    """Writes records to topics of any Kafka cluster, in batches, on an event loop.

        async with strandline.AsyncProducer({"bootstrap.servers": "localhost:9092"}) as producer:
            offset = await producer.send_and_wait("orders", b"one more", key=b"customer 7")

    - `settings`: by Kafka's names (see [clients](clients.md)); `bootstrap.servers` is needed.

    It promises what `Producer` does. Batches go out by themselves after `linger.ms`. Leaving
    `async with` sends what is left, and raises `ProtocolError` if any record was not written. With
    `transactional.id` it has transactions, as `Producer` has:

        async with producer.transaction():
            await producer.send("invoices", b"one more")

    Connects to nothing yet. Raises `InvalidSetting` for an unknown setting or value.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        connecting, self._settings = producing_of(settings)
        self._cluster = AsyncClusterClient(connecting.bootstrap, connecting.client, what="producer")
        self._sender = AsyncSender(self._cluster, self._settings)
        self._outcomes = self._sender.outcomes
        self._use = Use("producer")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._use.is_closed or self._use.is_inherited:
            return
        try:
            if self._sender.transactions is not None:
                await self._end_open()
            elif kind is None:
                (await self.flush()).raise_failure()
            else:
                note_unwritten(error, self.buffered_bytes)
        finally:
            self._use.is_closed = True
            await self._sender.stop()
            await self._cluster.close()

    # -- Records -----------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Part,
        *,
        key: Part = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Give a record to the producer, as `Producer.send`; waits while the buffer is full."""
        self._use.check_open()
        if self._sender.transactions is not None:
            self._sender.transactions.check_open()
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        a_name(topic)
        if partition is not None:
            partition = a_number(partition, "The partition")
        record = outgoing_record(key, value, headers, timestamp_ms)
        size = checked_size(record, self._settings.buffer_bytes_max)
        found = self._cluster.router.suitable_topic(topic, partition)
        if found is None:
            may_create = self._settings.may_create_topics
            found = await self._cluster.topic(topic, may_create=may_create, partition=partition)
        await self._make_room(size + HEADER_BYTES)
        self._use.check_open()  # another task may have closed it meanwhile
        target = self._sender.accumulator.choose(found, record.key, partition, size)
        self._sender.accumulator.close_unless_fits(target, size)
        delivery = self._sender.accumulator.append(target, record, size, now_ms)
        self._sender.wake()
        return delivery

    async def send_and_wait(
        self,
        topic: str,
        value: Part,
        *,
        key: Part = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Offset:
        """`send`, and wait for the outcome: see `outcome`."""
        delivery = await self.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        return await self.outcome(delivery)

    async def outcome(self, delivery: Delivery) -> Offset:
        """Wait for a record's outcome: its offset. Raises the `ProtocolError` that it met, and
        INVALID_REQUEST if the producer is closed before there is one."""
        await self._sender.done(delivery)
        return delivery.result()

    async def flush(self) -> FlushResult:
        """Send everything and wait for all outcomes; those since the last flush are returned.

        Takes `delivery.timeout.ms` at most. Raises nothing for records that failed.
        """
        self._use.check_open()
        self._sender.accumulator.close_all()
        self._sender.wake()
        while self._sender.has_work:
            await self._sender.progress()
        return self._outcomes.take()

    # -- Transactions ------------------------------------------------------------------------

    async def init_transactions(self) -> None:
        """Fence the producers before, as `Producer.init_transactions`."""
        transactions = self._transactions
        transactions.initialize()
        await self._settled(transactions, "init_transactions")

    async def begin(self) -> None:
        """Begin a transaction, as `Producer.begin`."""
        await self.init_transactions()
        self._transactions.begin()

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int], group: Membership | str
    ) -> None:
        """Store how far a group has read with the transaction, as `Producer.send_offsets`."""
        transactions = self._transactions
        transactions.send_offsets(*offsets_of_group(offsets, group))
        await self._settled(transactions, "send_offsets")

    async def commit(self) -> None:
        """Commit the transaction, as `Producer.commit`."""
        transactions = self._transactions
        transactions.commit()
        self._sender.accumulator.close_all()
        await self._settled(transactions, "commit")
        self._outcomes.take()

    async def abort(self) -> None:
        """Abort the transaction, as `Producer.abort`."""
        transactions = self._transactions
        transactions.abort()
        self._sender.accumulator.close_all()
        await self._settled(transactions, "abort")
        self._outcomes.take()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """A transaction around an `async with` block, as `Producer.transaction`."""
        await self.begin()
        try:
            yield self
            if self._transactions.is_open:
                await self.commit()
        except ProducerFailed:
            raise  # nothing that it can do has an effect
        except BaseException as error:
            try:
                if isinstance(error, ProtocolError):
                    await self._abort_open()  # a commit that takes long can be called again
                else:
                    await self._end_open()
            except ProtocolError as failure:
                error.add_note(f"The transaction could not be ended: {failure.message}")
            raise

    async def _abort_open(self) -> None:
        if self._transactions.is_open:
            await self.abort()

    async def _end_open(self) -> None:
        """See `client.producer.Producer.end_open`."""
        state = self._transactions.state
        if state is State.COMMITTING:
            try:
                await self.commit()
            except TransactionFailed:
                await self.abort()
                raise
        elif state is State.ABORTING:
            await self.abort()
        else:
            await self._abort_open()

    @property
    def _transactions(self) -> TransactionManager:
        self._use.check_open()
        return needed(self._sender.transactions)

    async def _settled(self, transactions: TransactionManager, call: str) -> None:
        self._sender.wake()
        try:
            async with asyncio.timeout(self._cluster.settings.operation_timeout_ms / 1000):
                while transactions.is_busy:
                    await self._sender.progress()
        except TimeoutError:
            raise overdue(call, transactions.trouble) from None
        transactions.raise_error()

    # -- What is known -----------------------------------------------------------------------

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic. Raises `ProtocolError` if there is no such topic."""
        self._use.check_open()
        return sorted((await self._cluster.topic(topic)).partitions)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of records without an outcome, at most `buffer.memory`."""
        return self._outcomes.held_bytes

    async def close(self) -> None:
        """Send what is left, or end an open transaction as `Producer.close`, and close all
        connections.

        Raises `ProtocolError` as `async with`.
        """
        await self.__aexit__(None)

    async def _make_room(self, size_bytes: int) -> None:
        limit = self._settings.buffer_bytes_max
        while self._outcomes.held_bytes and self._outcomes.held_bytes + size_bytes > limit:
            self._sender.accumulator.close_all()
            self._sender.wake()
            await self._sender.progress()
