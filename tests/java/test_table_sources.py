"""What tables read of a real Kafka is what Kafka's own consumer reads; the audit finds it sound.

Transactions come from Java's producer (committed and aborted) and librdkafka's (left open). The
cleaner is at work, codecs are all there are, and the directory is audited after kill -9, too.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from strandline.client.fetching import Isolation
from strandline.lakehouse.reading.catalogue import Catalogue
from strandline.lakehouse.reading.ranges import OffsetRange, RangeReader
from strandline.lakehouse.reading.settings import ReadSettings
from strandline.storage.real_files import RealFiles
from strandline.storage.verify.directories import find_log_directories, take_inventory
from strandline.storage.verify.partition import audit_here
from strandline.types import TopicPartition
from tests.java.kafka_broker import Kafka
from tests.java.processes import ToolServer, Workshop

TOPICS = ("segment.bytes=1048576", "index.interval.bytes=200")
OPEN = TopicPartition("transactions", 0)
"""Where a transaction is left open."""


@pytest.fixture(scope="module")
def kafka(workshop: Workshop, tools: ToolServer) -> Kafka:
    kafka = Kafka(workshop, tools, workshop.directory / "kafka")
    kafka.start()
    parts = ("plain", "transactions", "await-compaction")
    tools.run("Workload", kafka.address, *TOPICS, *parts).succeeded()
    return kafka


def read(address: str, isolation: Isolation) -> dict[str, list[tuple[Any, Any]]]:
    """Offset and value size of everything up to the end that the catalogue gives."""
    settings = ReadSettings(
        bootstrap=address, isolation=isolation, fetch_bytes=100_000, batch_bytes=100_000
    )
    found: dict[str, list[tuple[Any, Any]]] = {}
    with Catalogue(settings) as catalogue, RangeReader(settings) as reader:
        topics = catalogue.matching(".*")
        partitions = [at for facts in topics.values() for at in facts.topic_partitions]
        starts, ends = catalogue.earliest(partitions), catalogue.latest(partitions)
        for at in partitions:
            planned = OffsetRange(
                topic=at.topic,
                partition=at.partition,
                start=starts[at],
                end=ends[at].offset,
                topic_id=topics[at.topic].topic_id,
                leader_epoch=ends[at].leader_epoch,
            )
            rows = found[str(at)] = []
            for batch in reader.read(planned):
                rows += zip(
                    batch.column("offset").to_pylist(),
                    batch.column("timestamp").cast("int64").to_pylist(),
                    strict=True,
                )
    return found


def test_the_same_records_under_both_isolation_levels(kafka: Kafka, tools: ToolServer) -> None:
    contents = json.loads(tools.run("Contents", kafka.address).succeeded())
    for isolation in Isolation:
        theirs = {
            at: [(int(fields[0]), int(fields[2]) * 1000) for fields in map(str.split, lines)]
            for at, lines in contents[isolation.name.lower()].items()
        }
        ours = read(kafka.address, isolation)
        assert ours.keys() >= theirs.keys()
        for at, records in theirs.items():
            assert ours[at] == records, at
    assert len(ours["transactions-0"]) == 30


def test_an_open_transaction_ends_what_a_committed_reader_plans(kafka: Kafka) -> None:
    committed = ReadSettings(bootstrap=kafka.address, isolation=Isolation.READ_COMMITTED)
    everything = ReadSettings(bootstrap=kafka.address)
    with Catalogue(committed) as catalogue:
        before = catalogue.latest([OPEN])[OPEN].offset
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": "left-open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for n in range(5):
        producer.produce(OPEN.topic, b"open %d" % n, partition=OPEN.partition)
    assert producer.flush(60) == 0
    with Catalogue(committed) as catalogue, Catalogue(everything) as all_of_it:
        assert catalogue.latest([OPEN])[OPEN].offset == before
        assert all_of_it.latest([OPEN])[OPEN].offset == before + 5
    producer.abort_transaction(60)


@pytest.mark.parametrize("ending", ["killed", "stopped"])
def test_the_audit_finds_nothing_in_what_kafka_wrote(
    kafka: Kafka, workshop: Workshop, ending: str
) -> None:
    if ending == "killed":
        kafka.kill()
        data = workshop.directory / "killed"
        shutil.copytree(kafka.data, data)
        kafka.start()
    else:
        kafka.stop()
        data = Path(kafka.data)
    files = RealFiles()
    inventory = take_inventory(files, find_log_directories(files, [str(data)]))
    reports = audit_here(inventory, files)
    assert [each for report in reports for each in report.findings] == []
    if ending == "stopped":
        assert sum(report.records for report in reports if report.topic == "segments") == 1500
