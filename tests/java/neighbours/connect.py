"""Kafka Connect: a file becomes a topic, exactly once, and the topic a file; a worker is killed."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.java.neighbours.rig import Rig, consumer, read, until
from tests.java.processes import Process

TOPIC = "lines"
LINES = 200
SILENCE_S = 3.0


def run(rig: Rig) -> str:
    """Two connectors on a distributed worker, which dies between two halves of the file."""
    cluster = rig.cluster()
    cluster.create_topic(TOPIC, partitions=1, replication_factor=3)
    given, got = rig.home / "given.txt", rig.home / "got.txt"
    given.write_text("")
    worker = _worker(rig, cluster.bootstrap_servers)
    _connector(worker, "source", "FileStreamSourceConnector", file=given, topic=TOPIC)
    _connector(worker, "sink", "FileStreamSinkConnector", file=got, topics=TOPIC)
    _append(given, 0, LINES // 2)
    _wait_for(got, LINES // 2, worker)
    worker.process.kill()
    _append(given, LINES // 2, LINES)
    worker = _worker(rig, cluster.bootstrap_servers)  # both connectors are in its topics
    _wait_for(got, LINES, worker)
    found = got.read_text().split()
    # A sink may write the last lines again after a kill; the source is exactly once.
    assert sorted(set(found), key=int) == [str(number) for number in range(LINES)]
    assert _records(cluster.bootstrap_servers) == [str(number) for number in range(LINES)]
    return f"{LINES} lines over a worker that was killed: each once in the topic"


class Worker:
    """A distributed worker of Connect and its address."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.address = f"http://127.0.0.1:{port}"

    def ask(self, path: str, body: object = None) -> Any:
        """Its REST interface. Raises `OSError` while it does not answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.address + path, data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)


def _worker(rig: Rig, bootstrap: str) -> Worker:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    names = ("offset.storage", "config.storage", "status.storage")
    converter = "org.apache.kafka.connect.storage.StringConverter"
    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": "workers",
        "key.converter": converter,
        "value.converter": converter,
        "listeners": f"http://127.0.0.1:{port}",
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": 500,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        "scheduled.rebalance.max.delay.ms": 0,
        "plugin.discovery": "service_load",
        "offset.storage.partitions": 1,
        "status.storage.partitions": 1,
        **{f"{name}.topic": f"connect-{name.split('.')[0]}" for name in names},
        **{f"{name}.replication.factor": 3 for name in names},
    }
    path = rig.properties(f"worker-{port}.properties", settings)
    worker = Worker(rig.java("org.apache.kafka.connect.cli.ConnectDistributed", path), port)

    def answers() -> bool:
        try:
            worker.ask("/connectors")
        except (OSError, urllib.error.URLError):
            return False
        return True

    until(answers, "worker that answers", worker.process.complaint)
    return worker


def _connector(worker: Worker, name: str, kind: str, **settings: object) -> None:
    config = {
        "connector.class": f"org.apache.kafka.connect.file.{kind}",
        "tasks.max": "1",
        **{key: str(value) for key, value in settings.items()},
    }

    def made() -> bool:
        try:
            worker.ask("/connectors", {"name": name, "config": config})
        except urllib.error.HTTPError as error:
            if error.code != 409:  # else the workers are about to divide their work
                raise AssertionError(error.read().decode()) from error
            return False
        return True

    until(made, f"connector {name}", worker.process.complaint)


def _append(path: Path, first: int, end: int) -> None:
    with path.open("a") as file:
        file.writelines(f"{number}\n" for number in range(first, end))


def _wait_for(path: Path, lines: int, worker: Worker) -> None:
    def there() -> bool:
        return path.is_file() and len(set(path.read_text().split())) >= lines

    until(there, f"{lines} lines", worker.process.complaint)


def _records(bootstrap: str) -> list[str]:
    """What the topic has, in its order; fails if there is more than was written."""
    with consumer(bootstrap, "judge", TOPIC) as reader:
        found = [value for _, value in read(reader, LINES, str)]
        assert reader.poll(SILENCE_S) is None
        return found
