"""The levels of this process's loggers: config resources of type BROKER_LOGGER (KIP-412).

They are Python's, under Python's names, with Kafka's words for the levels. Brokers of one process
share them, and a restart forgets what was set, as in Kafka. Nothing of it is metadata.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from strandline.config.alter import Alteration, Operation
from strandline.config.describe import DescribedSetting, Source
from strandline.config.values import Kind
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId

BROKER_LOGGER: Final = 8
"""The type of the resource on the wire."""
_OURS: Final = "strandline"
_ROOT: Final = "root"
_LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


class BrokerLoggers:
    """See the module. All methods raise `ProtocolError` for another broker than this one."""

    def __init__(self, broker_id: BrokerId) -> None:
        self._broker_id = broker_id

    def describe(self, broker: str) -> list[DescribedSetting]:
        """Every logger of ours, and the root of all, with the level that is in force for it."""
        self._check_broker(broker)
        return [
            DescribedSetting(
                name=name,
                value=_word(_logger(name).getEffectiveLevel()),
                source=Source.DYNAMIC_BROKER_LOGGER_CONFIG,
                synonyms=(),
                kind=Kind.UNKNOWN,
                documentation="",
            )
            for name in _names()
        ]

    def alter(self, broker: str, alterations: Sequence[Alteration], *, validate_only: bool) -> None:
        """Set levels, or have loggers follow those above them again: all or none."""
        self._check_broker(broker)
        known = set(_names())
        levels = [(each.name, _new_level(each, known)) for each in alterations]
        if not validate_only:
            for name, level in levels:
                _logger(name).setLevel(level)

    def _check_broker(self, broker: str) -> None:
        if not broker:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        if broker != str(self._broker_id):
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self._broker_id} but received {broker}",
            )


def _names() -> list[str]:
    known = list(logging.Logger.manager.loggerDict)
    ours = (name for name in known if name == _OURS or name.startswith(f"{_OURS}."))
    return [_ROOT, *sorted(ours)]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == _ROOT else name)


def _word(level: int) -> str:
    """The nearest of Kafka's levels that lets at least as much through."""
    return max((known, word) for word, known in _LEVELS.items() if known <= max(level, 5))[1]


def _new_level(alteration: Alteration, known: set[str]) -> int:
    name = alteration.name
    match alteration.operation:
        case Operation.SET if name in known:
            level = _LEVELS.get(alteration.value or "")
            if level is None:
                raise ProtocolError(
                    ErrorCode.INVALID_CONFIG,
                    f"Cannot set the log level of {name} to {alteration.value} as it is not a "
                    f"supported log level. Valid log levels are {', '.join(sorted(_LEVELS))}",
                )
            return level
        case Operation.DELETE if name in known:
            if name == _ROOT:
                raise ProtocolError(
                    ErrorCode.INVALID_REQUEST,
                    "Removing the log level of the root logger is not allowed",
                )
            return logging.NOTSET
        case Operation.SET | Operation.DELETE:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        case Operation.APPEND | Operation.SUBTRACT as operation:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                f"{Operation(operation).name} operation is not allowed for the BROKER_LOGGER "
                "resource",
            )
    raise ProtocolError(
        ErrorCode.INVALID_REQUEST, f"The operation {alteration.operation} does not exist."
    )
