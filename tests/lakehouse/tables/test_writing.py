"""What a task makes of its records: files, sizes, what is late, and what is left after an abort."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from strandline.lakehouse.deadletters.listing import list_letters
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables import files as files_module
from strandline.lakehouse.tables.definition import DEAD_LETTERS, parse_partitioning
from strandline.lakehouse.tables.files import PartitionedFiles
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.names import TIMESTAMP
from strandline.lakehouse.tables.transforms import parse_transform
from strandline.lakehouse.tables.writing import BatchWriter
from strandline.lakehouse.tables.written import OffsetsIn, TaskWrite
from tests.lakehouse.tables.conftest import MakeTable
from tests.lakehouse.tables.table_world import TOPIC, TableWorld, Value, kafka_rows


def test_late_rows_go_beside_the_table(make_table: MakeTable) -> None:
    table = make_table(event_time="t", watermark_ms=1000)
    first = table.batch("q", 0, [{"t": 10_000}, {"t": 1}])
    assert (first.rows, first.late_rows) == (2, 0)
    assert table.store.state().watermark_us == 9_000_000
    second = table.batch("q", 1, [{"t": 8_999}, {"t": 9_000}, {"t": None}, {"t": 99_000}], start=2)
    assert (second.rows, second.late_rows) == (3, 1)
    assert table.offsets() == [0, 1, 3, 4, 5]
    assert table.late() == [2]
    table.batch("q", 2, [{"t": 98_000}], start=6)
    assert table.store.state().watermark_us == 98_000_000


def test_late_rows_can_be_counted_only(make_table: MakeTable) -> None:
    table = make_table(event_time="t", watermark_ms=0, late="count")
    table.batch("q", 0, [{"t": 10_000}])
    result = table.batch("q", 1, [{"t": 1}, {"t": 10_000}], start=1)
    assert (result.rows, result.late_rows) == (2, 1)
    assert table.offsets() == [0, 1, 2]
    assert table.late() == []


def test_the_time_of_the_record_can_be_the_event_time(make_table: MakeTable) -> None:
    table = make_table(event_time="kafka_timestamp", watermark_ms=0)
    table.batch("q", 0, [{}, {}])
    assert table.store.state().watermark_us == 1


def test_a_task_write_survives_every_way_it_travels(make_table: MakeTable) -> None:
    table = make_table(
        event_time="t", watermark_ms=0, partition_by=parse_partitioning("day(t)"), keep_key=True
    )
    table.batch("q", 0, [{"t": 10_000}])
    written = table.task([{"t": 1, "a": "x"}, b"bad", {"t": 20_000}], start=1, keys=[b"k"] * 3)
    assert (len(written.files), len(written.dead_letters), len(written.late)) == (1, 1, 1)
    assert TaskWrite.from_json(written.to_json()) == written
    assert pickle.loads(pickle.dumps(written)) == written
    assert written.files[0].offsets == (OffsetsIn(TOPIC, 0, 3, 3, 1),)
    assert written.files[0].read_schema().names == [
        "t", "a", "kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_key",
    ]  # fmt: skip
    footer = pq.read_metadata(table.spec.directory() / written.files[0].path)
    assert footer.row_group(0).column(0).compression == "ZSTD"


def test_an_aborted_task_leaves_nothing(make_table: MakeTable) -> None:
    table = make_table(columns={"k": "string"}, partition_by=parse_partitioning("k"))
    writer = BatchWriter(table.spec, table.store.state(), "0")
    writer.write(kafka_rows([{"k": "a"}, {"k": "b"}, b"bad"]))
    writer.abort()
    assert list(table.spec.place.local.rglob("part-*")) == []


def place(rows: list[tuple[str, int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {"k": key, "kafka_topic": "t", "kafka_partition": 0, "kafka_offset": offset}
            for key, offset in rows
        ],
        schema=pa.schema(
            [
                ("k", pa.string()),
                ("kafka_topic", pa.string()),
                ("kafka_partition", pa.int32()),
                ("kafka_offset", pa.int64()),
            ]
        ),
    )


def test_open_files_and_gathered_rows_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "_OPEN_MAX", 3)
    monkeypatch.setattr(files_module, "_GATHERED_BYTES_MAX", 300)
    output = PartitionedFiles(Location.parse(tmp_path), (parse_transform("k"),), "0")
    for offset in range(0, 60, 2):
        output.write(place([(f"k{offset % 14}", offset), (f"k{offset % 10}", offset + 1)]))
        assert len(output._open) <= 3
        assert output._gathered <= 300 + 200
    written = output.finish()
    assert sum(item.rows for item in written) == 60
    for item in written:
        rows = pq.ParquetFile(tmp_path / item.path).read()
        assert set(rows.column("k").to_pylist()) == set(item.partition)
        [offsets] = item.offsets
        found = rows.column("kafka_offset").to_pylist()
        assert (min(found), max(found), len(found)) == (
            offsets.least,
            offsets.greatest,
            offsets.rows,
        )


def test_statistics_are_what_the_delta_protocol_asks(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "long": [3, None, 1],
            "text": ["b", "x" * 40, "a"],
            "at": pa.array([1_500, 2_500, None], pa.timestamp("us", "UTC")),
            "yes": [True, False, None],
            "nested": [{"x": 1}, None, {"x": 2}],
            "several": [[1], [2, 3], None],
            "nothing": pa.nulls(3, pa.string()),
            "number": [1.0, float("nan"), -2.5],
            "kafka_topic": ["t"] * 3,
            "kafka_partition": pa.array([0] * 3, pa.int32()),
            "kafka_offset": [0, 1, 2],
        }
    )
    output = PartitionedFiles(Location.parse(tmp_path), (), "0")
    for batch in rows.to_batches():
        output.write(batch)
    [written] = output.finish()
    stats = json.loads(written.stats)
    assert stats["numRecords"] == 3
    assert stats["minValues"] == {
        "long": 1,
        "text": "a",
        "at": "1970-01-01T00:00:00.001Z",
        "nested": {"x": 1},
        "number": -2.5,
        "kafka_topic": "t",
        "kafka_partition": 0,
        "kafka_offset": 0,
    }
    assert stats["maxValues"] == {
        "long": 3,
        "at": "1970-01-01T00:00:00.003Z",
        "nested": {"x": 2},
        "kafka_topic": "t",
        "kafka_partition": 0,
        "kafka_offset": 2,
    }
    assert stats["nullCount"]["long"] == 1
    assert stats["nullCount"]["nothing"] == 3
    assert stats["nullCount"]["nested"] == {"x": 1}
    assert "several" not in stats["nullCount"], "elements of lists have no bounds"


@pytest.mark.parametrize("version", [1, 2])
def test_letters_beyond_16_bits_are_found(tmp_path: Path, version: int) -> None:
    """Readers by way of arrow's JSON for Rust (delta-rs, DuckDB) took the escapes of such a letter
    for another one, and passed over its file. An upgrade writes the log itself."""
    names = ["\U00020bb7野家", "\U0010ffff", "\U0001f600", "B"]
    table = TableWorld(tmp_path / "t", version=version, columns={"name": "string"})
    for number, name in enumerate(names):
        table.batch("q", number, [{"name": name}], start=number)
    if version == 1:
        table.store.upgrade()
    told = QueryBuilder().register("t", DeltaTable(str(table.spec.directory())))
    for name in names:
        found = pa.table(told.execute(f"select name from t where name = '{name}'"))
        assert found.column("name").to_pylist() == [name]


def test_statistics_leave_out_what_python_cannot_hold(tmp_path: Path) -> None:
    """Times beyond the years 1 to 9999; and before the year 1000, four digits are written."""
    times = {
        "early": ["0001-01-01T00:00:00Z", "0500-06-01T00:00:00Z"],
        "last": ["9999-12-31T23:59:59.999000Z", "9999-12-31T23:59:59.999999Z"],
    }
    rows = pa.table(
        {
            **{name: pa.array(found).cast(TIMESTAMP) for name, found in times.items()},
            "beyond": pa.array([0, 1 << 62], pa.int64()).cast(TIMESTAMP),
            "before": pa.array([-(1 << 62), 0], pa.int64()).cast(TIMESTAMP),
            "day": pa.array([0, (1 << 31) - 1], pa.int32()).cast(pa.date32()),
        }
    )
    output = PartitionedFiles(Location.parse(tmp_path), (), "0")
    for batch in rows.to_batches():
        output.write(batch)
    [written] = output.finish()
    stats = json.loads(written.stats)
    assert stats["minValues"] == {
        "early": "0001-01-01T00:00:00.000Z",
        "last": "9999-12-31T23:59:59.999Z",
        "beyond": "1970-01-01T00:00:00.000Z",
        "day": "1970-01-01",
    }
    assert stats["maxValues"] == {
        "early": "0500-06-01T00:00:00.000Z",
        "before": "1970-01-01T00:00:00.000Z",
    }


def test_rows_of_spark_with_times_beyond_the_calendar_are_rows(make_table: MakeTable) -> None:
    """Readers of the table find no bounds of them."""
    table = make_table(columns={"t": "timestamp"}, partition_by=parse_partitioning("hour(t)"))
    far = pa.array([-(1 << 62), 0, 1 << 62], pa.int64()).cast(TIMESTAMP)
    rows = place([("a", number) for number in range(3)]).append_column("t", far)
    with PartitionedFiles(table.spec.directory(), table.spec.partition_by, "0") as output:
        output.write(rows)
        files = output.finish()
    identity = BatchIdentity("q", 0, (OffsetRange("t", 0, 0, 3),))
    table.store.commit(identity, [TaskWrite(files=files)])
    assert len(table.reopen().files()) == 3
    bounds = table.store.snapshot_at(None).bounds("t")
    assert sorted(str(each.least) for each in bounds.values()) == ["0", "None", "None"]


@pytest.mark.parametrize("by", ["", "day", "hour", "month", "year"])
def test_the_records_own_time_is_the_nearest_that_is_held(make_table: MakeTable, by: str) -> None:
    """A producer may set any, which a task would fail of for good; of letters as well."""
    division = parse_partitioning(f"{by}(kafka_timestamp)") if by else ()
    table = make_table(partition_by=division, event_time="kafka_timestamp", watermark_ms=0)
    records = kafka_rows([{"n": 1}, {"n": 2}, {"n": 3}, b"bad"])
    far = pa.array([None, -(1 << 63) + 808, (1 << 63) - 808, (1 << 63) - 808], pa.int64())
    position = records.schema.get_field_index("timestamp")
    records = records.set_column(position, records.schema.field(position), far.cast(TIMESTAMP))
    writer = BatchWriter(table.spec, table.store.state(), "0")
    writer.write(records)
    identity = BatchIdentity("q", 0, (OffsetRange(TOPIC, 0, 0, 4),))
    table.store.commit(identity, [writer.finish()])
    times = [row["kafka_timestamp"] for row in table.rows()]
    assert [time and time.isoformat() for time in times] == [
        None,
        "0001-01-01T00:00:00+00:00",
        "9999-12-31T23:59:59.999999+00:00",
    ]
    assert table.rows(DEAD_LETTERS)[0]["kafka_timestamp"].year == 9999
    table.reopen()
    table.store.compact(min_files=2)
    assert table.offsets() == [0, 1, 2]


@pytest.mark.parametrize("by", ["", "day(t)", "hour(t)", "month(t)", "year(t)", "t"])
def test_a_time_beyond_the_calendar_is_a_dead_letter(make_table: MakeTable, by: str) -> None:
    division = parse_partitioning(by) if by else ()
    table = make_table(columns={"t": "timestamp"}, partition_by=division)
    times = [0, 1 << 60, "9999-12-31T23:59:59.999999Z", -(1 << 60), "0001-01-01T00:00:00Z"]
    for number in range(2):
        table.batch("q", number, [{"t": time} for time in times], start=5 * number)
    assert (table.offsets(), table.letters()) == ([0, 2, 4, 5, 7, 9], [1, 3, 6, 8])
    table.reopen()
    assert table.store.compact(min_files=2).files_after == (4 if by else 2)
    table.store.checkpoint()
    assert len(table.reopen().files()) == (3 if by else 1)


def test_delta_keeps_no_empty_text_in_a_column_that_divides_a_table(make_table: MakeTable) -> None:
    """Its readers take it for null there, which is another value."""
    division = parse_partitioning("k, truncate(2, other), city")
    table = make_table(
        columns=dict.fromkeys(("k", "other", "city"), "string"), partition_by=division
    )
    full = {"k": "a", "other": "", "city": "B"}
    table.batch("q", 0, [full, {**full, "k": ""}, {**full, "city": ""}, {"k": None}, {}])
    if table.spec.format == "iceberg":
        assert table.offsets() == [0, 1, 2, 3, 4]
        return
    assert table.offsets() == [0, 3, 4]
    letters = {each.offset: each for each in list_letters(table.store)}
    assert {offset: each.error_class for offset, each in letters.items()} == {
        1: "WrongType",
        2: "WrongType",
    }
    assert letters[2].error == (
        "The field city is empty: Delta keeps no empty text in a column that divides a table."
    )


def test_iceberg_bounds_of_text_end_before_the_surrogates(make_table: MakeTable) -> None:
    """The bound above is the text's first letters, of which the last is counted up by one."""
    table = make_table()
    texts = ["a" * 15 + "\ud7ff" + "b", "a" * 14 + "\ud7ff" + "\U0010ffff" * 2, "\ud7ff" * 16]
    for number, text in enumerate(texts):
        table.batch("q", number, [{"s": text, "o": {"s": text}}], start=number)
    assert [row["s"] for row in table.rows()] == texts


def test_raw_values_are_kept_as_they_are(make_table: MakeTable) -> None:
    table = make_table(value_format="raw", keep_key=True)
    table.batch("q", 0, [b"\xff", None, b""], keys=[b"a", b"b", None])
    assert [(row["kafka_key"], row["value"]) for row in table.rows()] == [
        (b"a", b"\xff"),
        (b"b", None),
        (None, b""),
    ]


def test_a_given_json_schema_fixes_the_columns(make_table: MakeTable) -> None:
    schema = {
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": ["string", "null"], "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
    table = make_table(
        schema=json.dumps(schema), evolve=False, partition_by=parse_partitioning("day(at)")
    )
    values: list[Value] = [
        {"id": 1, "at": "2013-01-01T00:00:00Z", "tags": ["x"]},
        {"at": None},
        {"id": 2, "z": 1},
    ]
    assert table.batch("q", 0, values).rows == 1
    assert table.letters() == [1, 2]
