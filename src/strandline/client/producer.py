"""Sending records: idempotent, in batches, in order, within bounded memory.

    with Producer(cluster) as producer:
        delivery = producer.send("orders", b"value", key=b"key")
        producer.flush().raise_failure()
        offset = delivery.result()

This file collects records into batches; `sending.py` gets the batches to their brokers. There is no
thread: `send` also sends what is full and takes in what was answered, and waits only while the
memory bound is reached. What is not full stays until `flush`, or for `linger_ms`: callers that
pause flush before it, or call `poll`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.client.accumulator import RecordAccumulator
from strandline.client.arguments import a_name, a_number
from strandline.client.cluster import ClusterClient
from strandline.client.delivery import Batch, Delivery, FlushResult
from strandline.client.group_requests import Committed, Membership
from strandline.client.outgoing_records import Headers, Part, checked_size, outgoing_record
from strandline.client.produce_policy import ProducePolicy
from strandline.client.sending import Sender
from strandline.client.settings import ClientSettings
from strandline.client.transaction_errors import needed, overdue
from strandline.client.transaction_manager import TransactionManager
from strandline.client.transaction_settings import TRANSACTION_TIMEOUT_MS, TransactionSettings
from strandline.client.transaction_state import Delegation, State
from strandline.errors import TransactionFailed
from strandline.records.batch import HEADER_BYTES
from strandline.records.codec import Codec
from strandline.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Defaults are Java's where they mean the same; sizes in bytes before compression."""

    acks: int = -1
    """-1: all replicas in sync have it; 1: the leader has it; 0: no answer is awaited."""
    is_idempotent: bool = True
    """Whether a retry is recognised as such. Without effect unless acks is -1."""
    codec: Codec = Codec.NONE
    compression_level: int | None = None
    batch_bytes: int = 128 * 1024
    linger_ms: int | None = None
    """After so long a batch is sent that is not full; None: only by `flush`."""
    buffer_bytes_max: int = 32 * 1024 * 1024
    delivery_timeout_ms: int = 120_000
    """How long a record may wait and be retried before it counts as failed."""
    append_timeout_ms: int = 30_000
    """How long a broker may wait for its followers."""
    may_create_topics: bool = True
    transactional_id: str | None = None
    """With it all records are sent in transactions."""
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS

    def transactions(self, client: ClientSettings) -> TransactionSettings | None:
        """How transactions are made, if there are any."""
        if self.transactional_id is None:
            return None
        return TransactionSettings(
            transactional_id=self.transactional_id,
            timeout_ms=self.transaction_timeout_ms,
            request_timeout_ms=client.request_timeout_ms,
            retry_backoff_ms=client.retry_backoff_ms,
            retry_backoff_max_ms=client.retry_backoff_max_ms,
        )


class Producer:
    """See the module. A context manager: leaving it without an error flushes."""

    def __init__(self, cluster: ClusterClient, settings: ProducerSettings | None = None) -> None:
        self._cluster = cluster
        self._settings = settings = settings or ProducerSettings()
        self._sender = Sender(
            cluster,
            ProducePolicy(
                acks=settings.acks,
                delivery_timeout_ms=settings.delivery_timeout_ms,
                topic_wait_ms=cluster.settings.topic_wait_ms,
                retry_backoff_ms=cluster.settings.retry_backoff_ms,
                retry_backoff_max_ms=cluster.settings.retry_backoff_max_ms,
            ),
            codec=(settings.codec, settings.compression_level),
            append_timeout_ms=settings.append_timeout_ms,
            is_idempotent=settings.is_idempotent and settings.acks == -1,
            transactions=settings.transactions(cluster.settings),
        )
        self._outcomes = self._sender.outcomes
        self._accumulator = RecordAccumulator(
            cluster.random,
            self._outcomes,
            self._enqueue,
            batch_bytes=settings.batch_bytes,
            linger_ms=settings.linger_ms,
        )

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None and self._sender.transactions is None:
            self.flush()
        self.end_open()

    @property
    def buffered_bytes(self) -> int:
        """What waits to be sent or answered."""
        return self._outcomes.held_bytes

    def send(
        self,
        topic: str,
        value: Part,
        *,
        key: Part = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Give a record to the producer; it is sent with its batch.

        `timestamp` is in milliseconds, now by default. Raises `ProtocolError` when the topic or
        partition is not known, or no room became free in time; `TypeError` or `ValueError` for
        what cannot be written.
        """
        if self._sender.transactions is not None:
            self._sender.transactions.check_open()
        if timestamp is None:
            timestamp = self._cluster.clock.wall_ms()
        a_name(topic)
        if partition is not None:
            partition = a_number(partition, "The partition")
        record = outgoing_record(key, value, headers, timestamp)
        size = checked_size(record, self._settings.buffer_bytes_max)
        found = self._cluster.router.suitable_topic(topic, partition)
        if found is None:
            found = self._cluster.topic(
                topic, may_create=self._settings.may_create_topics, partition=partition
            )
        accumulator = self._accumulator
        target = accumulator.choose(found, record.key, partition, size)
        accumulator.close_unless_fits(target, size)
        if self._outcomes.held_bytes + size + HEADER_BYTES > self._settings.buffer_bytes_max:
            self._make_room(size + HEADER_BYTES)
        delivery = accumulator.append(target, record, size, self._cluster.clock.monotonic_ms)
        if self._settings.linger_ms is not None:
            accumulator.close_lingering(self._cluster.clock.monotonic_ms())
        return delivery

    def poll(self) -> None:
        """Send what has lingered, and take in what was answered. Does not wait for answers."""
        self._accumulator.close_lingering(self._cluster.clock.monotonic_ms())
        self._sender.pump(wait=False)

    def flush(self) -> FlushResult:
        """Send everything and wait for the outcomes; those since the last flush are returned."""
        self._accumulator.close_all()
        while self._sender.has_work:
            self._sender.pump(wait=True)
        return self._outcomes.take()

    # -- Transactions ------------------------------------------------------------------------

    def init_transactions(self) -> None:
        """Fence the producers of this transactional id that began before; once is enough.

        Raises `ProtocolError`; REQUEST_TIMED_OUT after the time of an operation: it goes on if it
        is called again. `ProducerFailed` if the producer is of no use.
        """
        transactions = self._transactions
        transactions.initialize()
        self._await(transactions, "init_transactions")

    def begin(self) -> None:
        """Begin a transaction: all records that are sent now belong to it."""
        self.init_transactions()
        self._transactions.begin()

    def send_offsets(
        self, offsets: Mapping[TopicPartition, Committed], membership: Membership
    ) -> None:
        """Have a group's offsets stored with the transaction, and wait until they are noted.

        Raises `TransactionFailed` if the group has gone on without this member.
        """
        transactions = self._transactions
        transactions.send_offsets(offsets, membership)
        self._await(transactions, "send_offsets")

    def commit(self) -> None:
        """Write what is left, and commit. Raises `TransactionFailed`: `abort` then."""
        transactions = self._transactions
        transactions.commit()
        self._accumulator.close_all()
        self._await(transactions, "commit")
        self._outcomes.take()

    def abort(self) -> None:
        """Abort the transaction; readers of committed records see nothing of it."""
        transactions = self._transactions
        transactions.abort()
        self._accumulator.close_all()
        self._await(transactions, "abort")
        self._outcomes.take()

    def delegate(self) -> Delegation:
        """Let producers in other processes write in the open transaction (`join`).

        Each partition may have one writer in a transaction, be it this one: brokers count the
        batches of a producer id. This producer ends the transaction when all others are done.
        """
        return self._transactions.delegate()

    def join(self, delegation: Delegation) -> None:
        """Write in a transaction that another producer has begun. What is sent is to be flushed,
        and is judged by the results of `flush`; neither commit nor abort it here."""
        self._transactions.join(delegation)

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open, be it that it can only be aborted."""
        return self._sender.transactions is not None and self._sender.transactions.is_open

    def abort_open(self) -> None:
        """Abort a transaction that nothing has ended."""
        if self.is_in_transaction:
            self.abort()

    def end_open(self) -> None:
        """As `abort_open`; but a commit or an abort that is under way, because the program was
        interrupted in it, is brought to its end. Raises as `commit`."""
        transactions = self._sender.transactions
        if transactions is not None and transactions.state is State.COMMITTING:
            try:
                self.commit()
            except TransactionFailed:
                self.abort()
                raise
        elif transactions is not None and transactions.state is State.ABORTING:
            self.abort()
        else:
            self.abort_open()

    @property
    def _transactions(self) -> TransactionManager:
        return needed(self._sender.transactions)

    def _await(self, transactions: TransactionManager, call: str) -> None:
        clock = self._cluster.clock
        deadline_ms = clock.monotonic_ms() + self._cluster.settings.operation_timeout_ms
        while transactions.is_busy:
            self._sender.pump(wait=True)
            if transactions.trouble is not None:
                self._cluster.on_delay(transactions.trouble)
            if transactions.is_busy and clock.monotonic_ms() >= deadline_ms:
                raise overdue(call, transactions.trouble)
        transactions.raise_error()

    # -- Records on their way ----------------------------------------------------------------

    def _enqueue(self, batch: Batch) -> None:
        # Without a thread it may have waited long for the program's next call: its time for
        # attempts begins here.
        batch.created_ms = self._cluster.clock.monotonic_ms()
        self._sender.enqueue(batch)
        self._sender.pump(wait=False)

    def _make_room(self, size_bytes: int) -> None:
        limit = self._settings.buffer_bytes_max
        self._accumulator.close_all()
        # Ends because every batch is delivered or given up within the delivery timeout.
        while self._outcomes.held_bytes and self._outcomes.held_bytes + size_bytes > limit:
            self._sender.pump(wait=True)
