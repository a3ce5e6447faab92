"""`Cluster`: brokers for a test, used from ordinary code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from strandline.testing.async_cluster import AsyncCluster
from strandline.testing.control import ClusterError, Control, Options
from strandline.testing.running_cluster import NOT_RUNNING, RunningCluster, given
from strandline.testing.security import Protocol
from strandline.testing.status import BrokerStatus, ClusterStatus

T = TypeVar("T")


class Cluster:
    """Brokers with ids 1, 2, ... in a thread of this process, each with sockets and files.

    They replicate over TCP on ports that the system chooses, and keep them for their life. A
    context manager: leaving it stops the brokers and removes their data. With `async with`, an
    `AsyncCluster` of the same brokers.

    - `session_timeout_ms`: after so long without a sign of life a broker counts as dead.
    - `settings`: broker settings with Kafka's names, on top of quick defaults (`control.QUICK`).
      Topics get as many replicas as there are brokers by default, up to three.
    - `racks`: dealt out to the brokers in turn.
    - `security`: `SSL`, `SASL_SSL` or `SASL_PLAINTEXT`, with an authority of its own (that needs
      the package cryptography) and a user `test`; `client_config` lets clients in.
    - `sasl_mechanism`: `SCRAM-SHA-512`, `SCRAM-SHA-256` or `PLAIN`.
    - `users`: names and passwords in place of that user; in `SSL` each has a certificate.
    - `data_dir`: where data is kept after the end; without it, in a directory that goes away.
    - `timeout_s`: how long anything may take before a `ClusterError` says what is missing.

    Methods that take broker ids mean all brokers if none is given.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        session_timeout_ms: int = 1000,
        settings: Mapping[str, object] | None = None,
        racks: Sequence[str] = (),
        data_dir: str | Path | None = None,
        timeout_s: float = 90.0,
        security: Protocol = "PLAINTEXT",
        sasl_mechanism: str = "SCRAM-SHA-512",
        users: Mapping[str, str] | None = None,
    ) -> None:
        self._options = Options(
            brokers=brokers,
            session_timeout_ms=session_timeout_ms,
            settings=dict(settings or {}),
            racks=tuple(racks),
            data_dir=data_dir,
            timeout_s=timeout_s,
            security=security,
            sasl_mechanism=sasl_mechanism,
            users=users,
        )
        self._running: RunningCluster | None = None

    # -- life --------------------------------------------------------------------------------

    def open(self) -> Self:
        """Start all brokers and wait until they are ready. For callers without a `with` block."""
        if self._running is not None:
            raise ClusterError("The cluster is running already.")
        running = RunningCluster(self._options)
        try:
            running.start()
        except BaseException:
            running.close()
            raise
        self._running = running
        return self

    def close(self) -> None:
        """Stop all brokers and remove temporary data. May be called twice."""
        if self._running is not None:
            running, self._running = self._running, None
            running.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> AsyncCluster:
        await asyncio.to_thread(self.open)
        return AsyncCluster(self._present)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        if self._running is None:
            return f"<Cluster of {self._options.brokers} brokers, not running>"
        return repr(self._running)

    # -- looking -----------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,...` of all brokers, for any Kafka client."""
        return self._present.bootstrap_servers

    def client_config(self, user: str | None = None) -> dict[str, str]:
        """All settings with which a client comes in as this user, or as the first there is.

        Names are those of librdkafka, which this package's clients and commands take as well.
        """
        return self._present.client_config(user)

    def java_client_config(self, user: str | None = None) -> dict[str, str]:
        """The same under the names of Kafka's Java clients and tools."""
        return self._present.java_client_config(user)

    @property
    def data_dir(self) -> Path:
        """The directory in which the brokers keep their data."""
        return self.control.data_dir

    @property
    def brokers(self) -> tuple[BrokerStatus, ...]:
        """All brokers in the order of their ids, running or not."""
        return self.status().brokers

    @property
    def controller(self) -> int | None:
        """The broker that is the controller, if there is one at the moment."""
        return self.run(self.control.controller())

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """The broker that leads the partition, or None while it has no leader."""
        return self.run(self.control.leader_of(topic, partition))

    def status(self) -> ClusterStatus:
        """Everything at this moment: brokers, partitions, offsets of all replicas. Prints well."""
        return self.run(self.control.status())

    # -- topics ------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        *,
        assignment: Mapping[int, Sequence[int]] | None = None,
        **configs: object,
    ) -> None:
        """Make a topic and wait until all brokers know it and its leaders.

        `assignment` places the replicas of each partition by hand, the preferred leader first, and
        says their numbers itself. Settings of the topic are keywords with `_` for `.`:
        `min_insync_replicas=2`. Raises `ProtocolError` if it is refused.
        """
        self._present.create_topic(name, partitions, replication_factor, assignment, configs)

    # -- faults ------------------------------------------------------------------------------

    def kill(self, *broker_ids: int | None) -> None:
        """End brokers without warning, as SIGKILL does: what was written stays, synced or not."""
        self.run(self.control.kill(given(broker_ids)))

    def stop(self, *broker_ids: int | None) -> None:
        """Stop brokers cleanly, as SIGTERM does: their leaderships move to other brokers first."""
        self.run(self.control.stop(given(broker_ids)))

    def start(self, *broker_ids: int | None) -> None:
        """Start brokers that are down, and wait until they are ready.

        One that was killed must wait until its session has ended, as a real one must.
        """
        self.run(self.control.start(given(broker_ids)))

    def restart(self, *broker_ids: int | None) -> None:
        """Stop brokers if they run, and start them."""
        self.run(self.control.restart(given(broker_ids)))

    def pause(self, *broker_ids: int | None) -> None:
        """Have brokers do nothing, as SIGSTOP does: their connections stay open and silent."""
        self.run(self.control.pause(given(broker_ids)))

    def resume(self, *broker_ids: int | None) -> None:
        """Have paused brokers go on where they stopped."""
        self.run(self.control.resume(given(broker_ids)))

    def partition(
        self, *groups: Collection[int], metadata_with: Collection[int] | None = None
    ) -> None:
        """Cut the network between groups of brokers, in place of any former cut.

        Brokers in no group reach all. The metadata stay with the largest group; `metadata_with`
        names the brokers that reach them instead. Clients still reach every broker.
        """
        self.run(self.control.partition(groups, metadata_with))

    def heal(self) -> None:
        """End all partitions of the network."""
        self.run(self.control.heal())

    # -- waiting -----------------------------------------------------------------------------

    def wait_for_leader(
        self,
        topic: str,
        partition: int = 0,
        *,
        other_than: int | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Wait until a live broker leads the partition, another than the one given."""
        return self.run(self.control.wait_for_leader(topic, partition, other_than, timeout_s))

    def wait_for_controller(
        self, *, other_than: int | None = None, timeout_s: float | None = None
    ) -> int:
        """Wait until a live broker is the controller, another than the one given."""
        return self.run(self.control.wait_for_controller(other_than, timeout_s))

    def wait_until_in_sync(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Wait until every replica on a broker that is not down is in sync: of one partition, of
        a topic, or of all."""
        self.run(self.control.wait_until_in_sync(topic, partition, timeout_s))

    def wait_until(
        self,
        condition: Callable[[ClusterStatus], bool],
        what: str = "the condition holds",
        *,
        timeout_s: float | None = None,
    ) -> ClusterStatus:
        """Wait until the condition holds for the state of the cluster, and return that state.

        `what` says it in words, for the error. The condition is called in the brokers' thread:
        it should only look at what it is given.
        """
        return self.run(self.control.wait_until(condition, what, timeout_s))

    # -- inside ------------------------------------------------------------------------------

    @property
    def control(self) -> Control:
        """What the facades call; its coroutines are for `run`."""
        return self._present.control

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of `control` in the brokers' thread."""
        return self._present.run(coroutine)

    @property
    def _present(self) -> RunningCluster:
        if self._running is None:
            raise ClusterError(NOT_RUNNING)
        return self._running
