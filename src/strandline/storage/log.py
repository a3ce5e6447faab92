"""One partition's log: the sequence of record batches, on disk in segments.

This file knows how a log is loaded and closed; what it can do in between stands in the files of its
parts:

    log_state    offsets, configuration, rolling, what to sync
    log_append   as leader, as coordinator, as follower
    log_read     by offset, by time, aborted transactions
    log_cut      truncation, deletion
    retention    dropping old segments
    log_clean    compaction: new segments for old ones
    recovery     loading from disk

It must not know replicas, requests or clocks. A log is used by the node's thread only; the files
that a `FlushPlan` names are synced by a driver in any thread.
"""

from __future__ import annotations

from random import Random

from strandline.config.topic import TopicConfig
from strandline.errors import StorageError
from strandline.storage.files import Files, join, parent_of
from strandline.storage.leader_epochs import FILE_NAME as LEADER_EPOCHS_NAME
from strandline.storage.leader_epochs import LeaderEpochs
from strandline.storage.log_append import AppendsRecords
from strandline.storage.log_clean import ReplacesSegments
from strandline.storage.log_cut import DropsRecords
from strandline.storage.log_directory import LogToLoad
from strandline.storage.log_read import ReadsRecords
from strandline.storage.partition_metadata import read_topic_id, write_topic_id
from strandline.storage.producer_state import ProducerStates
from strandline.storage.recovery import Recovery
from strandline.storage.retention import DropsOldSegments
from strandline.types import NO_TOPIC_ID, Offset, TopicId, TopicPartition

PRODUCER_EXPIRATION_MS_DEFAULT = 86_400_000


class Log(AppendsRecords, ReadsRecords, DropsRecords, DropsOldSegments, ReplacesSegments):
    """See the module and `LogState` for the attributes."""

    __slots__ = ()

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
        `StorageError` when the disk fails.
        """
        producers = ProducerStates(files, found.directory, expiration_ms=producer_expiration_ms)
        is_new = not files.is_directory(found.directory)
        if is_new:
            files.make_directory(found.directory)
            files.sync_directory(parent_of(found.directory))
        epochs = LeaderEpochs.load(files, join(found.directory, LEADER_EPOCHS_NAME))
        log = cls(files, found.directory, found.topic_partition, epochs, producers)
        log.random = random
        log.last_flush_ms = now_ms
        log.topic_id = read_topic_id(files, found.directory) or NO_TOPIC_ID
        log.update_config(config)
        Recovery(log, found, now_ms).run()
        log.update_config(config)
        return log

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

    @property
    def first_segment_offset(self) -> Offset:
        """Base offset of the first segment: where the log would start without a checkpoint."""
        return Offset(self.segments.first.base_offset)

    @property
    def is_empty(self) -> bool:
        return self.log_start_offset == self.log_end_offset

    def assign_topic_id(self, topic_id: TopicId) -> None:
        """Say durably to which topic the log belongs. Another id on disk is `StorageError`."""
        write_topic_id(self.files, self.directory, topic_id)
        self.topic_id = topic_id

    def close_clean(self) -> None:
        """Sync everything, take the producer snapshot at the log's end, and close the files.

        After this the recovery point is the log's end, and the next `load` reads nearly nothing.
        """
        self.check_usable()
        try:
            self._finish_files()
        except StorageError as error:
            # Some files are in their final state and some are not: only a restart can go on.
            self.fail(f"The log could not be closed cleanly: {error}", error)
            raise
        finally:
            self.close()
        self.recovery_point = self.log_end_offset

    def _finish_files(self) -> None:
        active = self.active
        active.close_indexes()
        active.trim_log()
        self.producers.take_snapshot(self.log_end_offset)
        self.leader_epochs.flush()
        self.leader_epochs.flush_assigned()
        plan = self.flush_plan()
        for file in active.files_to_sync() if plan is None else plan.files:
            file.sync()
        self.files.sync_directory(self.directory)
