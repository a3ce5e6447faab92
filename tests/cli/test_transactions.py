"""Transactions from the command line: what is open, what hangs, and how that is ended."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from strandline.client.cluster import ClusterClient
from strandline.testing import Cluster
from tests.cli.conftest import Ended, run_here

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


def open_transaction(brokers: Cluster) -> None:
    """Its record is in t-0, and nothing will end it soon."""
    settings = {"bootstrap.servers": brokers.bootstrap_servers, "transactional.id": "id"}
    producer = Producer(settings)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("t", b"open", partition=0)
    producer.flush()


SEARCH = ("transactions", "find-hanging", "--topic", "t", "--older-than", "PT0S")


def test_a_transaction_that_no_coordinator_knows_hangs_until_it_is_aborted(tmp_path: Path) -> None:
    with Cluster(brokers=1, data_dir=tmp_path) as brokers:

        def run(*arguments: str) -> Ended:
            return run_here(arguments, brokers.bootstrap_servers)

        run("topics", "create", "t")
        open_transaction(brokers)
        assert run(*SEARCH) == (0, "No transaction hangs in 1 partition.\n", "")
        brokers.stop(1)
        for log in tmp_path.glob("**/__transaction_state-*"):
            shutil.rmtree(log)
        brokers.start(1)
        brokers.wait_for_leader("t", 0)
        hanging = run(*SEARCH)
        assert (hanging.code, hanging.err) == (3, "")
        (row,) = (line.split() for line in hanging.out.splitlines()[1:])
        assert (row[0], row[-1]) == ("t/0", "0")
        (found,) = run(*SEARCH, "--json").json["hanging"]
        assert (found["partition"], found["transaction_start"]) == ("t-0", 0)
        assert run(*SEARCH[:-1], "PT1H").out == "No transaction hangs in 1 partition.\n"
        read = ("consume", "t", "--partition", "0", "-e", "--committed")
        assert run(*read).out == ""
        abort = ("transactions", "abort", "t/0", "--producer-id", row[1])
        assert "which was open since offset 0" in run(*abort).out
        assert run(*SEARCH) == (0, "No transaction hangs in 1 partition.\n", "")
        assert "has no open transaction" in run(*abort).err


@pytest.mark.parametrize("is_noticed", [True, False])
def test_what_a_coordinator_may_end_that_cannot_be_asked_is_not_said_to_hang(
    monkeypatch: pytest.MonkeyPatch, *, is_noticed: bool
) -> None:
    """To abort it would break a transaction that its coordinator, when it is back, commits."""
    monkeypatch.setattr("strandline.cli.transactions.DESCRIBING_MS", 2000)
    alone = {
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.min.isr": 1,
    }
    session_ms = 1000 if is_noticed else 600_000
    with Cluster(brokers=2, session_timeout_ms=session_ms, settings=alone) as brokers:
        first = {"bootstrap.servers": brokers.bootstrap_servers, "transactional.id": "first"}
        Producer(first).init_transactions()
        coordinator = brokers.wait_for_leader("__transaction_state", 0)
        (other,) = {1, 2} - {coordinator}
        brokers.create_topic("t", assignment={0: (other,)})
        open_transaction(brokers)
        brokers.kill(coordinator)
        address = brokers.brokers[other - 1].address
        with ClusterClient(address) as client:
            while is_noticed and coordinator in client.refresh().brokers:
                pass
        said = run_here(SEARCH, address)
        assert (said.code, said.out) == (1, "")
        assert "Whether 1 open transaction will be ended is not known:" in said.err
        found = run_here((*SEARCH, "--json"), address)
        assert (found.code, found.json["hanging"], found.json["not_looked_at"]) == (1, [], [])
        (undecided,) = found.json["undecided"]
        assert (undecided["partition"], undecided["transaction_start"]) == ("t-0", 0)
        assert found.json["doubts"]
