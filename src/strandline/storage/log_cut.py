"""Dropping records: truncation at the end, the whole log. (`retention` drops at the start.)

This file knows what may be dropped and in which order files change, so that a crash at any moment
leaves a log that recovery understands. It must not know why a follower diverged.

Truncation syncs what it cut before it returns. Otherwise a power loss could bring removed batches
back under offsets for which the epoch table, which is synced at each assignment, names another
leader; the log would then answer for an epoch with records of another (I-21).
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.errors import InvariantViolated, StorageError
from strandline.storage.directory_names import DirectoryKind, retired_directory_name
from strandline.storage.files import join, name_of, parent_of
from strandline.storage.leader_epochs import FILE_NAME as LEADER_EPOCHS_NAME
from strandline.storage.log_state import LogState
from strandline.storage.replay import replay_producers
from strandline.storage.segment import Segment
from strandline.types import Offset


class DropsRecords(LogState):
    """The part of `log.Log` that drops."""

    __slots__ = ()

    # -- Truncation --------------------------------------------------------------------------

    def truncate_to(self, offset: Offset, now_ms: int) -> bool:
        """Remove every batch that ends at or after `offset`; returns whether any was.

        Batches are kept whole or not at all, so the log may end below `offset`. A follower that
        truncates to `offset` fetches next from `log_end_offset`.
        """
        if offset < 0:
            raise InvariantViolated(f"{self.topic_partition} cannot be truncated to {offset}.")
        self.check_usable()
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            self.leader_epochs.flush()
            self._set_flush_offset()
            return False
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        self.cuts += 1
        try:
            self._drop_segments(self.segments.above(offset), now_ms)
            self._end_at(self._cut_last_segment(offset, now_ms), now_ms)
        except StorageError as error:
            # Memory and disk may differ from here on; a restart recovers what is there.
            self.fail(f"The truncation to offset {offset} failed: {error}", error)
            raise
        return True

    def truncate_fully_and_start_at(
        self, offset: Offset, now_ms: int, log_start_offset: Offset | None = None
    ) -> None:
        """Remove everything and go on with an empty log at `offset`."""
        self.check_usable()
        self.cuts += 1
        try:
            self._drop_segments(self.segments.all, now_ms)
            new = Segment.create(self.files, self.directory, offset, self.config)
            self.files.sync_directory(self.directory)
            self.segments.add(new)
            self.start_segment(new, now_ms)
            self.leader_epochs.clear()
            self.leader_epochs.flush()
            self.producers.truncate_fully_and_start_at(offset)
        except StorageError as error:
            self.fail(f"The truncation of everything failed: {error}", error)
            raise
        new.synced_names = True
        self._move_log_start(offset if log_start_offset is None else log_start_offset)
        self.log_end_offset = offset
        self._lower_high_watermark(min(max(self.high_watermark, self.log_start_offset), offset))
        self._lower_recovery_point(offset)

    def _cut_last_segment(self, offset: Offset, now_ms: int) -> Offset:
        last = self.segments.last
        end = last.truncate_to(offset)
        last.open_for_append(self.config, end)
        if last is not self.active or last.size == 0:
            self.start_segment(last, now_ms)
        last.log.sync()
        aborted = last.transaction_index.file
        if aborted is not None:
            # Entries that came back would hide committed records from readers.
            aborted.sync()
        return end

    def _end_at(self, end: Offset, now_ms: int) -> None:
        """Make memory agree with a log that now ends at `end`; producers first (KAFKA-12153)."""
        self.leader_epochs.truncate_from_end(end)
        self.leader_epochs.flush()
        self._move_log_start(min(self.log_start_offset, end))
        self._lower_high_watermark(min(self.high_watermark, end))
        reload = self.producers.truncate_and_reload(self.log_start_offset, end, now_ms)
        replay_producers(self.producers, self.segments, reload.scan_from, end, now_ms)
        self.producers.acknowledge_to(self.high_watermark)
        self.log_end_offset = end
        self._lower_recovery_point(end)

    def _move_log_start(self, offset: Offset) -> None:
        """Lower it with the end, or raise it where the log begins anew beyond its end."""
        if offset < self.log_start_offset:
            self.log_start_fell = True
            self.log_start_saved = min(self.log_start_saved, offset)
        elif offset > self.log_start_offset:
            self.raised[self] = None
        self.log_start_offset = offset

    def _lower_high_watermark(self, offset: Offset) -> None:
        self.high_watermark_fell = self.high_watermark_fell or offset < self.high_watermark
        self.high_watermark = offset

    def _lower_recovery_point(self, offset: Offset) -> None:
        if offset < self.recovery_point:
            self.recovery_point = offset
            self.recovery_point_fell = True
        self._set_flush_offset()

    def _drop_segments(self, segments: Sequence[Segment], now_ms: int) -> None:
        """Retire segments at the end of the log, and make that durable before anything else.

        The newest first, and each durably before the next: the disk may keep renames in any order,
        and what a power failure leaves must have no hole.
        """
        due_ms = now_ms + self.config.file_delete_delay_ms
        for segment in list(reversed(segments)):
            self.segments.retire(self.files, [segment], due_ms)
            self.files.sync_directory(self.directory)

    # -- Moving and deleting -----------------------------------------------------------------

    def rename_directory(self, directory: str) -> None:
        """Move the whole partition to another name in the same log directory, durably."""
        self._rename_directory(directory)
        self.files.sync_directory(parent_of(directory))

    def _rename_directory(self, directory: str) -> None:
        self.files.rename(self.directory, directory)
        self.directory = directory
        self.segments.moved_to(directory)
        self.leader_epochs.moved_to(join(directory, LEADER_EPOCHS_NAME))
        self.producers.moved_to(directory)
        self.unsynced_snapshots = [join(directory, name_of(p)) for p in self.unsynced_snapshots]

    def delete(self, unique_id: str) -> str:
        """Give the partition up: rename its directory to `-delete` and take no more appends.

        `unique_id` (32 hex digits) keeps the name apart from earlier ones. Returns the directory,
        whose contents the log directory removes after `file.delete.delay.ms`. Answers on their way
        may still read until `close`, which comes before the removal. After `NoRoom` the log is
        deleted (`closed`), but not durably: the name of its directory is to be synced later.
        """
        name = retired_directory_name(self.topic_partition, DirectoryKind.DELETED, unique_id)
        self.cuts += 1
        self._rename_directory(join(parent_of(self.directory), name))
        self.closed = True
        self.files.sync_directory(parent_of(self.directory))
        return self.directory

    def close(self) -> None:
        """Give all handles up without writing anything, as after a failure of the disk."""
        self.closed = True
        self.segments.close()
