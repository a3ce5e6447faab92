"""Putting a compacted segment in the place of those it was made from.

This file knows the order in which files change names, so that a crash at any moment leaves the old
segments or the new one (`swap_recovery` tells which). It must not know how segments are compacted.

    NNN.log.cleaned            whole and durable, but nothing is decided yet
    NNN.log.swap               decided, and durable: recovery finishes what follows
    old files -> .deleted      durable before the next step
    NNN.log

The disk may keep renames of one directory in any order, so the directory is synced between steps
whose order matters: the old segments may not go before the decision, and none of them may come back
beside the new one's final name, since what it had to say was dropped elsewhere. The last renames
need no sync: recovery does what is missing of them. Both syncs are the only waits for the disk
here.
"""

from __future__ import annotations

from strandline.errors import StorageError
from strandline.storage.compaction.plan import CleaningResult
from strandline.storage.compaction.segment_writer import cleaned_paths
from strandline.storage.files import Files, NoRoom
from strandline.storage.log_parts import LogParts
from strandline.storage.log_reader import LogReader
from strandline.storage.segment import Segment
from strandline.storage.segment_names import CLEANED, SWAP
from strandline.types import Offset


class SegmentSwap:
    """Takes compacted segments in.

    At any moment a restart finds the old segments or the new one, never both and never neither
    (I-36). A result that was made before a truncation, or of other segments, is void.
    """

    __slots__ = (
        "_health",
        "_location",
        "_offsets",
        "_producers",
        "_reader",
        "_segments",
        "_settings",
    )

    def __init__(self, parts: LogParts, reader: LogReader) -> None:
        self._location = parts.location
        self._settings = parts.settings
        self._health = parts.health
        self._offsets = parts.offsets
        self._segments = parts.segments
        self._producers = parts.producers
        self._reader = reader

    def finish_cleaning(self, result: CleaningResult, now_ms: int) -> bool:
        """Let the new segment take its place; False if the log changed since the plan was made.

        Then the new files are removed, and the round is void. Raises `StorageError`: where the swap
        was decided the log has failed, and a restart finishes it; before that nothing has changed.
        """
        if not self._still_holds(result):
            self.discard_cleaning(result)
            return False
        try:
            self._rename(result, CLEANED, SWAP)
            self._location.sync()
        except StorageError as error:
            self._take_back(result, error)
            raise
        try:
            self._replace(result, now_ms)
        except StorageError as error:
            base = result.base_offset
            self._health.fail(f"The compacted segment {base} could not be put in: {error}", error)
            raise
        return True

    def discard_cleaning(self, result: CleaningResult) -> None:
        """Remove the files of a result that is not wanted any more."""
        # What was compacted in a directory that was renamed since went with it.
        for path in cleaned_paths(self._location.path, result.base_offset):
            self._location.files.remove(path)

    def _still_holds(self, result: CleaningResult) -> bool:
        if self._health.closed or self._health.failure is not None:
            return False
        bases = self._segments.base_offsets
        first = self._segments.index_of(result.base_offset)
        replaced = tuple(bases[first : first + len(result.replaced)])
        return (
            result.truncations == self._offsets.truncations
            and result.directory == self._location.path
            and result.replaced == replaced
        )

    def _take_back(self, result: CleaningResult, cause: StorageError) -> None:
        """Undo a swap that is not decided. The names that decide go last, as in recovery."""
        try:
            for suffix in (SWAP, CLEANED):
                for path in cleaned_paths(self._location.path, result.base_offset, suffix):
                    self._location.files.remove(path)
            self._location.sync()
        except StorageError as error:
            self._health.fail(
                f"A compacted segment could neither be put in nor removed: {cause}",
                error if isinstance(cause, NoRoom) else cause,
            )

    def _replace(self, result: CleaningResult, now_ms: int) -> None:
        first = self._segments.index_of(result.base_offset)
        old = list(self._segments.all[first : first + len(result.replaced)])
        due_ms = now_ms + self._settings.config.file_delete_delay_ms
        self._segments.retire(self._location.files, old, due_ms)
        # The state at the start of a segment that is no more would be taken for a stray.
        snapshots = self._producers.snapshots
        retired = [snapshots.retire(Offset(base)) for base in result.replaced[1:]]
        self._location.sync()
        self._rename(result, SWAP, "")
        location = self._location
        self._segments.insert(Segment.existing(location.files, location.path, result.base_offset))
        self._segments.retire_files([path for path in retired if path is not None], due_ms)
        self._reader.forget_positions()

    def _rename(self, result: CleaningResult, old: str, new: str) -> None:
        location = self._location
        rename_suffix(location.files, location.path, result.base_offset, old, new)


def rename_suffix(files: Files, directory: str, base_offset: int, old: str, new: str) -> None:
    """Rename those of a new segment's files that there are, the `.log` file first."""
    for path in cleaned_paths(directory, base_offset, old):
        if files.exists(path):
            files.rename(path, path.removesuffix(old) + new)
