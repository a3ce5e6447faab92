"""E12 to E14 (tables on a cluster of Spark's): every row is in the table, or the run has failed and
nothing is committed.

Runs are commands in processes of their own, over a standalone master with a worker in a work
directory of its own, and, where this user may, in a mount namespace that hides the tables; and over
a local cluster of two executors.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import strandline
from strandline.cli import submitted
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.lakehouse.session_executors import (
    LEAST_S,
    TELL_AFTER_S,
    wait_for_executors,
)
from strandline.lakehouse.session_master import NoSpark
from strandline.lakehouse.tables.spec import load_spec
from strandline.lakehouse.tables.store import TableStore, open_store
from strandline.testing import Cluster
from tests.lakehouse.locations.s3_server import S3Server
from tests.lakehouse.standalone import StandaloneSpark, can_hide

pytestmark = pytest.mark.xdist_group("spark")

RECORDS = 200
_PATIENCE_S = 300
_OTHER_FILE_SYSTEM = "spark.hadoop.fs.defaultFS hdfs://127.0.0.1:1/\n"


class TableCommand:
    """`strandline table` in a directory of its own, with the relative `--tables` of its default."""

    def __init__(self, home: Path, cluster: Cluster) -> None:
        self.home = home
        self._bootstrap = cluster.bootstrap_servers

    def __call__(
        self, *words: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        with self.start(*words, environment=environment) as running:
            try:
                stdout, stderr = running.communicate(timeout=_PATIENCE_S)
            except BaseException:
                running.kill()
                raise
        return subprocess.CompletedProcess(running.args, running.returncode, stdout, stderr)

    def start(
        self, *words: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """The command, which goes on."""
        command = [sys.executable, "-m", "strandline.cli", "-b", self._bootstrap, "table", *words]
        return subprocess.Popen(
            command,
            env={**os.environ, "XDG_CACHE_HOME": str(self.home / "cache"), **(environment or {})},
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def submit(self, spark: StandaloneSpark, *words: str) -> subprocess.CompletedProcess[str]:
        """The command as a program of `spark-submit`'s, which is told the rest."""
        program = self.home / "tables.py"
        program.write_text("from strandline.cli.submitted import main\n\nmain()\n")
        return subprocess.run(
            [*spark.submitting, str(program), "-b", self._bootstrap, "table", *words],
            env={**os.environ, **spark.environment, **spark.java},
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )

    def store(self) -> TableStore:
        return open_store(load_spec(self.home / "strandline-tables" / "t"))


@pytest.fixture
def table(
    tmp_path: Path, cluster: Cluster, client: ClusterClient, new_topic: Callable[..., str]
) -> TableCommand:
    """The table `t` of a topic with records, one of which is a dead letter."""
    topic = new_topic(2)
    with Producer(client) as producer:
        for number in range(RECORDS - 1):
            producer.send(topic, json.dumps({"n": number}).encode(), partition=number % 2)
        producer.send(topic, b"no JSON", partition=1)
        producer.flush().raise_failure()
    made = TableCommand(tmp_path, cluster)
    created = made("create", "t", "--topic", topic, "--column", "n:long")
    assert created.returncode == 0, created.stderr
    return made


def held(table: TableCommand) -> tuple[int, int, int]:
    """Rows that can be read, dead letters that can be, and commits."""
    store = table.store()
    letters = store.dataset("dead_letters").count_rows()
    return store.dataset().count_rows(), letters, store.state().sequence


ALL = (RECORDS - 1, 1, 1)


def test_e12_a_master_without_workers_is_told_and_an_executor_that_shares_the_disk_fills_the_table(
    table: TableCommand, tmp_path: Path, client: ClusterClient
) -> None:
    """The wait for a worker was one without a word. `spark-submit` goes on with the table. E12 with
    the default of `--tables`, which is relative; and E14: whatever file system Spark's
    configuration takes for the default, paths of tables and checkpoints are local ones."""
    with StandaloneSpark(tmp_path / "spark", workers=0, settings=_OTHER_FILE_SYSTEM) as spark:
        running = table.start(
            *("run", "t", "--once", "--master", spark.master, "--patience", f"{_PATIENCE_S} s"),
            environment=spark.environment,
        )
        assert running.stderr is not None
        told = running.stderr.readline()
        spark.add_worker()
        said, rest = running.communicate(timeout=_PATIENCE_S)
        with Producer(client) as producer:
            topic = table.store().spec.topics[0]
            producer.send(topic, b'{"n": 1000}', partition=0)
            producer.flush().raise_failure()
        continued = table.submit(spark, "run", "t", "--once")
        written = [*(tmp_path / "spark").rglob("*.parquet")]
    assert told.startswith(f"The Spark master {spark.master} gives no executor yet; waiting"), told
    assert f"deploy.worker.Worker {spark.master}), or run Spark on this machine" in told
    assert running.returncode == 0, rest
    assert "nothing is missing" in said
    assert continued.returncode == 0, continued.stderr
    assert "Stopped after 1 commit with 1 row; nothing is missing" in continued.stdout
    assert held(table) == (RECORDS, 1, 2)
    assert written == [], "nothing is in an executor's work directory"


@pytest.mark.skipif(not can_hide(), reason="this user may not have mount namespaces")
def test_e12_executors_that_do_not_see_the_disk_end_the_run_and_nothing_is_committed(
    table: TableCommand, tmp_path: Path
) -> None:
    """It was "nothing is missing", exit code 0, offsets at the end, and an empty table."""
    hidden = tmp_path / "strandline-tables"
    with StandaloneSpark(tmp_path / "spark", workers=1, hidden=[hidden]) as spark:
        ended = table(
            *("run", "t", "--once", "--master", spark.master, "--patience", "60 s"),
            environment=spark.environment,
        )
    assert ended.returncode == 1
    assert f"wrote {hidden}/t/data/part-" in ended.stderr
    assert "A task on host " in ended.stderr
    assert "it is not there. Nothing of the batch was committed" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert held(table) == (0, 0, 0)
    status = table("status", "t", "--json")
    assert json.loads(status.stdout)["lag"]["records"] == RECORDS


def test_e12_a_local_cluster_fills_the_table(table: TableCommand, tmp_path: Path) -> None:
    """Its executors are processes in work directories below Spark's own."""
    ended = table(
        *("run", "t", "--once", "--master", "local-cluster[2,1,600]", "--patience", "60 s"),
        environment={
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(tmp_path / "work"),
            "SPARK_CONF_DIR": str(StandaloneSpark.configuration(tmp_path / "conf")),
        },
    )
    assert ended.returncode == 0, ended.stderr
    assert held(table) == ALL


@pytest.mark.skipif(not can_hide(), reason="this user may not have mount namespaces")
def test_workers_without_a_shared_disk_fill_a_table_in_a_store(
    table: TableCommand, tmp_path: Path, s3: S3Server, bucket: str
) -> None:
    """Their Python comes out of an archive; the doctor asks both, and both write to the store."""
    topic = load_spec(tmp_path / "strandline-tables" / "t").topics[0]
    where = ("--tables", f"s3://{bucket}/bronze")
    assert table("create", "t", "--topic", topic, "--column", "n:long", *where).returncode == 0
    hidden = [tmp_path / "strandline-tables"]
    with StandaloneSpark(tmp_path / "spark", workers=2, hidden=hidden) as spark:
        on = ("--master", spark.master, "--archives", f"{packed_python(tmp_path)}#env")
        environment = {**spark.environment, "PYSPARK_PYTHON": "./env/bin/python"}
        doctor = table("doctor", "t", "--json", *where, *on, environment=environment)
        ran = table(
            *("run", "t", "--once", *where, *on, "--conf", "spark.executor.cores=1"),
            environment=environment,
        )
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    parts = [each["part"] for each in json.loads(doctor.stdout)]
    assert parts == ["store", "commits", "table", "topics", "executor", "executor"]
    assert ran.returncode == 0, ran.stderr
    assert "nothing is missing" in ran.stdout
    store = open_store(load_spec(f"s3://{bucket}/bronze/t"))
    letters = store.dataset("dead_letters").count_rows()
    assert (store.dataset().count_rows(), letters, store.state().sequence) == ALL
    assert "very-secret-word" not in doctor.stdout + doctor.stderr + ran.stdout + ran.stderr


def packed_python(directory: Path) -> Path:
    """An archive with a Python in it that has this package, as a packed environment would be."""
    program = directory / "python"
    source = Path(strandline.__file__).parents[1]
    program.write_text(f'#!/bin/sh\nPYTHONPATH={source}:$PYTHONPATH exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    packed = directory / "env.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(program, "bin/python")
    return packed


@pytest.mark.parametrize("word", ["--master", "--conf=spark.x=1", "--memory"])
def test_what_spark_submit_is_to_be_told_is_refused(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["tables.py", "table", "run", "t", word])
    instead = "--driver-memory" if word == "--memory" else word.partition("=")[0]
    with pytest.raises(SystemExit, match=f"Spark runs already. Give {instead} to spark-submit"):
        submitted.main()


def test_without_an_executor_patience_ends_with_the_same_remedy(spark: SparkSession) -> None:
    """The session that all tests share has a driver only."""
    told: list[str] = []
    with pytest.raises(
        NoSpark, match=r"master local\[2\] gave no executor within 3.5 s\. Its workers are slow"
    ):
        wait_for_executors(
            spark.sparkContext,
            told.append,
            began_s=time.monotonic() - TELL_AFTER_S,
            patience_s=LEAST_S + 0.5,
        )
    assert [
        each.startswith("The Spark master local[2] gives no executor yet") for each in told
    ] == [True]
