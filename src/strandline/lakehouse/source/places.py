"""Where a query begins or ends, as a user says it: a word, offsets, times, a checkpoint's document.

This file reads what was said. What it stands for in a log at the moment is known in `starting`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from strandline.errors import InvalidSetting
from strandline.lakehouse.options import Options
from strandline.lakehouse.source.positions import BadPositions, Positions
from strandline.types import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
"""The numbers that stand for the ends of a log among offsets in JSON."""

_OFFSETS_EXAMPLE: Final = '{"topic": {"0": 23, "1": -2}}'
_TIMES_EXAMPLE: Final = '{"topic": {"0": 1767225600000}}'


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The same end of every partition: `EARLIEST` or `LATEST`."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset, `EARLIEST` or `LATEST` for each partition; all of them must be named."""

    option: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record at or after a time in ms, of each partition named, or of all."""

    option: str
    times: Mapping[TopicPartition, int] | int


@dataclass(frozen=True, slots=True)
class Behind:
    """Behind what was read before, as a stream's checkpoint says it: topics that were made anew and
    logs that were cut are noticed, and partitions that are new begin at their start."""

    positions: Positions


Place = Everywhere | AtOffsets | AtTimes
"""Where either side may be."""


def parse_start(options: Options, default: int) -> Place | Behind:
    """Where to begin. Raises `InvalidSetting`."""
    name = "startingOffsets"
    by_time = options.given(("startingTimestamp", "startingOffsetsByTimestamp"))
    if not by_time and (options.text(name) or "").startswith("{"):
        document = options.json_object(name, _OFFSETS_EXAMPLE)
        if document is not None and isinstance(document.get("version"), int):
            return Behind(_parse_positions(document, name))
    return parse_place(options, "starting", default)


def parse_place(options: Options, side: str, default: int) -> Place:
    """What the options of one side (`starting`, `ending`) say; the more special one wins.

    Raises `InvalidSetting`.
    """
    timestamp = options.number(f"{side}Timestamp", at_least=0)
    if timestamp is not None:
        return AtTimes(f"{side}Timestamp", timestamp)
    name = f"{side}OffsetsByTimestamp"
    times = options.json_object(name, _TIMES_EXAMPLE)
    if times is not None:
        return AtTimes(name, _by_partition(times, name, _TIMES_EXAMPLE, at_least=0))
    name = f"{side}Offsets"
    words = {"earliest": Everywhere(EARLIEST), "latest": Everywhere(LATEST)}
    said = options.text(name)
    if said is None:
        return Everywhere(default)
    if said.lower() in words:
        return words[said.lower()]
    offsets = options.json_object(name, f"{_OFFSETS_EXAMPLE}, or earliest or latest") or {}
    return AtOffsets(name, _by_partition(offsets, name, _OFFSETS_EXAMPLE, at_least=EARLIEST))


def parse_partitions(said: Mapping[str, Any], option: str) -> frozenset[TopicPartition]:
    """The partitions that `assign` names. Raises `InvalidSetting`."""
    found: set[TopicPartition] = set()
    for topic, numbers in said.items():
        if not isinstance(numbers, list) or not all(_is_whole(each, 0) for each in numbers):
            raise InvalidSetting(
                option, f'The option {option} is JSON such as {{"topic": [0, 1]}}: {topic} is not.'
            )
        found.update(TopicPartition(topic, number) for number in numbers)
    if not found:
        raise InvalidSetting(option, f"The option {option} names no partition.")
    return frozenset(found)


def _parse_positions(document: Mapping[str, Any], option: str) -> Positions:
    try:
        return Positions.parse(document)
    except BadPositions as error:
        raise InvalidSetting(option, f"The option {option} is refused: {error}") from error


def _by_partition(
    said: Mapping[str, Any], option: str, example: str, *, at_least: int
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in said.items():
        for number, value in partitions.items() if isinstance(partitions, dict) else [("", -3)]:
            if not (number.isascii() and number.isdigit() and _is_whole(value, at_least)):
                raise InvalidSetting(
                    option, f"The option {option} is JSON such as {example}: {topic} is not."
                )
            found[TopicPartition(topic, int(number))] = value
    return found


def _is_whole(value: object, at_least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= at_least
