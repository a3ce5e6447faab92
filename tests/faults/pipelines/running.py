"""A topic under load, the table that follows it, and what can be killed of all that."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self

from strandline.client.cluster import ClusterClient
from strandline.client.fetching import Isolation
from strandline.client.offsets import LATEST, list_offsets
from strandline.lakehouse.tables.store import open_store
from strandline.testing import Cluster
from strandline.types import TopicPartition
from tests.faults.pipelines import descent, victims
from tests.faults.pipelines.lake import WAYS, Lake
from tests.faults.pipelines.load import TABLE, Load
from tests.faults.pipelines.phases import STARTING
from tests.faults.pipelines.pipeline import PATIENCE_S, Pipeline
from tests.faults.pipelines.victims import Kill
from tests.faults.processes import until
from tests.faults.zookeeper_cluster import ZooKeeperCluster
from tests.lakehouse.standalone import StandaloneSpark

PARTITIONS: Final = [TopicPartition(TABLE, number) for number in range(3)]
_BROKERS: Final = 3
_DOWN_S: Final = (0.0, 5.0)
"""How long a killed broker is away: from before the others notice to after their elections."""
_ANY_S: Final = 5.0
_USUAL_S: Final = 0.3
_LOOK_S: Final = 0.25
_AT_WORK: Final = ("pyspark.worker", "pyspark.sql.streaming.python_streaming_source_runner")
"""Workers that do something while a table is run: write its files, and find out what is new."""


class Brokers(Protocol):
    """A cluster that a table's topic lives in."""

    bootstrap: str

    def kill(self, broker: int) -> int:
        """Without warning; the process that was killed, or 0 if it was none."""

    def start(self, broker: int) -> None:
        """Start one again, and wait until it has all that the others have."""

    def close(self) -> None:
        """End it."""


class Killed(NamedTuple):
    """What was killed, and when."""

    victim: str
    name: str
    """What exactly: the number of a broker, the module of a worker."""
    pid: int
    phase: str
    """Of the table's run at that moment."""
    at_s: float
    """By the monotonic clock."""
    acknowledged: int
    """Records until then."""


class UnderLoad:
    """Brokers, load, and a pipeline. A context manager that ends all of them."""

    def __init__(
        self,
        home: Path,
        seed: int,
        make_brokers: Callable[[Path], Brokers],
        *,
        spark: StandaloneSpark | None = None,
        lake: Lake | None = None,
        **spec: Any,
    ) -> None:
        self.chance = random.Random(seed)
        self._home = home
        self._seed = seed
        self._make_brokers = make_brokers
        self._spark = spark
        self._lake = lake
        self._spec = spec

    def __enter__(self) -> Self:
        self.brokers = self._make_brokers(self._home)
        bootstrap = self.brokers.bootstrap
        self._client = ClusterClient(bootstrap)
        upserts = self._spec.get("mode") == "upsert"
        self.load = Load(bootstrap, self._seed, upserts=upserts)
        self.pipeline = Pipeline(
            self._home, bootstrap, spark=self._spark, lake=self._lake, **self._spec
        )
        self.load.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            self.pipeline.end()
            if kind is None:
                self.load.end()
        finally:
            self._client.close()
            self.brokers.close()

    @property
    def victims(self) -> Sequence[str]:
        """What can be killed."""
        executors = [] if self._spark is None else [victims.EXECUTOR]
        found = [victims.DRIVER, victims.JVM, *executors, victims.WORKER, victims.BROKER]
        if self._spark is not None and self._lake is not None:
            found += [victims.CLUSTER_WORKER, victims.MASTER, victims.STORE]
        return found

    def ends(self) -> dict[TopicPartition, int]:
        """Where the logs end now."""
        found = list_offsets(
            self._client, dict.fromkeys(PARTITIONS, LATEST), Isolation.READ_COMMITTED
        )
        return {partition: each.offset for partition, each in found.items()}

    def wait_until_held(self, ends: dict[TopicPartition, int]) -> None:
        """Until the table has everything below these offsets, run again if need be."""
        store = open_store(self.pipeline.spec)
        looked_s = 0.0

        def has_all() -> bool:
            nonlocal looked_s
            self.load.check()
            self.pipeline.ensure_running()
            if time.monotonic() - looked_s < _LOOK_S:
                return False
            looked_s = time.monotonic()
            if not store.exists():
                return False
            frontiers = store.state().frontiers
            return all(
                partition in frontiers and frontiers[partition].end >= end
                for partition, end in ends.items()
            )

        until(
            has_all,
            f"a table that reaches {ends}",
            seconds=PATIENCE_S,
            complaint=self.pipeline.complaint,
        )

    def strike(self, kill: Kill) -> Killed:
        """Wait for the moment, and kill a victim that is there then."""
        self._wait_for_moment(kill)
        match kill.victim:
            case victims.DRIVER:
                self.pipeline.ensure_running()
                pid, now = self.pipeline.pid, self._now()
                return Killed(kill.victim, "command", pid, self.pipeline.kill_driver(), *now)
            case victims.BROKER:
                broker = self.chance.randint(1, _BROKERS)
                phase, now = self.pipeline.phases.now, self._now()
                pid = self.brokers.kill(broker)
                time.sleep(self.chance.uniform(*_DOWN_S))  # that it is away for so long is the test
                self.brokers.start(broker)
                return Killed(kill.victim, f"broker {broker}", pid, phase, *now)
            case victims.CLUSTER_WORKER | victims.MASTER:
                return self._kill_of_cluster(kill.victim)
            case victims.STORE:
                assert self._lake is not None
                phase, now = self.pipeline.phases.now, self._now()
                way = self.chance.choice(WAYS)
                self._lake.cut(way, self.chance)
                return Killed(kill.victim, way, 0, phase, *now)
            case _:
                return self._kill_below(kill.victim)

    def _wait_for_moment(self, kill: Kill) -> None:
        if kill.moment == STARTING:
            self.pipeline.stop()
            self.pipeline.ensure_running()
            usual_s = self.pipeline.durations.usual(STARTING, otherwise=_ANY_S)
        elif kill.moment == victims.ANY:
            usual_s = _ANY_S
        else:
            self.pipeline.wait_for_phase(kill.moment)
            usual_s = self.pipeline.durations.usual(kill.moment, otherwise=_USUAL_S)
        time.sleep(kill.part * usual_s)  # a random moment is one that waits for nothing

    def _kill_below(self, victim: str) -> Killed:
        """One process below the command; waits until there is one."""

        def struck() -> Killed | None:
            self.pipeline.ensure_running()
            there = self._below(victim)
            if not there:
                return None
            name = self.chance.choice(sorted(there))
            process = descent.Process.of(self.chance.choice(there[name]))
            self.pipeline.look_below()
            phase, now = self.pipeline.phases.now, self._now()
            if not process.is_there() or not descent.kill(process.pid):
                return None
            until(lambda: not process.is_there(), f"the end of {process}", seconds=PATIENCE_S)
            return Killed(victim, name, process.pid, phase, *now)

        return until(struck, f"a {victim} to kill", seconds=PATIENCE_S)

    def _kill_of_cluster(self, victim: str) -> Killed:
        """A process of the standalone Spark, which is started again after a while."""
        assert self._spark is not None
        self.pipeline.ensure_running()
        name = "master" if victim == victims.MASTER else self.chance.choice(self._spark.workers)
        phase, now = self.pipeline.phases.now, self._now()
        pid = self._spark.kill(name)
        time.sleep(self.chance.uniform(*_DOWN_S))  # that it is away for so long is the test
        self._spark.start(name)
        return Killed(victim, name, pid, phase, *now)

    def _now(self) -> tuple[float, int]:
        return time.monotonic(), self.load.acknowledged

    def _below(self, victim: str) -> dict[str, list[int]]:
        """Victims by name."""
        pid = self.pipeline.pid
        cluster = [] if self._spark is None else self._spark.pids
        match victim:
            case victims.JVM:
                found = descent.jvm_below(pid)
            case victims.EXECUTOR:
                found = [below for each in cluster for below in descent.executors_below(each)]
            case _:
                workers = descent.workers_below(pid, *cluster)
                # Others wait for the next start; they are killed where there are none but them.
                return {name: workers[name] for name in _AT_WORK if name in workers} or workers
        return {victim: found} if found else {}


class BrokersInThread:
    """Brokers in a thread of this process: `kill` is as the end of a process to all others."""

    def __init__(self, home: Path) -> None:
        self._cluster = Cluster(brokers=_BROKERS, data_dir=home / "brokers").open()
        self._cluster.create_topic(TABLE, len(PARTITIONS), _BROKERS, min_insync_replicas=2)
        self.bootstrap = self._cluster.bootstrap_servers

    def kill(self, broker: int) -> int:
        """As `Brokers.kill`."""
        self._cluster.kill(broker)
        return 0

    def start(self, broker: int) -> None:
        """As `Brokers.start`."""
        self._cluster.start(broker)
        self._cluster.wait_until_in_sync(TABLE, timeout_s=PATIENCE_S)

    def close(self) -> None:
        """As `Brokers.close`."""
        self._cluster.close()


class BrokerProcesses:
    """`strandline broker` in processes of their own over a ZooKeeper: `kill` is kill -9."""

    def __init__(self, home: Path) -> None:
        self._cluster = ZooKeeperCluster(home, brokers=_BROKERS)
        self._cluster.__enter__()
        try:
            self._cluster.create_topic(TABLE, partitions=len(PARTITIONS))
        except BaseException:
            self._cluster.close()
            raise
        self.bootstrap = self._cluster.bootstrap

    def kill(self, broker: int) -> int:
        """As `Brokers.kill`."""
        process = descent.Process.of(self._cluster.processes[broker].pid)
        self._cluster.kill(broker)
        assert not process.is_there(), f"{process} is still there"
        return process.pid

    def start(self, broker: int) -> None:
        """As `Brokers.start`."""
        self._cluster.start(broker)
        until(
            lambda: all(
                len(self._cluster.state_of(*partition).in_sync) == _BROKERS
                for partition in PARTITIONS
            ),
            "all replicas in sync",
            seconds=PATIENCE_S,
        )

    def close(self) -> None:
        """As `Brokers.close`."""
        self._cluster.close()
