"""What a test cluster can do, as coroutines of the event loop on which its brokers run.

`Cluster` and `AsyncCluster` call this from other threads. Everything that can go wrong for a user
of those is a `ClusterError` with a sentence, and where it helps with the state of the cluster.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from strandline.broker.local_cluster import LocalCluster
from strandline.broker.local_layout import broker_configs, metadata_directory
from strandline.broker.reserved_ports import ReservedPort
from strandline.broker.running import Broker
from strandline.cluster.image import PartitionImage
from strandline.config.broker import BrokerConfig
from strandline.config.load import load_broker_config
from strandline.errors import StrandlineError
from strandline.storage.real_files import RealFiles
from strandline.testing.inspection import partition_status
from strandline.testing.security import ClusterSecurity
from strandline.testing.status import BrokerStatus, ClusterStatus
from strandline.types import BrokerId, TopicPartition

QUICK: Final[Mapping[str, object]] = {
    # A lost broker is noticed within seconds, not half a minute.
    "replica.lag.time.max.ms": 2500,
    "replica.fetch.backoff.ms": 100,
    # Groups form at once, and members that die are missed soon.
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    # Fifty partitions of an internal topic are of no use in a test.
    "offsets.topic.num.partitions": 4,
}
"""Settings of test clusters that differ from a broker's defaults."""


class ClusterError(StrandlineError):
    """Something was asked of a test cluster that it cannot do, or did not do in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a test cluster is like; see `Cluster`."""

    brokers: int = 3
    session_timeout_ms: int = 1000
    settings: Mapping[str, object] = field(default_factory=dict)
    racks: Sequence[str] = ()
    data_dir: str | Path | None = None
    timeout_s: float = 90.0
    security: str = "PLAINTEXT"
    sasl_mechanism: str = "SCRAM-SHA-512"
    users: Mapping[str, str] | None = field(default=None, repr=False)


class Control:
    """See the module. Made in any thread; its coroutines belong to one event loop."""

    def __init__(self, options: Options) -> None:
        """Choose ports and directory; `start` starts. Raises `InvalidSetting`."""
        if options.brokers < 1:
            raise ClusterError(f"A cluster needs at least one broker, not {options.brokers}.")
        self.options = options
        self.security = ClusterSecurity(options.security, options.sasl_mechanism, options.users)
        self.data_dir = Path(
            tempfile.mkdtemp(prefix="strandline-") if options.data_dir is None else options.data_dir
        )
        self._ports = [ReservedPort() for _ in range(options.brokers)]
        self._cluster: LocalCluster | None = None
        try:
            base = load_broker_config(None, self._settings()).config
            self._metadata_directory = metadata_directory(base)
            self._configs = [
                _listening(config, f"{options.security}://{port.address}")
                for config, port in zip(
                    broker_configs(base, options.brokers, RealFiles(), racks=options.racks),
                    self._ports,
                    strict=True,
                )
            ]
        except BaseException:
            self.release()
            raise

    @property
    def addresses(self) -> dict[int, str]:
        """Where each broker listens, also while it is down."""
        return {
            config.node_id: port.address
            for config, port in zip(self._configs, self._ports, strict=True)
        }

    async def start_all(self) -> None:
        """Start the metadata store and all brokers."""
        self._cluster = await LocalCluster.start(
            self._configs, self._metadata_directory, self.security.first_users
        )

    async def end(self) -> None:
        """Stop everything that runs: cleanly, unless the data goes away anyhow."""
        if self._cluster is None:
            return
        cluster, self._cluster = self._cluster, None
        if self.options.data_dir is None:
            await cluster.abandon()
        else:
            cluster.heal()
            await cluster.stop()

    def release(self) -> None:
        """Give ports back and remove what was made in the file system. After `end`."""
        for port in self._ports:
            port.release()
        self.security.close()
        if self.options.data_dir is None:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    # -- brokers -----------------------------------------------------------------------------

    async def start(self, broker_ids: Collection[int]) -> None:
        wanted = self._choose(broker_ids, self._down())
        running = [each for each in wanted if each in self._local.brokers]
        if running:
            raise ClusterError(f"{_brokers(running)} cannot be started: already running.")
        await self._local.start_brokers(wanted)

    async def stop(self, broker_ids: Collection[int]) -> None:
        await self._local.stop_brokers(self._running(broker_ids, "stopped"))

    async def restart(self, broker_ids: Collection[int]) -> None:
        wanted = self._choose(broker_ids, self._local.broker_ids)
        running = [each for each in wanted if each in self._local.brokers]
        await self._local.stop_brokers(running)
        await self._local.start_brokers(wanted)

    async def kill(self, broker_ids: Collection[int]) -> None:
        for each in self._running(broker_ids, "killed"):
            self._local.kill(each)

    async def pause(self, broker_ids: Collection[int]) -> None:
        for each in self._running(broker_ids, "paused"):
            self._local.brokers[each].pause()

    async def resume(self, broker_ids: Collection[int]) -> None:
        paused = [each for each, broker in self._local.brokers.items() if broker.is_paused]
        wanted = self._choose(broker_ids, paused)
        running = [each for each in wanted if each not in paused]
        if running:
            raise ClusterError(f"{_brokers(running)} cannot be resumed: not paused.")
        for each in wanted:
            self._local.brokers[each].resume()

    async def partition(
        self, groups: Sequence[Collection[int]], metadata_with: Collection[int] | None
    ) -> None:
        known = [self._choose(group, ()) for group in groups]
        named = [each for group in known for each in group]
        if len(named) != len(set(named)):
            raise ClusterError("A broker is on both sides of the partition.")
        if metadata_with is None:
            reached = frozenset(_larger(known))
        else:
            reached = frozenset(self._choose(metadata_with, ()))
        self._local.partition(known, frozenset(named) - reached)

    async def heal(self) -> None:
        self._local.heal()

    # -- looking -----------------------------------------------------------------------------

    async def controller(self) -> int | None:
        return self._local.image.controller

    async def leader_of(self, topic: str, partition: int) -> int | None:
        state = self._partition(topic, partition)
        return state.leader if state.has_leader else None

    async def status(self) -> ClusterStatus:
        return self._status()

    def _status(self) -> ClusterStatus:
        local = self._local
        image = local.image
        return ClusterStatus(
            image.controller,
            tuple(self._broker_status(config) for config in self._configs),
            tuple(
                partition_status(topic.name, number, topic.partitions[number], local.brokers)
                for _, topic in sorted(image.topics.items())
                for number in sorted(topic.partitions)
            ),
        )

    # -- waiting -----------------------------------------------------------------------------

    async def wait_for_topic(self, topic: str) -> None:
        """Until every broker that hears of metadata knows the topic and its leaders."""

        def is_known() -> bool:
            wanted = self._local.image.topics.get(topic)
            return wanted is not None and all(
                broker.node.metadata.image.topics.get(topic) == wanted
                for broker in self._local.brokers.values()
                if not broker.is_paused and not self._local.is_cut_off(broker.broker_id)
            )

        await self._wait(is_known, None, f"topic '{topic}' is not known everywhere")

    async def wait_for_leader(
        self, topic: str, partition: int, other_than: int | None, timeout_s: float | None
    ) -> int:
        def is_led() -> bool:
            state = self._partition(topic, partition)
            return state.leader != other_than and self._local.image.is_alive(state.leader)

        await self._wait(is_led, timeout_s, f"{topic}-{partition} has no such leader")
        return self._partition(topic, partition).leader

    async def wait_for_controller(self, other_than: int | None, timeout_s: float | None) -> int:
        def is_there() -> bool:
            image = self._local.image
            return image.controller in image.brokers and image.controller != other_than

        await self._wait(is_there, timeout_s, "there is no such controller")
        controller = self._local.image.controller
        if controller is None:
            raise ClusterError("The controller has gone again.")
        return controller

    async def wait_until_in_sync(
        self, topic: str | None, partition: int | None, timeout_s: float | None
    ) -> None:
        def is_in_sync() -> bool:
            return all(map(self._is_in_sync, self._states(topic, partition)))

        await self._wait(is_in_sync, timeout_s, "not all replicas are in sync")

    async def wait_until(
        self, condition: Callable[[ClusterStatus], bool], what: str, timeout_s: float | None
    ) -> ClusterStatus:
        found: list[ClusterStatus] = []

        def holds() -> bool:
            found[:] = [self._status()]
            return condition(found[0])

        await self._wait(holds, timeout_s, f"it is not so that {what}")
        return found[0]

    async def _wait(
        self, condition: Callable[[], bool], timeout_s: float | None, what: str
    ) -> None:
        timeout_s = self.options.timeout_s if timeout_s is None else timeout_s
        if not await self._local.wait_until(condition, timeout_s=timeout_s):
            raise ClusterError(f"After {timeout_s:g} s {what}.\n{self._status()}")

    def _is_in_sync(self, state: PartitionImage) -> bool:
        """Whether it is led, and every replica is in sync whose broker is not down."""
        expected = {each for each in state.replicas if each in self._local.brokers}
        return self._local.image.is_alive(state.leader) and expected <= {*state.in_sync_replicas}

    # -- inside ------------------------------------------------------------------------------

    @property
    def _local(self) -> LocalCluster:
        if self._cluster is None:
            raise ClusterError("The cluster is not running: use it in a `with` block.")
        return self._cluster

    def _settings(self) -> list[str]:
        options = self.options
        settings: dict[str, Any] = {
            **QUICK,
            "zookeeper.session.timeout.ms": options.session_timeout_ms,
            **self.security.broker_settings,
            **options.settings,
            "log.dirs": self.data_dir,
            "listeners": f"{options.security}://{self._ports[0].address}",
        }
        return [f"{name}={_text(value)}" for name, value in settings.items()]

    def _choose(self, broker_ids: Collection[int], default: Iterable[int]) -> list[BrokerId]:
        """The brokers that are named; the default if none is."""
        unknown = sorted(set(broker_ids) - set(self._local.broker_ids))
        if unknown:
            known = ", ".join(map(str, self._local.broker_ids))
            raise ClusterError(f"There is no broker {unknown[0]}; the brokers are {known}.")
        return [BrokerId(each) for each in (broker_ids or default)]

    def _running(self, broker_ids: Collection[int], participle: str) -> list[BrokerId]:
        wanted = self._choose(broker_ids, self._local.brokers)
        down = [each for each in wanted if each not in self._local.brokers]
        if down:
            raise ClusterError(f"{_brokers(down)} cannot be {participle}: not running.")
        return wanted

    def _down(self) -> list[BrokerId]:
        return [each for each in self._local.broker_ids if each not in self._local.brokers]

    def _partition(self, topic: str, partition: int) -> PartitionImage:
        state = self._local.image.partition(TopicPartition(topic, partition))
        if state is None:
            raise ClusterError(f"There is no partition {partition} of a topic '{topic}'.")
        return state

    def _states(self, topic: str | None, partition: int | None) -> list[PartitionImage]:
        if topic is not None and partition is not None:
            return [self._partition(topic, partition)]
        topics = self._local.image.topics
        if topic is not None and topic not in topics:
            raise ClusterError(f"There is no topic '{topic}'.")
        chosen = topics.values() if topic is None else (topics[topic],)
        return [state for each in chosen for state in each.partitions.values()]

    def _broker_status(self, config: BrokerConfig) -> BrokerStatus:
        broker_id = BrokerId(config.node_id)
        image = self._local.image
        return BrokerStatus(
            broker_id,
            self.addresses[broker_id],
            _state(self._local.brokers.get(broker_id)),
            config.broker_rack,
            is_registered=image.is_alive(broker_id),
            is_controller=image.controller == broker_id,
            is_cut_off=self._local.is_cut_off(broker_id),
            data=config.log_dirs,
        )


def _state(broker: Broker | None) -> str:
    if broker is None:
        return "down"
    return "paused" if broker.is_paused else "running"


def _listening(config: BrokerConfig, listener: str) -> BrokerConfig:
    """The configuration with a listener; as text, because dynamic settings are laid over that."""
    static = {**config.layers.static, "listeners": listener}
    static.pop("advertised.listeners", None)
    return load_broker_config(None, [f"{name}={value}" for name, value in static.items()]).config


def _larger(groups: Sequence[Sequence[BrokerId]]) -> Sequence[BrokerId]:
    """The group that keeps the metadata unless the caller names one."""
    largest = max(groups, key=len, default=())
    if sum(len(group) == len(largest) for group in groups) > 1:
        raise ClusterError(
            "The sides of the partition have the same size: say with metadata_with=... which "
            "brokers still reach the metadata."
        )
    return largest


def _brokers(broker_ids: Sequence[int]) -> str:
    numbers = ", ".join(map(str, broker_ids))
    return f"Broker {numbers}" if len(broker_ids) == 1 else f"Brokers {numbers}"


def _text(value: object) -> str:
    """A setting's value as a properties file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
