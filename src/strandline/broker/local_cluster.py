"""Several brokers in one process and on one event loop, with one embedded metadata store.

They are real brokers: each has its own sockets, log directories and session, and they replicate
over TCP. What they share is the metadata tree, whose sessions end by timeout as they would in
ZooKeeper, so brokers can be killed, paused, cut off and started again. `strandline serve` runs one
of these; so does `strandline.testing.Cluster`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.broker.embedded_client import EmbeddedClient
from strandline.broker.embedded_store import EmbeddedStore
from strandline.broker.frame_memory import FrameMemory
from strandline.broker.handle_budget import HandleBudget
from strandline.broker.readiness import offline_notice
from strandline.broker.reserved_ports import ReservedPort, with_ports
from strandline.broker.running import Broker
from strandline.broker.start_report import StartReport
from strandline.broker.startup import start_broker
from strandline.broker.watch import Watch
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes, StoreUnavailable
from strandline.config.broker import BrokerConfig
from strandline.errors import InvariantViolated
from strandline.storage.durable_directory import make_durably
from strandline.storage.formats import check_formats
from strandline.storage.real_files import RealFiles
from strandline.types import BrokerId

if TYPE_CHECKING:
    from strandline.node.authentication.first_users import FirstUser


class LocalCluster:
    """See the module. All methods belong to one event loop. Made by `start`."""

    def __init__(
        self,
        configs: Sequence[BrokerConfig],
        store: EmbeddedStore,
        users: Sequence[FirstUser] = (),
    ) -> None:
        self.handles = HandleBudget.of_process(len(configs))
        """What the brokers share of the process's descriptors."""
        self._frames = FrameMemory.of_process(configs[0].queued_max_request_bytes)
        self.image = ClusterImage()
        """The metadata as the store has it, whatever the single brokers know of it."""
        self.brokers: dict[BrokerId, Broker] = {}
        """Those that run, paused or not."""
        self._configs = {BrokerId(config.node_id): config for config in configs}
        self._ports: list[ReservedPort] = []
        """Of listeners whose port is 0: kept until the end, for brokers that are started again."""
        self._store = store
        self._users = users
        self._watch = Watch()
        self._observer = EmbeddedClient(
            store, session_timeout_ms=configs[0].zookeeper_session_timeout_ms
        )
        self._starting: set[BrokerId] = set()
        self._killed: dict[BrokerId, Broker] = {}
        """Of which a thread may still be in a call to the disk."""
        self._groups: tuple[frozenset[BrokerId], ...] = ()
        self._without_metadata: frozenset[BrokerId] = frozenset()
        self._fault_control: str | None = None

    @classmethod
    async def start(
        cls,
        configs: Sequence[BrokerConfig],
        metadata_directory: str,
        users: Sequence[FirstUser] = (),
    ) -> LocalCluster:
        """Start all brokers at once and wait until they are ready.

        `users` are made unless they are there.
        Raises `InvalidSetting`, `StorageError` and `StoreError`; then nothing runs.
        """
        files = RealFiles()
        # Of all brokers before the first of them changes anything.
        check_formats(files, [path for config in configs for path in config.log_dirs])
        make_durably(files, metadata_directory)
        cluster = cls(configs, EmbeddedStore(files, metadata_directory), users)
        try:
            cluster._reserve_ports()
            cluster.image = ClusterImage.from_view(await cluster._observer.load(cluster._changed))
            await cluster.start_brokers(cluster.broker_ids)
        except BaseException:
            await cluster.abandon()
            raise
        return cluster

    @property
    def broker_ids(self) -> tuple[BrokerId, ...]:
        """All brokers, running or not."""
        return tuple(self._configs)

    @property
    def reports(self) -> dict[int, StartReport]:
        """What the starts of the running brokers found."""
        return {each: self.brokers[each].report for each in sorted(self.brokers)}

    @property
    def notice(self) -> str | None:
        """What is not there although all brokers run: they may have been more before."""
        found = (offline_notice(self.image), self.handles.warning)
        return " ".join(filter(None, found)) or None

    async def until_unfit(self) -> str:
        """Wait until no broker has a log directory left, and say what became of them.

        These brokers have the metadata to themselves, so no other broker takes an id.
        """
        reasons = await asyncio.gather(*(each.until_unfit() for each in self.brokers.values()))
        return " ".join(dict.fromkeys(reasons))

    async def stop(self) -> bool:
        """Stop all brokers cleanly, and the metadata store; whether all of them could."""
        try:
            return await self.stop_brokers(tuple(self.brokers))
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """End everything as if the process died, but give back what the process holds."""
        for broker_id in tuple(self.brokers):
            self.kill(broker_id)
        for killed in self._killed.values():
            await killed.ended()
        self._killed.clear()
        while self._ports:
            self._ports.pop().release()
        await self._observer.close()
        await self._store.close()

    # -- single brokers ----------------------------------------------------------------------

    async def start_brokers(self, broker_ids: Collection[BrokerId]) -> None:
        """Start brokers that do not run, all at once. Raises what the first that fails raises."""
        gate = asyncio.Barrier(max(1, len(broker_ids)))

        async def start(broker_id: BrokerId) -> None:
            try:
                await self.start_broker(broker_id, gate)
            except asyncio.BrokenBarrierError:
                pass  # One that failed to start keeps the others, and says why.
            except BaseException:
                await gate.abort()
                raise

        starts = await asyncio.gather(*map(start, broker_ids), return_exceptions=True)
        for outcome in starts:
            if isinstance(outcome, BaseException):
                raise outcome

    async def start_broker(
        self, broker_id: BrokerId, gate: asyncio.Barrier | None = None
    ) -> Broker:
        """Start a broker that does not run. After a kill it waits for the end of its session."""
        config = self._configs[broker_id]
        if broker_id in self.brokers or broker_id in self._starting:
            raise InvariantViolated(f"Broker {broker_id} runs already.")
        if broker_id in self._without_metadata:
            raise StoreUnavailable(
                f"Broker {broker_id} is cut off from the metadata, without which it cannot start."
            )
        self._starting.add(broker_id)
        try:
            if (killed := self._killed.pop(broker_id, None)) is not None:
                await killed.ended()
            broker = await start_broker(
                config,
                EmbeddedClient(self._store, session_timeout_ms=config.zookeeper_session_timeout_ms),
                is_alone=len(self._configs) == 1,
                cut_from=self._unreachable_from(broker_id),
                gate=gate,
                handles=self.handles,
                frames=self._frames,
                users=self._users,
            )
        finally:
            self._starting.discard(broker_id)
        self.brokers[broker_id] = broker
        broker.node.parts.fault_control = self._fault_control
        self._cut(broker)
        return broker

    async def stop_brokers(self, broker_ids: Collection[BrokerId]) -> bool:
        """Stop brokers, all at once, as SIGTERM does: they give their leaderships away first."""
        gate = asyncio.Barrier(max(1, len(broker_ids)))

        async def stop(broker: Broker) -> bool:
            try:
                return await broker.stop(gate)
            except BaseException:
                await gate.abort()
                raise

        stopping = [self.brokers.pop(each) for each in broker_ids]
        return all(await asyncio.gather(*map(stop, stopping)))

    def kill(self, broker_id: BrokerId) -> None:
        """End a broker without warning, as SIGKILL does."""
        broker = self._killed[broker_id] = self.brokers.pop(broker_id)
        broker.abandon()

    def tell_fault_control(self, address: str) -> None:
        """Have all brokers tell clients where faults can be asked for."""
        self._fault_control = address
        for broker in self.brokers.values():
            broker.node.parts.fault_control = address

    def _reserve_ports(self) -> None:
        for broker_id, config in self._configs.items():
            listeners = with_ports(config.listeners, self._ports)
            # As if the ports had been given: later changes are held against these settings.
            static = {**config.layers.static, "listeners": ",".join(map(str, listeners))}
            layers = replace(config.layers, static=static)
            self._configs[broker_id] = replace(config, listeners=listeners, layers=layers)

    # -- the network -------------------------------------------------------------------------

    def partition(
        self, groups: Sequence[Collection[BrokerId]], without_metadata: Collection[BrokerId]
    ) -> None:
        """Cut every link between brokers of different groups, in place of former cuts.

        A broker that is in no group reaches all. Clients still reach all brokers.
        """
        self._groups = tuple(frozenset(group) for group in groups)
        self._without_metadata = frozenset(without_metadata)
        for broker in self.brokers.values():
            self._cut(broker)

    def heal(self) -> None:
        """Connect all brokers with each other and with the metadata."""
        self.partition((), ())

    def is_cut_off(self, broker_id: BrokerId) -> bool:
        """Whether the broker cannot reach the metadata."""
        return broker_id in self._without_metadata

    def _cut(self, broker: Broker) -> None:
        broker.cut_from(
            self._unreachable_from(broker.broker_id),
            and_metadata=broker.broker_id in self._without_metadata,
        )

    def _unreachable_from(self, broker_id: BrokerId) -> frozenset[BrokerId]:
        if not any(broker_id in group for group in self._groups):
            return frozenset()
        others = (group for group in self._groups if broker_id not in group)
        return frozenset().union(*others)

    # -- waiting -----------------------------------------------------------------------------

    async def wait_until(self, condition: Callable[[], bool], *, timeout_s: float) -> bool:
        """Wait for something that a change of the metadata, or time, brings; whether it came."""
        return await self._watch.until(condition, timeout_s=timeout_s)

    def _changed(self, changes: Changes) -> None:
        self.image, _ = self.image.apply(changes)
        self._watch.changed()
