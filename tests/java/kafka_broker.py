"""A real Kafka of one node (KRaft, broker and controller in one), for comparison."""

from __future__ import annotations

import random
import signal
import socket
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.java.processes import PATIENCE_SECONDS, Process, ToolServer, Workshop

NODE_ID: Final = 7
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
_PROPERTIES: Final = """\
process.roles=broker,controller
node.id={node_id}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters={node_id}@127.0.0.1:{controller_port}
log.dirs={data}
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.backoff.ms=100
log.cleaner.dedupe.buffer.size=2097152
num.network.threads=2
num.io.threads=2
broker.heartbeat.interval.ms=100
broker.session.timeout.ms=6000
"""


class Kafka:
    """Kafka on a directory of its own, started and stopped as often as needed."""

    def __init__(
        self, workshop: Workshop, tools: ToolServer, data: Path, *format_options: str
    ) -> None:
        self._workshop = workshop
        self.data = data
        port, controller_port = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self.controller_address = f"127.0.0.1:{controller_port}"
        self._properties = data.with_suffix(".properties")
        self._properties.write_text(
            _PROPERTIES.format(
                node_id=NODE_ID, port=port, controller_port=controller_port, data=self.data
            )
        )
        format_it = ("-t", CLUSTER_ID, "-c", self._properties)
        tools.run("kafka.tools.StorageTool", "format", *format_it, *format_options).succeeded()
        self._process: Process | None = None

    def move_to(self, data: Path) -> None:
        """Use another copy of its directory from the next start on."""
        old, new = f"log.dirs={self.data}\n", f"log.dirs={data}\n"
        self._properties.write_text(self._properties.read_text().replace(old, new))
        self.data = data

    def start(self, *settings: str) -> None:
        """Start it, and wait until it listens and leads what it has."""
        overrides = [word for setting in settings for word in ("--override", setting)]
        self._process = self._workshop.java("kafka.Kafka", self._properties, *overrides)
        host, port = self.address.split(":")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                assert time.monotonic() < deadline, self._process.complaint()
                time.sleep(0.05)  # between two looks; the condition is that it listens
            else:
                break
        self._await_leaders(deadline)

    def _await_leaders(self, deadline: float) -> None:
        """Kafka listens before it leads. A producer of its own client that comes in between may
        wait for its whole patience, although the partitions are led a moment later."""
        assert self._process is not None
        with Consumer({"bootstrap.servers": self.address, "group.id": "leaders"}) as client:
            while True:
                try:
                    for topic in client.list_topics(timeout=10).topics.values():
                        for number in topic.partitions:
                            at = TopicPartition(topic.topic, number)
                            client.get_watermark_offsets(at, timeout=10)
                except KafkaException:
                    assert time.monotonic() < deadline, self._process.complaint()
                    time.sleep(0.05)  # between two looks; the condition is that all are led
                else:
                    return

    def stop(self) -> None:
        """Shut it down cleanly."""
        assert self._process is not None
        status = self._process.end(signal.SIGTERM)
        assert status in (0, 143), self._process.complaint()

    def kill(self) -> None:
        """End it without any warning."""
        assert self._process is not None
        self._process.end(signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Ports that are free now; all are held until all are chosen, so that they differ.

    They are from a range that the system gives to no connection, so no process has them before
    Kafka.
    """
    held: list[socket.socket] = []
    for number in random.sample(range(20_000, 32_000), 1_000):
        try:
            held.append(socket.create_server(("127.0.0.1", number)))
        except OSError:
            continue  # taken
        if len(held) == count:
            break
    ports: list[int] = [sock.getsockname()[1] for sock in held]
    for sock in held:
        sock.close()
    assert len(ports) == count
    return ports
