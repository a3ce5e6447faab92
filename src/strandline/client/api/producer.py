"""`strandline.Producer`: records in, outcomes out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from strandline.client.api.one_thread import in_turn, waiting
from strandline.client.api.refusals import Use, note_unwritten
from strandline.client.api.settings import producing_of
from strandline.client.cluster import ClusterClient
from strandline.client.delivery import Delivery, FlushResult
from strandline.client.group_requests import Membership
from strandline.client.outgoing_records import Headers, Part
from strandline.client.producer import Producer as BatchingProducer
from strandline.client.transaction_requests import offsets_of_group
from strandline.errors import ProducerFailed, ProtocolError
from strandline.types import TopicPartition


@in_turn
class Producer:
    """Writes records to topics of any Kafka cluster, in batches.

        with strandline.Producer({"bootstrap.servers": "localhost:9092"}) as producer:
            delivery = producer.send("orders", b"one more", key=b"customer 7")
            producer.flush().raise_failure()
            print(delivery.topic_partition, delivery.result())

    - `settings`: by Kafka's names (see [clients](clients.md)); `bootstrap.servers` is needed.

    With the defaults (`acks=all`, `enable.idempotence=true`) each record is written once and in
    the order of its partition, whatever has to be sent again. There is no thread: what is ready
    goes out, and answers come in, within `send`, `poll` and `flush`. A context manager: leaving
    it sends what is left, and raises `ProtocolError` if any record was not written. An exception
    leaves it at once, with a note if it is not known that all records were written. Threads may
    share a producer: a call waits until that of another thread has ended.

    With `transactional.id` records are sent in transactions: readers of committed records see all
    of one or nothing. Of all producers with the same id only the one that began last may write.

        settings = {"bootstrap.servers": "localhost:9092", "transactional.id": "billing-1"}
        with strandline.Producer(settings) as producer:
            with producer.transaction():
                producer.send("invoices", b"one more")
                producer.send("ledger", b"its entry")

    A transaction that is open when the producer is closed is aborted; but a commit that was
    interrupted, or whose time was up, is brought to its end.

    Connects to nothing yet. Raises `InvalidSetting` for an unknown setting or value.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        connecting, producing = producing_of(settings)
        self._cluster = ClusterClient(connecting.bootstrap, connecting.client)
        self._producer = BatchingProducer(self._cluster, producing)
        self._is_transactional = producing.transactional_id is not None
        self._use = Use("producer")

    def __enter__(self) -> Self:
        return self

    @waiting
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._use.is_closed:
            return
        try:
            if self._use.is_inherited:
                return
            if self._is_transactional:
                self._producer.end_open()
            elif kind is None:
                self.flush().raise_failure()
            else:
                note_unwritten(error, self.buffered_bytes)
        finally:
            self._use.is_closed = True
            self._cluster.close()

    @property
    def _open(self) -> BatchingProducer:
        """Raises `ProtocolError` (INVALID_REQUEST) for a producer that was closed: what it is given
        would not be written."""
        self._use.check_open()
        return self._producer

    def send(
        self,
        topic: str,
        value: Part,
        *,
        key: Part = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Give a record to the producer. Returns before it is sent, unless the buffer is full.

        Without `partition` the key decides (as Kafka's clients do: murmur2), and without a key
        batches go round. `value` None is a tombstone of the key. `timestamp_ms` is in milliseconds
        since 1970, now by default. Raises `ProtocolError`: UNKNOWN_TOPIC_OR_PARTITION,
        MESSAGE_TOO_LARGE for a record above `buffer.memory`, BROKER_NOT_AVAILABLE, ...; with
        `transactional.id` INVALID_TXN_STATE outside of a transaction, `TransactionFailed` in one
        that can only be aborted, and `ProducerFailed`. Raises `TypeError` or `ValueError` for what
        is no record: text in place of bytes, a time that 64 bits do not hold.
        """
        return self._open.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp_ms
        )

    def poll(self) -> None:
        """Send batches that are as old as `linger.ms`, and take in answers, without waiting.

        For programs that make a pause between two calls of `send`.
        """
        self._open.poll()

    def flush(self) -> FlushResult:
        """Send everything and wait for all outcomes, at most for `delivery.timeout.ms`.

        Returns the outcomes since the last flush, and raises nothing for records that failed:
        `flush().raise_failure()` does.
        """
        return self._open.flush()

    # -- Transactions ------------------------------------------------------------------------

    def init_transactions(self) -> None:
        """Fence all producers with this `transactional.id` that began before, and end what they
        left open. `begin` does so the first time, if the program has not.

        A program that copies from one topic to another calls it before it asks how far it was.
        Raises `ProtocolError`: REQUEST_TIMED_OUT after `default.api.timeout.ms` (call it again),
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_TRANSACTION_TIMEOUT, ...
        """
        self._open.init_transactions()

    def begin(self) -> None:
        """Begin a transaction: all that is sent from now on belongs to it.

        Raises `ProtocolError` (INVALID_TXN_STATE) if there is one, and `ProducerFailed`.
        """
        self._open.begin()

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: Membership | str) -> None:
        """Store how far a group has read, as a part of the transaction (KIP-447).

        `offsets` are those of the next records to read, and `group` is `Consumer.group_metadata`
        of the member that has read them: then the offsets of a member that has lost its
        partitions are refused. A group's name alone is not checked. Raises `TransactionFailed`
        for what is refused, and what `commit` does.
        """
        self._open.send_offsets(*offsets_of_group(offsets, group))

    def commit(self) -> None:
        """Write what is left, and commit the transaction.

        Raises `TransactionFailed` if it cannot be committed: call `abort`, then do its work again.
        Raises `ProducerFailed` if the producer may not go on: whether the transaction was
        committed is not known only if that was its answer to a commit that was sent before.
        Raises `ProtocolError` (REQUEST_TIMED_OUT) after `default.api.timeout.ms`: call it again.
        """
        self._open.commit()

    def abort(self) -> None:
        """Abort the transaction; what was sent in it is no record for readers of committed ones.

        Raises `ProducerFailed`, and `ProtocolError` (REQUEST_TIMED_OUT) as `commit` does.
        """
        self._open.abort()

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """A transaction around a `with` block: committed at its end, aborted for an exception.

        `TransactionFailed` is raised after the abort: the block can be run again at once. A block
        may also call `commit` or `abort` itself, as its last step. If the program is interrupted
        while it commits, the commit is brought to its end first.
        """
        self.begin()
        try:
            yield self
            self._commit_open()
        except ProducerFailed:
            raise  # nothing that it can do has an effect
        except BaseException as error:
            self._end_after(error)
            raise

    @waiting
    def _commit_open(self) -> None:
        if self._producer.is_in_transaction:
            self._open.commit()

    @waiting
    def _end_after(self, error: BaseException) -> None:
        try:
            if isinstance(error, ProtocolError):
                self._producer.abort_open()  # a commit that takes long can be called again
            else:
                self._producer.end_open()
        except ProtocolError as failure:
            error.add_note(f"The transaction could not be ended: {failure.message}")

    # -- What is known -----------------------------------------------------------------------

    def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic. Raises `ProtocolError` if there is no such topic."""
        self._use.check_open()
        return sorted(self._cluster.topic(topic).partitions)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of records without an outcome, at most `buffer.memory`."""
        return self._producer.buffered_bytes

    def close(self) -> None:
        """Send what is left and close all connections. Raises `ProtocolError` as `with` does.

        With `transactional.id`: bring a commit that is under way to its end, abort what was not
        committed, and close all connections. Raises what `commit` does.
        """
        self.__exit__(None)
