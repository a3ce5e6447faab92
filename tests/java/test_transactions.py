"""Transactions of Kafka's own clients and tools: version 2 of the protocol (KIP-890, KIP-664)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.java.processes import Broker, Outcome, ToolServer
from tests.java.tables import CONSOLE_CONSUMER, TOOLS, TOPICS

TRANSACTIONS = TOOLS + "TransactionsCommand"
COPIER = TOOLS + "TransactionalMessageCopier"
PATIENCE_S = 60


class Tools:
    """Kafka's tools on one broker."""

    def __init__(self, server: ToolServer, broker: Broker) -> None:
        self._server = server
        self.address = broker.address

    def run(self, main: str, *arguments: str | Path) -> Outcome:
        return self._server.run(main, *arguments, "--bootstrap-server", self.address)

    def topic(self, name: str, records: int = 0) -> None:
        """A topic with one partition."""
        self.run(TOPICS, "--create", "--topic", name, "--partitions", "1").succeeded()
        if records:
            self._server.run("Spread", self.address, name, "1", str(records)).succeeded()

    def transactions(self, *arguments: str) -> list[dict[str, str]]:
        """What kafka-transactions prints, by its columns."""
        output = self._server.run(
            TRANSACTIONS, "--bootstrap-server", self.address, *arguments
        ).succeeded()
        rows = [line.split("\t") for line in output.splitlines() if "\t" in line]
        heads = [head.strip() for head in rows[0]]
        return [dict(zip(heads, (cell.strip() for cell in row), strict=True)) for row in rows[1:]]

    def values(self, topic: str, count: int) -> list[str]:
        """So many values that are committed."""
        said = self.run(
            CONSOLE_CONSUMER,
            *("--topic", topic, "--from-beginning", "--isolation-level", "read_committed"),
            *("--max-messages", str(count), "--timeout-ms", "60000"),
        ).succeeded()
        return said.split()


@pytest.fixture(scope="module")
def kafka(tools: ToolServer, broker: Broker) -> Tools:
    return Tools(tools, broker)


def test_records_are_copied_once_with_their_offsets(kafka: Tools, tools: ToolServer) -> None:
    """Kafka's own copier aborts at random, and reads again what it aborted."""
    kafka.topic("copied-from", 100)
    kafka.topic("copied-to")
    tools.run(
        COPIER,
        *("--broker-list", kafka.address, "--transactional-id", "copier"),
        *("--input-topic", "copied-from", "--input-partition", "0"),
        *("--output-topic", "copied-to", "--consumer-group", "copier"),
        *("--max-messages", "100", "--transaction-size", "7", "--enable-random-aborts"),
    ).succeeded()
    copied = kafka.values("copied-to", 100)
    assert sorted(copied) == sorted(kafka.values("copied-from", 100))
    [listed] = [row for row in kafka.transactions("list") if row["TransactionalId"] == "copier"]
    assert re.fullmatch("Complete(Commit|Abort)", listed["TransactionState"])
    described = kafka.transactions("describe", "--transactional-id", "copier")[0]
    # Each transaction has an epoch of its own.
    assert int(described["ProducerEpoch"]) >= 15


def test_an_open_transaction_is_listed_described_and_aborted(kafka: Tools) -> None:
    kafka.topic("held-open")
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": "held-open"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("held-open", b"x", partition=0)
    assert producer.flush(PATIENCE_S) == 0

    [listed] = [row for row in kafka.transactions("list") if row["TransactionalId"] == "held-open"]
    assert listed["TransactionState"] == "Ongoing"
    described = kafka.transactions("describe", "--transactional-id", "held-open")[0]
    assert described["TopicPartitions"] == "held-open-0"
    [writer] = kafka.transactions("describe-producers", "--topic", "held-open", "--partition", "0")
    assert writer["ProducerId"] == listed["ProducerId"]
    assert writer["CurrentTransactionStartOffset"] == "0"
    assert kafka.transactions("find-hanging", "--topic", "held-open", "--broker-id", "0") == []
    kafka._server.run(
        TRANSACTIONS,
        *("--bootstrap-server", kafka.address, "abort", "--topic", "held-open"),
        *("--partition", "0", "--start-offset", "0"),
    ).succeeded()
    [writer] = kafka.transactions("describe-producers", "--topic", "held-open", "--partition", "0")
    assert writer["CurrentTransactionStartOffset"] == "None"
