"""What becomes of batches that are sent in transactions."""

from __future__ import annotations

from random import Random

import pytest

from strandline.client.delivery import Batch
from strandline.client.produce_policy import ProducePolicy
from strandline.client.produce_queues import ProduceQueues
from strandline.client.transaction_state import State
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import Offset
from tests.client.test_produce_queues import AT, IDS, LOST, Heard
from tests.client.test_transaction_manager import Stage


class Transacting(Heard):
    """Queues whose transactions are those of a manager, which is in one."""

    def __init__(self, version: int = 2) -> None:
        super().__init__()
        self.stage = Stage(version)
        self.queues = ProduceQueues(
            ProducePolicy(),
            Random(1),
            lambda batch: b"%r" % batch.identity,
            self,
            self.stage.manager.identity,
        )
        self.queues.join_transactions(self.stage.manager)
        self.manager = self.stage.begun()

    def send(self) -> list[Batch]:
        """See `Heard`."""
        batches = self.queues.sendable(self.queues.queue(AT), self.now_ms)
        for batch in batches:
            self.queues.prepare(batch)
            self.queues.sent([batch], IDS)
        return batches

    @property
    def state(self) -> State:
        return self.manager.state


def test_batches_carry_the_mark_of_a_transaction() -> None:
    heard = Transacting()
    heard.add()
    (batch,) = heard.send()
    assert batch.identity is not None
    assert batch.identity.is_transactional
    heard.tell(batch, offset=4)
    assert heard.outcomes == [(0, Offset(4), None)]
    assert heard.state is State.IN_TRANSACTION


def test_a_partition_joins_first_with_the_first_protocol() -> None:
    heard = Transacting(version=1)
    heard.add()
    assert heard.send() == []
    assert heard.stage.added() == [0]
    assert len(heard.send()) == 1
    assert heard.queues.highest_produce == 11


def test_what_was_never_sent_fails_with_its_transaction() -> None:
    heard = Transacting()
    heard.add(2)
    heard.send()
    heard.manager.abort()
    heard.queues.give_up_old(heard.now_ms)
    assert heard.outcomes == [(1, -1, ErrorCode.TRANSACTION_ABORTABLE)]
    assert heard.queues.has_work, "the outcome of the first is still unknown"


def test_what_may_be_written_is_sent_until_that_is_known() -> None:
    heard = Transacting()
    heard.add()
    (batch,) = heard.send()
    heard.manager.abort()
    heard.queues.lost([batch], LOST, heard.now_ms, was_sent=True)
    heard.queues.give_up_old(heard.now_ms)
    heard.now_ms += 2000
    assert heard.send() == [batch]
    heard.tell(batch, offset=0)
    assert not heard.stage.ended(1).committed


@pytest.mark.parametrize(
    "code",
    [ErrorCode.INVALID_RECORD, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE],
)
def test_a_refused_batch_leaves_its_transaction_to_be_aborted(code: ErrorCode) -> None:
    heard = Transacting()
    heard.add()
    (batch,) = heard.send()
    heard.tell(batch, code)
    assert heard.state is State.ABORTABLE
    with pytest.raises(ProtocolError, match="Abort the transaction"):
        heard.manager.commit()
    assert heard.manager.identity.current == (9, 0), "the end gives the next epoch, nothing else"


def test_a_fenced_producer_fails_all_that_waits() -> None:
    heard = Transacting()
    heard.add(2)
    (batch, *_) = heard.send()
    heard.tell(batch, ErrorCode.PRODUCER_FENCED)
    heard.queues.give_up_old(heard.now_ms)
    assert [code for _, _, code in heard.outcomes] == [ErrorCode.PRODUCER_FENCED] * 2
    assert not heard.queues.has_work
