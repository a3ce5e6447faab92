"""A compacted log, a history of what was written to it, and rounds of compaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from strandline.config.topic import TopicConfig
from strandline.records.batch import iterate_headers
from strandline.records.builder import build_batch, build_control_batch
from strandline.records.codec import Codec
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record, read_records
from strandline.storage.compaction.bounds import cleanable_range
from strandline.storage.compaction.cleaning import UNHURRIED, Pace, carry_out
from strandline.storage.compaction.plan import CleanerSettings, CleaningPlan
from strandline.storage.compaction.planner import plan_cleaning
from strandline.storage.files import Files
from strandline.storage.log import Log
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from tests.storage.conftest import NOW_MS, Kit

COMPACTED = TopicConfig(
    cleanup_policies=frozenset({"compact"}),
    segment_bytes=1000,
    index_interval_bytes=150,
    segment_index_bytes=4096,
    file_delete_delay_ms=1000,
    delete_retention_ms=10_000,
    retention_ms=-1,
)
SMALL_BUFFERS = CleanerSettings(dedupe_buffer_bytes=24 * 100, io_buffer_bytes=600)

Pairs = Sequence[tuple[bytes, bytes | None]]


def put(log: Log, *pairs: tuple[bytes, bytes | None], now_ms: int = NOW_MS, **options: Any) -> int:
    """Append one batch of keys and values as leader; its base offset."""
    records = [Record(timestamp=now_ms + i, key=k, value=v) for i, (k, v) in enumerate(pairs)]
    batch = bytearray(build_batch(records, **options))
    appended = log.appender.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=now_ms)
    log.advance_high_watermark_to(log.log_end_offset)
    return appended.base_offset


def end_transaction(
    log: Log, producer_id: int, *, commits: bool, epoch: int = 0, now_ms: int = NOW_MS
) -> None:
    marker = build_control_batch(
        EndTransactionMarker(ControlType.COMMIT if commits else ControlType.ABORT, 0),
        timestamp=now_ms,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(epoch),
    )
    log.appender.append_as_coordinator(
        bytearray(marker), leader_epoch=LeaderEpoch(0), now_ms=now_ms
    )
    log.advance_high_watermark_to(log.log_end_offset)


def plan_all(
    log: Log,
    checkpoint: int | None = None,
    *,
    now_ms: int = NOW_MS,
    settings: CleanerSettings = SMALL_BUFFERS,
) -> CleaningPlan | None:
    at = None if checkpoint is None else Offset(checkpoint)
    return plan_cleaning(log, cleanable_range(log, at, now_ms), settings, now_ms)


def compact(
    files: Files,
    log: Log,
    checkpoint: int | None = None,
    *,
    now_ms: int = NOW_MS,
    settings: CleanerSettings = SMALL_BUFFERS,
    pace: Pace = UNHURRIED,
) -> int | None:
    """One round; the first dirty offset of the next, or None when there was nothing to do."""
    plan = plan_all(log, checkpoint, now_ms=now_ms, settings=settings)
    if plan is None:
        return None
    result = None
    for result in carry_out(plan, files, pace):
        assert log.swap.finish_cleaning(result, now_ms)
        log.check()
    assert result is not None
    assert result.cleaned_to is not None
    return result.cleaned_to


def records_of(log: Log, *, committed: bool = True) -> Iterator[Record]:
    """The data records that a reader from the log's start sees."""
    data = Kit.bytes_from(log, log.log_start_offset)
    aborted = log.reader.aborted_transactions(log.log_start_offset, log.log_end_offset)
    for position, header in iterate_headers(data):
        is_aborted = header.is_transactional and any(
            each.producer_id == header.producer_id
            and each.first_offset <= header.base_offset <= each.last_offset
            for each in aborted
        )
        if header.is_control or (committed and is_aborted):
            continue
        yield from read_records(data, position)


def map_of(log: Log) -> dict[bytes, bytes]:
    """What a reader that applies all committed records ends with."""
    found: dict[bytes, bytes] = {}
    for record in records_of(log):
        assert record.key is not None
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value
    return found


def every_batch(log: Log) -> list[Any]:
    return [header for _, header in iterate_headers(Kit.bytes_from(log, log.log_start_offset))]


@dataclass
class Writer:
    """Writes a random history with transactions, producers, codecs and tombstones."""

    log: Log
    random: Random
    now_ms: int = NOW_MS
    keys: int = 12
    sequences: dict[int, int] = field(default_factory=dict)
    open: dict[int, None] = field(default_factory=dict)

    def step(self) -> None:
        random = self.random
        self.now_ms += random.randrange(200)
        kind = random.random()
        if kind < 0.05:
            self.log.roller.roll(self.now_ms)
        elif kind < 0.2 and self.open:
            producer = random.choice(sorted(self.open))
            del self.open[producer]
            commits = random.random() < 0.5
            end_transaction(self.log, producer, commits=commits, now_ms=self.now_ms)
        elif kind < 0.5:
            # Producers 1 to 3 write transactions, 4 and 5 are idempotent only.
            producer = random.randint(1, 5)
            transactional = producer <= 3
            if transactional:
                self.open[producer] = None
            self._put(producer, transactional)
        else:
            self._put(-1, transactional=False)

    def end_all(self) -> None:
        for producer in sorted(self.open):
            end_transaction(self.log, producer, commits=True, now_ms=self.now_ms)
        self.open.clear()

    def _put(self, producer: int, transactional: bool) -> None:
        random = self.random
        pairs = [
            (
                b"key-%d" % random.randrange(self.keys),
                None
                if random.random() < 0.25
                else b"%d." % random.randrange(1000) * random.randint(1, 6),
            )
            for _ in range(random.choice([1, 1, 2, 3, 6]))
        ]
        sequence = self.sequences.get(producer, 0)
        put(
            self.log,
            *pairs,
            now_ms=self.now_ms,
            codec=random.choice([Codec.NONE, Codec.NONE, *Codec]),
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(-1 if producer < 0 else 0),
            base_sequence=-1 if producer < 0 else sequence,
            is_transactional=transactional,
        )
        self.sequences[producer] = sequence + len(pairs)
