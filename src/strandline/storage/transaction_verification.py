"""Proof that the coordinator knows of a transaction before a partition takes part in it (KIP-890).

This file knows the guards of one partition. It must not ask the coordinator; the node does that
between `begin` and the append. Theory: the first transactional batch of a producer gets a guard,
the coordinator is asked whether the transaction includes this partition, and the append must show
that same guard. An end marker written meanwhile removes the guard, so that a late append cannot
open a transaction that no coordinator knows. Guards are numbers, never used twice.

What the coordinator refuses for good is forgotten by then. What may be sent again stays, for its
sequence: at most for as long as a producer, and no more than `VERIFICATIONS_MAX` of a partition.
"""

from __future__ import annotations

from typing import Final, NewType

from strandline.types import ProducerEpoch, ProducerId

Guard = NewType("Guard", int)
NO_GUARD: Final = Guard(0)
"""Shown by appends that need no verification."""
VERIFICATIONS_MAX: Final = 10_000
"""In one partition: some 3 MB. Clients choose the producers that they name: when there are more,
the one that has waited longest is forgotten, and begins anew if it is sent again."""


class Verification:
    """One producer under verification."""

    __slots__ = ("epoch", "guard", "lowest_sequence", "started_ms", "supports_epoch_bump")

    def __init__(
        self, guard: Guard, epoch: ProducerEpoch, sequence: int, started_ms: int, *, bumps: bool
    ) -> None:
        self.guard = guard
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.started_ms = started_ms
        self.supports_epoch_bump = bumps
        """The producer uses transactions of version 2: every transaction has its own epoch."""

    def note(self, sequence: int, epoch: ProducerEpoch) -> None:
        """Keep the lowest sequence seen, so that a higher one cannot be written before it.

        Otherwise a batch that failed for the moment could never be retried: its sequence would be
        out of order behind that of a batch that came later.
        """
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class Verifications:
    """The producers under verification in one partition. False when there are none."""

    __slots__ = ("_by_producer", "_guards_given")

    def __init__(self) -> None:
        self._by_producer: dict[ProducerId, Verification] = {}
        self._guards_given = 0

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __contains__(self, producer_id: ProducerId) -> bool:
        return producer_id in self._by_producer

    def begin(
        self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        sequence: int,
        now_ms: int,
        *,
        supports_epoch_bump: bool,
    ) -> Guard:
        """The guard of this producer, which it keeps until its append."""
        verification = self._by_producer.get(producer_id)
        if verification is None:
            if len(self._by_producer) >= VERIFICATIONS_MAX:
                del self._by_producer[next(iter(self._by_producer))]
            self._guards_given += 1
            verification = self._by_producer[producer_id] = Verification(
                Guard(self._guards_given), epoch, sequence, now_ms, bumps=supports_epoch_bump
            )
        verification.note(sequence, epoch)
        return verification.guard

    def get(self, producer_id: ProducerId) -> Verification | None:
        return self._by_producer.get(producer_id)

    def confirms(self, producer_id: ProducerId, guard: Guard) -> bool:
        """Whether an append that shows `guard` was verified."""
        verification = self._by_producer.get(producer_id)
        return verification is not None and guard == verification.guard

    def end_on_append(
        self, producer_id: ProducerId, epoch: ProducerEpoch, *, is_marker: bool
    ) -> None:
        """A transactional batch was appended: its producer needs no guard any more.

        A marker of the epoch under verification leaves the guard: with version 2 that marker ended
        the previous transaction, and the guard is for the one that follows it.
        """
        verification = self._by_producer.get(producer_id)
        if verification is None:
            return
        if is_marker and verification.supports_epoch_bump and epoch == verification.epoch:
            return
        del self._by_producer[producer_id]

    def forget(self, producer_id: ProducerId) -> None:
        """The coordinator has refused the producer, and no append is left that would show it."""
        self._by_producer.pop(producer_id, None)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget verifications that were begun long ago and never used."""
        for producer_id, verification in list(self._by_producer.items()):
            if now_ms - verification.started_ms >= expiration_ms:
                del self._by_producer[producer_id]
