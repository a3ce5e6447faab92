"""A table's definition: kept, read back, and refused with the name of the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.definition import TableSpec, parse_duration, parse_partitioning
from strandline.lakehouse.tables.errors import TableExists, TableMissing
from strandline.lakehouse.tables.spec import list_specs, load_spec, save_spec

SMALL: dict[str, Any] = {"name": "t", "topics": ("a",), "location": "/tmp/t"}


def full(location: str) -> TableSpec:
    return TableSpec(
        name="flights",
        topics=("flights", "more-flights"),
        location=location,
        columns={"time_hour": "timestamp", "origin": "string"},
        event_time="time_hour",
        watermark_ms=7_200_000,
        partition_by=parse_partitioning("day(time_hour), bucket(8, origin), kafka_partition"),
        format="iceberg",
        commit_interval_ms=500,
        keep_key=True,
        evolve=False,
    )


def test_a_definition_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    spec = full(str(tmp_path / "flights"))
    assert TableSpec.from_json(spec.to_json()) == spec
    save_spec(spec)
    assert load_spec(spec.location) == spec
    assert list_specs(tmp_path) == [spec]
    with pytest.raises(TableExists):
        save_spec(spec)
    with pytest.raises(TableMissing):
        load_spec(tmp_path / "other")


@pytest.mark.parametrize("name", ["C#", "why?", "100%", "a%20b", "a\nb"])
def test_no_table_is_made_in_a_path_that_readers_take_for_another(
    tmp_path: Path, name: str
) -> None:
    spec = full(str(tmp_path / name / "flights"))
    with pytest.raises(InvalidSetting, match="readers of tables take %, #") as caught:
        save_spec(spec)
    assert caught.value.name == "location"
    assert not (tmp_path / name).exists()


AT = {"at": {"type": "string", "format": "date-time"}}
DATED = {"type": "object", "properties": AT}
OTHERS = {
    "d": {"type": "string", "format": "date"},
    "s": {"type": "string"},
    "n": {"type": "number"},
}
JSON = json.dumps({"type": "object", "properties": {**AT, **OTHERS}})
AVRO = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "o", "type": "bytes"},
        ],
    }
)
WITH_A_SCHEMA: list[tuple[dict[str, Any], str, str]] = [
    ({"partition_by": parse_partitioning("day(gone)")}, "partition_by", "has no such column"),
    ({"partition_by": parse_partitioning("n")}, "partition_by", "cannot be made of column n"),
    ({"partition_by": parse_partitioning("hour(d)")}, "partition_by", "cannot be made of column d"),
    ({"event_time": "s"}, "event_time", "s is string in the schema, and an event time is"),
    ({"event_time": "d"}, "event_time", r"d is date in the schema, .* in columns \(d:date\)"),
    ({"columns": {"s": "long"}}, "columns", "s is string in the schema and long in the definition"),
    ({"event_time": "s", "columns": {"s": "string"}}, "event_time", "expected a timestamp"),
    ({"schema": '{"properties": {"x": {"type": ["string", "integer"]}}}'}, "schema", "of x does"),
]


@pytest.mark.parametrize(("change", "field", "sentence"), WITH_A_SCHEMA)
def test_what_does_not_go_with_the_schema_is_refused_when_the_table_is_made(
    tmp_path: Path, change: dict[str, Any], field: str, sentence: str
) -> None:
    """It was the first run that failed, with a trace or again and again."""
    spec = TableSpec(**{**SMALL, "location": str(tmp_path / "t"), "schema": JSON, **change})
    with pytest.raises(InvalidSetting, match=sentence) as caught:
        save_spec(spec)
    assert caught.value.name == field
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ('{"type": "int", "logicalType": "time-millis"}', "o is a time-millis, which no column"),
        ('["long", "string"]', "o is a union of several types"),
        ('["null", "R"]', "o has type 'R', which no column can hold"),
        ('{"type": "record", "name": "O", "fields": []}', "o is a record without fields"),
        (
            '{"type": "map", "values": ["null", {"type": "record", "name": "O", "fields": []}]}',
            "o{",
        ),
    ],
)
def test_an_avro_schema_that_gives_no_table_is_refused_when_it_is_made(
    tmp_path: Path, kind: str, sentence: str
) -> None:
    schema = AVRO.replace('"bytes"', kind)
    place = {"location": str(tmp_path / "t"), "value_format": "avro", "schema": schema}
    with pytest.raises(InvalidSetting, match=sentence) as caught:
        save_spec(TableSpec(**{**SMALL, **place}))
    assert caught.value.name == "schema"
    assert not (tmp_path / "t").exists()


def test_a_table_with_a_schema_is_divided_and_dated_by_its_columns(tmp_path: Path) -> None:
    spec = TableSpec(
        **{**SMALL, "location": str(tmp_path / "t")},
        schema=JSON,
        columns={"d": "date"},
        event_time="d",
        partition_by=parse_partitioning("day(at), truncate(2, s), bucket(2, kafka_offset)"),
    )
    save_spec(spec)
    assert load_spec(spec.location) == spec


def test_a_key_whose_type_comes_with_it_divides_no_table() -> None:
    """The sentence once named a column that could not be given."""
    division = parse_partitioning("bucket(4, kafka_key_value)")
    with pytest.raises(InvalidSetting, match=r"bucket\(16, kafka_key\) with keep_key"):
        TableSpec(**SMALL, key_format="json", partition_by=division)


def test_a_definition_that_was_moved_knows_where_it_is(tmp_path: Path) -> None:
    spec = full(str(tmp_path / "flights"))
    save_spec(spec)
    (tmp_path / "flights").rename(tmp_path / "moved")
    assert load_spec(tmp_path / "moved").location == str(tmp_path / "moved")


def test_e12_a_location_is_absolute_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is relative would be another directory in each executor's working directory."""
    monkeypatch.chdir(tmp_path)
    made = TableSpec(**{**SMALL, "location": "tables/t"})
    assert made.location == str(tmp_path / "tables" / "t")
    save_spec(made)
    assert load_spec("tables/t") == made
    assert [each.location for each in list_specs("tables")] == [made.location]


def test_e12_a_definition_with_a_relative_location_means_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a one was always opened by its directory, whatever it said of its location."""
    directory = tmp_path / "tables" / "t"
    directory.mkdir(parents=True)
    old = {"name": "t", "topics": ["a"], "location": "tables/t", "version": 1}
    (directory / "table.json").write_text(json.dumps(old))
    monkeypatch.chdir(tmp_path)
    for given in ("tables/t", directory, f"file://{directory}"):
        assert load_spec(given).location == str(directory)
    monkeypatch.chdir(directory)
    assert load_spec("../t").directory().local.resolve() == directory / "data"


@pytest.mark.parametrize("given", ["file:{}/a%20b", "file://{}/a%20b", "file://localhost{}/a%20b"])
def test_e12_a_location_may_be_the_uri_of_a_file(tmp_path: Path, given: str) -> None:
    spec = TableSpec(**{**SMALL, "location": given.format(tmp_path)})
    assert spec.directory().local == tmp_path / "a b" / "data"


@pytest.mark.parametrize("given", ["s3a:/bucket/t", "ftp://host/t", "file://other/t"])
def test_e15_a_location_in_no_store_that_is_served_is_refused(given: str) -> None:
    """It was taken for a directory called `s3a:`."""
    with pytest.raises(InvalidSetting, match="location cannot be"):
        TableSpec(**{**SMALL, "location": given})


def test_e14_paths_for_spark_carry_their_scheme() -> None:
    assert Location.parse("/a b/100%/x:y").spark == "file:///a b/100%/x:y"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "a/b"}, "name"),
        ({"topics": ()}, "topics"),
        ({"topics": "orders"}, "topics"),
        ({"location": ""}, "location"),
        ({"value_format": "xml"}, "value_format"),
        ({"format": "hudi"}, "format"),
        ({"mode": "merge"}, "mode"),
        ({"late": "drop"}, "late"),
        ({"writer": "flink"}, "writer"),
        ({"writer": "spark", "format": "iceberg"}, "writer"),
        ({"writer": "spark", "mode": "upsert"}, "writer"),
        ({"writer": "spark", "partition_by": parse_partitioning("kafka_topic")}, "partition_by"),
        ({"watermark_ms": -1, "event_time": "t"}, "watermark_ms"),
        ({"watermark_ms": 1}, "watermark_ms"),
        ({"buckets": 0}, "buckets"),
        ({"columns": {"a": "int96"}}, "columns"),
        ({"columns": {"kafka_offset": "long"}}, "columns"),
        ({"columns": {"A": "long", "a": "long"}}, "columns"),
        ({"event_time": "kafka_offset"}, "event_time"),
        ({"event_time": "_timestamp"}, "event_time"),
        ({"partition_by": parse_partitioning("bucket(4, _key)")}, "partition_by"),
        ({"columns": {"_Partition": "long"}}, "columns"),
        ({"value_format": "avro"}, "schema"),
        ({"value_format": "protobuf", "schema": "AA=="}, "message"),
        ({"value_format": "avro", "schema": "{}", "framing": "confluent"}, "schemas"),
        ({"value_format": "raw", "columns": {"a": "long"}}, "columns"),
        ({"partition_by": parse_partitioning("unknown")}, "partition_by"),
        ({"partition_by": "day(a)"}, "partition_by"),
        ({"partition_by": parse_partitioning("kafka_key")}, "partition_by"),
        (
            {"partition_by": parse_partitioning("day(a)"), "columns": {"a": "string"}},
            "partition_by",
        ),
        (
            {"partition_by": parse_partitioning("a, a"), "columns": {"a": "string"}},
            "partition_by",
        ),
        (
            {
                "partition_by": parse_partitioning("a"),
                "columns": {"a": "string"},
                "mode": "upsert",
            },
            "partition_by",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        TableSpec(**{**SMALL, **change})
    assert caught.value.name == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"version": 3}, "version"),
        ({"colour": "red"}, "colour"),
        ({"topics": None}, "topics"),
    ],
)
def test_files_of_others_are_refused(change: dict[str, Any], field: str) -> None:
    document = json.loads(TableSpec(**SMALL).to_json())
    document.update(change)
    if change.get("topics", ()) is None:
        del document["topics"]
    with pytest.raises(InvalidSetting) as caught:
        TableSpec.from_json(json.dumps(document))
    assert caught.value.name == field


@pytest.mark.parametrize("text", ["[]", "{"])
def test_what_is_no_definition_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="definition is not"):
        TableSpec.from_json(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 hours", 7_200_000),
        ("10 s", 10_000),
        ("500ms", 500),
        ("1 Day", 86_400_000),
        ("3m", 180_000),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert parse_duration("watermark", text) == expected


@pytest.mark.parametrize("text", ["", "10", "ten s", "-1 s", "1 week"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="watermark cannot be"):
        parse_duration("watermark", text)
