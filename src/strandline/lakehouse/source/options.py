"""The options of the source, read and checked before any broker is asked.

Names, defaults and precedence are those of Spark's own `kafka` source
(https://spark.apache.org/docs/4.2.0/structured-streaming-kafka-integration.html), so that a query
moves either way by its `format` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from strandline.client.fetching import Isolation
from strandline.errors import InvalidSetting
from strandline.lakehouse.options import Options
from strandline.lakehouse.reading.settings import ReadSettings
from strandline.lakehouse.source.option_names import (
    BATCH_ONLY,
    REFUSED,
    SUBSCRIPTIONS,
    USED,
    WITHOUT_EFFECT,
)
from strandline.lakehouse.source.places import (
    EARLIEST,
    LATEST,
    AtOffsets,
    Behind,
    Everywhere,
    Place,
    parse_partitions,
    parse_place,
    parse_start,
)
from strandline.types import TopicPartition

_WHAT: Final = "source strandline"
_TRIGGER_DELAY_MS: Final = 15 * 60_000
_ISOLATIONS: Final = {
    "read_uncommitted": Isolation.READ_UNCOMMITTED,
    "read_committed": Isolation.READ_COMMITTED,
}


@dataclass(frozen=True, slots=True)
class Selection:
    """Which partitions are read: exactly one of the three is set."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """How many offsets one batch of a stream takes. None: as many as there are."""

    at_most: int | None = None
    at_least: int | None = None
    delay_ms: int = _TRIGGER_DELAY_MS
    """How long a batch may wait for `at_least`."""


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """How ranges become tasks. None: one task for each partition of a topic."""

    partitions_at_least: int | None = None
    records_at_most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Everything that was said, checked. Goes to executors by pickle."""

    reading: ReadSettings
    selection: Selection
    starting: Place | Behind
    ending: Place
    begins_late_at_end: bool
    """A starting time after every record means the end of the log, instead of an error."""
    fails_on_loss: bool
    limits: TriggerLimits
    splitting: SplitLimits


def parse_options(given: Mapping[str, str], *, is_stream: bool | None) -> SourceOptions:
    """Read the options. None for `is_stream` checks only what holds for both kinds of query.

    Raises `InvalidSetting` with a sentence that names the option.
    """
    for name in given:
        if name.lower() in REFUSED:
            raise InvalidSetting(
                name, f"The option {name} is not supported: {REFUSED[name.lower()]}."
            )
    options = Options(given, known=(*USED, *WITHOUT_EFFECT), what=_WHAT)
    starting = parse_start(options, LATEST if is_stream else EARLIEST)
    ending = parse_place(options, "ending", LATEST)
    if is_stream:
        for name in options.given(BATCH_ONLY):
            raise InvalidSetting(name, f"The option {name} is for batch queries: streams go on.")
    elif is_stream is False:
        _refuse("startingOffsets", starting, LATEST, "a batch query would be empty")
        _refuse("endingOffsets", ending, EARLIEST, "a batch query would be empty")
    return SourceOptions(
        reading=_read_settings(options),
        selection=_selection(options),
        starting=starting,
        ending=ending,
        begins_late_at_end=options.one_of(
            "startingOffsetsByTimestampStrategy", {"error": False, "latest": True}, False
        ),
        fails_on_loss=options.flag("failOnDataLoss", True),
        limits=_limits(options),
        splitting=SplitLimits(
            options.number("minPartitions"), options.number("maxRecordsPerPartition")
        ),
    )


def _selection(options: Options) -> Selection:
    given = options.given(SUBSCRIPTIONS)
    if len(given) != 1:
        said = f"not {' and '.join(given)}" if given else "and none is given"
        raise InvalidSetting(
            given[0] if given else "subscribe",
            f"Exactly one of the options {', '.join(SUBSCRIPTIONS)} says what is read, {said}.",
        )
    assigned = options.json_object("assign", '{"topic": [0, 1]}')
    if assigned is not None:
        return Selection(partitions=parse_partitions(assigned, "assign"))
    names = [each.strip() for each in (options.text("subscribe") or "").split(",")]
    pattern = options.text("subscribePattern")
    if pattern:
        return Selection(pattern=pattern)
    topics = frozenset(filter(None, names))
    if not topics:
        raise InvalidSetting(given[0], f"The option {given[0]} is empty.")
    return Selection(topics=topics)


def _limits(options: Options) -> TriggerLimits:
    at_most = options.number("maxOffsetsPerTrigger")
    at_least = options.number("minOffsetsPerTrigger")
    if at_most is not None and at_least is not None and at_least > at_most:
        raise options.refused("minOffsetsPerTrigger", f"is at most maxOffsetsPerTrigger {at_most}")
    delay_ms = options.duration_ms("maxTriggerDelay", _TRIGGER_DELAY_MS)
    return TriggerLimits(at_most, at_least, delay_ms)


def _read_settings(options: Options) -> ReadSettings:
    plain = options.one_of("isolation.level", _ISOLATIONS, Isolation.READ_UNCOMMITTED)
    standard = ReadSettings(bootstrap=options.bootstrap(), security=options.security)
    return ReadSettings(
        bootstrap=standard.bootstrap,
        isolation=options.one_of("kafka.isolation.level", _ISOLATIONS, plain),
        with_headers=options.flag("includeHeaders", False),
        fetch_bytes=options.number("kafka.max.partition.fetch.bytes") or standard.fetch_bytes,
        patience_ms=options.number("kafka.default.api.timeout.ms") or standard.patience_ms,
        client_id=options.text("kafka.client.id") or standard.client_id,
        security=standard.security,
    )


def _refuse(option: str, place: Place | Behind, offset: int, why: str) -> None:
    """A side that may not be a certain end of the log, neither as a word nor among offsets."""
    word = "latest" if offset == LATEST else "earliest"
    is_said = (isinstance(place, Everywhere) and place.offset == offset) or (
        isinstance(place, AtOffsets) and offset in place.offsets.values()
    )
    if is_said:
        raise InvalidSetting(option, f"The option {option} cannot be {word} ({offset}): {why}.")
