"""Tables by their commands alone, from the definition to the care: in Iceberg's format, and in
Delta's as Spark's own writer fills it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from strandline.cli.main import cli
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.lakehouse.pipeline import running
from strandline.lakehouse.tables.catalogs import entry_of
from strandline.lakehouse.tables.iceberg import IcebergBackend
from strandline.lakehouse.tables.spec import load_spec
from strandline.testing import Cluster
from tests.lakehouse.conftest import DELTA_JARS

Run = Callable[..., Any]


@pytest.fixture
def table(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> Run:
    """`strandline table ... --json` as a document, in the session that all tests share."""
    environment = {
        "STRANDLINE_BOOTSTRAP": cluster.bootstrap_servers,
        "STRANDLINE_DELTA_JARS": None,
    }

    def run(command: str, *rest: str, code: int = 0) -> Any:
        where = ("--tables", str(tmp_path))
        ended = CliRunner().invoke(cli, ["table", command, *rest, *where], env=environment)
        assert ended.exit_code == code, ended.output
        if code:
            return ended.output
        return json.loads(ended.stdout) if "--json" in rest and command != "run" else ended.stdout

    return run


def test_an_iceberg_table_end_to_end(
    table: Run,
    client: ClusterClient,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = new_topic(2)
    table(
        *("create", "t", "--topic", topic, "--format", "iceberg", "--partition", "day(at)"),
        *("--event-time", "at", "--watermark", "1 hour", "--column", "n:long"),
    )

    def produce(*values: dict[str, object] | str) -> None:
        with Producer(client) as producer:
            for number, value in enumerate(values):
                raw = value if isinstance(value, str) else json.dumps(value)
                producer.send(topic, raw.encode(), key=b"k", partition=number % 2)
            producer.flush().raise_failure()

    produce(*({"n": each, "at": f"2026-03-01T05:0{each}:00Z"} for each in range(10)))
    shown = table("run", "t", "--once", "--json", "--rows-per-commit", "3")
    started, *commits, stopped = (json.loads(line) for line in shown.splitlines())
    assert (started["event"], started["lag"]["records"]) == ("started", 10)
    assert (stopped["commits"], stopped["rows"]) == (len(commits), 10)
    assert len(commits) >= 4
    produce({"n": 10, "at": "2026-03-02T06:00:00Z", "price": 1.5}, "poison")
    produce({"n": 11, "at": "2026-03-01T01:00:00Z"}, {"n": 12, "at": "2026-03-02T06:30:00Z"})
    told = table("run", "t", "--once")
    assert "2 rows, 1 late, 1 dead letter" in told
    assert "Stopped after 1 commit with 2 rows; nothing is missing" in told

    with monkeypatch.context() as without_spark:
        without_spark.delattr(running, "open_session")
        said = table("run", "t", "--once")
        assert "2 partitions, 14 offsets in the table, nothing is missing" in said
        assert "Stopped after 0 commits with 0 rows; nothing is missing" in said

    same = table("rebuild", "t", "--json")
    assert (same["same"], same["examples"], same["schema"]) == (13, [], []), same
    assert table("diff", "t", "--json") == same

    compacted = table("compact", "t", "--json")
    assert compacted["files_before"] == len(commits)
    assert compacted["files_after"] == 1, "of the first day; the second has one already"
    report = table("verify", "t", "--json")
    assert report["good"], report
    assert [each["good"] for each in report["partitions"]] == [7, 7], report
    kinds = [each["kind"] for each in table("history", "t", "--json")]
    assert (kinds[0], len(kinds)) == ("compaction", len(commits) + 2)
    spec = load_spec(tmp_path / "t")
    theirs = IcebergBackend(
        spec.directory(), spec.partition_by, catalog=entry_of(spec, None)
    ).load()
    rows = theirs.table.scan(selected_fields=("n", "price")).to_arrow().sort_by("n").to_pylist()
    assert [each["n"] for each in rows] == [*range(11), 12]
    assert rows[10] == {"n": 10, "price": 1.5}


@pytest.mark.skipif(not DELTA_JARS, reason="the jars of Delta's writer are not there")
def test_a_table_of_spark_s_own_writer_end_to_end(
    table: Run, client: ClusterClient, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Two runs with a checkpoint each; every other command works without Delta's jars."""
    topic = new_topic(2)
    table(
        *("create", "t", "--topic", topic, "--writer", "spark", "--partition", "day(at)"),
        *("--event-time", "at", "--watermark", "1 hour", "--column", "n:long"),
    )
    assert load_spec(tmp_path / "t").writer == "spark"
    refused = table("run", "t", "--once", code=2)
    assert "io.delta:delta-spark_4.2_2.13:4.4.0" in refused
    assert "--delta-jars" in refused
    run = ("run", "t", "--once", "--delta-jars", str(DELTA_JARS[0].parent))

    def produce(*values: dict[str, object] | str) -> None:
        with Producer(client) as producer:
            for number, value in enumerate(values):
                raw = value if isinstance(value, str) else json.dumps(value)
                producer.send(topic, raw.encode(), key=b"k", partition=number % 2)
            producer.flush().raise_failure()

    produce(*({"n": each, "at": f"2026-03-01T05:0{each}:00Z"} for each in range(4)))
    assert "4 rows" in table(*run)
    produce({"n": 4, "at": "2026-03-02T06:00:00Z", "price": 1.5}, "poison")
    produce({"n": 5, "at": "2026-03-01T01:00:00Z"}, {"n": "six", "at": "2026-03-01T06:30:00Z"})
    assert "1 row, 1 late, 2 dead letters" in table(*run)
    assert "Stopped after 0 commits" in table(*run)
    log = sorted((tmp_path / "t" / "data" / "_delta_log").glob("*.json"))
    assert ["Delta-Lake/" in each.read_text() for each in log] == [False, True, False, True]

    same = table("rebuild", "t", "--json")
    assert (same["same"], same["examples"], same["schema"]) == (6, [], []), same
    assert [each["rows"] for each in table("history", "t", "--json")] == [1, 4]
    assert table("status", "t", "--json")["lag"]["records"] == 0
    letters = table("dead-letters", "list", "t", "--json")
    assert {each["error_class"] for each in letters} == {"BadValue", "WrongType"}
    assert "small files" in table("compact", "t")
    report = table("verify", "t", "--json")
    assert report["good"], report
    assert [each["good"] for each in report["partitions"]] == [4, 4], report
    table("drop", "t", "--yes")
    assert not (tmp_path / "t").exists()
