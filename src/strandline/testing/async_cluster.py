"""`AsyncCluster`: a test cluster used from coroutines, which wait without holding up their loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from strandline.testing.control import Control
from strandline.testing.running_cluster import RunningCluster, given
from strandline.testing.status import BrokerStatus, ClusterStatus

T = TypeVar("T")


class AsyncCluster:
    """What `async with Cluster(...)` gives. Methods are those of `Cluster`, as coroutines."""

    def __init__(self, running: RunningCluster) -> None:
        self._running = running

    def __repr__(self) -> str:
        return repr(self._running)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,...` of all brokers, for any Kafka client."""
        return self._running.bootstrap_servers

    def client_config(self, user: str | None = None) -> dict[str, str]:
        """See `Cluster.client_config`."""
        return self._running.client_config(user)

    def java_client_config(self, user: str | None = None) -> dict[str, str]:
        """See `Cluster.java_client_config`."""
        return self._running.java_client_config(user)

    @property
    def data_dir(self) -> Path:
        """The directory in which the brokers keep their data."""
        return self._control.data_dir

    async def brokers(self) -> tuple[BrokerStatus, ...]:
        """All brokers in the order of their ids, running or not."""
        return (await self.status()).brokers

    async def controller(self) -> int | None:
        """The broker that is the controller, if any."""
        return await self._do(self._control.controller())

    async def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """See `Cluster.leader_of`."""
        return await self._do(self._control.leader_of(topic, partition))

    async def status(self) -> ClusterStatus:
        """See `Cluster.status`."""
        return await self._do(self._control.status())

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        *,
        assignment: Mapping[int, Sequence[int]] | None = None,
        **configs: object,
    ) -> None:
        """See `Cluster.create_topic`."""
        await asyncio.to_thread(
            self._running.create_topic, name, partitions, replication_factor, assignment, configs
        )

    async def kill(self, *broker_ids: int | None) -> None:
        """See `Cluster.kill`."""
        await self._do(self._control.kill(given(broker_ids)))

    async def stop(self, *broker_ids: int | None) -> None:
        """See `Cluster.stop`."""
        await self._do(self._control.stop(given(broker_ids)))

    async def start(self, *broker_ids: int | None) -> None:
        """See `Cluster.start`."""
        await self._do(self._control.start(given(broker_ids)))

    async def restart(self, *broker_ids: int | None) -> None:
        """See `Cluster.restart`."""
        await self._do(self._control.restart(given(broker_ids)))

    async def pause(self, *broker_ids: int | None) -> None:
        """See `Cluster.pause`."""
        await self._do(self._control.pause(given(broker_ids)))

    async def resume(self, *broker_ids: int | None) -> None:
        """See `Cluster.resume`."""
        await self._do(self._control.resume(given(broker_ids)))

    async def partition(
        self, *groups: Collection[int], metadata_with: Collection[int] | None = None
    ) -> None:
        """See `Cluster.partition`."""
        await self._do(self._control.partition(groups, metadata_with))

    async def heal(self) -> None:
        """See `Cluster.heal`."""
        await self._do(self._control.heal())

    async def wait_for_leader(
        self,
        topic: str,
        partition: int = 0,
        *,
        other_than: int | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """See `Cluster.wait_for_leader`."""
        return await self._do(
            self._control.wait_for_leader(topic, partition, other_than, timeout_s)
        )

    async def wait_for_controller(
        self, *, other_than: int | None = None, timeout_s: float | None = None
    ) -> int:
        """See `Cluster.wait_for_controller`."""
        return await self._do(self._control.wait_for_controller(other_than, timeout_s))

    async def wait_until_in_sync(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """See `Cluster.wait_until_in_sync`."""
        await self._do(self._control.wait_until_in_sync(topic, partition, timeout_s))

    async def wait_until(
        self,
        condition: Callable[[ClusterStatus], bool],
        what: str = "the condition holds",
        *,
        timeout_s: float | None = None,
    ) -> ClusterStatus:
        """See `Cluster.wait_until`."""
        return await self._do(self._control.wait_until(condition, what, timeout_s))

    @property
    def _control(self) -> Control:
        return self._running.control

    async def _do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await asyncio.to_thread(self._running.run, coroutine)
