"""Tables of both formats in the hands of others: every column, by its name, with what was sent.

Each reader is what its users have: Spark with the format's own jars, DuckDB with its own readers,
pyiceberg, and polars. Iceberg's runtime does not run in the Spark that this package uses, so that
a Spark of its own reads there, in a JVM of its own.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from strandline.lakehouse.tables.names import NAMES
from strandline.lakehouse.tables.transforms import bucket_of, parse_transform
from tests.lakehouse.conftest import DELTA_JARS, jars_of
from tests.lakehouse.duckdb_reader import with_extensions
from tests.lakehouse.tables.table_world import TOPIC, TableWorld, Value

Row = dict[str, Any]

ICEBERG_JARS: Final = jars_of("iceberg-1.11.0", "STRANDLINE_ICEBERG_JARS")
_OPENED: Final = (
    *("java.lang", "java.lang.invoke", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "sun.nio.ch", "sun.security.action", "sun.util.calendar"),
)
"""Packages of Java that Spark reaches into."""
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_AT: Final = datetime.datetime(2026, 3, 1, 5, 0, 0, 123456, datetime.UTC)

FIRST: Final[list[Value]] = [
    {
        "n": 1 << 60,
        "x": 1.5,
        "s": "ä",
        "b": True,
        "seen": _AT.isoformat(),
        "d": "2026-03-01",
        "o": {"y": 1},
        "l": [1, None, 3],
    },
    {"n": None},
]
SECOND: Final[list[Value]] = [{"n": -1, "new": "later", "o": {"z": "deep"}}, b"no JSON"]
KEYS: Final = (b"\x00\xff", None, b"", b"y")
NOTHING: Final = dict.fromkeys(("n", "x", "s", "b", "seen", "d", "o", "l", "new"))
VALUES: Final[list[Row]] = [
    {
        **NOTHING,
        "n": 1 << 60,
        "x": 1.5,
        "s": "ä",
        "b": True,
        "seen": _AT,
        "d": datetime.date(2026, 3, 1),
        "o": {"y": 1, "z": None},
        "l": [1, None, 3],
    },
    NOTHING,
    {**NOTHING, "n": -1, "new": "later", "o": {"y": None, "z": "deep"}},
]
SENT: Final[list[Row]] = [
    {
        **values,
        NAMES.topic: TOPIC,
        NAMES.partition: 0,
        NAMES.offset: offset,
        # The records of each batch are a microsecond apart from one another.
        NAMES.time: _EPOCH + datetime.timedelta(microseconds=offset % len(FIRST)),
        NAMES.key: KEYS[offset],
    }
    for offset, values in enumerate(VALUES)
]
DIVIDED: Final[list[Row]] = [
    {
        **row,
        "kafka_timestamp_day": _EPOCH.date(),
        "s_bucket": None if row["s"] is None else bucket_of(row["s"], 4),
    }
    for row in SENT
]
"""As Delta shows them: what divides its tables are columns."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The directory of the rows, by format.

    That of Iceberg has letters which a URI would escape: its metadata once lay beside it. Of Delta,
    polars finds no files there.
    """
    directory = tmp_path_factory.mktemp("tables")
    places = {"delta": directory / "delta", "iceberg": directory / "my läke" / "iceberg"}
    return {each: _filled(place, each) for each, place in places.items()}


def _filled(directory: Path, table_format: str) -> Path:
    """Two batches, whose second has further columns and fields."""
    table = TableWorld(
        directory,
        format=table_format,
        keep_key=True,
        columns={"seen": "timestamp", "d": "date", "s": "string"},
        partition_by=(parse_transform("day(kafka_timestamp)"), parse_transform("bucket(4, s)")),
    )
    table.batch("q", 0, FIRST, keys=KEYS[:2])
    table.batch("q", 1, SECOND, start=2, keys=KEYS[2:])
    assert table.letters() == [3]
    return table.spec.directory().local


def metadata_of(directory: Path) -> str:
    """The newest metadata of an Iceberg table."""
    return str(max(directory.glob("metadata/*.metadata.json")))


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row[NAMES.offset])


def by_duckdb(extension: str, scan: str) -> list[Row]:
    """By DuckDB's reader of a format, which a package brings; of names, not of `*`."""
    columns = DIVIDED[0] if extension == "delta" else SENT[0]
    names = ("avro", extension) if extension == "iceberg" else (extension,)
    packages = [pytest.importorskip(f"duckdb_extension_{each}") for each in names]
    with with_extensions(packages) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.sql(f"SELECT {', '.join(columns)} FROM {scan}")
        return in_order(found.to_arrow_table().to_pylist())


def test_iceberg_by_pyiceberg(tables: Mapping[str, Path]) -> None:
    table = StaticTable.from_metadata(metadata_of(tables["iceberg"]))
    found = table.scan(selected_fields=tuple(SENT[0])).to_arrow().to_pylist()
    assert in_order(found) == SENT


def test_iceberg_by_duckdb(tables: Mapping[str, Path]) -> None:
    scan = f"iceberg_scan('{metadata_of(tables['iceberg'])}')"
    assert by_duckdb("iceberg", scan) == SENT


@pytest.mark.skipif(
    not ICEBERG_JARS or shutil.which("javac") is None,
    reason="Iceberg's runtime for Spark, or a Java that compiles, is not there",
)
def test_iceberg_by_spark(tables: Mapping[str, Path]) -> None:
    opened = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in _OPENED]
    ended = subprocess.run(
        [
            *("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", *opened),
            *("-cp", os.pathsep.join(map(str, ICEBERG_JARS))),
            str(Path(__file__).with_name("ReadIceberg.java")),
            *(metadata_of(tables["iceberg"]), *SENT[0]),
        ],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert in_order([_from_json(line) for line in ended.stdout.splitlines()]) == SENT


def _from_json(line: str) -> Row:
    row: Row = json.loads(line)
    for name in ("seen", NAMES.time):
        row[name] = row[name] and datetime.datetime.fromisoformat(row[name])
    row["d"] = row["d"] and datetime.date.fromisoformat(row["d"])
    key = row[NAMES.key]
    return {**row, NAMES.key: None if key is None else base64.b64decode(key)}


@pytest.mark.skipif(not DELTA_JARS, reason="the jars of Delta for Spark are not there")
def test_delta_by_spark(spark: SparkSession, tables: Mapping[str, Path]) -> None:
    rows = spark.read.format("delta").load(f"file://{tables['delta']}").select(*DIVIDED[0])
    assert in_order(rows.toArrow().to_pylist()) == DIVIDED


def test_delta_by_duckdb(tables: Mapping[str, Path]) -> None:
    assert by_duckdb("delta", f"delta_scan('{tables['delta']}')") == DIVIDED


def test_delta_by_polars(tables: Mapping[str, Path]) -> None:
    polars = pytest.importorskip("polars")
    rows = polars.scan_delta(str(tables["delta"])).select(*SENT[0]).collect()
    assert in_order(rows.to_dicts()) == SENT
