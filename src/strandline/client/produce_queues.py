"""A producer's batches, from when they are full until it is known what became of them.

    add ──> queued ── sendable, prepare, sent ──> in flight ── answered ──> finished
              ^                                       │
              └───── paused ── settle <── an error, or no answer (lost)

This file knows in which order batches go, what each error means for one, and when a producer's
identity is given up. It has no socket, thread or clock: a driver finds the leaders, carries the
requests and says what time it is. Drivers are `sending.Sender` (blocking), `aio.sending` (asyncio)
and the simulator's producers. It must not know how records are collected.

Theory: an outcome is definite or unknown (I-41). An error that a broker only gives before it
appends is definite; a broken connection, a time-out, and errors that may also come after an append
are not. A batch that fails in a way that a retry may mend stays in its place and is sent again,
byte for byte, until the delivery timeout; its number makes the repetition recognisable (KIP-98). A
batch that was refused because of its number gets another one, but only if no attempt can have
written it: under a new number it could be there twice. Before that it is sent some more times under
its number, to the leader that new metadata names: one that was deposed and does not know it yet
lacks what its successor has acknowledged, and so refuses what comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Final, Generic, TypeVar

from strandline.client.backoff import ExponentialBackoff
from strandline.client.delivery import Batch
from strandline.client.partition_queue import PartitionQueue
from strandline.client.produce_messages import answers_by_partition
from strandline.client.produce_policy import ProducePolicy
from strandline.client.produce_watcher import ProduceWatcher
from strandline.client.producer_identity import ProducerIdentity
from strandline.client.refusal import refusal
from strandline.client.retry import is_worth_waiting_for
from strandline.client.transaction_manager import TransactionManager
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from strandline.protocol.produce_errors import is_definite
from strandline.types import NO_OFFSET, Offset, TopicId, TopicPartition

RENEWALS_MAX: Final = 3
"""So often a batch gets another number."""
DOUBTS_MAX: Final = 3
"""So often it is sent again under a number that was refused; with the pauses that is long enough
for a deposed leader to hear of its end, if it reaches the metadata store."""

_LOST_COUNT: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
)
_NUMBER_REFUSED: Final = _LOST_COUNT | {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}

B = TypeVar("B", bound=Batch)


class ProduceQueues(Generic[B]):
    """See the module."""

    def __init__(
        self,
        policy: ProducePolicy,
        random: Random,
        encode: Callable[[B], bytes],
        watcher: ProduceWatcher[B],
        identity: ProducerIdentity | None = None,
    ) -> None:
        """`encode` makes a batch's bytes, with its `identity`; there is one of the producer if it
        is to be idempotent."""
        self.identity = identity
        self._policy = policy
        self._random = random
        self._encode = encode
        self._watcher = watcher
        self.transactions: TransactionManager | None = None
        """Set by `join_transactions`."""
        self._queues: dict[TopicPartition, PartitionQueue[B]] = {}
        self._busy: dict[TopicPartition, PartitionQueue[B]] = {}

    @property
    def has_work(self) -> bool:
        """Whether any batch has no outcome yet."""
        return bool(self._busy)

    @property
    def busy(self) -> Iterator[PartitionQueue[B]]:
        """The queues with batches in them; they may change meanwhile."""
        return iter(list(self._busy.values()))

    def queue(self, partition: TopicPartition) -> PartitionQueue[B]:
        """The queue of a partition, made when first needed."""
        queue = self._queues.get(partition)
        if queue is None:
            policy = self._policy
            backoff = ExponentialBackoff(
                self._random, policy.retry_backoff_ms, policy.retry_backoff_max_ms
            )
            queue = self._queues[partition] = PartitionQueue(
                partition,
                backoff,
                policy.batches_in_flight_max,
                is_numbered=self.identity is not None,
            )
        return queue

    # -- Transactions ------------------------------------------------------------------------

    def join_transactions(self, transactions: TransactionManager) -> None:
        """All batches are of these transactions, whose `identity` is that of the queues."""
        self.transactions = transactions
        transactions.batches = self

    def number_anew(self) -> None:
        """Another id or epoch is used from now on: the first batch under it goes alone."""
        for each in self._queues.values():
            each.is_sequence_confirmed = False

    def _give_up_aborted(self) -> None:
        """Fail what an aborted transaction, or the end of the producer, leaves without sense."""
        for queue in self.busy:
            for batch in list(queue.batches):
                is_numbered = batch.encoded is not None
                transactions = self.transactions
                if transactions is not None and not queue.is_in_flight(batch):
                    error = transactions.gives_up(is_numbered=is_numbered)
                    if error is not None:
                        self._finish(batch, NO_OFFSET, error)

    # -- Sending -----------------------------------------------------------------------------

    def add(self, batch: B) -> None:
        """Take a batch over; it is sent after those of its partition that came before."""
        queue = self.queue(batch.topic_partition)
        queue.add(batch)
        self._busy[batch.topic_partition] = queue

    @property
    def needs_identity(self) -> bool:
        """Whether a producer id is to be asked for before anything can be sent."""
        identity = self.identity
        return identity is not None and not identity.is_known and self.transactions is None

    def sendable(self, queue: PartitionQueue[B], now_ms: int) -> list[B]:
        """The batches of a queue that may go now, in order."""
        batches = queue.sendable(now_ms)
        transactions = self.transactions
        if transactions is None:
            return batches
        at = queue.topic_partition
        return [
            batch
            for batch in batches
            if transactions.admits(at, is_numbered=batch.encoded is not None)
        ]

    @property
    def transactional_id(self) -> str | None:
        """For produce requests."""
        return None if self.transactions is None else self.transactions.transactional_id

    @property
    def highest_produce(self) -> int | None:
        """The newest version of Produce that may be used; None: any."""
        return None if self.transactions is None else self.transactions.highest_produce

    def prepare(self, batch: B) -> bytes:
        """The bytes of a batch that is to be sent; the first attempt fixes them."""
        if batch.encoded is None:
            if self.identity is not None:
                batch.identity = self.identity.number(batch.topic_partition, len(batch.records))
            batch.encoded = self._encode(batch)
        return batch.encoded

    def sent(self, batches: Iterable[B], ids: Mapping[str, TopicId]) -> None:
        """A request with these batches is on its way; with acks 0 that is their outcome."""
        for batch in batches:
            queue = self.queue(batch.topic_partition)
            if batch.topic_id is None:
                batch.topic_id = ids[batch.topic_partition.topic]
            batch.was_next = queue.batches[0] is batch
            if self.identity and batch.identity and not self.identity.is_current(batch.identity):
                # A broker could not tell its order with what is numbered under the present id.
                queue.is_sequence_confirmed = False
            if self._policy.acks == 0:
                self._finish(batch, NO_OFFSET, None)
            else:
                queue.sent(batch)

    def next_ms(self, now_ms: int) -> int | None:
        """When the first of the pauses ends that last now."""
        pauses = [queue.not_before_ms for queue in self._busy.values()]
        return min((at_ms for at_ms in pauses if at_ms > now_ms), default=None)

    def patience_ms(self, batches: Iterable[B], now_ms: int, answer_ms: int) -> int:
        """How long to wait for an answer about these batches: `answer_ms`, but not beyond the
        delivery timeout. Then the driver gives the connection up and calls them `lost`, so that no
        answer comes later. A first attempt that is late already has the whole timeout."""
        timeout_ms = self._policy.delivery_timeout_ms
        left_ms = min(batch.created_ms for batch in batches) + timeout_ms - now_ms
        return min(answer_ms, left_ms if left_ms > 0 else timeout_ms)

    def overdue_at_ms(self) -> int | None:
        """When the first of the batches that are not on their way is to be given up."""
        busy = self._busy.values()
        waiting = [each.batches[0] for each in busy if not each.is_in_flight(each.batches[0])]
        created_ms = min((each.created_ms for each in waiting), default=None)
        return None if created_ms is None else created_ms + self._policy.delivery_timeout_ms + 1

    # -- Answers -----------------------------------------------------------------------------

    def answered(
        self,
        batches: Mapping[TopicPartition, B],
        ids: Mapping[str, TopicId],
        response: ProduceResponse,
        now_ms: int,
    ) -> None:
        """The answer to a request with these batches, whose topics had these ids."""
        unanswered = dict(batches)
        for batch in batches.values():
            self.queue(batch.topic_partition).answered(batch)
        for partition, topic_id, answer in answers_by_partition(response, ids):
            batch_or_none = unanswered.pop(partition, None)
            if batch_or_none is not None:
                self._watcher.answered(batch_or_none, topic_id, answer, response)
                self._take_in(batch_or_none, answer, now_ms)
        error = ProtocolError(ErrorCode.NETWORK_EXCEPTION, "The broker's answer lacks it.")
        for batch in unanswered.values():
            batch.maybe_written = True
            self.settle(batch, error, now_ms)

    def lost(
        self, batches: Iterable[B], error: ProtocolError, now_ms: int, *, was_sent: bool
    ) -> None:
        """There will be no answer to a request with these batches."""
        for batch in batches:
            self.queue(batch.topic_partition).answered(batch)
            batch.maybe_written |= was_sent
            self.settle(batch, error, now_ms, was_sent=was_sent)

    def _take_in(self, batch: B, answer: PartitionProduceResponse, now_ms: int) -> None:
        if answer.error_code == ErrorCode.NONE:
            self._finish(batch, Offset(answer.base_offset), None)
        elif answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._finish(batch, NO_OFFSET, None)
        else:
            what = f"partition {batch.topic_partition}"
            message = answer.error_message
            if answer.record_errors:
                message = answer.record_errors[0].batch_index_error_message or message
            error = refusal(answer.error_code, message, what)
            batch.maybe_written |= not is_definite(error.code, self._policy.acks)
            self.settle(batch, error, now_ms)

    # -- What errors mean --------------------------------------------------------------------

    def settle(self, batch: B, error: ProtocolError, now_ms: int, *, was_sent: bool = True) -> None:
        """Decide what a failed attempt means: try again, number anew, split, or give up."""
        queue = self.queue(batch.topic_partition)
        if error.code is ErrorCode.MESSAGE_TOO_LARGE and self._maybe_split(queue, batch):
            return
        if error.code in _NUMBER_REFUSED and self._maybe_renumber(queue, batch, error, now_ms):
            return
        is_retriable = now_ms - batch.created_ms < self._patience_ms(error)
        if is_retriable:
            queue.pause(now_ms)
        if is_retriable and (self._policy.repeats or not was_sent):
            self._watcher.failed(batch, error)
        else:
            self._finish(batch, NO_OFFSET, error)

    def _patience_ms(self, error: ProtocolError) -> int:
        """For how long batches that meet this error are tried again."""
        policy = self._policy
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return min(policy.topic_wait_ms, policy.delivery_timeout_ms)
        return policy.delivery_timeout_ms if is_worth_waiting_for(error) else 0

    def _maybe_split(self, queue: PartitionQueue[B], batch: B) -> bool:
        if len(batch.records) < 2 or batch.maybe_written:
            return False
        if batch.identity is None and queue.in_flight:
            return False  # those behind it may be written: its parts would come after them
        is_number_free = self._release_number(queue, batch)
        if not is_number_free and self.transactions is not None:
            return False  # those behind it will be refused: the transaction is to be aborted
        queue.replace(batch, batch.split())
        return True

    def _maybe_renumber(
        self, queue: PartitionQueue[B], batch: B, error: ProtocolError, now_ms: int
    ) -> bool:
        """Whether the batch is sent again, under another number or in its turn."""
        if self.identity is None or batch.identity is None:
            return False
        is_first = batch.was_next and queue.batches[0] is batch
        is_current = self.identity.is_current(batch.identity)
        if error.code in _LOST_COUNT and not is_first and (is_current or batch.maybe_written):
            # Behind one that is not decided, or failed, it only came too early.
            queue.pause(now_ms)
            return True
        if is_current:
            self._watcher.number_refused(batch, error)
            if error.code in _LOST_COUNT and batch.doubts < DOUBTS_MAX:
                batch.doubts += 1
                queue.pause(now_ms)
                self._watcher.failed(batch, error)
                return True
        if self.identity.is_transactional:
            return False  # the transaction is aborted, and the next one has other numbers
        if is_current:
            self._renew(queue)
        if batch.maybe_written or batch.renewals >= RENEWALS_MAX:
            return False
        _forget_number(batch)
        return True

    def give_up_old(self, now_ms: int, *, spares_untried: bool = False) -> None:
        """Fail batches that waited longer than the delivery timeout (but for those that were never
        tried, if these are spared), or whose transaction is aborted."""
        if self.transactions is not None:
            self._give_up_aborted()
        timeout_ms = self._policy.delivery_timeout_ms
        for queue in self.busy:
            oldest = queue.batches[0]
            if spares_untried and oldest.encoded is None:
                continue
            if not queue.is_in_flight(oldest) and oldest.created_ms < now_ms - timeout_ms:
                error = ProtocolError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"Records for partition {queue.topic_partition} could not be delivered within "
                    f"{timeout_ms} ms.",
                )
                self._finish(oldest, NO_OFFSET, error)

    def give_up_former(self, queue: PartitionQueue[B], topic_id: TopicId) -> None:
        """Fail what was meant for a topic that has been made anew since: it must not get there."""
        for batch in list(queue.batches):
            if batch.topic_id not in (None, topic_id) and not queue.is_in_flight(batch):
                error = ProtocolError(
                    ErrorCode.UNKNOWN_TOPIC_ID,
                    f"Topic '{queue.topic_partition.topic}' was deleted and made anew while "
                    "records were on their way to it.",
                )
                queue.is_sequence_confirmed = False
                self._finish(batch, NO_OFFSET, error)

    # -- Outcomes ----------------------------------------------------------------------------

    def _finish(self, batch: B, base_offset: Offset, error: ProtocolError | None) -> None:
        """Set a batch's outcome and go on to the next of its partition."""
        queue = self.queue(batch.topic_partition)
        if error is None:
            queue.worked()
            if self.identity is not None and batch.identity is not None:
                queue.is_sequence_confirmed |= self.identity.is_current(batch.identity)
        else:
            is_number_lost = not self._release_number(queue, batch)
            if self.transactions is not None:
                self.transactions.batch_failed(error, is_number_lost=is_number_lost)
        queue.remove(batch)
        if not queue.batches:
            del self._busy[batch.topic_partition]
        self._watcher.finished(batch, base_offset, error)
        batch.finish(base_offset, error)

    def _release_number(self, queue: PartitionQueue[B], batch: B) -> bool:
        """The batch will not be sent under its number any more; False: no other can have it."""
        identity = batch.identity
        if self.identity is None or identity is None or not self.identity.is_current(identity):
            return True
        if not batch.maybe_written and self.identity.take_back(
            batch.topic_partition, identity, len(batch.records)
        ):
            return True
        if not self.identity.is_transactional:
            self._renew(queue)
        return False

    def _renew(self, queue: PartitionQueue[B]) -> None:
        """Number anew. In other partitions, what is numbered is brought through as it is; in this
        one nothing that is numbered can follow, unless it is there already."""
        if self.identity is None:
            return
        self.identity.renew()
        for each in self._queues.values():
            each.is_sequence_confirmed = False
        for batch in queue.batches:
            if not batch.maybe_written and not queue.is_in_flight(batch):
                batch.identity = batch.encoded = None


def _forget_number(batch: Batch) -> None:
    batch.renewals += 1
    batch.doubts = 0
    batch.identity = batch.encoded = None
