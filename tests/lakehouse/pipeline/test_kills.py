"""kill -9 of what a pipeline consists of, under load: a few times here, as often as one likes with
`python -m tests.faults.pipelines`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.lakehouse.verify.report import Verdict
from tests.faults.pipelines import descent, proof, victims
from tests.faults.pipelines.phases import COMMITTING, WRITING
from tests.faults.pipelines.pipeline import PATIENCE_S
from tests.faults.pipelines.running import BrokersInThread, UnderLoad
from tests.faults.pipelines.victims import Kill
from tests.faults.processes import until

LOOKS_UP_FORMATS = "pyspark.sql.worker.lookup_data_sources"


@pytest.mark.timeout(600)
def test_a_spark_that_cannot_read_topics_any_more(tmp_path: Path) -> None:
    """Killing the worker that looks up formats leaves a session that knows none of them for
    good: another attempt in it fails like the first, so the run goes on in another."""
    with UnderLoad(tmp_path, 1, BrokersInThread) as running:
        pipeline, told = running.pipeline, tmp_path / "run.log"
        pipeline.ensure_running()

        def knows_no_formats() -> bool:
            for each in descent.workers_below(pipeline.pid).get(LOOKS_UP_FORMATS, []):
                descent.kill(each)
            return "strandline.DefaultSource" in told.read_text()

        until(knows_no_formats, "trouble", seconds=PATIENCE_S, complaint=pipeline.complaint)
        running.wait_until_held(running.ends())
        assert pipeline.starts == 1, pipeline.complaint()
        assert "Spark failed 3 times; there is a new one." in told.read_text()
        assert "Traceback" not in told.read_text(), "it tells sentences"


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
