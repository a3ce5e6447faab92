"""Producers whose epochs are used up, in clusters below version 2 of transactions, on bare sockets.

The epochs of a producer are given one at a time. That would take a test too long, so the last one
is written into the log of a broker that has stopped; what follows is asked over a socket. The
highest epoch, 2**15 - 1, is given to no producer: one that uses it has made it up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from strandline.cluster.features import TRANSACTION_VERSION
from strandline.cluster.topic_names import TRANSACTION_STATE
from strandline.errors import ErrorCode
from strandline.protocol.coordinator_log import CoordinatorRecord
from strandline.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from strandline.protocol.messages.describe_transactions import DescribeTransactionsRequest
from strandline.protocol.messages.end_txn import EndTxnRequest
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from strandline.records.batch import iterate_headers
from strandline.records.builder import rebuild_batch
from strandline.records.record import Record, read_records
from strandline.transactions.records import decode_record, encode_record
from strandline.transactions.transaction import EPOCH_MAX
from strandline.types import ProducerEpoch
from tests.broker.harness import PATIENCE_S, Wire

Outcome = tuple[ErrorCode, bool, int]
"""The error; whether the answer names another producer id than before; the epoch in it."""

LAST_GIVEN: Final = EPOCH_MAX - 1
_TOPIC: Final = "orders"
_VERSION_1, _VERSION_2 = 4, 5
"""The versions of EndTxn by which a client says which transactions it uses."""
_DOWN: Final = 2
_MOMENTARY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Producer:
    """One transactional id, and requests that name it."""

    def __init__(self, wire: Wire, name: str, producer_id: int = -1) -> None:
        self._wire = wire
        self._name = name
        self.producer_id = producer_id
        self.newest_id = producer_id
        """That of the last answer."""

    def initialize(self, timeout_ms: int = 60_000) -> Outcome:
        """InitProducerId of a new producer."""
        request = InitProducerIdRequest(
            transactional_id=self._name, transaction_timeout_ms=timeout_ms
        )
        return self._outcome(self._settled(request, 4, lambda answer: answer.error_code))

    def add(self, epoch: int) -> ErrorCode:
        """Have the topic's partition join the transaction."""
        topic = AddPartitionsToTxnTopic(name=_TOPIC, partitions=[0])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic],
        )

        def code(answer: Any) -> int:
            [topic] = answer.results_by_topic_v3_and_below
            found: int = topic.results_by_partition[0].partition_error_code
            return found

        return ErrorCode(code(self._settled(request, 3, code)))

    def end(self, epoch: int, *, commit: bool, version: int = _VERSION_2) -> Outcome:
        """EndTxn."""
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self.producer_id,
            producer_epoch=epoch,
            committed=commit,
        )
        return self._outcome(self._settled(request, version, lambda answer: answer.error_code))

    def state(self) -> tuple[str, bool, int]:
        """That of its transaction; whether it has another producer id by now; its epoch."""
        request = DescribeTransactionsRequest(transactional_ids=[self._name])
        [found] = self._wire.ask(request, 0).transaction_states
        is_fresh = found.producer_id != self.producer_id
        return found.transaction_state, is_fresh, found.producer_epoch

    def wait_for_abort(self) -> tuple[str, bool, int]:
        """Until its transaction has ended with an abort on all of its partitions."""
        found: tuple[str, bool, int] = _repeated(
            self.state, lambda state: state[0] == "CompleteAbort"
        )
        return found

    def lose_the_last_epoch(self) -> None:
        """Another producer begins, for which the transaction of the last epoch is aborted."""
        assert self.add(LAST_GIVEN) is ErrorCode.NONE
        assert self.initialize() == (ErrorCode.CONCURRENT_TRANSACTIONS, False, -1)
        assert self.wait_for_abort() == ("CompleteAbort", False, EPOCH_MAX)

    def begin_under_the_highest(self) -> None:
        """What no producer does: it was never given that epoch."""
        self.lose_the_last_epoch()
        assert self.add(EPOCH_MAX) is ErrorCode.NONE

    def _outcome(self, answer: Any) -> Outcome:
        self.newest_id = answer.producer_id
        is_fresh = answer.producer_id not in (-1, self.producer_id)
        return ErrorCode(answer.error_code), is_fresh, answer.producer_epoch

    def _settled(self, request: object, version: int, code: Callable[[Any], int]) -> Any:
        """The answer of a coordinator that has loaded, and has producer ids to give."""
        return _repeated(
            lambda: self._wire.ask(request, version), lambda answer: code(answer) not in _MOMENTARY
        )


def _abort_nothing(producer: Producer) -> object:
    producer.lose_the_last_epoch()
    return producer.end(EPOCH_MAX, commit=False), producer.wait_for_abort()


def _commit_nothing(producer: Producer) -> object:
    producer.lose_the_last_epoch()
    return producer.end(EPOCH_MAX, commit=True)


def _abort(producer: Producer) -> object:
    producer.begin_under_the_highest()
    return producer.end(EPOCH_MAX, commit=False), producer.wait_for_abort()


def _commit(producer: Producer) -> object:
    producer.begin_under_the_highest()
    refused = producer.end(EPOCH_MAX, commit=True), producer.state()
    return refused, producer.end(EPOCH_MAX, commit=True, version=_VERSION_1)[0]


def _begin_anew(producer: Producer) -> object:
    producer.begin_under_the_highest()
    begun = producer.initialize(), producer.wait_for_abort()
    return begun, producer.initialize()


def _take_too_long(producer: Producer) -> object:
    assert producer.add(LAST_GIVEN) is ErrorCode.NONE
    assert producer.wait_for_abort() == ("CompleteAbort", False, EPOCH_MAX)
    assert producer.add(EPOCH_MAX) is ErrorCode.NONE
    return producer.wait_for_abort()


_ROTATED: Final = ((ErrorCode.NONE, True, 0), ("CompleteAbort", True, 0))
STEPS: Final[dict[str, tuple[Callable[[Producer], object], object]]] = {
    "abort nothing": (_abort_nothing, _ROTATED),
    "commit nothing": (_commit_nothing, (ErrorCode.INVALID_TXN_STATE, False, -1)),
    "abort": (_abort, _ROTATED),
    "commit": (
        _commit,
        (
            ((ErrorCode.UNKNOWN_SERVER_ERROR, False, -1), ("Ongoing", False, EPOCH_MAX)),
            ErrorCode.NONE,
        ),
    ),
    "begin anew": (
        _begin_anew,
        (
            (
                (ErrorCode.CONCURRENT_TRANSACTIONS, False, -1),
                ("CompleteAbort", False, EPOCH_MAX),
            ),
            (ErrorCode.NONE, True, 0),
        ),
    ),
    "take too long": (_take_too_long, ("CompleteAbort", False, EPOCH_MAX)),
}
"""What a hostile producer does, and what comes of it, in Kafka 4.3.1 too."""
_TIMEOUTS_MS: Final = {"take too long": 100}


def prepare(wire: Wire) -> dict[str, int]:
    """A topic, version 1 of transactions, and a producer for each of `STEPS`: their ids."""
    wire.create_topic(_TOPIC)
    older = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=1, upgrade_type=_DOWN)
    changed = wire.ask(UpdateFeaturesRequest(feature_updates=[older]), 1)
    assert changed.error_code == ErrorCode.NONE, changed.error_message
    found = {}
    for name in STEPS:
        wire.ask(FindCoordinatorRequest(key=name, key_type=1), 2)  # makes the topic of the state
        producer = Producer(wire, name)
        assert producer.initialize(_TIMEOUTS_MS.get(name, 60_000)) == (ErrorCode.NONE, True, 0)
        found[name] = producer.newest_id
    return found


def use_up(directory: Path) -> None:
    """In the logs of a broker that has stopped: every producer has the last epoch."""
    changed = 0
    for path in directory.glob(f"{TRANSACTION_STATE}-*/*.log"):
        log = bytearray(path.read_bytes())
        for position, header in iterate_headers(log):
            records = [_with_last_epoch(each) for each in read_records(log, position)]
            written = rebuild_batch(header, records)
            assert len(written) == header.size_bytes
            log[position : position + len(written)] = written
            changed += 1
        path.write_bytes(log)
    assert changed


def _with_last_epoch(record: Record) -> Record:
    assert record.key is not None
    found = decode_record(CoordinatorRecord(record.key, record.value))
    assert found is not None
    name, transaction = found
    assert transaction is not None
    last = transaction._replace(producer_epoch=ProducerEpoch(LAST_GIVEN))
    return record._replace(value=encode_record(name, last, 1).value)


def _repeated(ask: Callable[[], Any], is_enough: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not is_enough(answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)  # between two looks
    return answer
