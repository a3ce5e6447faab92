"""The topic in which a coordinator of this node keeps its state: appends and their ends, reading.

This file must not know what records say. A coordinator is told the ends of its appends in their
order; whether it may still lead, and when an append is committed, is the replica's to say.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final

from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.protocol.coordinator_log import CoordinatorRecord, OpenRecord
from strandline.protocol.messages.write_txn_markers import WritableTxnMarker
from strandline.records.batch import iterate_headers
from strandline.records.codec import Codec
from strandline.records.control import parse_marker
from strandline.records.own_batch import OwnBatch, own_batch, own_marker
from strandline.records.record import Record, read_records
from strandline.storage.log import Log
from strandline.storage.transaction_verification import NO_GUARD, Guard
from strandline.types import (
    NO_OFFSET,
    Instant,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
)

log = logging.getLogger(__name__)

_LOOK_AGAIN_MS: Final = 60_000
"""How often an append that is not committed is looked at, beside all that wakes it."""

AppendEnded = Callable[[int, "ErrorCode | None", Instant], None]
"""Told the end of an append by its id: None for committed. See `GroupCoordinator.appended`."""

MarkerWritten = Callable[[ErrorCode, Instant], None]
"""Told once how a marker ended; NONE: it is committed."""


class CoordinatorTopic:
    """Appends to one internal topic."""

    def __init__(self, name: str, replicas: Replicas, ended: AppendEnded) -> None:
        self._name = name
        self._replicas = replicas
        self._ended = ended
        self._undecided: Counter[int] = Counter()
        """How many appends to each partition wait for the high watermark."""

    def append(
        self,
        partition: int,
        leader_epoch: LeaderEpoch,
        append_id: int,
        batch: OwnBatch,
        now: Instant,
        *,
        transaction_version: int = 0,
        guard: Guard = NO_GUARD,
    ) -> Sequence[ErrorCode | None]:
        """Append a batch; returns what the coordinator is to be told of it now, if anything."""
        try:
            replica = self._replicas.hosted(self._name, partition)
            leading = replica.check_leading()
            if replica.leader_epoch != leader_epoch:
                return (ErrorCode.NOT_LEADER_OR_FOLLOWER,)
            required = leading.append_own(
                batch, now, transaction_version=transaction_version, guard=guard
            )
        except ProtocolError as error:
            return (error.code,)
        except StorageError as error:
            log.error("State could not be written to %s: %s", self._name, error)
            return (ErrorCode.KAFKA_STORAGE_ERROR,)
        outcome = replica.commit_outcome(required)
        # Ends are told in the order of the appends, and those of earlier turns may still wait.
        if outcome is not None and not self._undecided[partition]:
            return _outcomes(outcome)
        self.await_end(replica, append_id, required, now)
        return ()

    def await_end(self, replica: Replica, append_id: int, required: Offset, now: Instant) -> None:
        """Tell the coordinator once the records are committed, or never will be."""
        self._undecided[replica.topic_partition.partition] += 1
        self._await(replica, append_id, required, now)

    def _await(self, replica: Replica, append_id: int, required: Offset, now: Instant) -> None:
        def decided(code: ErrorCode, at: Instant) -> None:
            if code is ErrorCode.REQUEST_TIMED_OUT:
                # Who waits has a limit of its own; the records stay in the log.
                self._await(replica, append_id, required, at)
                return
            self._undecided[replica.topic_partition.partition] -= 1
            for outcome in _outcomes(code):
                self._ended(append_id, outcome, at)

        replica.await_commit(required, decided, deadline_ms=now.monotonic_ms + _LOOK_AGAIN_MS)


def _outcomes(code: ErrorCode) -> Sequence[ErrorCode | None]:
    """The end of an append in the words of the coordinator, which calls success None."""
    if code is ErrorCode.NONE:
        return (None,)
    if code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
        # Committed, but by fewer replicas than asked for: the caller gets this error,
        # and the records count.
        return (code, None)
    return (code,)


def committed_records(
    source: Log, end_offset: Offset, read_bytes: int
) -> Iterator[CoordinatorRecord | OpenRecord]:
    """The records of a log in their order, without those of aborted transactions.

    A transaction's records come with its commit marker, except those that one with the same key
    and a higher offset has overtaken: a plain one, or one of a transaction that was committed
    before. Those of transactions that are open come last.
    """
    undecided: dict[ProducerId, list[Record]] = {}
    overtakers: dict[bytes, Offset] = {}
    position = source.log_start_offset
    while position < end_offset:
        # Retention may have gone on since the last step.
        position = max(position, source.log_start_offset)
        found = source.reader.read(
            position, read_bytes, end_offset=end_offset, at_least_one_batch=True
        )
        if found is None:
            break
        data = found.file.read_at(found.position, found.length)
        for at, header in iterate_headers(data):
            position = header.next_offset
            records = list(read_records(data, at))
            if header.is_transactional and not header.is_control:
                undecided.setdefault(header.producer_id, []).extend(records)
                continue
            if header.is_control:
                ended = undecided.pop(header.producer_id, [])
                markers = map(parse_marker, records)
                is_commit = any(marker is not None and marker.commits for marker in markers)
                records = list(_not_overtaken(ended, overtakers)) if is_commit else []
            if undecided:
                overtakers.update((record.key or b"", record.offset) for record in records)
            else:
                overtakers.clear()
            yield from (CoordinatorRecord(r.key or b"", r.value) for r in records)
    still_open = [
        (record.offset, producer_id, record)
        for producer_id, records in undecided.items()
        for record in _not_overtaken(records, overtakers)
    ]
    for _, producer_id, record in sorted(still_open, key=itemgetter(0)):
        yield OpenRecord(producer_id, CoordinatorRecord(record.key or b"", record.value))


def _not_overtaken(records: list[Record], overtakers: dict[bytes, Offset]) -> Iterator[Record]:
    return (
        record for record in records if record.offset > overtakers.get(record.key or b"", NO_OFFSET)
    )


def state_batch(
    records: Iterable[CoordinatorRecord],
    now: Instant,
    *,
    codec: Codec = Codec.NONE,
    producer: tuple[ProducerId, ProducerEpoch] | None = None,
) -> OwnBatch:
    """The batch in which a coordinator keeps records; of a transaction, if it has a producer."""
    return own_batch(records, timestamp=now.wall_ms, codec=codec, producer=producer)


def marker_batch(marker: WritableTxnMarker, now: Instant) -> OwnBatch:
    """The control batch that says how a transaction ended."""
    return own_marker(
        commits=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=now.wall_ms,
        producer_id=ProducerId(marker.producer_id),
        producer_epoch=ProducerEpoch(marker.producer_epoch),
    )
