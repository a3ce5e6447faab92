"""The logs of one broker, without the broker: a log directory with random pasts, and its judge.

A `Shelf` does to two logs what a node does to them, in the node's order, and remembers after each
step what the logs held. `judge` compares what an opening of some image of the disk finds with what
was there before and after the step in which the image was taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from strandline.config.topic import TopicConfig
from strandline.records.batch import BatchHeader, iterate_headers, verify_crc
from strandline.records.builder import build_batch, build_control_batch
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record
from strandline.sim.disk import Disk
from strandline.storage.leader_epochs import EpochEntry
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.producer_entry import ProducerEntry
from strandline.types import (
    BrokerId,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)

DATA = "/data"
BROKER = BrokerId(1)
CLUSTER = "shelf"
NOW_MS = 1_700_000_000_000
PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
CONFIG = TopicConfig(
    segment_bytes=1200,
    index_interval_bytes=150,
    segment_index_bytes=4096,
    file_delete_delay_ms=1000,
    retention_bytes=3000,
)
DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot")


@dataclass(frozen=True, slots=True)
class Past:
    """One log at one moment. `batches` by base offset, also those that retention has dropped."""

    batches: dict[int, bytes] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    high_watermark_max: int = 0
    recovery_point: int = 0
    is_anew: bool = False
    """Everything was just given up: until that is done the log may be found empty."""
    ghosts: dict[int, bytes] = field(default_factory=dict)
    """Batches of earlier lives. A process that dies while it truncates does not sync that, so what
    was behind the end may be there again after a power cut."""

    def has(self, base_offset: int, data: bytes) -> bool:
        """Whether such a batch may be found."""
        if base_offset >= self.end and self.ghosts.get(base_offset) == data:
            return True
        return self.batches.get(base_offset) == data


class Opened:
    """What a start finds in an image of the disk."""

    def __init__(self, files: MemoryFiles, config: TopicConfig = CONFIG) -> None:
        self.files = files
        self.config = config
        self.directory: LogDirectory[Log] = LogDirectory(files, DATA)
        self.directory.open(BROKER, CLUSTER)
        if self.directory.offline_reason is None:
            self.directory.load_logs(self._load)

    def _load(self, found: LogToLoad) -> Log:
        return Log.load(self.files, found, self.config, now_ms=NOW_MS, random=Random(7))

    @property
    def logs(self) -> dict[TopicPartition, Log]:
        return self.directory.logs

    def contents(self) -> dict[TopicPartition, tuple[int, int, dict[int, bytes]]]:
        """Start, end and batches of each log."""
        return {
            at: (log.log_start_offset, log.log_end_offset, batches_of(log))
            for at, log in self.logs.items()
        }


def batches_of(log: Log) -> dict[int, bytes]:
    """All batches in the segments of a log, by base offset."""
    return {header.base_offset: data for data, header in _with_headers(log)}


def _with_headers(log: Log) -> Iterator[tuple[bytes, BatchHeader]]:
    for segment in log.segments.all:
        data = segment.log.read_at(0, segment.size)
        for position, header in iterate_headers(data):
            yield data[position : position + header.size_bytes], header


class Shelf:
    """See the module."""

    def __init__(self, seed: int, config: TopicConfig = CONFIG) -> None:
        self.random = Random(f"{seed} shelf")
        self.config = config
        self.disk = Disk(Random(f"{seed} disk"), data_dirs=[DATA])
        self.now_ms = NOW_MS
        self.epoch = 0
        self.anew: set[TopicPartition] = set()
        self.sequences: dict[int, int] = {}
        self.transactions: dict[TopicPartition, int] = {}
        self.opened = Opened(self.disk.files, config)
        for at in PARTITIONS:
            self._create(at)
        self.directory.write_recovery_points()
        self.pasts = {at: Past() for at in PARTITIONS}

    @property
    def directory(self) -> LogDirectory[Log]:
        return self.opened.directory

    @property
    def logs(self) -> dict[TopicPartition, Log]:
        return self.opened.logs

    def _create(self, at: TopicPartition) -> None:
        log = Log.create(
            self.disk.files,
            f"{DATA}/{at}",
            at,
            self.config,
            now_ms=self.now_ms,
            random=Random(7),
        )
        log.assign_topic_id(UUID(int=1))
        self.directory.add(log)

    # -- Steps -------------------------------------------------------------------------------

    def step(self) -> str:
        """One random thing that a node does; returns what. `remember` goes after it."""
        self.now_ms += self.random.randint(1, 400)
        self.anew.clear()
        at = self.random.choice(PARTITIONS)
        log = self.logs[at]
        name, work = self.random.choices(
            (
                ("append", self._append),
                ("replicate", self._replicate),
                ("elect", self._elect),
                ("roll", self._roll),
                ("flush", self._flush),
                ("truncate", self._truncate),
                ("start over", self._start_over),
                ("commit", self._commit),
                ("delete records", self._delete_records),
                ("checkpoint", self._checkpoint),
                ("end transaction", self._end_transaction),
            ),
            (40, 15, 6, 5, 10, 7, 1, 10, 6, 10, 4),
        )[0]
        work(at, log)
        return name

    def remember(self) -> dict[TopicPartition, Past]:
        """Note what the logs hold now; returns what they held before."""
        before = self.pasts
        self.pasts = {at: self.past_of(at, log, before[at]) for at, log in self.logs.items()}
        return before

    def past_of(self, at: TopicPartition, log: Log, before: Past) -> Past:
        found = batches_of(log)
        first = min(found, default=log.log_end_offset)
        older = {base: data for base, data in before.batches.items() if base < first}
        high_watermark_max = max(before.high_watermark_max, log.high_watermark)
        return Past(
            {**older, **found},
            log.log_start_offset,
            log.log_end_offset,
            high_watermark_max,
            log.recovery_point,
            at in self.anew,
            before.ghosts,
        )

    def batch(self, at: TopicPartition, base_offset: int = 0) -> bytearray:
        count = self.random.randint(1, 4)
        producer = self.random.choice((-1, -1, 1, 2, 3))
        key = producer * 10 + at.partition
        sequence = -1
        if producer > 0:
            sequence = self.sequences.get(key, 0)
            self.sequences[key] = sequence + count
        is_transactional = producer == 3
        if is_transactional:
            self.transactions[at] = producer
        records = [
            Record(
                timestamp=self.now_ms + self.random.randint(-50, 50),
                key=b"k%d" % self.random.randint(0, 9),
                value=self.random.randbytes(self.random.choice((3, 40, 250))),
            )
            for _ in range(count)
        ]
        return bytearray(
            build_batch(
                records,
                producer_id=ProducerId(producer),
                producer_epoch=ProducerEpoch(0 if producer > 0 else -1),
                base_sequence=sequence,
                is_transactional=is_transactional,
                base_offset=Offset(base_offset),
                leader_epoch=LeaderEpoch(self.epoch),
            )
        )

    def _append(self, at: TopicPartition, log: Log) -> None:
        log.appender.append_as_leader(
            self.batch(at), leader_epoch=LeaderEpoch(self.epoch), now_ms=self.now_ms
        )

    def _replicate(self, at: TopicPartition, log: Log) -> None:
        data = bytearray()
        base = int(log.log_end_offset)
        for _ in range(self.random.randint(1, 3)):
            batch = self.batch(at, base)
            data += batch
            base = next(iterate_headers(batch))[1].next_offset
        log.appender.append_as_follower(data, self.now_ms)

    def _end_transaction(self, at: TopicPartition, log: Log) -> None:
        producer = self.transactions.pop(at, None)
        if producer is None:
            return
        kind = self.random.choice((ControlType.ABORT, ControlType.COMMIT))
        marker = build_control_batch(
            EndTransactionMarker(kind, coordinator_epoch=1),
            timestamp=self.now_ms,
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(0),
        )
        log.appender.append_as_coordinator(
            bytearray(marker), leader_epoch=LeaderEpoch(self.epoch), now_ms=self.now_ms
        )

    def _elect(self, at: TopicPartition, log: Log) -> None:
        self.epoch += 1
        log.leader_epochs.assign(LeaderEpoch(self.epoch), log.log_end_offset)

    def _roll(self, at: TopicPartition, log: Log) -> None:
        log.roller.roll(self.now_ms)

    def _flush(self, at: TopicPartition, log: Log) -> None:
        plan = log.flusher.flush_plan_if_due(self.now_ms) or log.flusher.flush_plan()
        if plan is not None and plan.carry_out(self.disk.files):
            log.flusher.mark_flushed(plan, self.now_ms)

    def _truncate(self, at: TopicPartition, log: Log) -> None:
        low = max(0, log.log_end_offset - 12)
        offset = Offset(self.random.randint(low, log.log_end_offset))
        if offset < log.first_segment_offset:
            self.anew.add(at)
        log.truncation.truncate_to(offset, self.now_ms)
        self.after_cut(at, log)

    def _start_over(self, at: TopicPartition, log: Log) -> None:
        offset = Offset(self.random.randint(0, log.log_end_offset + 20))
        self.anew.add(at)
        log.truncation.truncate_fully_and_start_at(offset, self.now_ms)
        self.after_cut(at, log)

    def after_cut(self, at: TopicPartition, log: Log) -> None:
        # The node writes the checkpoint before the next append.
        if log.offsets.recovery_point_fell:
            self.directory.write_recovery_points()
        if log.offsets.log_start_fell:
            self.directory.write_log_starts()
        log.offsets.checkpoints_written()
        self.transactions.pop(at, None)
        for key in [key for key in self.sequences if key % 10 == at.partition]:
            entry = log.producers.active.get(ProducerId(key // 10))
            self.sequences[key] = 0 if entry is None else entry.next_sequence
            if entry is not None and entry.transaction_first_offset >= 0:
                self.transactions[at] = key // 10

    def _commit(self, at: TopicPartition, log: Log) -> None:
        low = max(log.high_watermark, log.log_end_offset - 8)
        log.advance_high_watermark_to(Offset(self.random.randint(low, log.log_end_offset)))

    def _delete_records(self, at: TopicPartition, log: Log) -> None:
        log.retention.delete_records_to(
            Offset(self.random.randint(log.log_start_offset, log.high_watermark))
        )
        # As the node does it: the files go when the start is written down.
        log.retention.expire(self.now_ms)
        if self.random.random() < 0.8:
            self.directory.write_log_starts()
            log.retention.drop_below_start(self.now_ms)
        log.retention.remove_due_files(self.now_ms)

    def _checkpoint(self, at: TopicPartition, log: Log) -> None:
        self.random.choice(
            (
                self.directory.write_recovery_points,
                self.directory.write_high_watermarks,
                self.directory.write_log_starts,
            )
        )()


# -- Judging -------------------------------------------------------------------------------------


def judge(
    opened: Opened, before: dict[TopicPartition, Past], after: dict[TopicPartition, Past]
) -> None:
    """I-46, I-47, I-03, I-01 of every log that a start has found."""
    assert opened.directory.offline_reason is None
    assert opened.directory.fully_loaded
    assert sorted(opened.logs) == sorted(PARTITIONS)
    for at, log in opened.logs.items():
        _judge_log(log, before[at], after[at])


def _judge_log(log: Log, before: Past, after: Past) -> None:
    log.check()
    expected: int | None = None
    found: dict[int, bytes] = {}
    for data, header in _with_headers(log):
        assert verify_crc(data, 0, header.size_bytes)
        assert expected in (None, header.base_offset), "the log has a hole"
        expected = header.next_offset
        found[header.base_offset] = data
    if expected is not None:
        assert expected == log.log_end_offset
    assert any(
        all(past.has(base, data) for base, data in found.items()) for past in (before, after)
    ), "something is there that was not written"
    if not after.is_anew:
        assert log.log_end_offset >= min(before.recovery_point, after.recovery_point)
    assert log.log_start_offset <= max(before.start, after.start)
    assert log.high_watermark <= max(
        before.high_watermark_max, after.high_watermark_max, log.log_start_offset
    )
    epochs = log.leader_epochs.entries
    if epochs and epochs[-1].start_offset == log.log_end_offset:
        epochs = epochs[:-1]  # an election that nothing was written after
    assert list(epochs) == epochs_of(log), (list(epochs), epochs_of(log))
    _judge_reads(log, found)


def epochs_of(log: Log) -> list[EpochEntry]:
    """The leader epochs that the batches say, over [start, end)."""
    entries: list[EpochEntry] = []
    for _, header in _with_headers(log):
        if header.next_offset <= log.log_start_offset:
            continue
        start = Offset(max(header.base_offset, log.log_start_offset))
        if not entries or entries[-1].epoch != header.leader_epoch:
            entries.append(EpochEntry(LeaderEpoch(header.leader_epoch), start))
    return entries


def _judge_reads(log: Log, found: dict[int, bytes]) -> None:
    """A few lookups through the indexes find what a scan finds (I-04)."""
    headers = [header for _, header in _with_headers(log)]
    for header in headers[::3]:
        if header.base_offset < log.log_start_offset:
            continue
        part = log.reader.read(
            Offset(header.last_offset), 1, end_offset=log.log_end_offset, at_least_one_batch=True
        )
        assert part is not None
        assert part.file.read_at(part.position, part.length) == found[header.base_offset]


def shut(opened: Opened) -> MemoryFiles:
    """The process that opened it is killed; the disk for the next one."""
    return opened.files.next_process()


def rebuilt(files: MemoryFiles, config: TopicConfig = CONFIG) -> Opened:
    """What a start makes of the batches alone, without anything derived from them."""
    clone = files.kill_clone()
    for at in PARTITIONS:
        directory = f"{DATA}/{at}"
        for name in clone.list_directory(directory):
            if name.endswith(DERIVED):
                clone.remove(f"{directory}/{name}")
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        clone.remove(f"{DATA}/{name}")
    return Opened(clone, config)


def same_state(found: Log, expected: Log) -> None:
    """Producers and aborted transactions are those that the batches make (I-05)."""
    for one, other in ((found, expected), (expected, found)):
        for producer_id, entry in one.producers.active.items():
            twin = other.producers.active.get(producer_id)
            if not entry.batches or entry.batches[-1][1] < found.log_start_offset:
                # Kept until it expires, although its last batch was deleted.
                continue
            assert twin is not None, producer_id
            assert _facts(entry) == _facts(twin)
    # Not the stable offset: that a decided transaction is not replicated yet is in no snapshot.
    known, aborts = _aborts(found), _aborts(expected)
    assert set(aborts) <= set(known)
    # Of a transaction that began with a record that is deleted the batches may say nothing.
    assert all(known[each] < found.log_start_offset for each in known if each not in aborts)


def _aborts(log: Log) -> dict[tuple[int, int], int]:
    """The aborted transactions that readers learn of: where they end, and where they began."""
    start = log.log_start_offset
    if start == log.log_end_offset:
        return {}
    found = log.reader.aborted_transactions(start, log.log_end_offset)
    return {(each.producer_id, each.last_offset): each.first_offset for each in found}


def _facts(entry: ProducerEntry) -> tuple[object, ...]:
    """What must be equal: a snapshot of Kafka's format keeps only the last batch and one time,
    which is that of the clock if that was later; the batches know nothing of that one."""
    return (
        entry.epoch,
        entry.batches[-1][:3],
        entry.next_sequence,
        entry.transaction_first_offset >= 0,
    )
