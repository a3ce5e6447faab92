"""The file to which the authorizer's audit log goes, if `strandline.audit.log.path` names one.

All brokers of one process write into one file. It may be renamed while it is written to, as log
rotation does: the next line makes a new one.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from logging.handlers import WatchedFileHandler
from typing import Final

from strandline.errors import InvalidSetting

_AUDIT: Final = logging.getLogger("strandline.audit")


def open_audit_file(path: str) -> None:
    """Have audit lines go there, and not into the broker's log. Raises `InvalidSetting`."""
    where = os.path.abspath(path)
    if any(_is_to(handler, where) for handler in _AUDIT.handlers):
        return
    try:
        # Who asked for what is for the administrator's eyes.
        os.close(os.open(where, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        handler = WatchedFileHandler(where, encoding="utf-8")
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
