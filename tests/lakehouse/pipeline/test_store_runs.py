"""Tables in a store, filled, proven and made again by Spark's tasks; and a store that fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from strandline.lakehouse.pipeline.events import Notice
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.rebuild.diff import difference
from strandline.lakehouse.rebuild.job import open_rebuild, rebuild
from strandline.lakehouse.spark_errors import cause_of
from strandline.lakehouse.tables.identity import OffsetRange
from strandline.lakehouse.verify.report import Verdict
from tests.lakehouse.locations.s3_server import Fault, S3Server
from tests.lakehouse.pipeline.conftest import TableUnderTest

MakeTable = Callable[..., TableUnderTest]


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_table_in_a_store_is_filled_proven_and_made_again(
    s3: S3Server, bucket: str, tmp_path: Path, make_table: MakeTable, table_format: str
) -> None:
    """While files are written, and while a commit is made, the store is too busy for a time."""
    catalog = {"catalog": "sql", "catalog_properties": {"uri": f"sqlite:///{tmp_path / 'lake.db'}"}}
    table = make_table(
        location=f"s3://{bucket}/t",
        format=table_format,
        columns={"n": "long"},
        event_time="at",
        **(catalog if table_format == "iceberg" else {}),
    )
    at = "2026-03-01T05:00:00Z"
    table.produce([(b"a", {"n": 1, "at": at, "tags": [{"x": 1}]}), (b"b", b"bad")])
    busy = Fault("PUT|POST", "/data/part-", times=8, status=503)
    s3.plant(busy, Fault("GET|HEAD", "/data/", times=12, status=503))
    assert table.run(patience_s=120).rows == 1
    assert s3.left()[0] < 8, "the store was not asked meanwhile"
    notices = [each.sentence for each in table.told if isinstance(each, Notice)]
    assert any("the store is too busy" in each for each in notices), notices
    s3.plant()
    table.produce([(b"a", {"n": 2, "price": 0.5}), (b"b", b"worse")])
    table.run()
    assert table.rows("n", "price") == [(1, None), (2, 0.5)]

    report = table.verify()
    assert report.is_good, report
    assert report.total(Verdict.GOOD) == 4
    settings = RunOptions(bootstrap=table.bootstrap).read_settings(table.spec)
    ranges = (OffsetRange(table.topic, 0, 0, 4),)
    rebuild(table.spark, table.spec, settings, ranges, tell=lambda *_: None)
    made, known = open_rebuild(table.spec)
    assert difference(table.spark, table.store, made, known).same == 2

    gone = table.store.files()[0].path
    s3.client().delete_object(Bucket=bucket, Key=gone.path.lstrip("/"))
    assert not table.verify().is_good


def test_the_sentence_of_a_task_is_what_is_told() -> None:
    said = "s3://lake/t/data/x could not be written: the store does not permit it."
    error = PySparkException(
        f"Job aborted.\nTraceback (most recent call last):\n  File x\n"
        f"strandline.lakehouse.locations.errors.StoreTrouble: {said}\n\n\tat org.apache.X"
    )
    assert cause_of(error) == said
