"""The idempotent producer: repeats until it knows, and still every value is there once, in order.

Each batch has a sequence number; a broker takes the next one only, and knows the last five again
(KIP-98). So a batch whose fate is unknown is sent again, byte for byte. What may be on its way at a
time is the affair of `client.partition_queue`.

When a batch was refused for good, or the broker does not know where this producer stands, nothing
that was numbered can follow. Then the producer waits until nothing is on its way, ends what it has
begun (refused, or unknown if an attempt may have been written: sent under a new number it could be
there twice), and gets a new identity.
"""

from __future__ import annotations

from typing import ClassVar, Final

from strandline.client.backoff import ExponentialBackoff
from strandline.client.channel import RequestFailed
from strandline.errors import RETRIABLE, ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.sim.clients.batches import Batch, Identity, encode
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.connection import Outcome
from strandline.sim.clients.producer import Producer, RecordedQueue
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.sim.scenarios.script import BadScript
from strandline.types import ProducerEpoch, ProducerId

IN_FLIGHT_MAX: Final = 5
"""As many batches a broker knows again."""
_TRANSACTION_TIMEOUT_MS: Final = 60_000
_LOST_COUNT: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
)


class IdempotentProducer(Producer):
    """See the module."""

    is_idempotent: ClassVar[bool] = True
    may_overtake: ClassVar[bool] = True

    def __init__(self, world: ClientWorld, spec: ClientSpec, options: ClientOptions) -> None:
        super().__init__(world, spec, options)
        if self.acks != -1 or self.in_flight_max > IN_FLIGHT_MAX:
            raise BadScript(f"'{spec}' must have acks=all and at most {IN_FLIGHT_MAX} in flight.")
        self._identity: Identity | None = None
        self._is_asking = False
        self._is_renewing = False
        self._identifying = ExponentialBackoff(self.random)

    # -- who it is ---------------------------------------------------------------------------

    def may_send(self) -> bool:
        """See `Producer`."""
        if self._is_renewing and not any(queue.in_flight for queue in self.queues.values()):
            self._begin_anew()
        if self._identity is None:
            self._ask_for_identity()
        return self._identity is not None and not self._is_renewing

    def _begin_anew(self) -> None:
        """Nothing is on its way: end what was numbered."""
        self._is_renewing = False
        self._identity = None
        self.counters["new identity"] += 1
        for queue in self.queues.values():
            queue.is_sequence_confirmed = False
            for batch in [each for each in queue.batches if each.encoded]:
                self.drop(queue, batch)

    def _ask_for_identity(self) -> None:
        if self._is_asking:
            return
        self._is_asking = True
        connection = self.cluster.any_connection()
        if connection is None:
            self.after(1000 * self._identifying.next_ms(), self._ask_again)
            return
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS
        )
        self.cluster.ask(connection, ApiKey.INIT_PRODUCER_ID, request, self._identified)

    def _ask_again(self) -> None:
        self._is_asking = False
        self.pump()

    def _identified(self, outcome: Outcome) -> None:
        if isinstance(outcome, RequestFailed) or outcome.error_code != ErrorCode.NONE:
            self.after(1000 * self._identifying.next_ms(), self._ask_again)
            return
        self._identifying.reset()
        self._is_asking = False
        self._identity = Identity(
            ProducerId(outcome.producer_id), ProducerEpoch(outcome.producer_epoch)
        )
        self.pump()

    # -- sending -----------------------------------------------------------------------------

    def encode(self, batch: Batch) -> None:
        """See `Producer`."""
        encode(batch, self._identity)

    # -- outcomes ----------------------------------------------------------------------------

    def acknowledged(self, queue: RecordedQueue, batch: Batch, offsets: list[int | None]) -> None:
        """See `Producer`."""
        queue.is_sequence_confirmed = True
        if offsets[0] is not None:
            queue.written_to = (batch.topic_id, offsets[0] + len(batch.records))
        if batch.maybe_written:
            self.counters["retry acknowledged"] += 1
        super().acknowledged(queue, batch, offsets)

    def refused(self, queue: RecordedQueue, batch: Batch, code: ErrorCode) -> None:
        """See `Producer`."""
        if code in _LOST_COUNT:
            self.pause(queue)
            # Behind one whose fate is unknown, it only came too early.
            if batch.was_next and queue.batches[0] is batch:
                self._check_refusal(queue, batch, code)
                self._is_renewing = True
        elif code is ErrorCode.INVALID_PRODUCER_EPOCH:
            self._check_refusal(queue, batch, code)
            self._is_renewing = True
        elif code in RETRIABLE:
            self.pause(queue)
        else:
            self.drop(queue, batch)
            self._is_renewing = True

    def _check_refusal(self, queue: RecordedQueue, batch: Batch, code: ErrorCode) -> None:
        """I-54: librdkafka ends here. A broker may only have lost count where records were lost,
        which the judge of the run knows, or where what this batch repeats is deleted (KIP-360), or
        compacted away: a start reads from the log what it must know again."""
        if batch.maybe_written and self.world.is_compacted(queue.topic_partition):
            self.counters["lost count behind a compaction"] += 1
            return
        topic_id, written_to = queue.written_to
        if self.world.log_start(queue.topic_partition) > (
            written_to if topic_id == batch.topic_id else 0
        ):
            self.counters["lost count behind a deletion"] += 1
            return
        self.found(
            "I-54",
            f"{self.name} was refused with {code.name} when it sent {batch.values[0]!r} with the "
            f"sequence number {batch.sequence}, attempt {batch.attempts}; everything before it was "
            f"acknowledged, up to offset {written_to}",
            queue.topic_partition,
        )

    def unknown(self, queue: RecordedQueue, batch: Batch, code: ErrorCode) -> None:
        """See `Producer`: whatever it was, only another attempt will tell."""
        self.counters[f"unknown after {code.name}"] += 1
        self.lost(queue, batch)

    def lost(self, queue: RecordedQueue, batch: Batch) -> None:
        """See `Producer`."""
        batch.maybe_written = True
        self.pause(queue)
