"""What may be said to the source: Spark's names and rules, and a clear sentence for a mistake."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from strandline.client.fetching import Isolation
from strandline.errors import InvalidSetting
from strandline.lakehouse.sink import options as sink_options
from strandline.lakehouse.source import option_names
from strandline.lakehouse.source.options import SourceOptions, SplitLimits, TriggerLimits
from strandline.lakehouse.source.options import parse_options as parse
from strandline.lakehouse.source.places import AtOffsets, AtTimes, Behind, Everywhere
from strandline.lakehouse.source.positions import Positions
from strandline.types import TopicPartition

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
EARLIEST, LATEST = Everywhere(-2), Everywhere(-1)


def parsed(is_stream: bool | None = None, /, **options: str) -> SourceOptions:
    given = {"subscribe": "t"} if not {"assign", "subscribePattern"} & options.keys() else {}
    return parse(SERVERS | given | options, is_stream=is_stream)


def test_defaults_are_those_of_spark() -> None:
    batch, stream = parsed(False), parsed(True)
    assert (batch.starting, batch.ending) == (EARLIEST, LATEST)
    assert stream.starting == LATEST
    assert batch.fails_on_loss
    assert not batch.begins_late_at_end
    assert not batch.reading.with_headers
    assert batch.reading.isolation is Isolation.READ_UNCOMMITTED
    assert batch.limits == TriggerLimits(None, None, 15 * 60_000)
    assert batch.splitting == SplitLimits(None, None)
    assert pickle.loads(pickle.dumps(batch)) == batch


def test_names_come_in_any_case_and_with_or_without_the_prefix() -> None:
    """Spark hands them over in lower case."""
    given = {"BOOTSTRAP.servers": "h:1,h:2", "SUBSCRIBE": "a, b", "includeheaders": "TRUE"}
    options = parse(given | {"isolation.level": "read_committed"}, is_stream=False)
    assert options.reading.bootstrap == "h:1,h:2"
    assert options.selection.topics == {"a", "b"}
    assert options.reading.with_headers
    assert options.reading.isolation is Isolation.READ_COMMITTED
    both = given | {"kafka.isolation.level": "read_committed", "isolation.level": "x"}
    with pytest.raises(InvalidSetting, match=r"isolation\.level is read_uncommitted or read_comm"):
        parse(both, is_stream=False)


def test_what_is_read_is_said_in_one_of_three_ways() -> None:
    assert parsed(subscribePattern="f.*").selection.pattern == "f.*"
    assert parsed(assign='{"t": [0, 2]}').selection.partitions == {
        TopicPartition("t", 0),
        TopicPartition("t", 2),
    }


def test_the_more_special_place_wins() -> None:
    place = parsed(
        startingTimestamp="7",
        startingOffsetsByTimestamp='{"t": {"0": 5}}',
        startingOffsets="latest",
        startingOffsetsByTimestampStrategy="LATEST",
    )
    assert place.starting == AtTimes("startingTimestamp", 7)
    assert place.begins_late_at_end
    timed = parsed(endingOffsetsByTimestamp='{"t": {"0": 5}}', endingOffsets="latest")
    assert timed.ending == AtTimes("endingOffsetsByTimestamp", {TopicPartition("t", 0): 5})
    offsets = parsed(startingOffsets='{"t": {"0": 3, "1": -2}}').starting
    wanted = {TopicPartition("t", 0): 3, TopicPartition("t", 1): -2}
    assert offsets == AtOffsets("startingOffsets", wanted)
    assert parsed(True, startingOffsets="Earliest").starting == EARLIEST
    behind = Positions.of({"t": None}, {TopicPartition("t", 0): (5, 2)})
    text = json.dumps(behind.document())
    assert parsed(True, startingOffsets=text).starting == Behind(behind)
    with pytest.raises(InvalidSetting, match=r"startingOffsets is refused: .* version 9"):
        parsed(startingOffsets='{"version": 9}')


@pytest.mark.parametrize(
    ("text", "ms"), [("20", 20), ("500ms", 500), ("3 s", 3000), ("15m", 900_000), ("1H", 3_600_000)]
)
def test_durations_are_written_as_in_spark(text: str, ms: int) -> None:
    limits = parsed(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="9", maxTriggerDelay=text).limits
    assert limits == TriggerLimits(9, 5, ms)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscrib": "t"}, r"subscrib is not an option .*; did you mean subscribe\?"),
        ({"quite": "other"}, r"quite is not an option of the source strandline\.$"),
        (
            {"subscribePattern": "t", "subscribe": "t"},
            "Exactly one .* not subscribe and subscribeP",
        ),
        ({"subscribe": " , "}, "subscribe is empty"),
        ({"assign": "t-0"}, r'assign is a JSON object such as \{"topic": \[0, 1\]\}, not \'t-0\''),
        ({"assign": '{"t": ["0"]}'}, "t is not"),
        ({"assign": '{"t": [true]}'}, "t is not"),
        ({"assign": "{}"}, "names no partition"),
        ({"startingOffsets": "first"}, "is a JSON object such as .*, or earliest or latest"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "t is not"),
        ({"startingOffsets": '{"t": {"x": 1}}'}, "t is not"),
        ({"startingOffsets": '{"t": 1}'}, "t is not"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "t is not"),
        ({"startingTimestamp": "yesterday"}, "is a whole number, 0 at least, not 'yesterday'"),
        ({"maxOffsetsPerTrigger": "0"}, "is a whole number, 1 at least, not '0'"),
        ({"maxTriggerDelay": "1 fortnight"}, "is a duration such as 500ms"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is at most .* 8, not '9'"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is true or false, not 'maybe'"),
        ({"kafka.bootstrap.servers": "h:x"}, "'h:x' is not an address"),
        ({"kafka.auto.offset.reset": "latest"}, "startingOffsets says where to begin"),
        ({"kafka.ssl.truststore.location": "/"}, "has no effect while security.protocol is PLAIN"),
        ({"kafka.security.protocol": "SASL_SSL"}, "sasl.mechanism is missing"),
        ({"kafka.ssl.secure.random.implementation": "x"}, "is not an option of the source"),
        ({"kafka.sasl.login.class": "x"}, "sasl.login.class names a Java class"),
    ],
)
def test_mistakes_are_told_in_a_sentence(options: dict[str, str], sentence: str) -> None:
    given: dict[str, Any] = SERVERS | ({} if "assign" in options else {"subscribe": "t"}) | options
    with pytest.raises(InvalidSetting, match=sentence):
        parse(given, is_stream=None)


def test_nothing_says_what_or_from_where() -> None:
    with pytest.raises(InvalidSetting, match=r"Exactly one .*, and none is given"):
        parse(SERVERS, is_stream=None)
    with pytest.raises(InvalidSetting, match=r"kafka\.bootstrap\.servers is missing"):
        parse({"subscribe": "t"}, is_stream=None)


def test_a_side_that_would_leave_nothing_is_refused_in_a_batch() -> None:
    for options in ({"startingOffsets": "latest"}, {"startingOffsets": '{"t": {"0": -1}}'}):
        with pytest.raises(InvalidSetting, match="startingOffsets cannot be latest"):
            parsed(False, **options)
    with pytest.raises(InvalidSetting, match="endingOffsets cannot be earliest"):
        parsed(False, endingOffsets="earliest")
    with pytest.raises(InvalidSetting, match="endingOffsets is for batch queries"):
        parsed(True, endingOffsets="latest")


def test_the_documentation_names_every_option() -> None:
    text = (Path(__file__).parents[3] / "docs/spark.md").read_text()
    names = [*option_names.USED, *sink_options._USED]
    assert [each for each in names if f"`{each}`" not in text] == ["bootstrap.servers"] * 2


def test_what_only_tunes_a_java_client_is_taken() -> None:
    tuned = {"kafka.group.id": "g", "kafka.max.poll.records": "5", "groupIdPrefix": "p"}
    assert parsed(None, **tuned) == parsed()
    assert parsed(None, **{"kafka.default.api.timeout.ms": "1234"}).reading.patience_ms == 1234
    assert parsed(None, **{"kafka.security.protocol": "PLAINTEXT"}) == parsed()
