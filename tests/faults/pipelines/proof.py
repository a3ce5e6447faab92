"""Whether a table holds what was sent, exactly once: by its own proof, and by means of others.

A proof that has nothing to judge finds no fault. So each must be about all partitions, from their
first record to behind the last that there was when something was killed; and the proof itself must
find faults that are planted into the table.

At the end, when all is quiet, the table is read once more by libraries that know nothing of
Strandline, and compared with what the load remembers of its sends.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from strandline.lakehouse.deadletters.letters import PAYLOAD
from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.tables.definition import DEAD_LETTERS, LATE, TableSpec
from strandline.lakehouse.tables.store import open_store
from strandline.lakehouse.verify.job import verify
from strandline.lakehouse.verify.report import Report, Verdict
from strandline.types import TopicPartition
from tests.faults.pipelines.lake import Lake
from tests.faults.pipelines.load import Load
from tests.faults.pipelines.pipeline import PATIENCE_S


class NotProven(Exception):
    """The table is not what was sent, or that cannot be decided."""


def prove(
    spark: SparkSession, spec: TableSpec, bootstrap: str, ends: Mapping[TopicPartition, int]
) -> Report:
    """The table's own proof, at least up to `ends`. Raises `NotProven`."""
    report = judge(spark, spec, bootstrap)
    if not report.is_good:
        raise NotProven(f"{report.sentences()} {report}")
    for partition, end in ends.items():
        held = report.partitions.get(partition)
        if held is None or held.start != 0 or held.end < end:
            raise NotProven(f"The proof is not about all of {partition} up to {end}: {report}")
    judged = report.total(Verdict.GOOD)
    offsets = sum(each.end for each in report.partitions.values())
    if not judged or (spec.mode == "append" and judged != offsets):
        raise NotProven(f"Of {offsets} offsets the proof is about {judged}: {report}")
    return report


def judge(spark: SparkSession, spec: TableSpec, bootstrap: str) -> Report:
    """What `strandline table verify` does, with more patience: a cluster that was just killed at
    on a busy machine may be without leaders for longer than a reader waits."""
    settings = RunOptions(bootstrap=bootstrap).read_settings(spec)
    patient = replace(settings, patience_ms=int(PATIENCE_S * 1000))
    return verify(spark, open_store(spec), patient, everything=True)


def check_faults_are_found(spark: SparkSession, spec: TableSpec, bootstrap: str) -> None:
    """Take a row out of a file of the table and put another in twice: the proof must say so.

    The file is as it was afterwards. Raises `NotProven`.
    """
    file = max(open_store(spec).files(), key=lambda each: each.rows or 0).path
    path, place = stores.path_of(file), stores.file_system(file)
    with place.open_input_stream(path) as stream:
        kept = stream.read()
    try:
        rows = pq.read_table(pa.BufferReader(kept), partitioning=None)
        wrong = pa.concat_tables([rows.slice(1), rows.slice(rows.num_rows - 1)])
        pq.write_table(wrong, path, filesystem=place)
        report = judge(spark, spec, bootstrap)
    finally:
        with place.open_output_stream(path) as output:
            output.write(kept)
    found = {each: report.total(each) for each in (Verdict.MISSING, Verdict.DOUBLED)}
    if report.is_good or set(found.values()) != {1}:
        raise NotProven(f"The proof does not find faults: {found}, {report}")


def check_by_duckdb(lake: Lake, spec: TableSpec, ends: Mapping[TopicPartition, int]) -> int:
    """That DuckDB, which knows nothing of the proof, reads each offset below `ends` once; how many
    there are. Raises `NotProven`. Of an upserted table, offsets are not all there: each once."""
    found = lake.places(spec)
    for partition, end in ends.items():
        held = sorted(each for each in found.get(partition, []) if each < end)
        wanted = held if spec.mode == "upsert" else range(end)
        if len(set(held)) != len(held) or held != list(wanted):
            missing = sorted(set(wanted) - set(held))
            raise NotProven(
                f"DuckDB reads {len(held)} places of {partition} below {end}: {missing[:20]} are "
                "missing, or some are there twice."
            )
    return sum(ends.values())


def check_against_load(spec: TableSpec, load: Load) -> None:
    """What is in the table, read without Strandline, is what was sent. Raises `NotProven`."""
    rows = _read(spec, None)
    if spec.mode == "upsert":
        held = dict(zip(_texts(rows, "key"), rows.column("number").to_pylist(), strict=True))
        sent = {key: number for key, number in load.newest.items() if number is not None}
        if held != sent or rows.num_rows != len(sent):
            wrong = {key for key in held.keys() | sent.keys() if held.get(key) != sent.get(key)}
            raise NotProven(f"{rows.num_rows} rows for {len(sent)} keys; wrong are {wrong}")
    else:
        late = _read(spec, LATE)
        numbers = rows.column("number").to_pylist() + late.column("number").to_pylist()
        _check_once("rows", numbers, set(range(load.acknowledged)) - load.bad)
    letters = _read(spec, DEAD_LETTERS).column(PAYLOAD).to_pylist()
    _check_once("dead letters", [json.loads(each[1:])["number"] for each in letters], load.bad)


def _check_once(what: str, held: list[int], sent: set[int]) -> None:
    if len(held) != len(sent) or set(held) != sent:
        missing, foreign = sorted(sent - set(held)), sorted(set(held) - sent)
        raise NotProven(
            f"{len(held)} {what} for {len(sent)} records: {missing[:20]} are missing, "
            f"{foreign[:20]} were never sent"
        )


def _texts(rows: pa.Table, name: str) -> list[str]:
    return [str(each) for each in rows.column(name).to_pylist()]


def _read(spec: TableSpec, side: str | None) -> pa.Table:
    """All rows, by the libraries of the formats."""
    directory = spec.directory(side)
    if spec.format == "delta":
        options = {} if directory.is_local else {"allow_http": "true"}
        table = DeltaTable(str(directory), storage_options=options)
        return table.to_pyarrow_dataset().to_table()
    metadata = _metadata_of(Path(spec.location) / "catalog.db", directory)
    return StaticTable.from_metadata(metadata).scan().to_arrow()


def _metadata_of(path: Path, directory: Location) -> str:
    """What the catalog says is the newest metadata of the table in a directory."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as catalog:
        known = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
    [found] = [location for (location,) in known if f"{directory}/" in location]
    return str(found)
