"""A log directory goes from a real Kafka to Strandline and back, and says the same everywhere.

What "the same" is, is what clients see: every record with offset, timestamp, leader epoch, key,
value and headers, under both isolation levels; what offsets are found by time; committed offsets;
what was set for each topic.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.java.kafka_broker import CLUSTER_ID, NODE_ID, Kafka
from tests.java.processes import ToolServer, Workshop

# Kafka 4 accepts no smaller segments.
TOPICS = ("segment.bytes=1048576", "index.interval.bytes=200")
# The records carry timestamps of 2023: what keeps them is the topics' own retention.ms=-1, which
# Kafka has in its metadata log.
ISOLATIONS = ("read_committed", "read_uncommitted")
SETTINGS = (f"node.id={NODE_ID}", "offsets.topic.num.partitions=4")
BUSY_RETENTION = ("log.initial.task.delay.ms=1", "log.retention.check.interval.ms=1000")
# Kafka finds nothing by time in a log whose first segment compaction has emptied: the segment's
# file time stands in for the missing timestamps and hides the segments behind it.
BY_TIME = ("offsets at the base", "offsets in the middle", "offsets just after it")

Contents = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Written:
    """Directories that a real Kafka wrote, and what it served from them."""

    kafka: Kafka
    contents: Contents
    clean: Path
    killed: Path


@pytest.fixture(scope="module")
def written(workshop: Workshop, tools: ToolServer) -> Written:
    """Several segments, codecs, epochs, transactions, a compacted topic; also after kill -9."""
    kafka = Kafka(workshop, tools, workshop.directory / "kafka")
    kafka.start()
    parts = ("plain", "transactions", "await-compaction", "settings")
    tools.run("Workload", kafka.address, *TOPICS, *parts).succeeded()
    kafka.stop()
    # From here on the cleaner rests, so that what was served stays comparable.
    kafka.start("log.cleaner.enable=false")
    tools.run("Workload", kafka.address, "more").succeeded()
    contents = contents_of(tools, kafka.address)
    kafka.kill()
    killed = workshop.directory / "killed"
    shutil.copytree(kafka.data, killed)
    kafka.start("log.cleaner.enable=false")
    assert contents_of(tools, kafka.address) == contents
    kafka.stop()
    return Written(kafka, contents, kafka.data, killed)


def contents_of(tools: ToolServer, address: str, *topics: str) -> Contents:
    found: Contents = json.loads(tools.run("Contents", address, *topics).succeeded())
    return found


def without_lookups_in_compacted(contents: Contents) -> Contents:
    copy: Contents = json.loads(json.dumps(contents))
    for key in BY_TIME:
        del copy[key]["compacted-0"]
    return copy


def test_what_kafka_wrote_is_worth_comparing(written: Written) -> None:
    records = written.contents["read_uncommitted"]
    assert len(records["segments-0"]) == 750
    assert 0 < len(records["compacted-0"]) < 1500
    assert len(written.contents["read_committed"]["transactions-0"]) == 30
    assert len(records["transactions-0"]) == 60
    assert len(written.contents["groups"]) == 5
    assert written.contents["offsets earliest"]["trimmed-0"] == [123, -1]
    epochs = {line.split(" ")[3] for line in records["codec-zstd-1"]}
    assert len(epochs) == 2, "Kafka's restart was to begin a new leader epoch"
    assert len(list((written.clean / "segments-0").glob("*.log"))) > 1


@pytest.mark.parametrize("ending", ["clean", "killed"])
def test_strandline_serves_what_kafka_wrote(
    ending: str, written: Written, workshop: Workshop, tools: ToolServer
) -> None:
    data = workshop.directory / f"from-{ending}"
    shutil.copytree(getattr(written, ending), data)

    broker = workshop.broker(data, *SETTINGS)
    assert broker.report["cluster_id"] == CLUSTER_ID
    assert broker.report["was_clean"] is (ending == "clean")
    found = contents_of(tools, broker.address)
    assert without_lookups_in_compacted(found) == without_lookups_in_compacted(written.contents)
    assert broker.stop()

    again = workshop.broker(data, *SETTINGS)
    assert again.report["was_clean"] is True
    assert contents_of(tools, again.address) == found
    assert again.stop()


@pytest.mark.parametrize("ending", ["clean", "killed"])
def test_topics_keep_their_settings_and_so_their_records(
    ending: str, written: Written, workshop: Workshop, tools: ToolServer
) -> None:
    data = workshop.directory / f"settings-from-{ending}"
    shutil.copytree(getattr(written, ending), data)
    settings = written.contents["settings"]
    assert "compact" in settings["compacted"]["cleanup.policy"]
    assert "value=1000," in settings["again"]["flush.messages"]
    assert all("retention.ms" in each for each in settings.values())

    broker = workshop.broker(data, *SETTINGS, *BUSY_RETENTION)
    assert not [line for line in broker.report["notices"] if "kept elsewhere" in line]
    tools.run("Workload", broker.address, "await-retention").succeeded()
    found = contents_of(tools, broker.address)
    assert without_lookups_in_compacted(found) == without_lookups_in_compacted(written.contents)
    assert broker.stop()


def test_without_a_readable_metadata_log_all_records_are_kept(
    written: Written, workshop: Workshop, tools: ToolServer
) -> None:
    data = workshop.directory / "unreadable"
    shutil.copytree(written.clean, data)
    for segment in (data / "__cluster_metadata-0").glob("*.log"):
        damaged = bytearray(segment.read_bytes())
        damaged[80] ^= 1  # in the first batch: how much follows depends on how long Kafka ran
        segment.write_bytes(damaged)

    broker = workshop.broker(data, *SETTINGS, *BUSY_RETENTION)
    [line] = [line for line in broker.report["notices"] if "kept elsewhere" in line]
    assert "trimmed" in line
    assert "__consumer_offsets" not in line
    tools.run("Workload", broker.address, "await-retention").succeeded()
    found = without_lookups_in_compacted(contents_of(tools, broker.address))
    expected = without_lookups_in_compacted(written.contents)
    for name, ours in found.pop("settings").items():
        assert ours.keys() == {"retention.bytes", "retention.ms"}, name
    del expected["settings"]
    assert found == expected
    assert broker.stop()


@pytest.mark.parametrize("ending", ["clean", "killed"])
def test_kafka_opens_its_directory_again_after_strandline_wrote_to_it(
    ending: str, written: Written, workshop: Workshop, tools: ToolServer
) -> None:
    data = workshop.directory / f"back-from-{ending}"
    shutil.copytree(written.clean, data)
    broker = workshop.broker(data, *SETTINGS)
    tools.run("Workload", broker.address, "more").succeeded()
    contents = contents_of(tools, broker.address)
    assert len(contents["read_committed"]["codec-lz4-0"]) == 200
    if ending == "clean":
        assert broker.stop()
    else:
        broker.kill()

    kept = data / "truncated-1-1700000000000-0.ledger"
    kept.write_bytes(b'{"version":1}\n')
    written.kafka.move_to(data)
    written.kafka.start("log.cleaner.enable=false")
    found = contents_of(tools, written.kafka.address)
    written.kafka.stop()
    assert kept.exists(), "Kafka leaves the entries of our ledger alone"
    assert without_lookups_in_compacted(found) == without_lookups_in_compacted(contents)


def test_kafka_serves_topics_that_strandline_made(
    written: Written, workshop: Workshop, tools: ToolServer
) -> None:
    """Kafka takes a log in if its metadata knows the topic's name and the id beside the log."""
    broker = workshop.broker(None, "offsets.topic.num.partitions=4")
    tools.run("Workload", broker.address, *TOPICS, "plain", "more").succeeded()
    contents = contents_of(tools, broker.address)
    assert broker.stop()

    kafka = Kafka(workshop, tools, workshop.directory / "receiver")
    kafka.start("log.cleaner.enable=false")
    tools.run("Workload", kafka.address, *TOPICS, "topics").succeeded()
    kafka.stop()
    for theirs in kafka.data.glob("*-[0-9]*"):
        ours = broker.data / theirs.name
        if ours.exists():
            topic_id = (theirs / "partition.metadata").read_bytes()
            shutil.rmtree(theirs)
            shutil.copytree(ours, theirs)
            (theirs / "partition.metadata").write_bytes(topic_id)
    for checkpoint in broker.data.glob("*-checkpoint"):
        shutil.copy(checkpoint, kafka.data)

    kafka.start("log.cleaner.enable=false")
    found = contents_of(tools, kafka.address)
    kafka.stop()
    del found["topic ids"], contents["topic ids"]
    assert found == contents


def test_no_producer_is_taken_for_one_that_wrote_to_kafka(
    written: Written, workshop: Workshop, tools: ToolServer
) -> None:
    """A producer id that is given out twice belongs to a producer whose batches are known: others
    that look like them are duplicates, which are answered and not written."""
    data = workshop.directory / "producers"
    shutil.copytree(written.clean, data)
    broker = workshop.broker(data, *SETTINGS)
    before = contents_of(tools, broker.address)["read_uncommitted"]
    topics = ("segments", "transactions")
    refused: list[object] = []
    for number in range(12):
        producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
        for topic in topics:
            producer.produce(
                topic,
                b"%d" % number,
                partition=0,
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )
        assert producer.flush(60) == 0
    assert refused == []
    after = contents_of(tools, broker.address)["read_uncommitted"]
    for topic in topics:
        assert len(after[f"{topic}-0"]) == len(before[f"{topic}-0"]) + 12
    assert broker.stop()


def test_transactions_go_on_in_strandline_and_back_in_kafka(
    written: Written, workshop: Workshop, tools: ToolServer
) -> None:
    """One transactional id keeps its producer, each broker raises the epoch, what one has
    committed or aborted is so for the other, and what it has left open ends there."""
    data = workshop.directory / "transactions-back"
    shutil.copytree(written.clean, data)
    broker = workshop.broker(data, *SETTINGS, "transaction.state.log.num.partitions=2")
    ours = identity(tools, broker.address)
    commit_and_abort(broker.address, b"strandline")
    left = left_open(broker.address, b"open in strandline")
    served = contents_of(tools, broker.address)
    assert identity(tools, broker.address) > ours
    ours = identity(tools, broker.address)
    assert broker.stop()

    written.kafka.move_to(data)
    written.kafka.start("log.cleaner.enable=false")
    found = contents_of(tools, written.kafka.address)
    for isolation in ISOLATIONS:
        assert found[isolation]["transactions-0"] == served[isolation]["transactions-0"]
    assert identity(tools, written.kafka.address) == ours
    commit_and_abort(written.kafka.address, b"kafka")
    assert identity(tools, written.kafka.address) > ours
    del left
    before = found["read_committed"]["transactions-0"]
    assert committed_by(tools, written.kafka.address) == before, "an open one is in front"
    left_open(written.kafka.address, b"open in kafka")
    by_kafka = committed_by(tools, written.kafka.address)
    assert len(by_kafka) == len(before) + 1
    written.kafka.stop()

    broker = workshop.broker(data, *SETTINGS, "transaction.state.log.num.partitions=2")
    commit_and_abort(broker.address, b"strandline again")
    assert committed_by(tools, broker.address) == by_kafka
    left_open(broker.address, b"ends what Kafka left")
    assert len(committed_by(tools, broker.address)) == len(by_kafka) + 1
    assert broker.stop()


def committed_by(tools: ToolServer, address: str) -> list[str]:
    """What readers of committed records get."""
    found: list[str] = contents_of(tools, address)["read_committed"]["transactions-0"]
    return found


def left_open(address: str, value: bytes) -> Producer:
    """End what another producer of the id has left open, and leave a transaction open."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": "leaves it open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("transactions", value, partition=0)
    assert producer.flush(60) == 0
    return producer


def identity(tools: ToolServer, address: str) -> tuple[int, int]:
    """(producer id, epoch) of the workload's transactional id, once its last transaction is over:
    EndTxn is answered as soon as the coordinator has decided, the markers follow."""
    deadline = time.monotonic() + 60
    while not (row := described(tools, address))["TransactionState"].startswith("Complete"):
        assert time.monotonic() < deadline, row
    return int(row["ProducerId"]), int(row["ProducerEpoch"])


def described(tools: ToolServer, address: str) -> dict[str, str]:
    """The row of the transactional id that the workload used."""
    said = tools.run(
        "org.apache.kafka.tools.TransactionsCommand",
        *("--bootstrap-server", address, "describe", "--transactional-id", "writer"),
    ).succeeded()
    heads, values = (line.split("\t") for line in said.splitlines() if "\t" in line)
    return dict(zip((head.strip() for head in heads), values, strict=True))


def commit_and_abort(address: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": "writer"})
    producer.init_transactions(60)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce("transactions", value, partition=0)
        assert producer.flush(60) == 0
        end(60)
