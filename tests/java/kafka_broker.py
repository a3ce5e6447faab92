"""A real Kafka of one node (KRaft, broker and controller in one), for comparison."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Final

from tests.java.processes import Process, ToolServer, Workshop

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
broker.session.timeout.ms=1000
"""


class Kafka:
    """Kafka on a directory of its own, started and stopped as often as needed."""

    def __init__(self, workshop: Workshop, tools: ToolServer, data: Path) -> None:
        self._workshop = workshop
        self.data = data
        port, controller_port = _free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self._properties = data.with_suffix(".properties")
        self._properties.write_text(
            _PROPERTIES.format(
                node_id=NODE_ID, port=port, controller_port=controller_port, data=self.data
            )
        )
        tools.run(
            "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self._properties
        ).succeeded()
        self._process: Process | None = None

    def move_to(self, data: Path) -> None:
        """Use another copy of its directory from the next start on."""
        old, new = f"log.dirs={self.data}\n", f"log.dirs={data}\n"
        self._properties.write_text(self._properties.read_text().replace(old, new))
        self.data = data

    def start(self, *settings: str) -> None:
        """Start it. Clients wait by themselves until it answers."""
        overrides = [word for setting in settings for word in ("--override", setting)]
        self._process = self._workshop.java("kafka.Kafka", self._properties, *overrides)

    def stop(self) -> None:
        """Shut it down cleanly."""
        assert self._process is not None
        status = self._process.end(signal.SIGTERM)
        assert status in (0, 143), self._process.complaint()

    def kill(self) -> None:
        """End it without any warning."""
        assert self._process is not None
        self._process.end(signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    """Ports that are free now; all are held until all are chosen, so that they differ."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in held]
    for sock in held:
        sock.close()
    return ports
