"""Spark Connect: another process, without a JVM, fills tables, proves one, reads and writes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import strandline
from strandline.cli.main import cli
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.errors import InvalidSetting
from strandline.lakehouse.session_master import NoSpark, check_master
from strandline.lakehouse.session_remote import open_remote
from strandline.lakehouse.tables.spec import save_spec
from strandline.testing import Cluster
from tests.lakehouse.tables.table_world import TableWorld

PATIENCE_S = 300.0
PROVEN = (
    "Proven: every record of the log below the frontier is in the table, or in a table beside it, "
    "exactly once."
)
IN_A_CLIENT = """
import sys, threading
from pathlib import Path
import strandline
from click.testing import CliRunner
from pyspark.sql import functions as f
from pyspark.sql.connect.session import SparkSession
from strandline.cli.main import cli
from strandline.lakehouse.pipeline import batches, tasks
from strandline.lakehouse.session_remote import open_remote
server, bootstrap, tables, topic = sys.argv[1:]
tasks.ROWS_PER_TASK = 2  # several tasks a batch
spark = strandline.SparkOptions(master=server)
told = []
def show(*what):
    print(*what)
def command(*words):
    address = ("--remote", server, "--bootstrap", bootstrap, "--tables", tables)
    ended = CliRunner().invoke(cli, ["table", *words, *address])
    show(ended.exit_code, ended.output.splitlines()[-1])

# A commit for each two offsets. The answer to the first job is lost, though its files are written,
# and the server ends the session after the first commit.
write = batches.write_ranges
def losing(*about):
    batches.write_ranges = write
    write(*about)
    raise ConnectionError("The answer is lost.")
batches.write_ranges = losing
plain = strandline.open_table("plain", tables)
def lose(event):
    told.append(event)
    if isinstance(event, strandline.Committed) and event.sequence == 1:
        SparkSession.getActiveSession().client.release_session()
run = plain.run(bootstrap, rows_per_commit=2, spark=spark, on_event=lose)
show(run.commits, run.rows, run.dead_letters)
for words in ("The answer is lost.", "Its session had ended; there is a new one."):
    show(any(words in str(each) for each in told))
command("verify", "plain")
command("doctor", "plain")
command("doctor", "lacking")

# Two tables of a file, each in a session of its own; what cannot be done so is said.
file = Path(tables, "tables.yaml")
def up(settings, *words):
    file.write_text("\\n".join([f"location: {tables}", f"defaults: {{topic: {topic}}}", settings]))
    return CliRunner().invoke(cli, ["--bootstrap", bootstrap, "tables", "up", str(file), *words])
show(up("tables: {one: {}, two: {mode: upsert}}", "--once", "--remote", server).exit_code)
for name in ("one", "two"):
    show(sorted(row["n"] for row in strandline.open_table(name, tables).to_arrow().to_pylist()))
ended = up(f"spark: {{remote: '{server}'}}\\ntables: {{one: {{engine: kafka}}}}")
show(ended.exit_code, ended.output.splitlines()[-1])

# Until it is stopped; a row for each key, through a function, which drops others.
keyed = strandline.open_table("keyed", tables)
stop = threading.Event()
def enrich(batch):
    spark = batch.sparkSession
    names = spark.createDataFrame([(0, "even"), (1, "odd")], "half long, name string")
    return batch.where("n < 4").withColumn("half", f.expr("n % 2")).join(names, "half")
def stopping(event):
    if isinstance(event, strandline.Committed):
        stop.set()
options = dict(once=False, interval_ms=100, stop=stop, on_event=stopping)
run = keyed.run(bootstrap, spark=spark, transform=enrich, **options)
show(run.commits, sorted((row["n"], row["name"]) for row in keyed.to_arrow().to_pylist()))

select = "select n * 2 as twice, {place} from batch where n > 0"
command("run", "chosen", "--once", "--select", select)
command("rebuild", "chosen")

# The formats.
spark = open_remote(server, {})
rows = spark.read.format("strandline_table").option("tables", tables).load("plain")
show(sorted(row.n for row in rows.where("n > 0").collect()))
written, streamed = tables + "/written", tables + "/streamed"
strandline.TableSink({"path": written, "keys": "id"}).save(spark.range(3))
rows = spark.readStream.schema("id long").parquet(written + "/data")
query = rows.writeStream.format("strandline_table").option("checkpointLocation", streamed + "-ck")
query.trigger(availableNow=True).start(streamed).awaitTermination()
show(sorted(row.id for row in spark.read.format("strandline_table").load(streamed).collect()))
"""


@pytest.mark.skipif(find_spec("grpc") is None, reason="grpcio is not installed")
def test_a_process_without_a_jvm_fills_proves_and_reads(
    spark: SparkSession,
    cluster: Cluster,
    client: ClusterClient,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = new_topic()
    with Producer(client) as producer:
        for number in range(3):
            producer.send(topic, b'{"n": %d}' % number, key=b"%d" % (number % 1))
        producer.flush().raise_failure()
    assert spark._jvm is not None
    service = getattr(spark._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    port = getattr(service, "MODULE$").localPort()
    server = f"sc://127.0.0.1:{port}"

    for name, fields in (
        ("plain", {}),
        ("keyed", {"mode": "upsert"}),
        ("chosen", {}),
        ("lacking", {"topics": ("not-there",)}),
    ):
        made = {"name": name, "topics": (topic,), **fields}
        save_spec(TableWorld.spec_in(tmp_path / name, **made))
    ended = subprocess.run(
        [
            *(sys.executable, "-c", IN_A_CLIENT, server),
            *(cluster.bootstrap_servers, str(tmp_path), topic),
        ],
        env={**os.environ, "JAVA_HOME": str(tmp_path), "PATH": ""},  # there is no Java
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    told = ended.stdout.splitlines()
    examined, lacking, refused = told.pop(4), told.pop(4), told.pop(7)
    assert examined.startswith("0 good  executor  on host ")
    assert examined.endswith(", store and topics reached")
    assert lacking.startswith("1 WRONG topics")
    assert "table 'one': The engine 'kafka' reads in a stream of Spark's" in refused
    assert told == [
        "2 3 0",
        "True",
        "True",
        f"0 {PROVEN}",
        "0",
        "[0, 1, 2]",
        "[2]",
        "1 [(2, 'even')]",
        "0 Stopped after 1 commit with 2 rows; nothing is missing",
        "0 2 rows are the same.",
        "[1, 2]",
        "[0, 1, 2]",
    ]
    place = str(tmp_path / "streamed-ck")
    assert strandline.open_table(str(tmp_path / "streamed")).verify(checkpoint=place).is_good


@pytest.mark.skipif(find_spec("grpc") is None, reason="grpcio is not installed")
def test_a_server_that_is_not_there_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NoSpark, match=f"Nothing answers at the Connect server .*:{port}: "):
        open_remote(f"sc://127.0.0.1:{port}", {})


def test_a_connect_server_is_no_master() -> None:
    with pytest.raises(InvalidSetting, match=r"Spark Connect, and no master: table run"):
        check_master("sc://localhost:15002")


@pytest.mark.skipif(find_spec("grpc") is None, reason="grpcio is not installed")
@pytest.mark.parametrize("mark", ["/;", ";"])
def test_no_sentence_has_the_token_of_a_servers_url(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # PySpark would leave it behind
    with socket.create_server(("127.0.0.1", 0)) as there:
        address = f"sc://127.0.0.1:{there.getsockname()[1]}"
        # Spark quotes what it does not take for NAME=VALUE.
        with pytest.raises(NoSpark, match=f"server {address}/? does not give") as raised:
            open_remote(f"{address}{mark}user_id=me;token=S3cret==", {})
    assert "S3cret" not in str(raised.value)
    with pytest.raises(NoSpark, match=f"server {address}/?: ") as raised:
        open_remote(f"{address}{mark}token=S3cret", {})
    assert "S3cret" not in str(raised.value)
    for master in (address, address.upper()):
        with pytest.raises(InvalidSetting, match="master") as refused:
            check_master(f"{master}{mark}token=S3cret")
        assert "S3cret" not in str(refused.value)
    ended = CliRunner().invoke(
        cli, ["table", "run", "t", "--remote", f"http://host{mark}token=S3cret"]
    )
    assert ended.exit_code == 2
    assert "http://host" in ended.output
    assert "S3cret" not in ended.output
