"""What becomes of a producer's batches: errors, numbers, repetitions, a topic that is made anew."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

import pytest

from strandline.client.delivery import Batch
from strandline.client.produce_policy import ProducePolicy
from strandline.client.produce_queues import DOUBTS_MAX, ProduceQueues
from strandline.client.producer_identity import ProducerIdentity
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.messages.init_producer_id import InitProducerIdResponse
from strandline.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from strandline.records.record import Record
from strandline.types import NO_OFFSET, Offset, TopicId, TopicPartition

AT = TopicPartition("t", 0)
IDS = {"t": UUID(int=7)}
LOST = ProtocolError(ErrorCode.NETWORK_EXCEPTION, "The connection broke.")
DAY_MS = 86_400_000


class Heard:
    """A watcher that keeps what it hears, and the queues that tell it."""

    def __init__(self, *, is_idempotent: bool = True, **policy: Any) -> None:
        self.outcomes: list[tuple[int, Offset, ErrorCode | None]] = []
        self.refused_numbers = 0
        self.repeated = 0
        self.now_ms = DAY_MS
        self.identity = ProducerIdentity()
        self.identify(100)
        self.queues: ProduceQueues[Batch] = ProduceQueues(
            ProducePolicy(**policy),
            Random(1),
            lambda batch: b"%r" % batch.identity,
            self,
            self.identity if is_idempotent else None,
        )
        self.numbers: dict[Batch, int] = {}

    def identify(self, producer_id: int) -> None:
        self.identity.learn(InitProducerIdResponse(producer_id=producer_id))

    def add(self, count: int = 1, records: int = 1) -> None:
        for _ in range(count):
            batch = Batch(AT, self.now_ms)
            for _ in range(records):
                batch.add(Record(NO_OFFSET, 0, None, b"v"), 1)
            self.numbers[batch] = len(self.numbers)
            self.queues.add(batch)

    def send(self) -> list[Batch]:
        """Send what may go, and each batch in a request of its own."""
        batches = self.queues.queue(AT).sendable(self.now_ms)
        for batch in batches:
            self.queues.prepare(batch)
            self.queues.sent([batch], IDS)
        return batches

    def send_one(self) -> Batch:
        """Send what may go, which is one batch."""
        (batch,) = self.send()
        return batch

    def tell(self, batch: Batch, code: ErrorCode = ErrorCode.NONE, offset: int = -1) -> None:
        """Answer, and let the pause pass that there may be."""
        part = PartitionProduceResponse(index=0, error_code=code, base_offset=offset)
        topic = TopicProduceResponse(name="t", partition_responses=[part])
        response = ProduceResponse(responses=[topic])
        self.queues.answered({AT: batch}, IDS, response, self.now_ms)
        self.now_ms += 2000

    def answered(
        self,
        batch: Batch,
        topic_id: TopicId,
        answer: PartitionProduceResponse,
        response: ProduceResponse,
    ) -> None:
        """See `ProduceWatcher`."""

    def failed(self, batch: Batch, error: ProtocolError) -> None:
        """See `ProduceWatcher`."""
        self.repeated += 1

    def number_refused(self, batch: Batch, error: ProtocolError) -> None:
        """See `ProduceWatcher`."""
        self.refused_numbers += 1

    def finished(self, batch: Batch, base_offset: Offset, error: ProtocolError | None) -> None:
        """See `ProduceWatcher`."""
        number = self.numbers.get(batch, -1)
        self.outcomes.append((number, base_offset, None if error is None else error.code))


def ids_of(batches: list[Batch]) -> list[tuple[int, int]]:
    found = [batch.identity for batch in batches]
    return [(each.producer_id, each.base_sequence) for each in found if each is not None]


def test_several_are_on_their_way_once_the_first_is_acknowledged() -> None:
    heard = Heard(batches_in_flight_max=5)
    heard.add(4, records=2)
    (first,) = heard.send()
    heard.tell(first, offset=0)
    assert ids_of(heard.send()) == [(100, 2), (100, 4), (100, 6)]


def test_of_two_numberings_only_one_is_on_its_way() -> None:
    """A batch of the former one may be written; a broker could not order it with the next."""
    heard = Heard(batches_in_flight_max=5)
    heard.add(4)
    heard.tell(heard.send_one(), offset=0)
    first, second, third = heard.send()
    heard.queues.lost([second], LOST, heard.now_ms, was_sent=True)
    heard.tell(first, ErrorCode.INVALID_RECORD)  # its number is lost, and others follow
    heard.identify(200)
    heard.tell(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert heard.send() == [second]
    assert ids_of([second]) == [(100, 2)]
    assert heard.send() == []
    heard.tell(second, offset=1)
    heard.add(1)
    assert heard.send() == [third]
    assert ids_of([third]) == [(200, 0)]
    assert heard.send() == []
    assert heard.refused_numbers == 0


@pytest.mark.parametrize("was_sent", [True, False])
def test_without_repetitions_only_what_was_not_sent_goes_again(was_sent: bool) -> None:
    heard = Heard(is_idempotent=False)
    heard.queues = ProduceQueues(
        ProducePolicy(repeats=False), Random(1), lambda batch: b"%d" % len(batch.records), heard
    )
    heard.add()
    heard.queues.lost(heard.send(), LOST, heard.now_ms, was_sent=was_sent)
    assert heard.queues.has_work is not was_sent
    assert heard.repeated == (0 if was_sent else 1)


def test_a_batch_that_is_too_large_is_split_in_its_place_unless_it_may_be_written() -> None:
    heard = Heard(batches_in_flight_max=5)
    heard.add(3, records=2)
    heard.tell(heard.send_one(), offset=0)
    first, second = heard.send()
    heard.tell(second, ErrorCode.MESSAGE_TOO_LARGE)
    queue = heard.queues.queue(AT)
    assert [len(batch.records) for batch in queue.batches] == [2, 1, 1]
    heard.queues.lost([first], LOST, heard.now_ms, was_sent=True)
    heard.now_ms += 2000
    assert heard.send() == [first]
    heard.tell(first, ErrorCode.MESSAGE_TOO_LARGE)
    assert heard.outcomes[-1] == (1, NO_OFFSET, ErrorCode.MESSAGE_TOO_LARGE)


def test_a_batch_without_a_number_is_not_split_while_those_behind_it_may_be_written() -> None:
    """They would lie before its second part."""
    heard = Heard(is_idempotent=False, batches_in_flight_max=2)
    heard.add(2, records=2)
    first, second = heard.send()
    heard.tell(first, ErrorCode.MESSAGE_TOO_LARGE)
    assert heard.outcomes == [(0, NO_OFFSET, ErrorCode.MESSAGE_TOO_LARGE)]
    heard.tell(second, ErrorCode.MESSAGE_TOO_LARGE)
    assert [len(batch.records) for batch in heard.queues.queue(AT).batches] == [1, 1]


def test_a_number_is_tried_anew_so_often() -> None:
    heard = Heard()
    heard.add()
    for number in range(4):
        for _ in range(1 + DOUBTS_MAX):
            heard.tell(heard.send_one(), ErrorCode.UNKNOWN_PRODUCER_ID)
        heard.identify(200 + number)
    assert heard.outcomes == [(0, NO_OFFSET, ErrorCode.UNKNOWN_PRODUCER_ID)]
    assert heard.refused_numbers == 4 * (1 + DOUBTS_MAX)


def test_a_refused_number_is_sent_again_since_the_broker_may_be_deposed() -> None:
    heard = Heard(batches_in_flight_max=5)
    heard.add(2)
    heard.tell(heard.send_one(), offset=0)
    (batch,) = heard.send()
    for attempt in range(DOUBTS_MAX):
        heard.tell(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert heard.repeated == attempt + 1, "its driver looks for the leader anew"
        assert ids_of(heard.send()) == [(100, 1)]
    heard.tell(batch, offset=1)
    assert [outcome for _, _, outcome in heard.outcomes] == [None, None]


def test_what_was_meant_for_a_topic_does_not_get_into_the_next_of_its_name() -> None:
    heard = Heard()
    heard.add(2)
    heard.tell(heard.send_one(), ErrorCode.NOT_ENOUGH_REPLICAS)
    heard.queues.give_up_former(heard.queues.queue(AT), UUID(int=8))
    assert heard.outcomes == [(0, NO_OFFSET, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert ids_of(heard.send()) == [(100, 0)], "what is certainly not written frees its number"


def test_acks_0_is_an_outcome_without_an_offset() -> None:
    heard = Heard(is_idempotent=False, acks=0)
    heard.add()
    heard.send()
    assert heard.outcomes == [(0, NO_OFFSET, None)]
    assert not heard.queues.has_work


def test_an_answer_that_lacks_a_partition_leaves_it_unknown() -> None:
    heard = Heard()
    heard.add()
    (batch,) = heard.send()
    heard.queues.answered({AT: batch}, IDS, ProduceResponse(responses=[]), heard.now_ms)
    assert (heard.repeated, batch.maybe_written) == (1, True)


def test_an_answer_is_waited_for_until_the_delivery_timeout_at_most() -> None:
    heard = Heard(delivery_timeout_ms=10_000)
    heard.add()
    (batch,) = heard.send()
    assert heard.queues.patience_ms([batch], heard.now_ms, 3_000) == 3_000
    assert heard.queues.patience_ms([batch], heard.now_ms + 8_000, 3_000) == 2_000
    # Only a first attempt can be as late as this.
    assert heard.queues.patience_ms([batch], heard.now_ms + 10_000, 30_000) == 10_000


def test_what_was_never_tried_can_be_spared_once() -> None:
    heard = Heard(delivery_timeout_ms=10_000, batches_in_flight_max=1)
    heard.add(2)
    assert heard.queues.overdue_at_ms() == heard.now_ms + 10_001
    (first,) = heard.send()
    assert heard.queues.overdue_at_ms() is None  # the oldest is on its way
    heard.tell(first, offset=0)
    heard.now_ms += 10_001
    heard.queues.give_up_old(heard.now_ms, spares_untried=True)
    assert [number for number, _, _ in heard.outcomes] == [0]
    (second,) = heard.send()
    heard.queues.lost([second], LOST, heard.now_ms, was_sent=True)
    assert heard.outcomes[1:] == [(1, NO_OFFSET, ErrorCode.NETWORK_EXCEPTION)]
    heard.add()
    heard.now_ms += 10_001
    heard.queues.give_up_old(heard.now_ms)
    assert heard.outcomes[2:] == [(2, NO_OFFSET, ErrorCode.REQUEST_TIMED_OUT)]
