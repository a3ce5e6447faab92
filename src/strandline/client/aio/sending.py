"""Getting a producer's batches to the leaders of their partitions, on an event loop.

This file drives `produce_queues`: one task sends what is ready, and answers come in as they arrive.
It must not know how records are collected.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from strandline.client.accumulator import RecordAccumulator
from strandline.client.aio.cluster import AsyncClusterClient
from strandline.client.aio.connection import Connection, now_ms
from strandline.client.api.refusals import closed
from strandline.client.channel import RequestFailed
from strandline.client.coordinator_client import Ask, Outcome, not_sent
from strandline.client.delivery import Batch, Delivery, Outcomes
from strandline.client.produce_messages import encode_batch, highest_version, produce_request
from strandline.client.produce_policy import ProducePolicy
from strandline.client.produce_queues import ProduceQueues
from strandline.client.producer import ProducerSettings
from strandline.client.producer_identity import ProducerIdentity
from strandline.client.sending import REQUEST_BYTES_MAX, REQUESTS_IN_FLIGHT_MAX
from strandline.client.transaction_manager import TransactionManager
from strandline.errors import ErrorCode, InvalidSetting, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.init_producer_id import InitProducerIdResponse
from strandline.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from strandline.types import BrokerId, Offset, TopicId, TopicPartition

_LOOK_MS: Final = 1000
"""So often at least the task looks whether anything is overdue."""


class AsyncSender:
    """See the module. It is the `ProduceWatcher` of its queues."""

    def __init__(self, cluster: AsyncClusterClient, settings: ProducerSettings) -> None:
        self.outcomes = Outcomes()
        self._cluster = cluster
        self._settings = settings
        is_idempotent = settings.is_idempotent and settings.acks == -1
        identity = ProducerIdentity() if is_idempotent else None
        transacting = settings.transactions(cluster.settings)
        self.transactions: TransactionManager | None = None
        """With it all batches are sent in transactions."""
        if transacting is not None:
            self.transactions = TransactionManager(transacting, cluster.router, cluster.random)
            identity = self.transactions.identity
        self._queues: ProduceQueues[Batch] = ProduceQueues(
            ProducePolicy(
                acks=settings.acks,
                delivery_timeout_ms=settings.delivery_timeout_ms,
                topic_wait_ms=cluster.settings.topic_wait_ms,
                retry_backoff_ms=cluster.settings.retry_backoff_ms,
                retry_backoff_max_ms=cluster.settings.retry_backoff_max_ms,
            ),
            cluster.random,
            partial(encode_batch, codec=(settings.codec, settings.compression_level)),
            self,
            identity,
        )
        if self.transactions is not None:
            self._queues.join_transactions(self.transactions)
        self.accumulator = RecordAccumulator(
            cluster.random,
            self.outcomes,
            self._enqueue,
            batch_bytes=settings.batch_bytes,
            linger_ms=settings.linger_ms,
        )
        self._waiting: dict[Delivery, asyncio.Future[None]] = {}
        self._work = asyncio.Event()
        self._progress = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._failure: InvalidSetting | None = None
        """What is wrong with a setting, a secret's file for instance: the task is to end of it."""
        self._connecting: dict[BrokerId, asyncio.Task[None]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    @property
    def has_work(self) -> bool:
        """Whether a batch waits or is on the way."""
        return self._queues.has_work

    def wake(self) -> None:
        """There is something to send, at once or after a while. Raises `ProtocolError` once it is
        stopped."""
        self._check_going()
        if self._task is None or self._task.done():  # what ended it may be over
            self._failure = None
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._ended)
        self._work.set()

    async def progress(self) -> None:
        """Wait until a batch has its outcome. Raises what ended the task, and `ProtocolError` if
        that is stopped."""
        self._check_going()
        if self._task is None or not self._task.done():
            self._progress.clear()
            await self._progress.wait()
        self._check_going()
        if self._task is not None and self._task.done():
            self._task.result()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Nothing is sent until the next `wake`: all that wait for an outcome hear why."""
        self._progress.set()
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        self._fail_waiting(error)

    def _fail_waiting(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # what waited may be gone

    def _check_going(self) -> None:
        if self._is_stopped:
            raise closed("producer")

    async def done(self, delivery: Delivery) -> None:
        """Wait until a record has its outcome. Raises what ended the task, and `ProtocolError` if
        that is stopped before."""
        if not delivery.is_done:
            self._check_going()
            if self._task is not None:
                self.wake()
            future = self._waiting.get(delivery)
            if future is None:
                loop = asyncio.get_running_loop()
                future = self._waiting[delivery] = loop.create_future()
            await asyncio.shield(future)

    async def stop(self) -> None:
        """Send nothing any more. All that wait for an outcome hear of it."""
        self._is_stopped = True
        started = (self._task, *self._connecting.values(), *self._asking)
        tasks = [each for each in started if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._task = None
        self._fail_waiting(closed("producer"))
        self._progress.set()

    # -- Sending -----------------------------------------------------------------------------

    def _enqueue(self, batch: Batch) -> None:
        batch.created_ms = now_ms()  # the program may have kept the loop: its time begins here
        self._queues.add(batch)

    async def _run(self) -> None:
        """Send what is ready, whenever there may be something."""
        while True:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            self._work.clear()
            self.accumulator.close_lingering(now_ms())
            self._queues.give_up_old(now_ms())
            await self._learn()
            self._send_ready()
            self._ask_coordinators()
            now = now_ms()
            wakings = (
                self.accumulator.lingers_until_ms(),
                self._queues.next_ms(now),
                None if self.transactions is None else self.transactions.wake_ms,
            )
            wake_ms = min([now + _LOOK_MS, *(each for each in wakings if each is not None)])
            try:
                async with asyncio.timeout(max(0, wake_ms - now) / 1000):
                    await self._work.wait()
            except TimeoutError:
                continue

    def _ask_coordinators(self) -> None:
        """Send what the transaction needs."""
        if self.transactions is None:
            return
        for ask in self.transactions.step(now_ms()):
            task = asyncio.create_task(self._ask(self.transactions, ask))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        self._progress.set()

    async def _ask(self, transactions: TransactionManager, ask: Ask) -> None:
        try:
            if ask.to is None:
                connection = await self._cluster.any_connection()
            else:
                connection = await self._cluster.connection_to(ask.to)
            answer = connection.send(
                ask.key, ask.request, highest=ask.highest, timeout_ms=ask.timeout_ms
            )
        except ProtocolError as error:
            transactions.answered(ask, not_sent(error), now_ms())
        except InvalidSetting as error:
            transactions.answered(ask, RequestFailed(str(error), was_sent=False), now_ms())
            self._failure = error
        else:
            try:
                outcome: Outcome = await answer
            except ProtocolError as error:
                outcome = RequestFailed(error.message, was_sent=True)
            transactions.answered(ask, outcome, now_ms())
        self._work.set()

    async def _learn(self) -> None:
        """Find out what must be known to send: topics, and a producer id."""
        now = now_ms()
        ready = [
            each.topic_partition for each in self._queues.busy if self._queues.sendable(each, now)
        ]
        topics = {partition.topic for partition in ready}
        stale = {each for each in topics if self._cluster.known_topic(each) is None}
        error: ProtocolError | None = None
        overdue_ms = self._queues.overdue_at_ms()
        try:
            async with asyncio.timeout_at(None if overdue_ms is None else overdue_ms / 1000):
                if stale:
                    await self._cluster.refresh(stale)
                if topics and self._queues.needs_identity and self._queues.identity is not None:
                    identity = self._queues.identity
                    await self._cluster.retry(partial(self._identify, identity))
        except TimeoutError:
            self._work.set()  # there is something to give up
        except ProtocolError as failure:
            error = failure
        if error is not None:
            self._settle_sendable(None, error)

    async def _identify(self, identity: ProducerIdentity) -> None:
        connection = await self._cluster.any_connection()
        identity.learn(
            await connection.call(ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse, identity.request)
        )

    def _settle_sendable(self, broker: BrokerId | None, error: ProtocolError) -> None:
        """What could be sent (to a broker) cannot."""
        for queue in self._queues.busy:
            topic = self._cluster.view.topics.get(queue.topic_partition.topic)
            info = None if topic is None else topic.partitions.get(queue.topic_partition.partition)
            if broker is None or (info is not None and info.leader == broker):
                for batch in self._queues.sendable(queue, now_ms()):
                    self._queues.settle(batch, error, now_ms(), was_sent=False)

    def _send_ready(self) -> None:
        """Send each sendable batch of which everything is known."""
        by_leader: dict[BrokerId, list[Batch]] = {}
        for queue in self._queues.busy:
            at = queue.topic_partition
            topic = self._cluster.view.topics.get(at.topic)
            if topic is not None:
                self._queues.give_up_former(queue, topic.topic_id)
            for batch in self._queues.sendable(queue, now_ms()):
                leader = self._leader_of(batch)
                if leader is None:
                    break
                by_leader.setdefault(leader, []).append(batch)
        for leader, batches in by_leader.items():
            connection = self._cluster.open_connection(leader)
            if connection is None:
                self._connect(leader)
            else:
                self._send_to(connection, batches)

    def _leader_of(self, batch: Batch) -> BrokerId | None:
        """Who leads the batch's partition; if that is not known, the attempt has failed."""
        at = batch.topic_partition
        try:
            return self._cluster.known_leader(at).leader
        except ProtocolError as error:
            self._queues.settle(batch, error, now_ms(), was_sent=False)
            return None

    def _send_to(self, connection: Connection, batches: list[Batch]) -> None:
        while batches and connection.in_flight < REQUESTS_IN_FLIGHT_MAX:
            if self._settings.acks == 0 and connection.outflow.is_paused:
                # What asyncio keeps for a broker that takes nothing is not delivered.
                connection.outflow.call_when_free(self._work.set)
                return
            if self._queues.needs_identity:
                self._work.set()  # it was given up meanwhile: ask for another one first
                return
            size = len(self._queues.prepare(batches[0]))
            request = [batches.pop(0)]
            while batches:
                size += len(self._queues.prepare(batches[0]))
                if size > REQUEST_BYTES_MAX:
                    break
                request.append(batches.pop(0))
            try:
                self._send_request(connection, request)
            except ProtocolError as error:
                for batch in request:
                    self._queues.settle(batch, error, now_ms(), was_sent=False)

    def _send_request(self, connection: Connection, batches: list[Batch]) -> None:
        ids = {
            at.topic: self._cluster.view.topics[at.topic].topic_id
            for at in (batch.topic_partition for batch in batches)
        }
        timeout_ms = self._settings.append_timeout_ms
        request = produce_request(
            [(batch.topic_partition, batch.encoded or b"") for batch in batches],
            ids,
            acks=self._settings.acks,
            timeout_ms=timeout_ms,
            transactional_id=self._queues.transactional_id,
        )
        highest = highest_version(ids, self._queues.highest_produce)
        if self._settings.acks == 0:
            connection.send_unanswered(ApiKey.PRODUCE, request, highest=highest)
            self._queues.sent(batches, ids)
            self._work.set()  # no answer will say that the next batches may go
            return
        # The broker may use up the append timeout before it answers at all.
        patience_ms = max(self._cluster.settings.request_timeout_ms, timeout_ms + 5000)
        patience_ms = self._queues.patience_ms(batches, now_ms(), patience_ms)
        answer = connection.send(ApiKey.PRODUCE, request, highest=highest, timeout_ms=patience_ms)
        self._queues.sent(batches, ids)
        sent = {batch.topic_partition: batch for batch in batches}
        answer.add_done_callback(partial(self._told, sent, ids))

    def _connect(self, broker: BrokerId) -> None:
        if broker not in self._connecting:
            self._connecting[broker] = asyncio.create_task(self._open(broker))

    async def _open(self, broker: BrokerId) -> None:
        try:
            await self._cluster.connection_to(broker)
        except ProtocolError as error:
            self._settle_sendable(broker, error)
        except InvalidSetting as error:
            self._failure = error
        finally:
            del self._connecting[broker]
            self._work.set()

    def _told(
        self,
        batches: dict[TopicPartition, Batch],
        ids: dict[str, TopicId],
        answer: asyncio.Future[object],
    ) -> None:
        """A produce request has its answer, or none any more."""
        response = None if answer.exception() is not None else answer.result()
        if isinstance(response, ProduceResponse):
            self._queues.answered(batches, ids, response, now_ms())
        else:
            failure = answer.exception()
            error = (
                failure
                if isinstance(failure, ProtocolError)
                else ProtocolError(ErrorCode.NETWORK_EXCEPTION, "The answer is no answer.")
            )
            self._queues.lost(batches.values(), error, now_ms(), was_sent=True)
        self._work.set()

    # -- What the queues tell (`ProduceWatcher`) ---------------------------------------------

    def answered(
        self,
        batch: Batch,
        topic_id: TopicId,
        answer: PartitionProduceResponse,
        response: ProduceResponse,
    ) -> None:
        """See `ProduceWatcher`."""
        self._cluster.hint(
            batch.topic_partition, topic_id, answer.current_leader, response.node_endpoints
        )

    def failed(self, batch: Batch, error: ProtocolError) -> None:
        """See `ProduceWatcher`."""
        del error
        self._cluster.forget([batch.topic_partition.topic])

    def number_refused(self, batch: Batch, error: ProtocolError) -> None:
        """See `ProduceWatcher`."""

    def finished(self, batch: Batch, base_offset: Offset, error: ProtocolError | None) -> None:
        """See `ProduceWatcher`."""
        del base_offset
        self.outcomes.add(batch, error)
        for delivery in batch.deliveries:
            future = self._waiting.pop(delivery, None)
            if future is not None and not future.done():
                future.set_result(None)
        self._progress.set()
