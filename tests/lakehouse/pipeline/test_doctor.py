"""What is missing for a run is said in sentences, and nothing is changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from strandline.cli.main import cli
from strandline.lakehouse.doctor import Finding, examine_executors, examine_here
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.tables.definition import TableSpec
from strandline.testing import Cluster
from tests.lakehouse.locations.s3_server import Fault, S3Server
from tests.lakehouse.tables.table_world import TableWorld


def examined(spec: TableSpec, bootstrap: str) -> dict[str, Finding]:
    reading = RunOptions(bootstrap=bootstrap).read_settings(spec)
    return {each.part: each for each in examine_here(spec, reading)}


def test_all_is_there(
    s3: S3Server, bucket: str, cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    spec = TableSpec("t", (new_topic(2),), f"s3://{bucket}/t")
    found = examined(spec, cluster.bootstrap_servers)
    assert [*found] == ["store", "commits", "table", "topics"]
    assert all(each.is_good for each in found.values()), found
    assert found["topics"].sentence == f"{spec.topics[0]} has 2 partitions"
    assert s3.keys(bucket) == []


def test_a_table_that_is_not_whole_is_said(tmp_path: Path) -> None:
    table = TableWorld(tmp_path / "t")
    table.batch("q", 0, [{"a": 1}])

    def finding() -> Finding:
        return examined(table.spec, "127.0.0.1:9")["table"]

    assert finding() == ("table", True, "it has 1 commits, and all of its 1 files are there")
    table.store.files()[0].path.local.unlink()
    assert not finding().is_good
    assert "1 of 1 files that the table names" in finding().sentence
    shutil.rmtree(table.spec.directory().local)
    assert not finding().is_good
    assert "The data of table flights is gone" in finding().sentence


def test_what_is_missing_is_said(s3: S3Server, bucket: str, cluster: Cluster) -> None:
    catalog = {"uri": "http://127.0.0.1:9"}
    spec = TableSpec(
        "t",
        ("no-such-topic",),
        "s3://gone/t",
        format="iceberg",
        catalog="rest",
        catalog_properties=catalog,
    )
    found = examined(spec, cluster.bootstrap_servers)
    assert not any(each.is_good for part, each in found.items() if part != "commits")
    assert "the bucket gone is not there" in found["store"].sentence
    assert "the rest catalog http://127.0.0.1:9 cannot be reached" in found["catalog"].sentence
    assert "no-such-topic" in found["topics"].sentence

    s3.plant(Fault("PUT", ".", times=-1, deaf=True))
    deaf = examined(TableSpec("t", ("x",), f"s3://{bucket}/t"), cluster.bootstrap_servers)
    assert "If-None-Match" in deaf["commits"].sentence
    s3.plant(Fault("PUT", ".", times=-1, status=403))
    shut = examined(TableSpec("t", ("x",), f"s3://{bucket}/t"), cluster.bootstrap_servers)
    assert "the store does not permit it" in shut["store"].sentence


def test_the_command_says_it_and_ends_with_1(s3: S3Server, bucket: str, cluster: Cluster) -> None:
    words = ["-b", cluster.bootstrap_servers, "table"]
    where = ["--tables", f"s3://{bucket}/lake"]
    made = CliRunner().invoke(cli, [*words, "create", "t", "--topic", "not-there", *where])
    assert made.exit_code == 0, made.output
    ended = CliRunner().invoke(cli, [*words, "doctor", "t", "--no-spark", *where])
    assert ended.exit_code == 1
    lines = ended.output.splitlines()
    assert lines[0].startswith(f"good  store     s3://{bucket}/lake/t was written to, read")
    assert lines[-1].startswith("WRONG topics")
    assert "very-secret-word" not in ended.output


def test_executors_are_asked(
    spark: SparkSession, tmp_path: Path, cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    spec = TableSpec("t", (new_topic(1),), str(tmp_path / "t"))
    reading = RunOptions(bootstrap=cluster.bootstrap_servers).read_settings(spec)
    [finding] = examine_executors(spark, spec, reading)
    assert finding.is_good, finding
    assert finding.sentence.endswith("store and topics reached")
    assert [*(tmp_path / "t").iterdir()] == []
    [lost] = examine_executors(spark, TableSpec("t", ("not-there",), str(tmp_path / "t")), reading)
    assert (lost.is_good, "not-there" in lost.sentence) == (False, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("spark.executor.memory", "--conf takes spark.NAME=VALUE"),
        ("fs.s3a.secret=word", "--conf takes spark.NAME=VALUE, not 'fs.s3a.secret'"),
        ("spark.master=local", "--conf cannot set spark.master: it is --master"),
    ],
)
def test_settings_of_spark_that_are_none(s3: S3Server, bucket: str, given: str, said: str) -> None:
    where = ["--tables", f"s3://{bucket}"]
    CliRunner().invoke(cli, ["table", "create", "t", *where])
    ended = CliRunner().invoke(cli, ["table", "verify", "t", "--conf", given, *where])
    assert (ended.exit_code, said in ended.output) == (2, True), ended.output
