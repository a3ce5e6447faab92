"""Another S3 server than moto: what it keeps apart, and what holds in it all the same."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from strandline.errors import InvalidSetting
from strandline.lakehouse.doctor import examine_here
from strandline.lakehouse.locations.conditions import conditional_put_fault, most_winners
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.tables import store
from strandline.lakehouse.tables.committing import COMMITTED, REPLAYED
from strandline.lakehouse.tables.definition import TableSpec
from tests.lakehouse.locations.s3_server import Fault, S3Server
from tests.lakehouse.tables.table_world import TableWorld

pytestmark = pytest.mark.xdist_group("s3mock")
FAR = 10**15
_numbers = count(1)


@pytest.fixture
def there(s3mock: S3Server) -> Location:
    """A bucket of the test's own."""
    return Location.parse(f"s3://{s3mock.bucket(f'mock-{next(_numbers)}')}/t")


@pytest.fixture
def iceberg(there: Location, tmp_path: Path) -> TableWorld:
    """A table there, whose catalog decides between two commits."""
    catalog = {"uri": f"sqlite:///{tmp_path / 'lake.db'}"}
    return TableWorld(str(there), format="iceberg", catalog="sql", catalog_properties=catalog)


def test_writers_at_the_same_time_are_kept_apart_where_a_condition_is_one_step(
    s3: S3Server, bucket: str
) -> None:
    place = Location.parse(f"s3://{bucket}/t")
    assert most_winners(place, rounds=50) == 1
    assert s3.keys(bucket) == []


def test_a_store_that_looks_and_then_writes_is_found_out(there: Location, s3mock: S3Server) -> None:
    """It refuses the second of two writers, if the first is done."""
    said = conditional_put_fault(there)
    assert said is not None
    assert "refuses the second of two writers, but not of two at the same time" in said
    assert s3mock.keys(there.authority) == []

    with pytest.raises(InvalidSetting, match="not of two at the same time"):
        TableWorld(str(there))
    spec = TableSpec("t", ("x",), str(there))
    reading = RunOptions(bootstrap="127.0.0.1:9").read_settings(spec)
    found = {each.part: each for each in examine_here(spec, reading) if each.part != "topics"}
    assert (found["store"].is_good, found["commits"].is_good) == (True, False)
    assert "--format iceberg" in found["commits"].sentence


@pytest.mark.parametrize("path", ["/metadata/", "/data/part-"])
def test_a_lost_answer_to_a_write_of_iceberg_neither_doubles_nor_loses_a_row(
    s3mock: S3Server, iceberg: TableWorld, path: str
) -> None:
    iceberg.batch("q", 0, [{"a": 0}, b"bad"])
    s3mock.plant(Fault("PUT", path, lose=True))
    done = iceberg.batch("q", 1, [{"a": 1}, b"bad"], start=2)
    assert (done.outcome, done.rows, done.dead_letters) == (COMMITTED, 1, 1)
    assert s3mock.left() == [0]
    iceberg.reopen()
    assert iceberg.batch("q", 1, [{"a": 1}], start=2).outcome == REPLAYED
    assert (iceberg.offsets(), iceberg.letters()) == ([0, 2], [1, 3])


def test_a_table_is_compacted_and_vacuumed(s3mock: S3Server, iceberg: TableWorld) -> None:
    for number in range(3):
        iceberg.batch("q", number, [{"a": number}], start=number)
    assert iceberg.store.compact(min_files=2).files_after == 1
    bucket = iceberg.spec.directory().authority
    s3mock.client().put_object(Bucket=bucket, Key="t/data/part-lost.parquet", Body=b"no commit")
    assert iceberg.store.vacuum(now_ms=FAR, older_than_ms=0) == [
        f"s3://{bucket}/t/data/part-lost.parquet"
    ]
    assert "t/data/part-lost.parquet" not in s3mock.keys(bucket)
    iceberg.reopen()
    assert len(iceberg.store.files()) == 1
    assert [row["a"] for row in iceberg.rows()] == [0, 1, 2]


def test_a_lost_answer_to_a_commit_of_delta_neither_doubles_nor_loses_a_row(
    s3mock: S3Server, there: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that is alone, since tables of that format are refused there."""
    monkeypatch.setattr(store, "check_commits", lambda spec: None)
    table = TableWorld(str(there))
    table.batch("q", 0, [{"a": 0}, b"bad"])
    s3mock.plant(Fault("PUT", "/data/_delta_log/0", lose=True))
    assert table.batch("q", 1, [{"a": 1}, b"bad"], start=2).outcome == COMMITTED
    assert s3mock.left() == [0]
    table.reopen()
    assert table.batch("q", 1, [{"a": 1}], start=2).outcome == REPLAYED
    assert (table.offsets(), table.letters()) == ([0, 2], [1, 3])
