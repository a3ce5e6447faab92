"""What is known of one transactional id, and how that may change (KIP-98, 360, 890).

This file is pure: a `Transaction` is a value, and each change returns another one or raises the
refusal. It must not know how a value becomes durable, nor who asked. Version 1 of transactions
keeps an epoch for as long as its producer lives; version 2 raises it with the end of each
transaction, so that a late request of an ended one is told apart by its epoch alone.

    Empty ──> Ongoing ──> PrepareCommit ──> CompleteCommit ──> Ongoing ...
                 └──────> PrepareAbort ───> CompleteAbort ───> Ongoing ...

Version 2 may abort what has not begun, too: for such an abort the epoch is all that matters.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from strandline.errors import ErrorCode, InvariantViolated, ProtocolError
from strandline.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)

EPOCH_MAX: Final = 2**15 - 1
VERSION_2: Final = 2


class TransactionState(IntEnum):
    """Kafka's states and their numbers in the log.

    The last two are not stored: an id that expires is forgotten, and a producer is fenced in the
    same step that begins the abort of its transaction.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that clients are told, and filter by."""
        return "".join(word.capitalize() for word in self.name.split("_"))


PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
COMPLETE: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
ABORTED: Final = frozenset({TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT})
IDLE: Final = COMPLETE | {TransactionState.EMPTY}
"""Nothing is open and nothing is being ended."""
OPEN: Final = PREPARED | {TransactionState.ONGOING}
"""Records may be written, or wait for their end."""


class Transaction(NamedTuple):
    """The state of one transactional id. Times are wall-clock milliseconds."""

    producer_id: ProducerId
    timeout_ms: int
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """-1 until the first InitProducerId is durable."""
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """The id before the present one, by which a repeated request is recognised."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """While a transaction ends: the id that follows, if the epochs of this one are used up."""
    last_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """The epoch before the last raise that its own producer asked for. Kafka does not store it."""
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIMESTAMP
    updated_ms: int = NO_TIMESTAMP
    client_version: int = 0
    """The version of transactions that its producer used last."""

    @property
    def is_exhausted(self) -> bool:
        """Whether no epoch is left for the producer; the highest one is kept for fencing."""
        return self.producer_epoch >= EPOCH_MAX - 1

    @property
    def commits(self) -> bool:
        """How a transaction that is being ended ends."""
        return self.state is TransactionState.PREPARE_COMMIT

    @property
    def raises_epoch(self) -> bool:
        """Whether its last end was one of version 2."""
        return self.client_version >= VERSION_2

    # InitProducerId.

    def raised(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> Transaction:
        """The next epoch, for a producer that is new (no expected epoch) or goes on (KIP-360)."""
        current = self.producer_epoch
        epoch, last = ProducerEpoch(current + 1), NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if current == NO_PRODUCER_EPOCH or expected_epoch == current:
                last = current
            elif expected_epoch == self.last_producer_epoch:
                # It asks again: a new producer would have made the last epoch -1.
                epoch, last = current, self.last_producer_epoch
            else:
                raise ProtocolError(ErrorCode.PRODUCER_FENCED)
        return self._renewed(self.producer_id, epoch, last, timeout_ms, now_ms)

    def rotated(
        self, producer_id: ProducerId, timeout_ms: int, now_ms: int, *, goes_on: bool
    ) -> Transaction:
        """Epoch 0 of a fresh id; `goes_on` if the producer itself asks for it."""
        last = self.producer_epoch if goes_on else NO_PRODUCER_EPOCH
        return self._renewed(producer_id, ProducerEpoch(0), last, timeout_ms, now_ms)

    def _renewed(
        self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        last_epoch: ProducerEpoch,
        timeout_ms: int,
        now_ms: int,
    ) -> Transaction:
        self._check_from(IDLE)
        return self._replace(
            producer_id=producer_id,
            producer_epoch=epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            started_ms=NO_TIMESTAMP,
            updated_ms=now_ms,
            client_version=0,
        )

    # AddPartitionsToTxn.

    def joined(
        self, partitions: frozenset[TopicPartition], version: int, now_ms: int
    ) -> Transaction:
        """With more partitions; the first ones begin the transaction."""
        self._check_from(IDLE | {TransactionState.ONGOING})
        is_new = self.state is not TransactionState.ONGOING
        return self._replace(
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            state=TransactionState.ONGOING,
            partitions=self.partitions | partitions,
            started_ms=now_ms if is_new else self.started_ms,
            updated_ms=now_ms,
            client_version=version,
        )

    # The end.

    def ending(
        self, *, commits: bool, version: int, next_producer_id: ProducerId, now_ms: int
    ) -> Transaction:
        """On its way to a commit or an abort, with a raised epoch from version 2 on.

        Raises `ProtocolError` for a commit under the highest epoch, which is given to no producer:
        as in Kafka nothing is raised above it, while an abort must always be possible.
        """
        from_states = IDLE if version >= VERSION_2 and not commits else frozenset()
        self._check_from(from_states | {TransactionState.ONGOING})
        if commits and version >= VERSION_2 and self.producer_epoch >= EPOCH_MAX:
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)
        is_open = self.state is TransactionState.ONGOING
        raised = self._replace(
            state=TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT,
            next_producer_id=next_producer_id,
            started_ms=self.started_ms if is_open else now_ms,
            updated_ms=now_ms,
            client_version=version,
        )
        return raised._with_next_epoch(self.producer_epoch) if version >= VERSION_2 else raised

    def fenced(
        self, version: int, next_producer_id: ProducerId, now_ms: int, *, by_another: bool = False
    ) -> Transaction:
        """On its way to an abort, under an epoch that no producer has been given.

        With version 2 an abort by the old producer looks like one that is asked for again, and is
        answered with the next epoch: it goes on. If it is fenced `by_another` producer, the epoch
        is therefore raised twice (note 0051), unless the epochs are used up.
        """
        ending = self.ending(
            commits=False, version=version, next_producer_id=next_producer_id, now_ms=now_ms
        )
        if version < VERSION_2 or (by_another and not ending.is_exhausted):
            return ending._with_next_epoch(NO_PRODUCER_EPOCH)
        return ending

    def _with_next_epoch(self, last_epoch: ProducerEpoch) -> Transaction:
        """The highest epoch stays: only a producer that was not given it can be aborted under it.

        A coordinator below version 2 leaves it behind where it fences the last epoch.
        """
        epoch = ProducerEpoch(min(self.producer_epoch + 1, EPOCH_MAX))
        return self._replace(producer_epoch=epoch, last_producer_epoch=last_epoch)

    def completed(self, now_ms: int) -> Transaction:
        """Ended: every partition has its marker."""
        self._check_from(PREPARED)
        done = self._replace(
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            state=(
                TransactionState.COMPLETE_COMMIT
                if self.commits
                else TransactionState.COMPLETE_ABORT
            ),
            partitions=frozenset(),
            updated_ms=now_ms,
        )
        if self.raises_epoch and self.next_producer_id != NO_PRODUCER_ID:
            done = done._replace(producer_id=self.next_producer_id, producer_epoch=ProducerEpoch(0))
        return done

    # Time.

    def is_overdue(self, now_ms: int) -> bool:
        """Whether its producer has taken longer than it said it would."""
        return self.state is TransactionState.ONGOING and self.started_ms + self.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the id was not used for so long that it may be forgotten."""
        return self.state in IDLE and self.updated_ms + expiration_ms <= now_ms

    def _check_from(self, states: frozenset[TransactionState]) -> None:
        if self.state not in states:
            raise InvariantViolated(
                f"A transaction cannot go on like this from {self.state.label}."
            )
