"""Transactions from the command line: what is open, what hangs, and how that is ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from strandline.client.admin_transactions import TransactionAdmin
from strandline.client.cluster import ClusterClient
from strandline.types import TopicPartition

Run = Callable[..., Any]


@pytest.fixture
def producer(address: str, spawn: Run, name: str) -> Producer:
    """Transaction 1 of the id that is called like the topic is committed, 2 is open."""
    spawn("topics", "create", name, "--partitions", "2")
    producer = Producer({"bootstrap.servers": address, "transactional.id": name})
    producer.init_transactions()
    for value in (b"first", b"second"):
        producer.begin_transaction()
        producer.produce(name, value, partition=0)
        producer.flush()
        if value == b"first":
            producer.commit_transaction()
    return producer


def test_an_open_transaction_is_listed_and_described(
    strandline: Run, producer: Producer, name: str
) -> None:
    (listed,) = strandline("transactions", "list", "--id-pattern", name, "--json").json
    assert (listed["transactional_id"], listed["state"]) == (name, "Ongoing")
    assert listed["partitions"] == [f"{name}-0"]
    assert listed["started_ms"] > 0
    said = strandline("transactions", "describe", name).out
    assert f"Transactional id {name}  state Ongoing" in said
    assert "Open for " in said
    assert said.endswith(f"  {name}-0\n")
    producer.abort_transaction()
    said = strandline("transactions", "list", "--id-pattern", name).out
    assert said.splitlines()[1].split()[1] == "CompleteAbort"
    assert "Open for" not in strandline("transactions", "describe", name).out


def test_the_status_says_who_waits_for_what(strandline: Run, producer: Producer, name: str) -> None:
    said = strandline("status").out.splitlines()
    [row] = [line.split() for line in said if line.startswith(f"{name} ")]
    assert row[1] == "Ongoing"
    assert row[-1] == f"{name}/0"
    [waits] = [line.split() for line in said if line.startswith(f"{name}/0 ")]
    assert waits == [f"{name}/0", "2", "3", "transaction", name]
    [document] = strandline("status", "--json").json.values()
    [told] = [each for each in document["transactions"] if each["transactional_id"] == name]
    assert (told["state"], told["partitions"]) == ("Ongoing", [f"{name}/0"])
    producer.commit_transaction()
    assert f"transaction {name}" not in strandline("status").out


def test_filters_of_the_list(strandline: Run, producer: Producer, name: str) -> None:
    del producer
    arguments = ("transactions", "list", "--id-pattern", name)
    assert strandline(*arguments, "--state", "Ongoing").out != ""
    assert strandline(*arguments, "--state", "Empty", "--state", "Dead").out == ""
    assert strandline(*arguments, "--older-than", "PT1H").out == ""
    assert strandline(*arguments, "--state", "Bogus") == (
        *(1, "", "The brokers know no state Bogus. [INVALID_REQUEST]"),
    )
    assert strandline("transactions", "describe", "nothing").code == 1


def test_a_pattern_of_ids_is_matched_by_the_command(
    strandline: Run, producer: Producer, name: str
) -> None:
    """RE2, which brokers may be without, knows no look-ahead."""
    del producer
    arguments = ("transactions", "list", "--id-pattern")
    (listed,) = strandline(*arguments, f"(?!x).*{name[1:]}", "--json").json
    assert listed["transactional_id"] == name
    assert strandline(*arguments, name[:-1]).out == "", "the whole id must match"
    refused = strandline(*arguments, "(")
    assert refused.code == 2
    assert "--id-pattern is no regular expression" in refused.err


def test_producers_of_a_partition(strandline: Run, producer: Producer, name: str) -> None:
    (open_there,) = strandline("transactions", "producers", f"{name}/0", "--json").json
    assert open_there["transaction_start"] == 2, "behind a record and its marker"
    assert strandline("transactions", "producers", f"{name}/1").out == ""
    producer.commit_transaction()
    (ended,) = strandline("transactions", "producers", f"{name}/0", "--json").json
    assert ended["transaction_start"] is None
    assert strandline("transactions", "producers", name).code == 2


def test_what_a_coordinator_will_end_does_not_hang(
    strandline: Run, producer: Producer, name: str
) -> None:
    del producer
    said = strandline("transactions", "find-hanging", "--topic", name, "--older-than", "PT0S")
    assert said.out == "No transaction hangs in 2 partitions.\n"


def test_a_transaction_that_no_coordinator_knows_hangs_until_it_is_aborted(
    address: str, strandline: Run, producer: Producer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator is not asked here, as if it had forgotten."""
    del producer
    with ClusterClient(address) as client:
        admin = TransactionAdmin(client)
        monkeypatch.setattr(admin, "list_all", lambda **_: [])
        (hanging,) = admin.hanging([TopicPartition(name, 0), TopicPartition(name, 1)], 0)
        assert hanging.partition == TopicPartition(name, 0)
        assert hanging.transaction_start == 2
        assert admin.hanging([TopicPartition(name, 0)], 3_600_000) == []
    read = ("consume", name, "--partition", "0", "-e", "--committed")
    assert strandline(*read).out == "first\n"
    abort = ("transactions", "abort", f"{name}/0", "--producer-id", str(hanging.producer_id))
    assert "which was open since offset 2" in strandline(*abort).out
    (ended,) = strandline("transactions", "producers", f"{name}/0", "--json").json
    assert ended["transaction_start"] is None
    assert "has no open transaction" in strandline(*abort).err
