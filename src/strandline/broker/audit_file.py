"""The file to which the authorizer's audit log goes, if `strandline.audit.log.path` names one.

All brokers of one process write into one file. It may be renamed while it is written to, as log
rotation does: the next line makes a new one. A line that cannot be written is lost; the broker's
log says so, and what was decided stands.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from typing import Final

from strandline.errors import InvalidSetting

log = logging.getLogger(__name__)

_AUDIT: Final = logging.getLogger("strandline.audit")


class _AuditFile(WatchedFileHandler):
    """See the module. Raises `OSError` if it cannot be opened at first."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            super().emit(record)
        except OSError:  # of making the file anew, which the library leaves to who logs
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """It could not be written."""
        del record
        log.warning("The audit log %s cannot be written: %s", self.baseFilename, sys.exception())

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=_open_for_owner)


def _open_for_owner(path: str, flags: int) -> int:
    """Who asked for what is for the administrator's eyes."""
    return os.open(path, flags, 0o600)


def open_audit_file(path: str) -> None:
    """Have audit lines go there, and not into the broker's log. Raises `InvalidSetting`."""
    where = os.path.abspath(path)
    if any(_is_to(handler, where) for handler in _AUDIT.handlers):
        return
    try:
        handler = _AuditFile(where)
    except OSError as error:
        name = "strandline.audit.log.path"
        raise InvalidSetting(
            name, f"{name}: {path} cannot be written: {error.strerror}."
        ) from error
    handler.setFormatter(logging.Formatter("%(message)s"))
    _AUDIT.addHandler(handler)
    _AUDIT.setLevel(logging.INFO)
    _AUDIT.propagate = False


def close_audit_file(path: str) -> None:
    """Let the file go, for tests: the next lines go to the broker's log again."""
    where = os.path.abspath(path)
    for handler in [each for each in _AUDIT.handlers if _is_to(each, where)]:
        _AUDIT.removeHandler(handler)
        with suppress(OSError):
            handler.close()
    _AUDIT.propagate = True


def _is_to(handler: logging.Handler, where: str) -> bool:
    return isinstance(handler, WatchedFileHandler) and handler.baseFilename == where
