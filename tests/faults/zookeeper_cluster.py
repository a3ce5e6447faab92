"""Strandline brokers as processes over a real ZooKeeper, started as a user starts them.

Every broker and every ZooKeeper server is behind a gate of the network. A broker listens on a port
of the system's choice and advertises its gate, whose target follows it over restarts. What is true
is read from ZooKeeper itself, past all gates.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import ZnodeStat

from tests.faults.cluster import ClusterProcesses, PartitionState
from tests.faults.network import HOST, ZOOKEEPER, Gate
from tests.faults.processes import START_S, until
from tests.zookeeper.ensemble import ZooKeeperEnsemble

SOURCES: Final = Path(__file__).parents[2] / "src"
CHROOT: Final = "/strandline"
SETTINGS: Final = {
    # Failures are noticed in a few seconds and not in half a minute.
    "zookeeper.session.timeout.ms": "5000",
    "zookeeper.connection.timeout.ms": "90000",
    "replica.lag.time.max.ms": "2500",
    "replica.fetch.wait.max.ms": "200",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
STEADY: Final = {"zookeeper.session.timeout.ms": "30000"}
"""For tests in which no broker may be taken for dead, however busy the machine is."""
_PORT: Final = re.compile(rf"^\s*listening\s+\S*{re.escape(HOST)}:(\d+)", re.MULTILINE)
_READY: Final = re.compile(r"^ready in ", re.MULTILINE)


class ZooKeeperCluster(ClusterProcesses):
    """Brokers over an ensemble of their own."""

    def __init__(
        self,
        home: Path,
        *,
        brokers: int = 3,
        zookeepers: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(home, brokers=brokers)
        self.settings = {**SETTINGS, **(settings or {})}
        self.own_settings: dict[int, dict[str, str]] = {broker: {} for broker in self.ids}
        """What single brokers are started with on top of that, from their next start on."""
        self.sources = dict.fromkeys(self.ids, SOURCES)
        """Which checkout each broker runs from when it is started next."""
        self.environment: Mapping[str, str] = {}
        """What brokers are started with beside this process's own."""
        self._zookeepers = zookeepers
        self._ensemble: ZooKeeperEnsemble | None = None
        self._client_of_ensemble: KazooClient | None = None
        self._connect = ""

    @property
    def ensemble(self) -> ZooKeeperEnsemble:
        """The servers, for tests that hurt them."""
        assert self._ensemble is not None, "the cluster was not started"
        return self._ensemble

    def __enter__(self) -> Self:
        try:
            self._ensemble = ZooKeeperEnsemble(self._zookeepers)
            gates = [
                self.network.gate(ZOOKEEPER, (server.ports.host, server.ports.client))
                for server in self._ensemble.servers
            ]
            self._connect = ",".join(gate.address for gate in gates) + CHROOT
            self._client_of_ensemble = KazooClient(self._ensemble.connect_string)
            self._client_of_ensemble.start(START_S)
        except BaseException:
            self.close()
            raise
        return super().__enter__()

    def close(self) -> None:
        """Brokers first, then what they depend on."""
        super().close()
        if self._client_of_ensemble is not None:
            self._client_of_ensemble.stop()
            self._client_of_ensemble.close()
        if self._ensemble is not None:
            self._ensemble.close()

    def launch(self, broker: int, gate: Gate) -> None:
        """`strandline broker`, with its directory and its settings."""
        settings = {
            **self.settings,
            **self.own_settings[broker],
            "listeners": f"PLAINTEXT://{HOST}:0",
            "advertised.listeners": f"PLAINTEXT://{gate.address}",
        }
        words = ["broker", "--zookeeper", self._connect, "--id", str(broker)]
        words += ["--data-dir", str(self.log_directory(broker))]
        for name, value in settings.items():
            words += ["--set", f"{name}={value}"]
        self.processes[broker].start(
            [sys.executable, "-m", "strandline.cli", *words],
            {"PYTHONPATH": str(self.sources[broker]), "PYTHONUNBUFFERED": "1", **self.environment},
        )

    def wait_until_up(self, broker: int, gate: Gate) -> None:
        """Until it says that it is ready. Its gate leads to it as soon as it listens, since it is
        ready only when the others see it."""

        def port(output: str) -> int | None:
            found = _PORT.search(output)
            return int(found[1]) if found and _READY.search(output) else None

        gate.target = HOST, self.processes[broker].wait_for(port, "ready to serve")

    def log_directory(self, broker: int) -> Path:
        """Where the broker keeps its partitions."""
        return self.home / f"broker-{broker}"

    def state_of(self, topic: str, partition: int) -> PartitionState:
        """From the partition's state node."""
        found = self._read(f"/brokers/topics/{topic}/partitions/{partition}/state")
        if found is None:
            return PartitionState(-1, -1, ())
        state = found[0]
        return PartitionState(state["leader"], state["leader_epoch"], tuple(state["isr"]))

    def controller(self) -> int:
        """From `/controller`."""
        found = self._read("/controller")
        return -1 if found is None else int(found[0]["brokerid"])

    def expire_session(self, broker: int) -> None:
        """End the broker's session behind its back."""
        found = self._read(f"/brokers/ids/{broker}")
        assert found is not None, f"broker {broker} is not registered"
        self.note("expire the session of", broker)
        self.ensemble.expire_session(found[1].ephemeralOwner)

    def wait_until_registered(self, broker: int, *, other_than: int = 0) -> int:
        """Wait until the broker is registered by another transaction; its broker epoch."""

        def found() -> int | None:
            node = self._read(f"/brokers/ids/{broker}")
            epoch = 0 if node is None else int(node[1].czxid)
            return epoch if epoch != other_than and epoch else None

        return until(found, f"broker {broker} to be registered", seconds=START_S)

    def is_registered(self, broker: int) -> bool:
        """Whether its session lives and it said so."""
        return self._read(f"/brokers/ids/{broker}") is not None

    def wait_until_not_registered(self, broker: int) -> None:
        """Wait until its registration is gone."""
        until(
            lambda: not self.is_registered(broker),
            f"the session of broker {broker} to end",
            seconds=START_S,
        )
        self.note("gone from ZooKeeper:", broker)

    def _read(self, path: str) -> tuple[dict[str, Any], ZnodeStat] | None:
        assert self._client_of_ensemble is not None
        try:
            data, stat = self._client_of_ensemble.retry(self._client_of_ensemble.get, CHROOT + path)
        except NoNodeError:
            return None
        return json.loads(data), stat
