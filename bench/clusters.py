"""Clusters of three brokers under test: three JVMs, three brokers in one process, or in three.

A cluster is ready when each of its brokers answers and knows the other two. CPU and memory are
those of all its processes together, of ZooKeeper too where there is one.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench.brokers import (
    START_TIMEOUT_S,
    Broker,
    BrokerError,
    KafkaBroker,
    Launch,
    MockBroker,
    SocketBroker,
    Start,
    StrandlineBroker,
)
from bench.kafka_settings import Quorum
from bench.readiness import free_port, free_ports_in_a_row, wait_until_ready
from bench.zookeeper import ZooKeeper

NODES = 3
FAILOVER_SESSION_MS = 2000
TRANSACTION_SETTINGS: Mapping[str, str] = {
    "transaction.state.log.replication.factor": str(NODES),
    "transaction.state.log.min.isr": "2",
}
SESSION_SETTINGS: Mapping[str, str] = {
    # A broker that is gone is noticed after the same time by Kafka and by Strandline.
    "broker.session.timeout.ms": str(FAILOVER_SESSION_MS),
    "broker.heartbeat.interval.ms": "500",
}


class StrandlineCluster(StrandlineBroker):
    """`strandline serve --brokers 3`: three brokers in one process, on one event loop."""

    kind = "strandline-cluster"
    nodes = NODES

    def prepare(self) -> None:
        """Ports in a row and an empty data directory."""
        self.directory.mkdir(parents=True)
        self.port = free_ports_in_a_row(NODES)
        command = [*self._launch.strandline_command, "--brokers", str(NODES)]
        self._command = [*command, *self._settings()]

    def start(self) -> Start:
        """Until the last of the three is ready."""
        before = time.monotonic()
        self.launch()
        self.wait_until_it_answers(before + START_TIMEOUT_S)
        wait_until_together(
            self.label, range(self.port, self.port + NODES), before + START_TIMEOUT_S
        )
        return Start(time.monotonic() - before, self.cpu_seconds())


class StrandlineSupervised(StrandlineCluster):
    """`strandline serve --brokers 3 --processes`: three processes under one supervisor."""

    kind = "strandline-supervised"

    def prepare(self) -> None:
        """As in one process."""
        super().prepare()
        self._command = [*self._command, "--processes"]


class ProcessCluster(Broker):
    """Several processes. The first broker is the one that `port` means."""

    nodes = NODES
    members: Sequence[SocketBroker]
    zookeeper: ZooKeeper | None = None

    @property
    def address(self) -> str:
        """All brokers: one of them may be gone."""
        return ",".join(member.address for member in self.members)

    def start(self) -> Start:
        """All at once, until each knows the others."""
        before = time.monotonic()
        for member in self.members:
            member.launch()
        deadline = before + START_TIMEOUT_S
        for member in self.members:
            member.wait_until_it_answers(deadline)
        wait_until_together(self.label, [member.port for member in self.members], deadline)
        return Start(time.monotonic() - before, self.cpu_seconds())

    def kill_first(self) -> None:
        """kill -9 of the broker at `port`."""
        self.members[0].kill()

    def cpu_seconds(self) -> float:
        """Of all processes that run now."""
        return sum(process.cpu_seconds() for process in self._processes())

    def resident_bytes(self) -> int:
        """Of all processes; what they share counts as often as it is shared."""
        return sum(process.resident_bytes() for process in self._processes())

    def stop(self) -> None:
        """The brokers first."""
        self._admin = None
        for process in self._processes():
            process.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _processes(self) -> list[SocketBroker | ZooKeeper]:
        return [*self.members, *([self.zookeeper] if self.zookeeper else [])]


class KafkaCluster(ProcessCluster):
    """Three JVMs, each a broker and a controller of the quorum."""

    kind = "kafka-cluster"

    def __init__(self, label: str, directory: Path, launch: Launch) -> None:
        super().__init__(label, directory)
        quorum = Quorum({node: free_port() for node in range(1, NODES + 1)})
        told = replace(
            launch, settings={**TRANSACTION_SETTINGS, **SESSION_SETTINGS, **launch.settings}
        )
        self.members = [
            KafkaBroker(f"{label} {node}", directory / str(node), told, node_id=node, quorum=quorum)
            for node in quorum.voters
        ]

    def prepare(self) -> None:
        """Format all three."""
        for member in self.members:
            member.prepare()
        self.port = self.members[0].port


class StrandlineProcesses(ProcessCluster):
    """Three `strandline broker` processes over a ZooKeeper server, which is started beforehand: it
    is a service that a user has."""

    kind = "strandline-processes"

    def __init__(self, label: str, directory: Path, launch: Launch) -> None:
        super().__init__(label, directory)
        self._server = ZooKeeper(f"{label} ZooKeeper", directory / "zookeeper", launch)
        self.zookeeper = self._server
        self.members = [
            StrandlineProcess(f"{label} {node}", directory / str(node), launch, node, self._server)
            for node in range(1, NODES + 1)
        ]

    def prepare(self) -> None:
        """Start ZooKeeper."""
        self._server.start()
        for member in self.members:
            member.prepare()
        self.port = self.members[0].port


class StrandlineProcess(StrandlineBroker):
    """One broker of such a cluster."""

    def __init__(
        self, label: str, directory: Path, launch: Launch, node_id: int, zookeeper: ZooKeeper
    ) -> None:
        super().__init__(label, directory, launch)
        self._node_id = node_id
        self._zookeeper = zookeeper

    def prepare(self) -> None:
        """A free port and an empty data directory."""
        self.directory.mkdir(parents=True)
        self.port = free_port()
        *program, command = self._launch.strandline_command
        if command != "serve":
            raise BrokerError(f"A command that ends in `serve` is needed, not {command}")
        cluster = ["broker", "--zookeeper", self._zookeeper.address, "--id", str(self._node_id)]
        session = ["--set", f"zookeeper.session.timeout.ms={FAILOVER_SESSION_MS}"]
        self._command = [*program, *cluster, *session, *self._settings()]


def wait_until_together(label: str, ports: Sequence[int], deadline: float) -> None:
    """Until each broker knows as many as there are. Raises BrokerError."""
    for port in ports:
        if not wait_until_ready(port, deadline=deadline, brokers=len(ports)):
            raise BrokerError(f"{label} did not come together in {START_TIMEOUT_S} s")


BROKERS: Mapping[
    str,
    type[StrandlineBroker]
    | type[KafkaBroker]
    | type[MockBroker]
    | type[StrandlineCluster]
    | type[StrandlineSupervised]
    | type[StrandlineProcesses]
    | type[KafkaCluster],
] = {
    kind.kind: kind
    for kind in (
        StrandlineBroker,
        KafkaBroker,
        MockBroker,
        StrandlineCluster,
        StrandlineSupervised,
        StrandlineProcesses,
        KafkaCluster,
    )
}
