"""Rules of transactions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from strandline.errors import ErrorCode
from strandline.groups.offset_records import OffsetRecord
from strandline.groups.offset_store import OffsetStore
from strandline.node.replica import Replica
from strandline.node.transaction_host import TransactionHost
from strandline.node.transaction_verification import Question, TransactionVerifier, Verified
from strandline.storage.log import Log
from strandline.storage.log_reader import LogReader
from strandline.transactions import certainty, producing
from strandline.transactions.coordinator import TransactionCoordinator
from strandline.transactions.effects import AppendRecords
from strandline.transactions.shard import Shard
from strandline.transactions.transaction import Transaction, TransactionState
from strandline.types import Instant, Offset, ProducerEpoch, ProducerId, TopicPartition
from tests.sim.mutants.mutant import Mutant, nothing, patch

_true_append = TransactionHost._append
_true_begin_pending = OffsetStore.begin_pending
_true_ending = Transaction.ending


def _committed_already(self: TransactionHost, effect: AppendRecords, now: Instant) -> Any:
    def outcome(_: Replica, __: Offset) -> ErrorCode:
        return ErrorCode.NONE

    with patch(Replica, commit_outcome=outcome)():
        return list(_true_append(self, effect, now))


def _same_epoch(
    self: Transaction, timeout_ms: int, expected_epoch: int | None, now_ms: int
) -> Transaction:
    del expected_epoch
    epoch = ProducerEpoch(max(self.producer_epoch, 0))
    return self._replace(
        producer_epoch=epoch,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        timeout_ms=timeout_ms,
        started_ms=-1,
        updated_ms=now_ms,
    )


def _without_a_question(
    self: TransactionVerifier, question: Question, verified: Verified, now: Instant
) -> None:
    del self
    verified(dict.fromkeys(question.partitions, ErrorCode.NONE), now)


def _stored_at_once(
    self: OffsetStore, append_id: int, producer_id: ProducerId, records: Iterable[OffsetRecord]
) -> None:
    given = list(records)
    _true_begin_pending(self, append_id, producer_id, given)
    for record in given:
        self.replay(record)


def _none_aborted(self: LogReader, offset: Offset, upper_offset: Offset) -> list[Any]:
    del self, offset, upper_offset
    return []


def _first_partition_only(self: Transaction, **how: Any) -> Transaction:
    ending = _true_ending(self, **how)
    kept: frozenset[TopicPartition] = frozenset(sorted(ending.partitions)[:1])
    return ending._replace(partitions=kept)


def _also_while_it_loads(self: TransactionCoordinator) -> Iterable[Shard]:
    return (owned.shard for owned in self._owned.values())


TRANSACTING: Final = (
    Mutant(
        "raise-the-epoch",
        "A new producer of a transactional id has the next epoch, which fences the others "
        "(KIP-98).",
        ("I-34", "I-36", "I-37", "I-50"),
        patch(Transaction, raised=_same_epoch),
    ),
    Mutant(
        "abort-what-is-open",
        "A new producer of a transactional id first has the transaction of its predecessor "
        "aborted (KIP-98).",
        ("I-34", "I-36", "I-37", "I-50"),
        patch(producing, fence=nothing),
    ),
    Mutant(
        "decide-before-answering",
        "The coordinator acts and answers when what it decided is committed (3.5).",
        ("I-34", "I-36", "I-37", "I-50"),
        patch(TransactionHost, _append=_committed_already),
    ),
    Mutant(
        "answer-for-good-as-coordinator",
        "A producer that may know more than its coordinator is refused when it is certain that "
        "this is one (note 0046).",
        ("I-37",),
        patch(certainty, _may_be_newer=nothing),
    ),
    Mutant(
        "finish-what-is-decided",
        "A new coordinator writes the markers of what the one before had decided (F-66).",
        ("I-28", "I-36", "I-50"),
        patch(Shard, start=nothing),
    ),
    Mutant(
        "go-on-after-the-end",
        "Partitions that wait for the end of a producer's last transaction join the next one as "
        "soon as that is written (note 0053).",
        ("I-36",),
        patch(Shard, _let_go_on=nothing),
    ),
    Mutant(
        "decide-when-all-is-loaded",
        "Nothing is decided about an id before its partition is loaded to the end (F-66).",
        ("I-36", "I-50"),
        patch(TransactionCoordinator, _loaded=_also_while_it_loads),
        "found by seed 11",
    ),
    Mutant(
        "verify-the-first-batch",
        "A partition asks the coordinator before a transaction's first batch (KIP-890).",
        ("I-28", "I-34", "I-36", "I-50"),
        patch(TransactionVerifier, ask=_without_a_question),
    ),
    Mutant(
        "mark-all-partitions",
        "The end of a transaction is written to each of its partitions (KIP-98).",
        ("I-28", "I-36", "I-50"),
        patch(Transaction, ending=_first_partition_only),
    ),
    Mutant(
        "offsets-with-the-marker",
        "Offsets of a transaction are told when its commit is, not before (KIP-98).",
        ("I-36",),
        patch(OffsetStore, begin_pending=_stored_at_once),
    ),
    Mutant(
        "stop-at-open-transactions",
        "Readers of committed records stop in front of an open transaction (KIP-98).",
        ("I-06", "I-34"),
        patch(Log, last_stable_offset=property(lambda self: self.high_watermark)),
    ),
    Mutant(
        "tell-what-is-aborted",
        "Readers of committed records are told which transactions were aborted (KIP-98).",
        ("I-34",),
        patch(LogReader, aborted_transactions=_none_aborted),
    ),
)
