"""The operations of clients and their outcomes, in the order in which they happened.

A history is a list of these events. Its order is real time: `Sent` is recorded before the client
may do anything about it, an outcome after the client knows it. Values are unique over the whole
history; that is what lets the checker follow one record through acknowledgements and readers.

Events are named tuples, since a history has a million of them; appending to a list is atomic, so
that many threads may record into one history.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeAlias

Value: TypeAlias = Hashable
Partition: TypeAlias = Hashable


class Sent(NamedTuple):
    """A producer is about to send `value`. Without an outcome it may or may not be in the log."""

    producer: str
    partition: Partition
    value: Value
    key: Hashable = None
    """None: it has none."""
    transaction: str | None = None
    """The transaction that it belongs to: it is acknowledged when that is committed."""


class Erased(NamedTuple):
    """A producer is about to send a tombstone of that key, which may or may not be in the log."""

    partition: Partition
    key: Hashable


class Compacted(NamedTuple):
    """Of the values of a key that are not its newest, none need be left in that partition."""

    partition: Partition


class Acknowledged(NamedTuple):
    """The cluster said that the value is in the log; `offset` is None where the client was not
    told (acks=0, or a retry that the broker knew already)."""

    partition: Partition
    value: Value
    offset: int | None
    leader_epoch: int = -1
    """Of what a leader has acknowledged alone (acks=1): in which epoch it wrote it. -1:
    unknown, or it does not matter."""


class Refused(NamedTuple):
    """A definite error: the value is not in the log and never will be."""

    partition: Partition
    value: Value


class Assigned(NamedTuple):
    """The consumer's next record is the first at or after `offset`; None: it may be any record,
    as after a rebalance."""

    consumer: str
    partition: Partition
    offset: int | None


class Polled(NamedTuple):
    """A consumer was given these (offset, value) of one partition, in this order."""

    consumer: str
    partition: Partition
    records: Sequence[tuple[int, Value]]
    asked_at: int = -1
    """How long the history was when the consumer asked the leader: what was deleted before that
    must not be among the records. -1: unknown, or it was a follower that was asked, which may
    be cut off and know nothing of it."""
    leader_epoch: int = -1
    """In which epoch that leader led, as far as the consumer knew. -1: in the newest one."""


class EndSeen(NamedTuple):
    """A client asked for the end of the partition (ListOffsets, latest)."""

    client: str
    partition: Partition
    offset: int


class StartSeen(NamedTuple):
    """An answer gave this log start offset: what lay before it may be gone."""

    client: str
    partition: Partition
    offset: int


class Deleted(NamedTuple):
    """The cluster said that everything before `offset` is deleted (DeleteRecords): no reader
    that asks from now on may be given any of it. But a leader of before `leader_epoch`, which was
    deposed without having heard of it, goes on giving what it has to those who have not heard of it
    either.
    """

    partition: Partition
    offset: int
    leader_epoch: int = -1
    """The newest leader epoch at that time. -1: unknown."""


class Gone(NamedTuple):
    """The partition itself was deleted, and all its records with it."""

    partition: Partition


class WriterBegan(NamedTuple):
    """A producer has initialized its transactional id: the producers before it are fenced."""

    transactional_id: str
    writer: int
    """Producers with one id are numbered in the order in which they began."""


class TransactionBegan(NamedTuple):
    """A producer begins a transaction, of which no broker knows yet."""

    transaction: str
    transactional_id: str
    writer: int


class OffsetsSent(NamedTuple):
    """A producer is about to store an offset with its transaction; those of an id rise."""

    transaction: str
    offset: int


class CommitAsked(NamedTuple):
    """A producer is about to ask for the commit. Until it is answered it may happen or not."""

    transaction: str


class TransactionEnded(NamedTuple):
    """The coordinator has answered."""

    transaction: str
    is_committed: bool


class Delivered(NamedTuple):
    """A member of a share group was given a record: perhaps again, and in no certain order."""

    consumer: str
    partition: Partition
    offset: int
    value: Value


TransactionEvent: TypeAlias = (
    WriterBegan | TransactionBegan | OffsetsSent | CommitAsked | TransactionEnded | Delivered
)
TRANSACTION_EVENTS = (
    WriterBegan,
    TransactionBegan,
    OffsetsSent,
    CommitAsked,
    TransactionEnded,
    Delivered,
)
"""What `transactions` judges, and not `checker`: it is about no partition, or in no order."""

PartitionEvent: TypeAlias = (
    Sent
    | Erased
    | Acknowledged
    | Refused
    | Assigned
    | Polled
    | EndSeen
    | StartSeen
    | Deleted
    | Compacted
    | Gone
)

Event: TypeAlias = PartitionEvent | TransactionEvent
