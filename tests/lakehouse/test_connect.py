"""Spark Connect: another process, without a JVM, proves a table, reads it by name, and writes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import strandline
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.errors import InvalidSetting
from strandline.lakehouse.session_master import NoSpark, check_master
from strandline.lakehouse.session_remote import open_remote
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.spec import save_spec
from strandline.testing import Cluster
from tests.lakehouse.tables.table_world import TableWorld

PATIENCE_S = 120.0
READING = """
import sys
from strandline.lakehouse.session_remote import open_remote
spark = open_remote(sys.argv[1], {})
rows = spark.read.format("strandline_table").option("tables", sys.argv[2]).load("flights")
print(sorted(row.n for row in rows.where("n > 0").collect()))
"""

WRITING = """
import sys
from strandline.lakehouse.session_remote import open_remote
spark = open_remote(sys.argv[1], {})
written, streamed = sys.argv[2] + "/written", sys.argv[2] + "/streamed"
spark.range(3).write.format("strandline_table").mode("append").save(written)
rows = spark.readStream.schema("id long").parquet(written + "/data")
query = rows.writeStream.format("strandline_table").option("checkpointLocation", streamed + "-ck")
query.trigger(availableNow=True).start(streamed).awaitTermination()
print(sorted(row.id for row in spark.read.format("strandline_table").load(streamed).collect()))
"""


@pytest.mark.skipif(find_spec("grpc") is None, reason="grpcio is not installed")
def test_a_process_without_a_jvm_proves_and_reads(
    spark: SparkSession,
    cluster: Cluster,
    client: ClusterClient,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = new_topic()
    with Producer(client) as producer:
        for number in range(3):
            producer.send(topic, b'{"n": %d}' % number)
        producer.flush().raise_failure()
    world = TableWorld(tmp_path / "flights", topics=(topic,))
    save_spec(world.spec)
    written = world.task([{"n": number} for number in range(3)], topic=topic)
    world.store.commit(BatchIdentity("q", 0, (OffsetRange(topic, 0, 0, 3),)), [written])
    service = getattr(spark._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    port = getattr(service, "MODULE$").localPort()
    server = f"sc://127.0.0.1:{port}"

    def run(*words: str) -> str:
        ended = subprocess.run(
            [sys.executable, *words],
            env={**os.environ, "JAVA_HOME": str(tmp_path), "PATH": ""},  # there is no Java
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    address = ("--bootstrap", cluster.bootstrap_servers, "--tables", str(tmp_path))
    command = ("-m", "strandline.cli", "table", "verify", "flights", "--remote", server, *address)
    assert "Proven: every record" in run(*command)
    assert run("-c", READING, server, str(tmp_path)) == "[1, 2]\n"
    assert run("-c", WRITING, server, str(tmp_path)) == "[0, 1, 2]\n"
    place = str(tmp_path / "streamed-ck")
    assert strandline.open_table(str(tmp_path / "streamed")).verify(checkpoint=place).is_good


@pytest.mark.skipif(find_spec("grpc") is None, reason="grpcio is not installed")
def test_a_server_that_is_not_there_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NoSpark, match=f"Nothing answers at the Connect server .*:{port}: "):
        open_remote(f"sc://127.0.0.1:{port}", {})


def test_a_connect_server_is_no_master() -> None:
    with pytest.raises(InvalidSetting, match=r"Spark Connect, which cannot do this: a batch is"):
        check_master("sc://localhost:15002")
