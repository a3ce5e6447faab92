"""Rules for when something has run out: handles of files, room on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from strandline.errors import StorageError
from strandline.node.logs import Logs
from strandline.storage.files import OutOfHandles
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory
from strandline.storage.truncation import Truncation
from strandline.types import Offset
from tests.sim.mutants.mutant import Mutant, patch, together

_true_fail = Logs.fail
_true_or_offline = LogDirectory._or_offline
_true_anew = Truncation.truncate_fully_and_start_at


def _gives_the_disk_up(self: Logs, failed: Log, error: StorageError) -> None:
    _true_fail(self, failed, StorageError(str(error)))


@contextmanager
def _offline_by_an_open(self: LogDirectory[Any], operation: str) -> Iterator[None]:
    with _true_or_offline(self, operation):
        try:
            yield
        except OutOfHandles as error:
            raise StorageError(str(error)) from error


def _never_again(self: Logs, directory: Any, failed: Log, *_: Any) -> Log:
    del self, directory
    raise StorageError(f"The log of {failed.topic_partition} failed: {failed.failure}")


def _begins_where_it_began(
    self: Truncation, offset: Offset, now_ms: int, log_start_offset: Offset | None = None
) -> None:
    began = self._offsets.log_start_offset
    try:
        _true_anew(self, offset, now_ms, log_start_offset)
    except StorageError:
        self._offsets.log_start_offset = began
        raise


STARVING: Final = (
    Mutant(
        "no-handle-is-no-error-of-the-disk",
        "A log directory does not go offline because a file could not be opened (EMFILE).",
        ("I-49", "I-50"),
        together(
            patch(Logs, fail=_gives_the_disk_up),
            patch(LogDirectory, _or_offline=_offline_by_an_open),
        ),
    ),
    Mutant(
        "load-again",
        "A log in which an operation broke off for want of room is loaded again when there is.",
        ("I-49", "I-50"),
        patch(Logs, _reload=_never_again),
    ),
    Mutant(
        "begin-anew-where-it-was-to",
        "A log that could not begin anew for want of room begins there when it is loaded again.",
        ("I-23", "I-25", "I-28", "I-29"),
        patch(Truncation, truncate_fully_and_start_at=_begins_where_it_began),
    ),
)
