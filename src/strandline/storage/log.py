"""One partition's log: the sequence of record batches, on disk in segments.

This file knows which parts a log consists of, how it is loaded and closed, and what concerns more
than one part. What a log can do in between stands with its parts:

    log_offsets    where it starts, is committed, is durable and ends
    log_settings   what the topic's settings mean for it
    log_health     whether it may be used
    log_parts      these and all other state of a log, and where it lies
    log_roller     closing a segment, beginning the next
    log_flusher    what to sync, and when
    log_appender   as leader, as coordinator, as follower
    log_reader     by offset, by time, aborted transactions
    truncation     dropping records at the end
    retention      dropping old segments
    segment_swap   compaction: new segments for old ones
    recovery       loading from disk

Each field is written by the file of its part and by no other. A log must not know replicas,
requests or clocks. It is used by the node's thread only; the files that a `FlushPlan` names are
synced by a driver in any thread.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

from strandline.config.topic import TopicConfig
from strandline.errors import InvariantViolated, StorageError
from strandline.storage.batch_scan import OldFormat
from strandline.storage.directory_names import DirectoryKind, retired_directory_name
from strandline.storage.files import Files, join, parent_of
from strandline.storage.flush_plan import ClosePlan
from strandline.storage.leader_epochs import FILE_NAME as LEADER_EPOCHS_NAME
from strandline.storage.leader_epochs import LeaderEpochs
from strandline.storage.log_appender import LogAppender
from strandline.storage.log_flusher import LogFlusher
from strandline.storage.log_health import LogHealth
from strandline.storage.log_offsets import LogOffsets
from strandline.storage.log_parts import LogParts, PartitionDirectory
from strandline.storage.log_reader import LogReader
from strandline.storage.log_roller import LogRoller
from strandline.storage.log_settings import LogSettings
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.producer_state import ProducerStates
from strandline.storage.recovery import Recovery
from strandline.storage.recovery_report import RecoveryReport
from strandline.storage.retention import Retention
from strandline.storage.segment import Segment
from strandline.storage.segment_swap import SegmentSwap
from strandline.storage.segments import Segments
from strandline.storage.truncation import Truncation
from strandline.types import Offset, TopicId, TopicPartition

PRODUCER_EXPIRATION_MS_DEFAULT = 86_400_000


class Log:
    """The parts of a log by their names, and its state to be read.

    `random` spreads the rolls of many logs in time and makes the secrets of compaction;
    `recovery_report` says what loading found.
    """

    __slots__ = (
        "appender",
        "flusher",
        "health",
        "leader_epochs",
        "location",
        "offsets",
        "producers",
        "random",
        "reader",
        "recovery_report",
        "retention",
        "roller",
        "segments",
        "settings",
        "swap",
        "truncation",
    )

    def __init__(self, parts: LogParts, now_ms: int, random: Random) -> None:
        """Has no segments yet; see `load`."""
        self.location = parts.location
        self.settings = parts.settings
        self.health = parts.health
        self.offsets = parts.offsets
        self.segments = parts.segments
        self.leader_epochs = parts.leader_epochs
        self.producers = parts.producers
        self.random = random
        self.flusher = LogFlusher(parts, now_ms)
        self.roller = LogRoller(parts, self.flusher, random)
        self.appender = LogAppender(parts, self.roller, self.flusher)
        self.reader = LogReader(parts)
        self.truncation = Truncation(parts, self.roller, self.flusher)
        self.retention = Retention(parts, self.roller)
        self.swap = SegmentSwap(parts, self.reader)
        self.recovery_report = RecoveryReport()

    @classmethod
    def load(
        cls,
        files: Files,
        found: LogToLoad,
        config: TopicConfig,
        *,
        now_ms: int,
        random: Random,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS_DEFAULT,
    ) -> Log:
        """The log in `found.directory`, recovered if need be; `recovery_report` says what was done.

        `random` spreads the rolls of many logs in time (`segment.jitter.ms`). Raises
        `StorageError` when the disk fails. A log with messages of format 0 or 1 is left as it is,
        and is no use (`is_refused`).
        """
        location = PartitionDirectory(
            files, found.directory, found.topic_partition, is_durable=not found.needs_recovery
        )
        producers = ProducerStates(files, found.directory, expiration_ms=producer_expiration_ms)
        epochs = LeaderEpochs.load(
            files, join(found.directory, LEADER_EPOCHS_NAME), location.make_durable
        )
        parts = LogParts(
            location,
            LogSettings(config),
            LogHealth(found.topic_partition),
            LogOffsets(found.topic_partition),
            Segments(),
            epochs,
            producers,
        )
        log = cls(parts, now_ms, random)
        try:
            log.recovery_report = Recovery(parts, log.roller, found, now_ms).run()
        except OldFormat as refusal:
            log._refuse(found, refusal)
            return log
        log.update_config(config)
        return log

    def _refuse(self, found: LogToLoad, refusal: OldFormat) -> None:
        """Be of no use, but keep the offsets that the tables name: they are written again."""
        self.health.refuse(f"{refusal} The log is left as it is.")
        self.segments.close()
        end = max(found.log_start_offset, found.recovery_point, found.high_watermark)
        self.offsets.load(found.log_start_offset, max(end, found.cleaned_to), found.recovery_point)
        self.offsets.restore_high_watermark(found.high_watermark)

    @classmethod
    def create(
        cls,
        files: Files,
        directory: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        *,
        now_ms: int,
        random: Random,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS_DEFAULT,
    ) -> Log:
        """A log for a partition that this log directory does not have yet."""
        found = LogToLoad(
            topic_partition=topic_partition,
            directory=directory,
            recovery_point=Offset(0),
            log_start_offset=Offset(0),
            high_watermark=Offset(0),
            needs_recovery=False,
        )
        return cls.load(
            files,
            found,
            config,
            now_ms=now_ms,
            random=random,
            producer_expiration_ms=producer_expiration_ms,
        )

    # -- What it is --------------------------------------------------------------------------

    @property
    def files(self) -> Files:
        return self.location.files

    @property
    def directory(self) -> str:
        return self.location.path

    @property
    def topic_partition(self) -> TopicPartition:
        return self.location.topic_partition

    @property
    def topic_id(self) -> TopicId:
        """`NO_TOPIC_ID` if the disk does not say."""
        return self.location.topic_id

    @property
    def config(self) -> TopicConfig:
        return self.settings.config

    @property
    def failure(self) -> str | None:
        """Why the log takes no more appends."""
        return self.health.failure

    @property
    def is_refused(self) -> bool:
        """Whether its files were left as they were found; see `LogHealth`."""
        return self.health.is_refused

    @property
    def closed(self) -> bool:
        return self.health.closed

    # -- Offsets, to be read; see `LogOffsets` -----------------------------------------------

    @property
    def log_start_offset(self) -> Offset:
        return self.offsets.log_start_offset

    @property
    def high_watermark(self) -> Offset:
        return self.offsets.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """Where `read_committed` readers stop: the high watermark, or an undecided transaction."""
        offsets = self.offsets
        unstable = self.producers.transactions.first_unstable_offset
        if unstable is None or unstable >= offsets.high_watermark:
            return offsets.high_watermark
        return max(unstable, offsets.log_start_offset)

    @property
    def recovery_point(self) -> Offset:
        return self.offsets.recovery_point

    @property
    def log_end_offset(self) -> Offset:
        return self.offsets.log_end_offset

    # -- Segments ----------------------------------------------------------------------------

    @property
    def active(self) -> Segment:
        """The segment that appends go to: the last one."""
        return self.segments.active

    @property
    def first_segment_offset(self) -> Offset:
        """Base offset of the first segment: where the log would start without a checkpoint."""
        return Offset(self.segments.first.base_offset)

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches on disk, those below the log start included."""
        return self.segments.size_bytes

    @property
    def is_empty(self) -> bool:
        return self.log_start_offset == self.log_end_offset

    # -- What concerns several parts ---------------------------------------------------------

    def assign_topic_id(self, topic_id: TopicId) -> None:
        """Write down to which topic the log belongs. Another id on disk is `StorageError`."""
        self.location.assign_topic_id(topic_id, durably=self.log_end_offset > 0)

    def update_config(self, config: TopicConfig) -> None:
        """Follow settings of the topic, or new ones, from the next append on."""
        self.settings.follow(config)
        self.flusher.reschedule()
        self.active.follow(config)

    def advance_high_watermark_to(self, offset: Offset) -> bool:
        """Raise the high watermark; returns whether it moved. Never lowers it (I-10)."""
        if not self.offsets.advance_high_watermark_to(offset):
            return False
        if self.producers.transactions.first_unstable_offset is not None:
            self.producers.transactions.acknowledge_to(offset)
        return True

    def restore_high_watermark(self, offset: Offset) -> Offset:
        """Take the high watermark from a checkpoint, clamped to the log; returns what it is now."""
        restored = self.offsets.restore_high_watermark(offset)
        self.producers.transactions.acknowledge_to(restored)
        return restored

    def check(self) -> None:
        """Raise `InvariantViolated` unless offsets and segments agree (I-01, I-02, I-06)."""
        self.offsets.check()
        bases = self.segments.base_offsets
        if not bases or bases[-1] > self.log_end_offset or self.segments.last is not self.active:
            raise InvariantViolated(
                f"{self.topic_partition}: the active segment is not the last.", invariant="I-02"
            )
        if any(low >= high for low, high in pairwise(bases)):
            raise InvariantViolated(
                f"{self.topic_partition}: segments are out of order: {bases}.", invariant="I-02"
            )
        self.leader_epochs.check()
        self.producers.check_invariants()

    # -- Moving, deleting, closing -----------------------------------------------------------

    def rename_directory(self, directory: str) -> None:
        """Move the whole partition to another name in the same log directory, durably."""
        self._rename_directory(directory)
        self.files.sync_directory(parent_of(directory))

    def _rename_directory(self, directory: str) -> None:
        self.location.rename(directory)
        self.segments.moved_to(directory)
        self.leader_epochs.moved_to(join(directory, LEADER_EPOCHS_NAME))
        self.producers.moved_to(directory)
        self.flusher.moved_to(directory)

    def exchange(self, other: Log) -> None:
        """Be the other log of the partition from now on, and let that one be this. All who know
        this log then work on the files of the other one."""
        for part in self.__slots__:
            mine, others = getattr(self, part), getattr(other, part)
            setattr(self, part, others)
            setattr(other, part, mine)

    def delete(self, unique_id: str) -> str:
        """Give the partition up: rename its directory to `-delete` and take no more appends.

        `unique_id` (32 hex digits) keeps the name apart from earlier ones. Returns the directory,
        whose contents the log directory removes after `file.delete.delay.ms`. Answers on their way
        may still read until `close`, which comes before the removal. After `NoRoom` the log is
        deleted (`closed`), but not durably: the name of its directory is to be synced later.
        """
        name = retired_directory_name(self.topic_partition, DirectoryKind.DELETED, unique_id)
        self.offsets.begin_truncation()
        self._rename_directory(join(parent_of(self.directory), name))
        self.health.close()
        self.files.sync_directory(parent_of(self.directory))
        return self.directory

    def close(self) -> None:
        """Give all handles up without writing anything, as after a failure of the disk."""
        self.health.close()
        self.segments.close()

    def close_clean(self) -> None:
        """Sync everything, take the producer snapshot at the log's end, and close the files.

        After this the recovery point is the log's end, and the next `load` reads nearly nothing.
        """
        plan = self.begin_close()
        plan.carry_out()
        self.end_close(plan)

    def begin_close(self) -> ClosePlan:
        """Write what `close_clean` writes; then carry the plan out, and `end_close`.

        Nothing else may be asked of the log from now on. Raises `StorageError`: it is closed then.
        """
        self.health.check_usable()
        try:
            active = self.active
            active.close_indexes()
            active.trim_log()
            snapshot = self.producers.take_snapshot(self.log_end_offset, sync=False)
            return self.flusher.close_plan(snapshot)
        except StorageError as error:
            self._fail_to_close(error)
            raise

    def end_close(self, plan: ClosePlan) -> None:
        """Close the files, after the plan was carried out. Raises its `StorageError`."""
        if plan.failure is not None:
            self._fail_to_close(plan.failure)
            raise plan.failure
        self.close()
        self.offsets.advance_recovery_point_to(self.log_end_offset)

    def _fail_to_close(self, error: StorageError) -> None:
        # Some files are in their final state and some are not: only a restart can go on.
        self.health.fail(f"The log could not be closed cleanly: {error}", error)
        self.close()
