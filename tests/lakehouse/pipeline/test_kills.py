"""kill -9 of what a pipeline consists of, under load: a few times here, as often as one likes with
`python -m tests.faults.pipelines`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.lakehouse.verify.report import Verdict
from tests.faults.pipelines import proof, victims
from tests.faults.pipelines.phases import COMMITTING, WRITING
from tests.faults.pipelines.running import BrokersInThread, UnderLoad
from tests.faults.pipelines.victims import Kill


@pytest.mark.timeout(600)
def test_a_pipeline_whose_parts_are_killed(spark: SparkSession, tmp_path: Path) -> None:
    with UnderLoad(tmp_path, 1, BrokersInThread) as running:
        pipeline, bootstrap = running.pipeline, running.brokers.bootstrap
        running.wait_until_held(dict.fromkeys(running.ends(), 1))
        for kill in (
            Kill(victims.WORKER, WRITING, 0.5),
            Kill(victims.BROKER, victims.ANY, 0.1),
            Kill(victims.JVM, COMMITTING, 0.5),
        ):
            running.strike(kill)
            running.wait_until_held(running.ends())
        assert pipeline.starts == 1, "the command survives all but its own end"
        assert "Traceback" not in (tmp_path / "run.log").read_text(), "it tells sentences"
        running.strike(Kill(victims.DRIVER, COMMITTING, 0.5))
        running.wait_until_held(running.ends())
        assert pipeline.starts == 2
        running.load.end()
        ends = running.ends()
        running.wait_until_held(ends)
        pipeline.stop()
        report = proof.prove(spark, pipeline.spec, bootstrap, ends)
        assert report.total(Verdict.GOOD) == running.load.acknowledged
        proof.check_against_load(pipeline.spec, running.load)
        proof.check_faults_are_found(spark, pipeline.spec, bootstrap)
