"""The audit as a Spark job and as a command, over directories of brokers that really ran."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from strandline.cli.main import cli
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer, ProducerSettings
from strandline.lakehouse.audit import audit_on_spark
from strandline.records.batch import HEADER_BYTES
from strandline.records.codec import Codec
from strandline.storage.real_files import RealFiles
from strandline.storage.verify.directories import find_log_directories, take_inventory
from strandline.storage.verify.findings import Kind
from strandline.storage.verify.partition import audit_here
from strandline.testing import Cluster

pytestmark = pytest.mark.xdist_group("spark")  # they share the directories, and one the session


def produce(cluster: Cluster, topic: str, count: int, codec: Codec = Codec.NONE) -> None:
    with ClusterClient(cluster.bootstrap_servers) as client:
        settings = ProducerSettings(codec=codec, batch_bytes=8000)
        with Producer(client, settings) as producer:
            for n in range(count):
                producer.send(topic, b"%08d" % n * 128, key=b"%d" % (n % 17))
            producer.flush().raise_failure()


def run_cluster(home: Path) -> None:
    """Three brokers that change leaders, one by kill -9, and end by kill -9."""
    settings = {"replica.high.watermark.checkpoint.interval.ms": 50}
    with Cluster(brokers=3, data_dir=home, settings=settings) as cluster:
        cluster.create_topic("plain", 2, 3, segment_bytes=1_048_576)
        cluster.create_topic("packed", 1, 3)
        produce(cluster, "plain", 2000)
        produce(cluster, "packed", 500, Codec.ZSTD)
        cluster.kill(cluster.leader_of("plain", 0))
        produce(cluster, "plain", 1000)
        cluster.start()
        cluster.wait_until_in_sync()
        produce(cluster, "plain", 1000)
        cluster.wait_until(
            lambda _: all_checkpointed(home, 4500), "high watermarks of all replicas on disk"
        )
        cluster.kill()


def all_checkpointed(home: Path, records: int) -> bool:
    """Whether every replica's checkpointed high watermark is its last offset."""
    files = RealFiles()
    inventory = take_inventory(files, find_log_directories(files, [str(home)]))
    found = [
        replica.high_watermark or 0
        for replicas in inventory.partitions.values()
        for replica in replicas
    ]
    return sum(found) == 3 * records


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("ran")
    run_cluster(home)
    return home


def plant(home: Path) -> Path:
    """Damage the first batch of one replica."""
    path = next(iter(sorted(home.glob("**/plain-1")))) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + 10] ^= 1
    path.write_bytes(data)
    return path


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["audit", *map(str, arguments)])


def test_brokers_that_were_killed_leave_sound_replicas(home: Path) -> None:
    files = RealFiles()
    directories = find_log_directories(files, [str(home)])
    assert len(directories) == 3
    reports = audit_here(take_inventory(files, directories), files)
    assert [each for report in reports for each in report.findings] == []
    # Whatever a producer repeated when a leader died was written once.
    assert sum(report.records for report in reports) == 3 * 4500


def test_the_job_finds_on_spark_what_is_found_without(spark: SparkSession, home: Path) -> None:
    files = RealFiles()
    inventory = take_inventory(files, find_log_directories(files, [str(home)]))
    path = plant(home)
    try:
        reports = audit_on_spark(spark, inventory)
        assert reports == audit_here(inventory, files)
    finally:
        plant(home)
    assert [(report.topic, report.partition) for report in reports] == list(inventory.partitions)
    found = [each for report in reports for each in report.findings]
    assert [(each.kind, each.path) for each in found] == [(Kind.DAMAGED_BATCH, str(path))]


def test_the_command_says_what_it_found_and_ends_with_1(home: Path) -> None:
    given = sorted(home.glob("**/meta.properties"))
    arguments: list[str | Path] = ["--log-dirs", *[each.parent for each in given], "--no-spark"]
    sound = command(*arguments)
    assert sound.exit_code == 0, sound.output
    assert sound.output.splitlines()[0].split()[:3] == ["PARTITION", "BROKERS", "START"]
    assert sound.output.endswith("3 log directories: no findings.\n")
    path = plant(home)
    try:
        wrong = command(*arguments, "--topic", "plain")
        assert wrong.exit_code == 1
        assert "DAMAGED BATCH  plain-1 at 0, broker " in wrong.output
        assert f"    {path}\n" in wrong.output
        document = json.loads(command(*arguments, "--json").output)
        assert [each["kind"] for each in document["findings"]] == ["damaged batch"]
        assert {each["topic"] for each in document["partitions"]} >= {"plain", "packed"}
    finally:
        plant(home)


def test_wrong_directories_and_topics_are_usage_errors(home: Path, tmp_path: Path) -> None:
    cases: tuple[tuple[list[str | Path], str], ...] = (
        (["--log-dirs", tmp_path], "no log directory"),
        (["--log-dirs", home, "--topic", "nowhere"], "No directory has a partition of topic"),
        ([], "Missing option '--log-dirs'"),
    )
    for arguments, says in cases:
        result = command(*arguments)
        assert result.exit_code == 2
        assert says in result.output
