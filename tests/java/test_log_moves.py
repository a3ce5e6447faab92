"""Logs that move between the directories of a broker, by Kafka's tool and by ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.java.processes import Broker, ToolServer, Workshop
from tests.java.tables import CONFIGS, OFFSETS, TOOLS, TOPICS

REASSIGN = TOOLS + "reassign.ReassignPartitionsCommand"
LOG_DIRS = TOOLS + "LogDirsCommand"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def broker(workshop: Workshop) -> Iterator[Broker]:
    """A broker with two directories."""
    paths = [str(workshop.directory / name) for name in ("first", "second")]
    running = workshop.broker(None, f"log.dirs={','.join(paths)}")
    yield running
    assert running.stop()


@pytest.fixture(scope="module")
def paths(workshop: Workshop) -> tuple[str, str]:
    return str(workshop.directory / "first"), str(workshop.directory / "second")


def strandline(broker: Broker, *arguments: str) -> str:
    """What our own command says."""
    command = [sys.executable, "-m", "strandline.cli", *arguments, "--bootstrap", broker.address]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def described(tools: ToolServer, broker: Broker) -> dict[str, tuple[bool, int]]:
    """Per directory: whether the log of `moving` there is a future one, and its lag."""
    said = tools.run(
        LOG_DIRS, "--describe", "--bootstrap-server", broker.address, "--topic-list", "moving"
    ).succeeded()
    document: Any = json.loads(next(line for line in said.splitlines() if line[:1] == "{"))
    return {
        directory["logDir"]: (each["isFuture"], each["offsetLag"])
        for directory in document["brokers"][0]["logDirs"]
        for each in directory["partitions"]
    }


def test_kafkas_tool_moves_a_log_and_ours_moves_it_back(
    tools: ToolServer, broker: Broker, paths: tuple[str, str], tmp_path: Path
) -> None:
    where = ("--bootstrap-server", broker.address)
    create = ("--create", "--topic", "moving", "--partitions", "1", "--replication-factor", "1")
    tools.run(TOPICS, *create, *where).succeeded()
    producer = Producer({"bootstrap.servers": broker.address, "acks": "all"})
    for _ in range(60):
        producer.produce("moving", os.urandom(50_000), partition=0)
    assert producer.flush(WAIT_S) == 0
    (here,) = described(tools, broker)
    (there,) = set(paths) - {here}

    plan = tmp_path / "plan.json"
    partition = {"topic": "moving", "partition": 0, "replicas": [1], "log_dirs": [there]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    reassign = ("--reassignment-json-file", str(plan), *where)
    slow = ("--execute", "--replica-alter-log-dirs-throttle", "100000")
    said = tools.run(REASSIGN, *reassign, *slow).succeeded()
    assert f"moving log directory to {there} for replica moving-0 with broker 1" in said
    found = described(tools, broker)
    assert found[here] == (False, 0)
    is_future, lag = found[there]
    assert is_future
    assert 0 < lag <= 60
    moves = json.loads(strandline(broker, "topics", "moves", "--logs", "--json"))
    assert [(each["partition"], each["broker"], each["path"]) for each in moves] == [(0, 1, there)]
    verify = (*reassign, "--verify", "--preserve-throttles")
    assert "is still in progress" in tools.run(REASSIGN, *verify).succeeded()
    assert "its log is being copied" in strandline(broker, "why", "moving")

    again = ("--execute", "--additional", "--replica-alter-log-dirs-throttle", "1000000000")
    tools.run(REASSIGN, *reassign, *again).succeeded()
    strandline(broker, "topics", "move-logs", "moving", "--broker", "1", "--to", there, "--wait")
    assert described(tools, broker) == {there: (False, 0)}
    done = tools.run(REASSIGN, *reassign, "--verify").succeeded()
    assert "completed" in done
    settings = ("--describe", "--entity-type", "brokers", "--entity-name", "1", *where)
    assert "alter.log.dirs" not in tools.run(CONFIGS, *settings).succeeded()

    moved = strandline(
        broker, "topics", "move-logs", "moving", "--broker", "1", "--to", here, "--wait"
    )
    assert "Moved 1 log." in moved
    assert described(tools, broker) == {here: (False, 0)}
    assert "moving:0:60" in tools.run(OFFSETS, "--topic", "moving", *where).succeeded()
