"""What must be synced so that logs are durable up to an offset, or their leader epochs are.

This file knows files and directories to sync. It must not know when that is due. A log makes a
plan in the node's thread, a driver carries it out in any thread, and the log is told afterwards:
only then may its recovery point move, because that is a promise about the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from strandline.errors import StorageError
from strandline.storage.files import File, Files, MissingFile
from strandline.storage.leader_epochs import EpochsToWrite
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
    truncations: int
    """Of the log when the plan was made: a later truncation makes it void."""

    def carry_out(self, files: Files) -> bool:
        """Sync everything; may run in any thread. False when a file was not there any more.

        A segment can be deleted while its plan waits. The promise then cannot be given, and the
        log makes a new plan without it. Raises `StorageError`: the log directory is then lost.
        """
        are_there = _carry_out(file.sync for file in self.files)
        return NamesPlan(self.directories).carry_out(files) and are_there


@dataclass(frozen=True, slots=True)
class EpochsPlan:
    """Write leader epoch tables of several logs beside their files, to be adopted afterwards.

    `files` and `directories` are what new logs among them owe to the disk before that.
    """

    tables: tuple[EpochsToWrite, ...]
    files: tuple[File, ...] = ()
    directories: tuple[str, ...] = ()

    def carry_out(self, files: Files) -> bool:
        """Write and sync all of them; may run in any thread. False when a directory was gone.

        Raises `StorageError`; then none of them may be adopted.
        """
        are_there = _carry_out(file.sync for file in self.files)
        are_there &= NamesPlan(self.directories).carry_out(files)
        return are_there & _carry_out(partial(table.write, files) for table in self.tables)


@dataclass(frozen=True, slots=True)
class NamesPlan:
    """Make the names in directories durable."""

    directories: tuple[str, ...]

    def carry_out(self, files: Files) -> bool:
        """Sync all of them; may run in any thread. False when one was gone.

        Raises `StorageError`.
        """
        return _carry_out(partial(files.sync_directory, each) for each in self.directories)


@dataclass(slots=True)
class ClosePlan:
    """What a log that is being closed still has to sync, and the failure if that did not work."""

    disk: Files
    files: tuple[File, ...]
    epochs: EpochsToWrite | None
    directories: tuple[str, ...]
    failure: StorageError | None = None

    def carry_out(self) -> None:
        """Sync everything; may run in any thread. What fails is told by `failure`."""
        try:
            for file in self.files:
                file.sync()
            if self.epochs is not None:
                self.epochs.replace(self.disk)
            for directory in self.directories:
                self.disk.sync_directory(directory)
        except StorageError as error:
            self.failure = error


Closing: TypeAlias = Generator[tuple[ClosePlan, ...], None, bool]
"""Logs being closed: the plans that come are to be carried out, in any order, before it goes on. It
returns whether the next start needs no recovery; given up half-way it is as a crash."""


def finish(closing: Closing) -> bool:
    """Carry everything out here and now."""
    while True:
        try:
            plans = next(closing)
        except StopIteration as end:
            return bool(end.value)
        for plan in plans:
            plan.carry_out()


SyncPlan: TypeAlias = FlushPlan | EpochsPlan | NamesPlan
"""What a driver's thread for the disk carries out."""


def _carry_out(steps: Iterable[Callable[[], None]]) -> bool:
    """Take all steps, whatever is gone meanwhile; false if something was."""
    complete = True
    for step in steps:
        try:
            step()
        except MissingFile:
            complete = False
    return complete
