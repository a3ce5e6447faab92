"""What a task makes of its records: files, sizes, what is late, and what is left after an abort."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables import files as files_module
from strandline.lakehouse.tables.definition import parse_partitioning
from strandline.lakehouse.tables.files import PartitionedFiles
from strandline.lakehouse.tables.transforms import parse_transform
from strandline.lakehouse.tables.writing import BatchWriter
from strandline.lakehouse.tables.written import OffsetsIn, TaskWrite
from tests.lakehouse.tables.conftest import MakeTable
from tests.lakehouse.tables.table_world import TOPIC, kafka_rows


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
    values = [
        {"id": 1, "at": "2013-01-01T00:00:00Z", "tags": ["x"]},
        {"at": None},
        {"id": 2, "z": 1},
    ]
    assert table.batch("q", 0, values).rows == 1
    assert table.letters() == [1, 2]
