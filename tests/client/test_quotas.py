"""Quotas from the command line, and a real client that is held to one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer

import strandline
from strandline.cli.main import cli

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[strandline.Cluster]:
    with strandline.Cluster(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: strandline.Cluster) -> Run:
    def quotas(*arguments: str, code: int = 0) -> str:
        where = ["--bootstrap", cluster.bootstrap_servers]
        ended = CliRunner().invoke(cli, [*where, "quotas", *arguments])
        assert (2 if ended.exit_code == 2 else int(ended.exception is not None)) == code, ended
        return ended.output if code != 1 else str(ended.exception)

    return quotas


def test_the_commands_of_the_page(run: Run) -> None:
    assert run("list") == "There are no quotas.\n"
    page = (Path(__file__).parents[2] / "docs" / "quotas.md").read_text("utf-8")
    commands = re.findall(r"^    strandline quotas (.*)$", page, re.MULTILINE)
    said = [run(*command.split()) for command in commands]
    assert said[0] == "Set 2 limits of user alice.\n"
    assert [line.split() for line in said[4].splitlines()][1:] == [
        ["client-id", "<default>", "producer_byte_rate", "10485760"],
        ["ip", "127.0.0.9", "connection_creation_rate", "20"],
        ["user", "alice", "consumer_byte_rate", "2097152"],
        ["user", "alice", "producer_byte_rate", "1048576"],
        ["user", "alice,", "client-id", "report", "consumer_byte_rate", "65536"],
    ]
    assert said[5] == "Removed 1 limit of user alice.\n"
    left = {"entity": {"user": "alice"}, "limits": {"producer_byte_rate": 1048576.0}}
    assert left in json.loads(run("list", "--json"))
    run("remove", "--user", "alice", "producer_byte_rate")
    run("remove", "--client-id-default", "producer_byte_rate")
    run("remove", "--user", "alice", "--client-id", "report", "consumer_byte_rate")
    run("remove", "--ip", "127.0.0.9", "connection_creation_rate")
    assert run("list") == "There are no quotas.\n"


def test_limits_that_cannot_be(run: Run) -> None:
    assert "Give a user" in run("set", "producer_byte_rate=1", code=2)
    assert "Give a user" in run("set", "--user", "a", "--ip", "::1", "x=1", code=2)
    assert "Give one of" in run("set", "--user", "a", "--user-default", "x=1", code=2)
    assert "takes a number" in run("set", "--user", "a", "producer_byte_rate=many", code=2)
    said = run("set", "--user", "a", "connection_creation_rate=5", code=1)
    assert "Invalid configuration key connection_creation_rate" in said
    assert run("set", "--user", "a", "producer_byte_rate=5", "--dry-run").startswith("Would set 1")
    assert run("list") == "There are no quotas.\n"


def test_librdkafka_is_told_to_wait(cluster: strandline.Cluster, run: Run) -> None:
    run("set", "--client-id", "greedy", "producer_byte_rate=100000", "consumer_byte_rate=50000")
    cluster.create_topic("t")
    waits: list[float] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "throttle_cb": lambda event: waits.append(event.throttle_time),
    }
    modest = Producer(settings)
    modest.produce("t", b"x" * 500_000)
    assert modest.flush(30) == 0
    assert waits == []
    greedy = Producer({**settings, "client.id": "greedy"})
    for _ in range(3):
        greedy.produce("t", b"x" * 500_000)
        assert greedy.flush(60) == 0, "it is served all the same"
    greedy.poll(1)
    assert max(waits) > 1
    waits.clear()
    consumer = Consumer(
        {**settings, "client.id": "greedy", "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    assert [consumer.poll(60) is not None for _ in range(4)] == [True] * 4
    while not waits:
        consumer.poll(0.1)
    consumer.close()
    for name in ("producer_byte_rate", "consumer_byte_rate"):
        run("remove", "--client-id", "greedy", name)
