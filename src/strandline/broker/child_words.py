"""What a supervisor and its brokers' processes say to each other: lines of JSON over two pipes.

    supervisor ── order ──▶ child        first line: what broker to be
               ◀── prepared ──           everything is checked: it could register
               ── go ──▶                 all that start together are prepared
               ◀── ready | failed ──
               ◀── unfit ──              it must not go on, and stops by itself
               ── stop ──▶
               ◀── leaving ──            its leaderships are given away
               ── leave ──▶              all that stop together are leaving
               ◀── ended ──

When the supervisor's end of the pipe closes, the supervisor is dead, and the child ends at once.
Settings travel here and not as arguments, which every user of the machine can read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from strandline.broker.start_report import StartReport
from strandline.cluster.store import StoreError, StoreUnavailable
from strandline.config.listeners import Listener
from strandline.errors import (
    CannotBeHad,
    CannotListen,
    InvalidSetting,
    MalformedFrame,
    StorageError,
    StrandlineError,
)
from strandline.storage.files import LockHeld

LINE_BYTES_MAX: Final = 16 << 20
PREPARED, READY, FAILED, UNFIT = "prepared", "ready", "failed", "unfit"
LEAVING, ENDED = "leaving", "ended"
GO, STOP, LEAVE = "go", "stop", "leave"


@dataclass(frozen=True, slots=True)
class Order:
    """What a child is to do."""

    broker_id: int
    settings: dict[str, str]
    """Of its broker, by name."""
    store: str
    """The socket of the metadata store."""
    brokers: int
    """How many there are, each in a process."""
    users: list[str]
    """As `--add-scram` takes them."""
    log_level: str


def line_of(word: str, **more: Any) -> bytes:
    """One line that says a word, with what belongs to it."""
    return json.dumps({"word": word, **more}).encode() + b"\n"


def line_of_order(order: Order) -> bytes:
    """The first line of a supervisor."""
    return json.dumps(asdict(order)).encode() + b"\n"


def read_order(line: bytes) -> Order:
    """The order in a line. Raises `ValueError` or `TypeError` if there is none."""
    return Order(**json.loads(line))


def read_line(line: bytes) -> tuple[str, Mapping[str, Any]]:
    """The word that a line says, and what belongs to it. Raises `MalformedFrame`."""
    try:
        said = json.loads(line)
        return str(said["word"]), said
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedFrame(f"A process says {line[:100]!r}, which is no word.") from error


def line_of_report(report: StartReport, warning: str | None) -> bytes:
    """A broker is ready; the warning is about its process."""
    return line_of(READY, report=asdict(report), warning=warning)


def read_report(said: Mapping[str, Any]) -> StartReport:
    """What the start found."""
    report = dict(said["report"])
    report["addresses"] = tuple(Listener(**each) for each in report["addresses"])
    for name in ("log_dirs", "notices"):
        report[name] = tuple(report[name])
    if said["warning"]:
        report["notices"] += (said["warning"],)
    return StartReport(**report)


def line_of_failure(error: StrandlineError) -> bytes:
    """A broker could not be started."""
    cause = error.__cause__
    return line_of(
        FAILED,
        kind=next((kind for kind, (of, _) in _KINDS.items() if isinstance(error, of)), ""),
        setting=error.name if isinstance(error, InvalidSetting) else "",
        text=str(error),
        errno=cause.errno if isinstance(cause, OSError) else None,
    )


def read_failure(said: Mapping[str, Any]) -> StrandlineError:
    """What kept a broker from starting, as it was raised there."""
    text = str(said["text"])
    error: StrandlineError
    _, made = _KINDS.get(str(said["kind"]), (StrandlineError, StrandlineError))
    is_setting = issubclass(made, InvalidSetting)
    error = made(str(said["setting"]), text) if is_setting else made(text)
    if said["errno"] is not None:
        error.__cause__ = OSError(said["errno"], os.strerror(said["errno"]))
    return error


_KINDS: Final[Mapping[str, tuple[type[StrandlineError], Any]]] = {
    "address": (CannotListen, CannotListen),
    "had": (CannotBeHad, CannotBeHad),
    "setting": (InvalidSetting, InvalidSetting),
    "lock": (LockHeld, LockHeld),
    "storage": (StorageError, StorageError),
    "store": (StoreError, StoreUnavailable),
}
"""The kinds of errors that a start raises, the most special first, and what is raised for them."""
