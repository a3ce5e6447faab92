"""Idempotent and transactional producers of one partition: who wrote what last, what is open.

This file knows the state and how batches change it. It must not know the log's segments: the log
hands in each batch, first to `check`, and after the write to `update`. The rules are in
`producer_checks`, the files in `producer_snapshot`.

Theory: the state is a function of the log. It is rebuilt from the newest snapshot plus a scan of
the batches above it, which is why replication and recovery are never refused (KAFKA-6003), and why
`end_offset` (state includes every batch below it) is kept with it. Which transactions are unstable
is `open_transactions`' part.

Batches without a producer id have no business here: the log tests `header.producer_id < 0` first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from strandline.records.batch import SEQUENCE_MAX, TRANSACTIONAL_BIT, BatchHeader, Buffer
from strandline.storage.end_marker import EndMarker, read_end_marker
from strandline.storage.files import Files
from strandline.storage.open_transactions import CompletedTransaction, OpenTransactions
from strandline.storage.origin import AppendOrigin
from strandline.storage.producer_checks import (
    check_epoch,
    check_marker,
    check_sequence,
    check_transactional,
    stale_epoch,
    unverified,
)
from strandline.storage.producer_entry import CompletedBatch, ProducerEntry
from strandline.storage.producer_snapshot import ProducerSnapshots, Reload
from strandline.storage.transaction_verification import NO_GUARD, Guard, Verifications
from strandline.types import NO_OFFSET, NO_SEQUENCE, NO_TIMESTAMP, Offset, ProducerEpoch, ProducerId

LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60 * 1000
"""How long past the largest transaction timeout an open transaction counts as hanging."""

_CLIENT: Final = AppendOrigin.CLIENT


class ProducerStates:
    """The producers of one partition.

    `end_offset`: the state covers every batch below it. It stands where a snapshot, a rebuild or a
    replay has ended; the log moves it to its end (`advance_to`) before it goes back.
    """

    __slots__ = (
        "_by_id",
        "_snapshot_offset",
        "end_offset",
        "expiration_ms",
        "snapshots",
        "transactions",
        "verification_enabled",
        "verifications",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        expiration_ms: int,
        verification_enabled: bool = False,
    ) -> None:
        self.expiration_ms = expiration_ms
        self.verification_enabled = verification_enabled
        """`transaction.partition.verification.enable`."""
        self.verifications = Verifications()
        self.snapshots = ProducerSnapshots(files, directory)
        self.end_offset = Offset(0)
        self.transactions = OpenTransactions()
        self._snapshot_offset = Offset(0)
        self._by_id: dict[ProducerId, ProducerEntry] = {}

    def require_verification(self, required: bool) -> None:
        """Whether a partition must be part of the transaction that writes to it."""
        self.verification_enabled = required

    # ── appending ──────────────────────────────────────────────────────────────────────────────

    def check(
        self, header: BatchHeader, origin: AppendOrigin, guard: Guard = NO_GUARD
    ) -> CompletedBatch | None:
        """Judge a data batch before it is written.

        None: write it. A `CompletedBatch`: it was written before, answer with that and write
        nothing. Raises `ProtocolError` with 45, 47 or 48. Changes nothing. An append may hold one
        batch per producer: each is judged against what is already written.
        """
        if origin is AppendOrigin.REPLICATION or (origin is _CLIENT and self.is_next(header)):
            return None
        return self._check_all_rules(header, origin, guard)

    def is_next(self, header: BatchHeader, *, begins: bool = False) -> bool:
        """Whether a client's batch plainly continues what its producer wrote last; `begins`: as the
        first one of a transaction, which is for the coordinator to confirm."""
        entry = self._by_id.get(header.producer_id)
        return (
            entry is not None
            and header.base_sequence == entry.next_sequence
            and header.producer_epoch == entry.epoch
            and entry.in_sequence
            and (entry.transaction_first_offset >= 0)
            == (header.attributes & TRANSACTIONAL_BIT > 0 and not begins)
            and header.producer_id not in self.verifications
        )

    def partial_entry(self, header: BatchHeader) -> ProducerEntry | None:
        """The producer of a client's batch, if the batch may repeat one that only the log knows.

        Then its older batches are to be recalled before the batch is judged.
        """
        entry = self._by_id.get(header.producer_id)
        if entry is None or not entry.may_repeat_unseen(
            header.producer_epoch, header.base_sequence, header.last_sequence
        ):
            return None
        return entry

    def update(
        self,
        header: BatchHeader,
        base_offset: Offset,
        max_timestamp: int,
        now_ms: int = NO_TIMESTAMP,
    ) -> None:
        """Note a data batch that was written at `base_offset`, from whatever origin.

        Offset and timestamp are those in the log; the header may be from before they were set.
        `now_ms` is the time at which it is noted, if the producer is to be kept from then on.
        """
        producer_id = header.producer_id
        sequence = header.base_sequence
        entry = self._by_id.get(producer_id)
        if entry is None:
            entry = self._by_id[producer_id] = ProducerEntry(producer_id, header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.enter_epoch(header.producer_epoch)
        elif sequence != entry.next_sequence and entry.batches:
            entry.in_sequence = False
        delta = header.last_offset_delta
        last_sequence = NO_SEQUENCE if sequence < 0 else (sequence + delta) & SEQUENCE_MAX
        entry.remember(last_sequence, base_offset + delta, delta, max_timestamp)
        entry.active_ms = now_ms
        if header.attributes & TRANSACTIONAL_BIT:
            if entry.transaction_first_offset < 0:
                entry.transaction_first_offset = base_offset
                self.transactions.begin(producer_id, base_offset)
            if self.verifications:
                self.verifications.end_on_append(producer_id, entry.epoch, is_marker=False)

    def check_marker(
        self,
        header: BatchHeader,
        marker: EndMarker,
        origin: AppendOrigin,
        transaction_version: int = 0,
    ) -> None:
        """Judge an end marker before it is written. Raises `ProtocolError` with 47 or 52."""
        if origin is not AppendOrigin.REPLICATION:
            entry = self._by_id.get(header.producer_id)
            check_marker(entry, header, marker, transaction_version)

    def update_marker(
        self, header: BatchHeader, marker: EndMarker, base_offset: Offset
    ) -> CompletedTransaction | None:
        """Note an end marker that was written at `base_offset`.

        Returns the transaction that it ended, if there was one. The log then writes the
        transaction index, if it is an abort, and completes the transaction in `transactions`; in
        that order, so that no reader gets beyond an abort that it cannot know of.
        """
        producer_id, epoch = header.producer_id, header.producer_epoch
        entry = self._by_id.get(producer_id)
        if entry is None:
            entry = self._by_id[producer_id] = ProducerEntry(producer_id, epoch)
        first_offset = entry.transaction_first_offset
        entry.enter_epoch(epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = marker.timestamp
        entry.transaction_first_offset = Offset(-1)
        if self.verifications:
            self.verifications.end_on_append(producer_id, epoch, is_marker=True)
        if first_offset < 0:
            return None
        return CompletedTransaction(producer_id, first_offset, base_offset, marker.is_abort)

    def advance_to(self, end_offset: Offset) -> None:
        """The state covers every batch below `end_offset`, those without a producer included."""
        self.end_offset = end_offset

    def replay(
        self, header: BatchHeader, batch: Buffer, now_ms: int = NO_TIMESTAMP
    ) -> CompletedTransaction | None:
        """Note a batch of a producer that is already in the log, or comes by replication.

        `batch` is read only if it is a control batch. Returns a transaction that it ended, to be
        treated as after `update_marker`.
        """
        if not header.is_control:
            self.update(header, header.base_offset, header.max_timestamp, now_ms)
            return None
        marker = read_end_marker(batch)
        return None if marker is None else self.update_marker(header, marker, header.base_offset)

    # ── reading ────────────────────────────────────────────────────────────────────────────────

    @property
    def active(self) -> Mapping[ProducerId, ProducerEntry]:
        """Every known producer by its id; not to be changed."""
        return MappingProxyType(self._by_id)

    @property
    def is_empty(self) -> bool:
        """Nothing is known, so a scan of the log that found this would find it again."""
        return not self._by_id and not self.transactions.has_unreplicated

    @property
    def first_undecided_offset(self) -> Offset | None:
        """First offset of the earliest open transaction, whatever is replicated."""
        earliest = self.transactions.earliest_open
        return None if earliest is None else earliest[0]

    def has_open_transaction(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        """Whether this epoch of the producer has one; a newer epoch means it may have ended."""
        entry = self._by_id.get(producer_id)
        return entry is not None and entry.has_open_transaction and entry.epoch == epoch

    def has_late_transaction(self, now_ms: int, transaction_timeout_max_ms: int) -> bool:
        """Whether the earliest open transaction seems to hang: no producer will end it."""
        earliest = self.transactions.earliest_open
        entry = None if earliest is None else self._by_id.get(earliest[1])
        limit_ms = transaction_timeout_max_ms + LATE_TRANSACTION_BUFFER_MS
        return (
            entry is not None
            and entry.last_timestamp > 0
            and now_ms - entry.last_timestamp > limit_ms
        )

    def begin_verification(
        self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        sequence: int,
        now_ms: int,
        *,
        supports_epoch_bump: bool,
    ) -> Guard:
        """A guard to show to `check` once the coordinator has confirmed the transaction.

        `NO_GUARD` when the transaction is open here already: then there is nothing to confirm.
        Raises `ProtocolError` (47) for a fenced epoch.
        """
        entry = self._by_id.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise stale_epoch(entry, epoch)
        if self.has_open_transaction(producer_id, epoch):
            return NO_GUARD
        return self.verifications.begin(
            producer_id, epoch, sequence, now_ms, supports_epoch_bump=supports_epoch_bump
        )

    # ── forgetting ─────────────────────────────────────────────────────────────────────────────

    def advance_log_start_to(self, log_start_offset: Offset) -> None:
        """Records below `log_start_offset` are gone. Producers stay, for their sequences."""
        self.transactions.acknowledge_to(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)
        newest = self.snapshots.newest
        self._snapshot_offset = log_start_offset if newest is None else newest

    def remove_expired(self, now_ms: int) -> int:
        """Forget idle producers; returns how many. Those with an open transaction stay."""
        expired = [
            producer_id
            for producer_id, entry in self._by_id.items()
            if entry.is_expired(now_ms, self.expiration_ms)
        ]
        for producer_id in expired:
            del self._by_id[producer_id]
        self.verifications.remove_expired(now_ms, self.expiration_ms)
        return len(expired)

    # ── disk ───────────────────────────────────────────────────────────────────────────────────

    def take_snapshot(self, offset: Offset | None = None, *, sync: bool = True) -> str | None:
        """Write the state, which covers every batch below `offset` (default: `end_offset`).

        Returns the path, or None if a snapshot of that offset or a later one exists. Without
        `sync` the caller syncs the path before the recovery point passes the offset.
        """
        if offset is not None:
            self.end_offset = offset
        if self.end_offset <= self._snapshot_offset:
            return None
        path = self.snapshots.write(self.end_offset, self._by_id.values(), sync=sync)
        self._snapshot_offset = self.end_offset
        return path

    def truncate_and_reload(
        self, log_start_offset: Offset, log_end_offset: Offset, now_ms: int
    ) -> Reload:
        """Go back to the newest good snapshot in `[log_start_offset, log_end_offset]`.

        Snapshots outside of that range are removed for good. If the state is already that of
        `log_end_offset` it stays, so `end_offset` must be exact here. The caller replays the
        batches from `scan_from` and then calls `advance_to`. The high watermark must already be
        clamped to the log's end.
        """
        self.snapshots.keep_between(log_start_offset, log_end_offset)
        if log_end_offset == self.end_offset:
            self.advance_log_start_to(log_start_offset)
            return Reload(self.end_offset, ())
        self._forget_all()
        damaged = self._load_newest(log_start_offset, now_ms)
        return Reload(self.end_offset, damaged)

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Forget everything and remove every snapshot: the log starts anew at `offset`."""
        self._forget_all()
        self.snapshots.keep_between(NO_OFFSET, NO_OFFSET)
        self._snapshot_offset = Offset(0)
        self.end_offset = offset

    def remove_stray_snapshots(
        self, segment_base_offsets: Collection[Offset], names: Iterable[str]
    ) -> None:
        """Of the snapshots among these files of the directory keep what belongs to a segment, and
        the newest if it is above."""
        self.snapshots.scan(names)
        self.snapshots.remove_strays(segment_base_offsets)

    def moved_to(self, directory: str) -> None:
        """Tell that the partition's directory was renamed."""
        self.snapshots.directory = directory

    def take_over(self, other: ProducerStates) -> None:
        """Know what another log of the partition knows, also of producers without a batch in it."""
        self._by_id, self.transactions = other._by_id, other.transactions
        self.verifications = other.verifications
        self.verification_enabled = other.verification_enabled
        self.end_offset = other.end_offset

    def check_invariants(self) -> None:
        """Raise `InvariantViolated` unless transactions and producers agree (I-06)."""
        self.transactions.check(self._transactions_of_producers())

    # ── helpers ────────────────────────────────────────────────────────────────────────────────

    def _check_all_rules(
        self, header: BatchHeader, origin: AppendOrigin, guard: Guard
    ) -> CompletedBatch | None:
        entry = self._by_id.get(header.producer_id)
        if origin is _CLIENT and entry is not None and header.producer_epoch == entry.epoch:
            duplicate = entry.find_batch(header.base_sequence, header.last_sequence)
            if duplicate is not None:
                return duplicate
        check_epoch(entry, header)
        if (
            self.verification_enabled
            and header.is_transactional
            and not self.has_open_transaction(header.producer_id, header.producer_epoch)
            and not self.verifications.confirms(header.producer_id, guard)
        ):
            raise unverified(header)
        if origin is _CLIENT:
            check_sequence(entry, header, self.verifications.get(header.producer_id))
        check_transactional(entry, header)
        return None

    def _forget_all(self) -> None:
        self._by_id.clear()
        self.transactions.restart(())

    def _load_newest(self, log_start_offset: Offset, now_ms: int) -> tuple[str, ...]:
        entries, damaged = self.snapshots.read_newest()
        if entries is not None:
            self._adopt(entries, now_ms)
        newest = self.snapshots.newest
        self._snapshot_offset = self.end_offset = log_start_offset if newest is None else newest
        return damaged

    def _adopt(self, entries: list[ProducerEntry], now_ms: int) -> None:
        kept = [entry for entry in entries if not entry.is_expired(now_ms, self.expiration_ms)]
        self._by_id = {entry.producer_id: entry for entry in kept}
        self.transactions.restart(self._transactions_of_producers())

    def _transactions_of_producers(self) -> list[tuple[Offset, ProducerId]]:
        return [
            (entry.transaction_first_offset, entry.producer_id)
            for entry in self._by_id.values()
            if entry.has_open_transaction
        ]
