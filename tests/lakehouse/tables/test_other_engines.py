"""What other engines make of a table: it is followed, or refused with a sentence that helps."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, HourTransform, IdentityTransform, Transform
from pyiceberg.typedef import Record

from strandline.lakehouse.tables.errors import BadTable
from strandline.lakehouse.tables.iceberg import IcebergSnapshot
from strandline.lakehouse.tables.transforms import parse_transform
from tests.lakehouse.tables.table_world import TableWorld

Action = Mapping[str, Any]
_STATISTICS = (
    *("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"),
    *("lower_bounds", "upper_bounds"),
)
_SECOND_ROW: Mapping[str, object] = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg0rr91",
    "sizeInBytes": 34,
    "cardinality": 1,
}
"""A deletion vector in the log itself, as Delta's protocol describes it."""


@pytest.fixture
def iceberg(tmp_path: Path) -> TableWorld:
    """The same as an Iceberg table, divided by a column that is null."""
    fields: dict[str, Any] = {"columns": {"k": "string"}, "partition_by": (parse_transform("k"),)}
    return _filled(TableWorld(tmp_path / "table", format="iceberg", **fields))


@pytest.fixture
def delta(tmp_path: Path) -> TableWorld:
    """A Delta table of four rows in two files."""
    return _filled(TableWorld(tmp_path / "table"))


def _filled(table: TableWorld) -> TableWorld:
    table.batch("q", 0, [{"a": 1, "s": "x"}, {"a": 2, "s": "y"}])
    table.batch("q", 1, [{"a": 3, "s": "z"}, {"a": 4, "s": "w"}], start=2)
    return table


def log_of(table: TableWorld) -> Path:
    return (table.spec.directory() / "_delta_log").local


def actions_of(table: TableWorld, kind: str) -> list[dict[str, Any]]:
    """Those of one kind in the log, the oldest first."""
    lines = [
        line
        for path in sorted(log_of(table).glob("*.json"))
        for line in path.read_text().splitlines()
    ]
    return [action[kind] for action in map(json.loads, lines) if kind in action]


def commit(table: TableWorld, *actions: Action) -> None:
    """What another engine writes into the log of a Delta table."""
    version = table.store.state().version + 1
    text = "".join(json.dumps(each) + "\n" for each in ({"commitInfo": {"timestamp": 1}}, *actions))
    (log_of(table) / f"{version:020}.json").write_text(text)


def protocol(readers: list[str], writers: list[str]) -> Action:
    given: dict[str, Any] = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7}
    if readers:
        given["readerFeatures"] = readers
    return {"protocol": {**given, "writerFeatures": [*readers, *writers]}}


def test_a_delta_table_with_rows_that_vectors_delete_is_refused(delta: TableWorld) -> None:
    added = actions_of(delta, "add")[0]
    commit(
        delta,
        protocol(["deletionVectors"], ["appendOnly", "invariants"]),
        {"remove": {"path": added["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": {**added, "deletionVector": _SECOND_ROW}},
    )
    with pytest.raises(BadTable, match=r"feature deletionVectors.*APPLY \(PURGE\).*DROP FEATURE"):
        delta.reopen().dataset()
    with pytest.raises(BadTable, match="deletionVectors"):
        delta.store.compact(min_files=2)
    with pytest.raises(BadTable, match="deletionVectors"):
        delta.store.snapshot_at(4)
    assert len(delta.store.snapshot_at(3).files()) == 2, "it had none of these then"


def test_a_delta_table_whose_columns_are_mapped_is_refused(delta: TableWorld) -> None:
    """After a renaming, say: its files have the columns under other names."""
    [*_, metadata] = actions_of(delta, "metaData")
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": field["name"],
        }
        field["name"] = {"s": "t"}.get(field["name"], field["name"])
    mapped = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
    changed = {"configuration": {**metadata["configuration"], **mapped}}
    commit(
        delta,
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {"metaData": {**metadata, **changed, "schemaString": json.dumps(schema)}},
    )
    with pytest.raises(BadTable, match=r"columnMapping.mode is name.*DROP FEATURE columnMapping"):
        delta.reopen().compact(min_files=2)
    with pytest.raises(BadTable, match="maps its columns"):
        delta.store.snapshot_at(4)


def test_a_delta_table_with_another_feature_of_readers_is_refused(delta: TableWorld) -> None:
    commit(delta, protocol(["typeWidening"], []))
    with pytest.raises(BadTable, match=r"does not read: typeWidening\. .*DROP FEATURE typeWid"):
        delta.reopen().dataset()


def test_features_that_readers_need_not_know_are_no_obstacle(delta: TableWorld) -> None:
    commit(delta, protocol(["v2Checkpoint", "timestampNtz"], ["appendOnly", "invariants"]))
    delta.reopen()
    assert delta.batch("q", 2, [{"a": 5}], start=4).rows == 1
    assert delta.offsets() == [0, 1, 2, 3, 4]


def test_features_that_are_not_written_are_no_fight_between_writers(delta: TableWorld) -> None:
    """Neither for a batch nor for a column; the rows can still be read."""
    commit(delta, protocol([], ["rowTracking", "domainMetadata", "of-another-release"]))
    delta.reopen()
    assert delta.offsets() == [0, 1, 2, 3]
    for value in ({"a": 5}, {"a": 5, "new": 1}):
        with pytest.raises(BadTable, match=r"does not write: .*RowTracking.*DROP FEATURE") as told:
            delta.batch("q", 2, [value], start=4)
        assert re.search(r"[:,] of-another-release[.,]", str(told.value))
    with pytest.raises(BadTable, match="does not write"):
        delta.store.compact(min_files=2)
    assert delta.reopen().state().version == 4


def theirs(table: TableWorld) -> Table:
    """The table for pyiceberg, which is the other engine here."""
    snapshot = table.reopen().backend.load()
    assert isinstance(snapshot, IcebergSnapshot)
    return snapshot.table


def delete(table: TableWorld, content: DataFileContent) -> None:
    """Delete the first row of each file, without writing the file again."""
    iceberg = theirs(table)
    place = table.spec.directory().local / "deletes.parquet"
    ids = {"file_path": "2147483546", "pos": "2147483545"}
    paths = [each.path.uri for each in table.store.files()]
    pq.write_table(
        pa.table(
            {"file_path": paths, "pos": pa.array([0] * len(paths), pa.int64())},
            schema=pa.schema(
                [
                    pa.field(name, kind, metadata={"PARQUET:field_id": ids[name]})
                    for name, kind in (("file_path", pa.string()), ("pos", pa.int64()))
                ]
            ),
        ),
        place,
    )
    no_statistics: dict[str, Any] = {name: {} for name in _STATISTICS}
    with iceberg.transaction() as change, change.update_snapshot().fast_append() as files:
        files.append_data_file(
            DataFile.from_args(
                content=content,
                file_path=f"file://{place}",
                file_format=FileFormat.PARQUET,
                partition=Record(None),
                record_count=len(paths),
                file_size_in_bytes=place.stat().st_size,
                equality_ids=[1] if content is DataFileContent.EQUALITY_DELETES else None,
                spec_id=0,
                **no_statistics,
            )
        )


@pytest.mark.parametrize(
    "content", [DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES]
)
def test_an_iceberg_table_with_rows_that_delete_files_delete_is_refused(
    iceberg: TableWorld, content: DataFileContent
) -> None:
    """Where rows are read or written again. A batch only adds files, and goes on."""
    delete(iceberg, content)
    store = iceberg.reopen()
    for look in (store.dataset, lambda: store.compact(min_files=2), lambda: store.widen("a")):
        with pytest.raises(BadTable, match=r"another engine deleted.*delete-file-threshold"):
            look()
    assert len(store.snapshot_at(2).files()) == 2, "it had none of these then"
    assert iceberg.batch("q", 2, [{"a": 5}], start=4).rows == 1


def test_an_iceberg_table_with_a_renamed_column_is_refused(iceberg: TableWorld) -> None:
    with theirs(iceberg).update_schema() as columns:
        columns.rename_column("s", "r")
    said = "column r .* was called s as well.* Rename it to s again"
    with pytest.raises(BadTable, match=said):
        iceberg.reopen().dataset()
    with pytest.raises(BadTable, match=said):
        iceberg.store.compact(min_files=2)
    with pytest.raises(BadTable, match=said):
        iceberg.store.backend.load_at(2)


def test_a_column_that_has_its_first_name_again_is_not_renamed(iceberg: TableWorld) -> None:
    """Unless rows were written meanwhile."""
    table = theirs(iceberg)
    for names in (("s", "r"), ("r", "s")):
        with table.update_schema() as columns:
            columns.rename_column(*names)
    iceberg.reopen()
    assert iceberg.batch("q", 2, [{"a": 5, "s": "v"}], start=4).rows == 1
    assert [row["s"] for row in iceberg.rows()] == ["x", "y", "z", "w", "v"]
    table.refresh()
    with table.update_schema() as columns:
        columns.rename_column("s", "r")
    table.append(pa.table({"k": ["b"], "r": ["u"]}))
    with table.update_schema() as columns:
        columns.rename_column("r", "s")
    with pytest.raises(BadTable, match=r"column s .* was called r as well"):
        iceberg.store.state()


def test_a_field_of_a_struct_that_is_renamed_is_refused_as_well(tmp_path: Path) -> None:
    table = TableWorld(tmp_path / "table", format="iceberg")
    table.batch("q", 0, [{"o": {"a": 1}, "l": [{"b": 1}]}])
    for name in ("o.a", "l.element.b"):
        with theirs(table).update_schema() as columns:
            columns.rename_column(name, "c")
        with pytest.raises(BadTable, match=f"column c .* was called {name[-1]} as well"):
            table.reopen().state()
        snapshot = table.store.backend
        with snapshot._catalog.load_table(snapshot._entry.name).update_schema() as columns:  # type: ignore[attr-defined]
            columns.rename_column(f"{name[:-1]}c", name[-1])


def test_an_iceberg_table_with_other_partition_fields_is_refused(iceberg: TableWorld) -> None:
    """Also the files that were written with these, when it has its own again."""
    table = theirs(iceberg)
    with table.update_spec() as fields:
        fields.remove_field("k")
        fields.add_field("s", IdentityTransform(), "s")
    with pytest.raises(BadTable, match=r"fields \(s\).*says \(k\).*REPLACE PARTITION FIELD"):
        iceberg.reopen().state()
    with pytest.raises(BadTable, match="another engine changed them"):
        iceberg.batch("q", 2, [{"a": 5}], start=4)
    table.append(pa.table({"k": ["b"], "s": ["v"]}))
    with table.update_spec() as fields:
        fields.remove_field("s")
        fields.add_field("k", IdentityTransform(), "k_again")
    store = iceberg.reopen()
    with pytest.raises(BadTable, match=r"Files .* other partition fields .*rewrite-all"):
        store.compact(min_files=2)
    assert iceberg.batch("q", 2, [{"a": 5, "k": "b"}], start=4).rows == 1


@pytest.mark.parametrize("field", [HourTransform(), BucketTransform(8), None])
def test_partition_fields_are_told_apart_by_their_transforms(
    tmp_path: Path, field: Transform[Any, Any] | None
) -> None:
    by_day = (parse_transform("day(t)"),)
    table = TableWorld(
        tmp_path / "table", format="iceberg", columns={"t": "timestamp"}, partition_by=by_day
    )
    with theirs(table).update_spec() as spec:
        spec.remove_field("t_day")
        if field is not None:
            spec.add_field("t", field, "t_other")
    shown = "" if field is None else f"{field}(t)"
    with pytest.raises(BadTable, match=re.escape(f"({shown}), and its definition says (day(t))")):
        table.reopen().state()
