"""A cluster of broker processes on this machine, with a network that can be cut.

What every flavour shares: processes, gates, topics, waiting for facts, the list of what was done to
the cluster and the account that a failing test prints. A flavour says how its brokers are started
and where it is written who leads. Nothing here waits for a time to pass: each wait has a condition
and a deadline.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults import replicas
from tests.faults.network import Gate, Network, Node
from tests.faults.processes import ServerProcess, until

WAIT_S: Final = 120.0
LOG_LINES: Final = 12


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What the cluster's metadata says of a partition. `leader` -1: none."""

    leader: int
    leader_epoch: int
    in_sync: tuple[int, ...]


class ClusterProcesses(ABC):
    """`with` starts all brokers and ends everything, whatever state it is in."""

    def __init__(self, home: Path, *, brokers: int = 3) -> None:
        self.home = home
        self.ids: Sequence[int] = range(1, brokers + 1)
        self.network = Network()
        self._gates: dict[int, Gate] = {}
        self.processes = {
            broker: ServerProcess(f"broker {broker}", home / f"broker-{broker}.log")
            for broker in self.ids
        }
        self._began = time.monotonic()
        self._timeline: list[str] = []
        self._admin: AdminClient | None = None

    @abstractmethod
    def launch(self, broker: int, gate: Gate) -> None:
        """Start the process of one broker, which advertises the gate's address."""

    @abstractmethod
    def wait_until_up(self, broker: int, gate: Gate) -> None:
        """Wait until it serves, and lead the gate to it."""

    @abstractmethod
    def state_of(self, topic: str, partition: int) -> PartitionState:
        """What is true now, not what some broker believes."""

    @abstractmethod
    def controller(self) -> int:
        """The broker in office; -1: none."""

    @abstractmethod
    def log_directory(self, broker: int) -> Path:
        """Where the broker keeps its partitions."""

    @property
    def bootstrap(self) -> str:
        """What clients are given: all brokers."""
        return ",".join(gate.address for gate in self._gates.values())

    def __enter__(self) -> Self:
        try:
            self._gates = {broker: self.network.gate(broker) for broker in self.ids}
            self.start(*self.ids)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            print(self.account(), file=sys.stderr)
        self.close()

    def close(self) -> None:
        """Kill what runs. Data stays in `home` for later inspection."""
        for process in self.processes.values():
            process.kill()
        self.network.close()

    # ---- what is done to it

    def start(self, *brokers: int) -> None:
        """Start these together and wait until all serve."""
        self.note("start", *brokers)
        for broker in brokers:
            self.launch(broker, self._gates[broker])
            self.network.is_run_by(broker, self.processes[broker].pid)
        for broker in brokers:
            self.wait_until_up(broker, self._gates[broker])

    def kill(self, *brokers: int) -> None:
        """kill -9."""
        self.note("kill -9", *brokers)
        for broker in brokers:
            self.processes[broker].kill()
            # Its port may be another process's in a moment.
            self._gates[broker].target = None

    def stop(self, broker: int) -> None:
        """SIGTERM, and wait for a clean end."""
        self.note("stop", broker)
        self.processes[broker].stop()
        self._gates[broker].target = None

    def pause(self, broker: int) -> None:
        """SIGSTOP."""
        self.note("pause", broker)
        self.processes[broker].pause()

    def resume(self, broker: int) -> None:
        """SIGCONT."""
        self.note("resume", broker)
        self.processes[broker].resume()

    def cut(self, side: Collection[Node], other: Collection[Node]) -> None:
        """Hold everything between the two sides, until `heal`."""
        self.note(f"cut {sorted(map(str, side))} from {sorted(map(str, other))}")
        self.network.cut(side, other)

    def heal(self) -> None:
        """The network is whole again."""
        self.note("heal")
        self.network.heal()

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replication_factor: int = 3,
        config: Mapping[str, str] | None = None,
        replicas: Sequence[int] = (),
    ) -> None:
        """Create it and wait until every partition has all its replicas in sync. `replicas` places
        those of a topic with one partition, the preferred leader first."""
        if replicas:
            replication_factor = len(replicas)
            new = NewTopic(topic, 1, replica_assignment=[list(replicas)], config=dict(config or {}))
        else:
            new = NewTopic(topic, partitions, replication_factor, config=dict(config or {}))

        def created() -> bool:
            outcome: Future[Any] = self._client().create_topics([new])[topic]
            return self._is_done(outcome, KafkaError.INVALID_REPLICATION_FACTOR)

        until(created, f"{replication_factor} brokers that can have replicas", seconds=WAIT_S)
        for partition in range(partitions):
            self.wait_until_in_sync(topic, partition, replication_factor)

    def delete_topic(self, topic: str) -> None:
        """Delete it and wait until the metadata does not know it."""
        self.note(f"delete {topic}")

        def deleted() -> bool:
            return self._is_done(self._client().delete_topics([topic])[topic])

        until(deleted, f"a controller that deletes {topic}", seconds=WAIT_S)
        until(
            lambda: self.state_of(topic, 0).leader_epoch < 0,
            f"the end of {topic}",
            seconds=WAIT_S,
        )

    # ---- what is asked of it

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The leader now; waits while there is none."""
        return until(
            lambda: leader if (leader := self.state_of(topic, partition).leader) >= 0 else None,
            f"a leader of {topic}-{partition}",
            seconds=WAIT_S,
        )

    def a_follower_of(self, topic: str, partition: int = 0) -> int:
        """A broker that does not lead the partition."""
        return self.others(self.leader_of(topic, partition))[0]

    def others(self, broker: int) -> list[int]:
        """All brokers but this one."""
        return [other for other in self.ids if other != broker]

    def wait_for_another_leader(self, topic: str, former: int, partition: int = 0) -> int:
        """Wait until another broker leads; returns its id."""

        def found() -> int | None:
            leader = self.state_of(topic, partition).leader
            return leader if leader not in (former, -1) else None

        leader = until(found, f"another leader of {topic} than {former}", seconds=WAIT_S)
        self.note(f"{topic}-{partition} is led by", leader)
        return leader

    def wait_for_another_controller(self, former: int) -> int:
        """Wait until another broker is the controller; returns its id."""
        controller = until(
            lambda: now if (now := self.controller()) not in (former, -1) else None,
            f"another controller than {former}",
            seconds=WAIT_S,
        )
        self.note("controller is", controller)
        return controller

    def wait_until_in_sync(self, topic: str, partition: int = 0, count: int = 0) -> None:
        """Wait until so many replicas are in sync (all brokers, unless said otherwise)."""
        wanted = count or len(self.ids)
        until(
            lambda: len(self.state_of(topic, partition).in_sync) >= wanted,
            f"{wanted} replicas of {topic}-{partition} in sync",
            seconds=WAIT_S,
            complaint=lambda: str(self.state_of(topic, partition)),
        )

    def wait_until_out_of_sync(self, topic: str, broker: int, partition: int = 0) -> None:
        """Wait until the broker is no longer in the in-sync set."""
        until(
            lambda: broker not in self.state_of(topic, partition).in_sync,
            f"{broker} to leave the in-sync set of {topic}-{partition}",
            seconds=WAIT_S,
        )
        self.note(f"{topic}-{partition} is no longer in sync on", broker)

    # ---- what is told of it

    def note(self, what: str, *brokers: int) -> None:
        """Keep what happened when, for the account."""
        moment = time.monotonic() - self._began
        self._timeline.append(f"{moment:7.2f} s  {what} {', '.join(map(str, brokers))}".rstrip())

    def replicas_of(self, topic: str, partition: int = 0) -> dict[int, replicas.Replica]:
        """What lies on each broker's disk."""
        return {
            broker: replicas.read(self.log_directory(broker), topic, partition)
            for broker in self.ids
        }

    def account(self, topics: Sequence[tuple[str, int]] = ()) -> str:
        """What was done, a line per replica, and the ends of the logs: for a failing test."""
        lines = ["---- what happened", *self._timeline]
        for topic, partition in topics or self._topics():
            lines += [f"---- {topic}-{partition}"]
            lines += [f"  {self._state_line(topic, partition)}"]
            lines += [
                f"  broker {broker}: {replica}"
                for broker, replica in self.replicas_of(topic, partition).items()
            ]
        for process in self.processes.values():
            lines += [f"---- {process.name} ({'runs' if process.is_running else 'does not run'})"]
            lines += process.complaint().splitlines()[-LOG_LINES:]
        return "\n".join(lines)

    def _topics(self) -> list[tuple[str, int]]:
        """Partitions on disk, without the internal ones."""
        found = {
            (topic, int(partition))
            for broker in self.ids
            if self.log_directory(broker).is_dir()
            for directory in self.log_directory(broker).iterdir()
            if directory.is_dir() and not directory.name.startswith("__")
            for topic, _, partition in [directory.name.rpartition("-")]
            if partition.isdecimal()
        }
        return sorted(found)

    def _state_line(self, topic: str, partition: int) -> str:
        try:
            return str(self.state_of(topic, partition))
        except Exception as error:  # noqa: BLE001 - the account must be told whatever is broken
            return f"state unknown: {error!r}"

    def _is_done(self, outcome: Future[Any], *not_yet: int) -> bool:
        """Whether a request has done its work; False when it is to be sent again. Brokers hear of
        one another, and of a new controller, each at its own pace (`not_yet`: further codes)."""
        try:
            outcome.result(WAIT_S)
        except KafkaException as refused:
            code = refused.args[0].code()
            if code == KafkaError.NOT_CONTROLLER:
                # librdkafka keeps the controller that it knows until it reads metadata again.
                self._client().list_topics(timeout=WAIT_S)
            elif code not in not_yet:
                raise
            return False
        return True

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(
                {"bootstrap.servers": self.bootstrap, "log_level": 0, "socket.timeout.ms": 60_000}
            )
        return self._admin
