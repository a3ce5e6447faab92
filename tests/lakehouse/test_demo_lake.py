"""What `strandline demo --lake s3` adds: a table in a store, read there by its name.

That the demo's own server starts and ends is a matter of tests/cli/test_table.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click import ClickException
from pyspark.sql import SparkSession

import strandline
from strandline.cli.demo_lake import read_by_name
from strandline.cli.demo_store import check_store_installed
from strandline.lakehouse.demo import s3_server
from strandline.lakehouse.demo.lake import BUCKET, Lake
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.spec import save_spec
from tests.lakehouse.locations.s3_server import S3Server
from tests.lakehouse.tables.table_world import TableWorld, Value


@pytest.fixture
def environment() -> Iterator[None]:
    """What the demo sets in its process goes after the test."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


FLIGHTS: list[Value] = [{"carrier": "UA", "dep_delay": 4}, {"carrier": "DL"}, {"carrier": "UA"}]


@pytest.mark.usefixtures("environment")
def test_a_table_in_the_lake_is_found_by_its_name(s3: S3Server, tmp_path: Path) -> None:
    s3.bucket(BUCKET)
    s3.plant()
    lake = Lake(s3.url, tmp_path)
    os.environ["AWS_PROFILE"] = "of-the-user"  # whose keys are none of the demo's business
    lake.enter()
    spec = lake.define(TableWorld.spec_in(tmp_path))
    world = TableWorld(tmp_path, **{name: getattr(spec, name) for name in spec.__slots__})
    save_spec(world.spec)
    world.batch("q", 0, [*FLIGHTS, b"{"])
    found = strandline.open_table("flights")
    assert found.spec == spec
    assert found.to_arrow(["carrier"])["carrier"].to_pylist() == ["UA", "DL", "UA"]
    assert s3.keys_used() == {"demo"}


def test_spark_and_duckdb_are_asked_the_same(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = TableWorld(tmp_path / "flights")
    save_spec(world.spec)
    world.batch("q", 0, FLIGHTS)
    read_by_name(spark, Location.parse(tmp_path))
    told = capsys.readouterr().out.splitlines()
    assert [line.split() for line in told].count(["UA", "2", "4"]) == 2, told


def test_what_the_server_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_server, "_NEEDED", ("moto", "no_such"))
    with pytest.raises(ClickException, match=r"needs no_such: pip install 'strandline\[lake\]'"):
        check_store_installed()
