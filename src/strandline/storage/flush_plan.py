"""What must be synced so that a log is durable up to an offset.

This file knows files and directories to sync. It must not know when that is due. A log makes a
plan in the node's thread, a driver carries it out in any thread, and the log is told afterwards:
only then may its recovery point move, because that is a promise about the disk.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.storage.files import File, Files, MissingFile
from strandline.storage.segment import Segment
from strandline.types import Offset


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """Sync all of this and everything below `up_to` is durable."""

    up_to: Offset
    files: tuple[File, ...]
    directories: tuple[str, ...]
    segments: tuple[Segment, ...]
    """The segments whose names the synced directory holds."""
    cuts: int
    """How often the log had been cut when the plan was made: a later cut makes it void."""

    def carry_out(self, files: Files) -> bool:
        """Sync everything; may run in any thread. False when a file was not there any more.

        A segment can be deleted while its plan waits. The promise then cannot be given, and the
        log makes a new plan without it. Raises `StorageError`: the log directory is then lost.
        """
        complete = True
        for file in self.files:
            try:
                file.sync()
            except MissingFile:
                complete = False
        for directory in self.directories:
            try:
                files.sync_directory(directory)
            except MissingFile:
                complete = False
        return complete
