"""Decides whether what readers saw of transactions is possible (I-34, I-36, I-37).

Three things may never be, in Adya's words and beyond them:

- *aborted and intermediate reads* (G1a, G1b): a reader of committed records is given a record of a
  transaction that was aborted, or whose commit no producer had requested by then;
- *fractured transactions*: at the end some of a transaction's records and offsets are there and
  others are not, or one of them is lost although the commit was acknowledged;
- *zombies*: a transaction whose commit was first asked for after another producer with its id had
  begun is committed all the same.

A commit without an answer may have happened or not; what readers see at the end decides, for all of
the transaction at once. Pure, as `checker` is: events in, findings out. What a log may have lost by
permission (deleted records, deleted topics) is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.sim.history.operations import (
    CommitAsked,
    Delivered,
    Event,
    OffsetsSent,
    Partition,
    Polled,
    Sent,
    TransactionBegan,
    TransactionEnded,
    Value,
    WriterBegan,
)

ABORTED_READ = "I-34"
FRACTURED = "I-36"
ZOMBIE = "I-37"


class TransactionFinding(NamedTuple):
    """What is not possible."""

    invariant: str
    sentence: str
    partition: Partition


@dataclass(slots=True)
class _Transaction:
    name: str
    transactional_id: str
    writer: int
    """Which of the producers with the id it belongs to, in the order in which they began."""
    values: dict[Value, Partition] = field(default_factory=dict)
    offset: int | None = None
    """What it stores for its group; offsets of one id rise."""
    asked_by: int | None = None
    """How many producers of the id had begun when the commit was asked for first."""
    is_committed: bool | None = None
    """None: no answer says."""


class TransactionJudge:
    """See the module."""

    def __init__(self, committed_readers: Collection[str], last_readers: Collection[str]) -> None:
        """Readers of committed records; and those of them who read everything at the end."""
        self._committed_readers = committed_readers
        self._last_readers = last_readers
        self._transactions: dict[str, _Transaction] = {}
        self._by_value: dict[Value, _Transaction] = {}
        self._writers: dict[str, int] = {}
        self._there: set[Value] = set()
        self._found: list[TransactionFinding] = []
        self._told: set[Value] = set()

    def feed(self, events: Iterable[Event]) -> None:
        """Take the whole history, in its order."""
        for event in events:
            match event:
                case Polled() if event.consumer in self._committed_readers:
                    for offset, value in event.records:
                        self._given(event, offset, value)
                case Delivered() if event.consumer in self._committed_readers:
                    self._given(event, event.offset, event.value)
                case Sent() if event.transaction is not None:
                    transaction = self._transactions[event.transaction]
                    transaction.values[event.value] = event.partition
                    self._by_value[event.value] = transaction
                case WriterBegan():
                    self._writers[event.transactional_id] = event.writer
                case TransactionBegan():
                    self._transactions[event.transaction] = _Transaction(
                        event.transaction, event.transactional_id, event.writer
                    )
                case OffsetsSent():
                    self._transactions[event.transaction].offset = event.offset
                case CommitAsked():
                    transaction = self._transactions[event.transaction]
                    if transaction.asked_by is None:
                        newest = self._writers.get(transaction.transactional_id, 0)
                        transaction.asked_by = newest
                case TransactionEnded():
                    self._transactions[event.transaction].is_committed = event.is_committed
                case _:
                    pass

    def findings(
        self,
        may_be_gone: Callable[[Value, Partition], bool],
        offsets: Mapping[str, int | None],
    ) -> list[TransactionFinding]:
        """All that is wrong. `may_be_gone` says what need not be there any more; `offsets` has what
        is stored at the end for each transactional id that stores offsets."""
        found = list(self._found)
        for transaction in self._transactions.values():
            found += self._judged(transaction, may_be_gone, offsets)
        return found

    def _given(self, event: Polled | Delivered, offset: int, value: Value) -> None:
        transaction = self._by_value.get(value)
        if transaction is None:
            return
        if event.consumer in self._last_readers:
            self._there.add(value)
        is_too_early = transaction.asked_by is None
        if (is_too_early or transaction.is_committed is False) and value not in self._told:
            self._told.add(value)
            why = "no producer had requested its commit" if is_too_early else "it was aborted"
            self._found.append(
                TransactionFinding(
                    ABORTED_READ,
                    f"{event.consumer} was given {value!r} at offset {offset} of transaction "
                    f"{transaction.name}, but {why}",
                    event.partition,
                )
            )

    def _judged(
        self,
        transaction: _Transaction,
        may_be_gone: Callable[[Value, Partition], bool],
        offsets: Mapping[str, int | None],
    ) -> Iterator[TransactionFinding]:
        there = [value for value in transaction.values if value in self._there]
        missing = [
            value
            for value, partition in transaction.values.items()
            if value not in self._there and not may_be_gone(value, partition)
        ]
        stored = offsets.get(transaction.transactional_id)
        is_stored = transaction.offset is not None and stored is not None
        is_stored = is_stored and (transaction.offset or 0) <= (stored or 0)
        is_there = bool(there) or (is_stored and stored == transaction.offset)
        name, partition = transaction.name, next(iter(transaction.values.values()), "")
        if missing and (is_there or transaction.is_committed):
            why = "its commit was acknowledged" if transaction.is_committed else "others are there"
            partition = transaction.values[missing[0]]
            yield TransactionFinding(
                FRACTURED,
                f"{missing[0]!r} of transaction {name} is not there, but {why}",
                partition,
            )
        is_known = transaction.transactional_id in offsets
        if is_known and transaction.offset is not None and is_there and not is_stored:
            yield TransactionFinding(
                FRACTURED,
                f"the offset {transaction.offset} of transaction {name} is not stored ({stored}), "
                "but its records are there",
                partition,
            )
        if is_there and (transaction.asked_by or 0) > transaction.writer:
            yield TransactionFinding(
                ZOMBIE,
                f"transaction {name} is there, but its commit was asked for when producer "
                f"{transaction.asked_by} of '{transaction.transactional_id}' had begun",
                partition,
            )
