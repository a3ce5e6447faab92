"""Which formats of files this release reads, checked before a start changes anything.

    meta.properties           version 0 or 1 as in Kafka; `strandline.format`, absent at first
    *-offset-checkpoint       version 0
    .kafka_cleanshutdown      version 0

A later release that writes something into a log directory which this one would misread raises
`strandline.format` there first. Then this one stops with a sentence, and does not take files that
it cannot read for damaged ones. What earlier releases may ignore (a key more, a file more) raises
nothing: the way back stays open. Damage is found where a file is loaded, not here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from strandline.config.properties import parse_properties
from strandline.errors import InvalidSetting, StorageError, UnknownFormat
from strandline.storage import checkpoint_file, clean_shutdown, log_directory, meta_properties
from strandline.storage.files import Files, join

FORMAT: Final = 1
"""What this release writes at most into a log directory, as `strandline.format` counts it."""
PROPERTY: Final = "strandline.format"

_CHECKPOINTS: Final = (
    log_directory.RECOVERY_POINTS,
    log_directory.LOG_STARTS,
    log_directory.HIGH_WATERMARKS,
    log_directory.CLEANER_OFFSETS,
)


def check_formats(files: Files, directories: Iterable[str]) -> None:
    """Raise `UnknownFormat` if a newer release has written into one of the log directories.

    A directory that cannot be read is passed over: its broker goes on without it or says why not.
    """
    for directory in directories:
        path = join(directory, meta_properties.FILE_NAME)
        text = _text(files, path)
        _check(path, _property(text, "version"), meta_properties.VERSION_KRAFT)
        _check(f"The log directory {directory}", _property(text, PROPERTY), FORMAT)
        path = join(directory, clean_shutdown.FILE_NAME)
        _check(path, _marker_version(_text(files, path)), clean_shutdown.VERSION)
        for name in _CHECKPOINTS:
            path = join(directory, name)
            first_line, _, _ = _text(files, path).partition("\n")
            _check(path, _number(first_line), checkpoint_file.VERSION)


def _check(what: str, found: int | None, known: int) -> None:
    if found is not None and found > known:
        raise UnknownFormat(what, found, known)


def _text(files: Files, path: str) -> str:
    """The file; nothing where it is absent or its disk fails, which others have to tell."""
    try:
        return files.read_bytes(path).decode("latin-1")
    except StorageError:
        return ""


def _property(text: str, name: str) -> int | None:
    try:
        return _number(parse_properties(text).get(name, ""))
    except InvalidSetting:
        return None


def _marker_version(text: str) -> int | None:
    try:
        version = json.loads(text)["version"]
    except (ValueError, KeyError, TypeError):  # empty, as Kafka wrote it before 3.7, or damaged
        return None
    return version if type(version) is int else None


def _number(text: str) -> int | None:
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else None
