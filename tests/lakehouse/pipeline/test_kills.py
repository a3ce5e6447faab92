"""kill -9 of what a pipeline consists of, under load: a few times here, as often as one likes with
`python -m tests.faults.pipelines`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.tables.store import open_store
from strandline.lakehouse.verify.job import verify
from strandline.lakehouse.verify.report import Verdict
from tests.faults.pipelines.running import UnderLoad


@pytest.mark.timeout(600)
def test_a_pipeline_whose_parts_are_killed(spark: SparkSession, tmp_path: Path) -> None:
    with UnderLoad(tmp_path, seed=1) as running:
        for fault in ("worker", "broker", "driver"):
            running.pipeline.wait_for_commits(1)
            running.at_a_random_moment(fault)
        running.pipeline.wait_for_commits(1)
        running.load.end()
        running.pipeline.stop()
        spec = running.pipeline.spec
        settings = RunOptions(bootstrap=running.cluster.bootstrap_servers).read_settings(spec)
        report = verify(spark, open_store(spec), settings)
    assert report.is_good, report
    assert report.total(Verdict.GOOD) == running.load.acknowledged
