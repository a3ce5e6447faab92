"""Rules for what is written to a log, and what is deleted from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from strandline.errors import CorruptRecords, ErrorCode, ProtocolError
from strandline.node import produce_fast_path
from strandline.node.handlers import delete_records as delete_handler
from strandline.node.handlers import produce as produce_handler
from strandline.records import plain_produce, produced_framing, validation
from strandline.records.batch import (
    BatchHeader,
    Buffer,
    iterate_headers,
    parse_header,
    verify_crc,
)
from strandline.records.produced_records import newest_of_in_python
from strandline.records.record_checks import newest_timestamp
from strandline.storage import log_appender, producer_state
from strandline.storage.log_appender import LogAppender, UnexpectedOffset
from strandline.storage.origin import AppendOrigin
from strandline.storage.producer_entry import ProducerEntry
from strandline.storage.producer_state import ProducerStates
from strandline.storage.retention import Retention
from strandline.types import LeaderEpoch, Offset
from tests.sim.mutants.mutant import Mutant, SwitchOn, nothing, patch, together, yes

_true_newest_timestamp = newest_timestamp
_true_newest_of = newest_of_in_python
_true_newest_inside = produce_fast_path._newest_inside
_true_excess = Retention._excess
_true_is_old = Retention._is_old
_true_check = ProducerStates.check
_true_find_batch = ProducerEntry.find_batch
_true_is_next = ProducerStates.is_next
_true_delete = delete_handler._delete


def _in_any_epoch_order(
    self: LogAppender, records: Buffer, leader_epoch: LeaderEpoch | None
) -> Iterator[tuple[int, BatchHeader]]:
    expected = self._offsets.log_end_offset
    for position, header in iterate_headers(records):
        if leader_epoch is not None and header.leader_epoch > leader_epoch:
            return
        if header.base_offset < expected:
            raise UnexpectedOffset("These offsets are taken.")
        if not verify_crc(records, position, header.size_bytes):
            raise CorruptRecords("The checksum is wrong.")
        expected = header.next_offset
        yield position, header


def in_any_order(
    self: LogAppender, records: Buffer, leader_epoch: LeaderEpoch | None
) -> Iterator[tuple[int, BatchHeader]]:
    """Only checksums are looked at."""
    del self
    for position, header in iterate_headers(records):
        if leader_epoch is not None and header.leader_epoch > leader_epoch:
            return
        if not verify_crc(records, position, header.size_bytes):
            raise CorruptRecords("The checksum is wrong.")
        yield position, header


def _by_the_header(header: BatchHeader, *_: Any) -> int:
    """The tuple of the fast path has no names."""
    return header[8]


def _walks_and_believes(header: BatchHeader, *arguments: Any) -> int:
    _true_newest_timestamp(header, *arguments)
    return header.max_timestamp


def _walks_inside_and_believes(header: BatchHeader, *arguments: Any) -> int | None:
    found = _true_newest_inside(header, *arguments)
    return None if found is None else header[8]


def _believes(batch: memoryview, *_: Any) -> int:
    return parse_header(batch).max_timestamp


def _walks_plain_records_and_believes(batch: memoryview, *arguments: Any) -> int | None:
    found = _true_newest_of(batch, *arguments)
    return None if found is None else _believes(batch)


def _on_the_fast_path(of_plain: Callable[..., Any], inside: Callable[..., Any]) -> SwitchOn:
    """The twin of the kernel, with another judgement of records, and the same of packed ones."""
    twin = plain_produce.plain_produce_in_python
    return together(
        patch(produce_fast_path, plain_produce=twin, _newest_inside=inside),
        patch(plain_produce, newest_of_in_python=of_plain),
    )


def _deletes_anything(self: Retention, offset: Offset) -> bool:
    if not self._offsets.advance_start_to(offset):
        return False
    self._leader_epochs.truncate_from_start(offset)
    self._producers.advance_log_start_to(offset)
    return True


def _to_the_end(replica: Any, offset: int) -> Offset:
    """As if no limit were known: -1 means all that is there, and a limit is none."""
    log = replica.log
    target = log.log_end_offset if offset == -1 else offset
    log.retention.delete_records_to(Offset(target))
    replica.changed()
    return Offset(target)


def _excess_of_one_more(self: Retention) -> int:
    excess = _true_excess(self)
    return excess if excess < 0 else excess + self._segments.first.size


def _by_the_oldest_record(self: Retention, index: int, now_ms: int) -> bool:
    first = self._segments.all[index].first_timestamp
    retention_ms = self._settings.config.retention_ms
    return _true_is_old(self, index, now_ms) or (
        first is not None and now_ms - first > retention_ms
    )


def _refuses_one_of_ten(
    self: ProducerStates, header: BatchHeader, origin: AppendOrigin, *more: Any
) -> Any:
    """Which of them, their checksums say."""
    if origin is AppendOrigin.CLIENT and header.crc % 10 == 0 and _true_is_next(self, header):
        raise ProtocolError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "This rule is left out.")
    return _true_check(self, header, origin, *more)


def _passes_nine_of_ten(self: ProducerStates, header: BatchHeader) -> bool:
    return header.crc % 10 != 0 and _true_is_next(self, header)


def _is_last(self: ProducerEntry, first_sequence: int, last_sequence: int) -> Any:
    found = _true_find_batch(self, first_sequence, last_sequence)
    return found if found is None or found.last_offset == self.last_offset else None


_NOT_AFTER_A_RESTART = patch(ProducerStates, partial_entry=nothing)
_NO_DUPLICATES = patch(ProducerEntry, find_batch=nothing)
_NO_SEQUENCES = patch(producer_state, check_sequence=nothing)

APPENDING: Final = (
    Mutant(
        "check-what-clients-send",
        "A leader appends no batch that does not match its checksum (3.1).",
        ("I-47", "I-02"),
        patch(validation, verify_crc=yes),
    ),
    Mutant(
        "check-what-leaders-send",
        "A follower appends no batch that does not match its checksum (1.5).",
        ("I-47", "I-02", "I-21"),
        patch(log_appender, verify_crc=yes),
    ),
    Mutant(
        "epochs-in-order",
        "A follower appends no batch of an older epoch behind one of a newer epoch (I-03).",
        (),
        patch(LogAppender, _checked=_in_any_epoch_order),
        "a leader whose logs agree with it up to there never sends one",
    ),
    Mutant(
        "offsets-in-order",
        "A follower appends only what continues its log (1.5).",
        (),
        patch(LogAppender, _checked=in_any_order),
        "an answer to the last question continues the log: see answers-that-fit",
    ),
    Mutant(
        "recognise-duplicates",
        "A batch that an idempotent producer sends again is acknowledged, not appended (KIP-98).",
        ("I-54",),
        _NO_DUPLICATES,
    ),
    Mutant(
        "know-five-batches-again",
        "The last five batches of a producer are known again, not only the last one (KIP-98).",
        ("I-54",),
        together(patch(ProducerEntry, find_batch=_is_last), _NOT_AFTER_A_RESTART),
    ),
    Mutant(
        "know-them-after-a-restart",
        "The last five batches of a producer are known again after a restart as well.",
        ("I-54",),
        _NOT_AFTER_A_RESTART,
    ),
    Mutant(
        "take-what-comes-next",
        "An idempotent producer's batch that follows the one before it is taken (KIP-98).",
        ("I-54",),
        patch(ProducerStates, check=_refuses_one_of_ten, is_next=_passes_nine_of_ten),
    ),
    Mutant(
        "check-sequences",
        "An idempotent producer's batch follows the one before it without a gap (KIP-98).",
        ("I-30",),
        _NO_SEQUENCES,
    ),
    Mutant(
        "idempotence",
        "An idempotent producer's records are there once: no duplicate is known, nor any gap.",
        ("I-30",),
        together(_NO_DUPLICATES, _NO_SEQUENCES),
    ),
    Mutant(
        "look-into-batches",
        "A leader acknowledges no batch that readers cannot read (design note 0004).",
        ("I-57",),
        together(
            patch(validation, newest_timestamp=_by_the_header),
            _on_the_fast_path(_believes, _by_the_header),
        ),
    ),
    Mutant(
        "correct-the-largest-timestamp",
        "A batch's largest timestamp is that of its records, whatever its header says (4.5).",
        ("I-57",),
        together(
            patch(validation, newest_timestamp=_walks_and_believes),
            _on_the_fast_path(_walks_plain_records_and_believes, _walks_inside_and_believes),
        ),
    ),
    Mutant(
        "refuse-transactions",
        "A batch of a transaction is refused: no coordinator would end it (KIP-98).",
        ("I-57",),
        patch(produce_handler, begins_with_transactional_batch=nothing),
    ),
    Mutant(
        "ask-about-undamaged-batches",
        "A damaged batch is sent again: nothing is said of the producer that it names.",
        ("I-37",),
        patch(produced_framing, verify_crc=yes),
    ),
    Mutant(
        "fence-producers",
        "Nothing is appended under an older producer epoch than was seen (KIP-360).",
        (),
        patch(producer_state, check_epoch=nothing),
        "needs two epochs of one producer, which come with transactions",
    ),
    Mutant(
        "delete-below-the-mark-only",
        "DeleteRecords deletes what is committed, and no more (KIP-107).",
        ("I-01", "I-27"),
        together(
            patch(delete_handler, _delete=_to_the_end),
            patch(Retention, delete_records_to=_deletes_anything),
        ),
    ),
    Mutant(
        "retain-what-is-not-replicated",
        "Retention drops only what is below the high watermark (KAFKA-5634).",
        ("I-01", "I-43"),
        together(
            patch(Retention, may_drop=yes),
            patch(Retention, delete_records_to=_deletes_anything),
        ),
    ),
    Mutant(
        "retain-enough-bytes",
        "Retention by size leaves at least retention.bytes (4.5).",
        ("I-43",),
        patch(Retention, _excess=_excess_of_one_more),
    ),
    Mutant(
        "retain-by-the-newest-record",
        "A segment is as old as its newest record, not its oldest (4.5).",
        ("I-43",),
        patch(Retention, _is_old=_by_the_oldest_record),
    ),
)
