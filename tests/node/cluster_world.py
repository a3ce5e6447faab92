"""Several nodes in virtual time, for tests that say what happens and when.

The cluster is `strandline.sim.World` with quick and lossless wires and nothing that happens by
itself. A test drives time (`run`, `run_until`), breaks things (`kill`, `power_cut`, `pause`, `cut`,
`hold`), and asks the nodes as clients do, though without a wire. `check()` holds what must be true
at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from strandline.cluster.image import ClusterImage
from strandline.cluster.image_parts import PartitionImage
from strandline.config.broker import BrokerConfig
from strandline.node.connection import Connection
from strandline.node.node import Node
from strandline.node.replica import Replica
from strandline.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from strandline.sim import settled
from strandline.sim.disk import Disk
from strandline.sim.latency import Tcp
from strandline.sim.machine import Machine
from strandline.sim.network import Network
from strandline.sim.plan import LatencySpec, Options
from strandline.sim.schedule import Schedule
from strandline.sim.silent import Silent
from strandline.sim.store import Store
from strandline.sim.streams import Streams
from strandline.sim.wires import Wire
from strandline.sim.world import World
from strandline.storage.memory_inodes import PowerCut
from strandline.types import BrokerId, Instant, TopicPartition
from tests.node.world import Client

ANSWER_MS_MAX: Final = 60_000
LATENCY: Final = LatencySpec(least_us=0, mean_us=300)


class Broker:
    """One broker, as tests use it: a simulated machine, and clients without a wire."""

    def __init__(self, world: ClusterWorld, machine: Machine) -> None:
        self.world = world
        self.machine = machine
        self.clients: list[Client] = []

    @property
    def broker_id(self) -> BrokerId:
        return self.machine.broker_id

    @property
    def node(self) -> Node:
        return self.machine.node

    @property
    def config(self) -> BrokerConfig:
        return self.machine.config

    @property
    def disk(self) -> Disk:
        return self.machine.disk

    @property
    def is_running(self) -> bool:
        return self.machine.is_running

    @property
    def is_up(self) -> bool:
        return self.machine.is_up

    @property
    def is_paused(self) -> bool:
        return self.machine.is_paused

    @property
    def now(self) -> Instant:
        return self.machine.now

    @property
    def links(self) -> list[Wire]:
        """Connections to other brokers that this one has made."""
        return [
            wire for wire in self.world.network.wires_of(self.broker_id) if not wire.is_accepted
        ]

    @property
    def accepted(self) -> list[Wire]:
        """Connections of other brokers with this one."""
        return [each for each in self._wires if each.is_accepted]

    @property
    def _wires(self) -> list[Wire]:
        return self.world.network.wires_of(self.broker_id)

    def event(self, action: Callable[[Node, Instant], None]) -> None:
        """Let something happen to the node, now or when it goes on."""
        self.machine.event(action)

    def schedule_turn(self) -> None:
        """End the turn when everything of this moment has happened."""
        self.machine.schedule_turn()

    def expire(self) -> None:
        """End its session with the metadata store."""
        self.world.store.expire(self.broker_id)

    # -- for clients -------------------------------------------------------------------------

    def connect(self) -> Client:
        """A new client connection to this broker."""
        client = Client(self)
        self.clients.append(client)
        self.machine.direct[client.connection.id] = client
        return client

    def receive(self, connection: Connection, frame: memoryview) -> None:
        """A client's bytes have come; what is logged meanwhile is this broker's."""
        bugs = self.world.sim.bugs
        before, bugs.working = bugs.working, self.broker_id
        try:
            self.node.receive(connection, frame, self.now)
        finally:
            bugs.working = before

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Let time pass until a client has what it waits for."""
        self.schedule_turn()
        self.world.run_until(condition, ms_max=ANSWER_MS_MAX)

    def check(self) -> None:
        """No request was lost, every log is sound."""
        for client in self.clients:
            client.check()
        for replica in self.node.replicas if self.is_up and not self.is_paused else ():
            replica.log.check()


class _Bugs(Silent):
    """What brokers told of themselves."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def bug(self, broker_id: BrokerId | None, sentence: str) -> None:
        self.found.append(f"{broker_id}: {sentence}")


class ClusterWorld:
    """See the module."""

    def __init__(
        self,
        brokers: int = 3,
        *settings: str,
        seed: int = 1,
        disks: int = 1,
        start: bool = True,
    ) -> None:
        pairs = ("offsets.topic.num.partitions=2", *settings)
        options = Options(
            seed=seed,
            brokers=brokers,
            disks=disks,
            settings=dict(pair.split("=", 1) for pair in pairs),
            store_latency_us=300,
        )
        self.seed = seed
        self.sim = World(options, permute=False, network=_network)
        self.machines = {
            broker_id: Broker(self, machine) for broker_id, machine in self.sim.machines.items()
        }
        self.bugs = _Bugs()
        self.sim.observers.append(self.bugs)
        self._cuts: frozenset[tuple[BrokerId, BrokerId]] = frozenset()
        self._held: frozenset[tuple[BrokerId, BrokerId]] = frozenset()
        self._cut_off: tuple[BrokerId, ...] = ()
        if start:
            # The last one is the first, and so becomes the controller.
            for broker_id in reversed(self.machines):
                self.start(broker_id)
                self.run_until(lambda: self.image.controller is not None)
            self.run_until(self.is_settled)

    def __getitem__(self, broker_id: int) -> Broker:
        return self.machines[BrokerId(broker_id)]

    @property
    def schedule(self) -> Schedule:
        return self.sim.schedule

    @property
    def network(self) -> Network:
        return self.sim.network

    @property
    def store(self) -> Store:
        return self.sim.store

    # -- time --------------------------------------------------------------------------------

    def run(self, milliseconds: int) -> None:
        """Let time pass."""
        self.sim.run_for(milliseconds)

    def run_until(self, condition: Callable[[], bool], *, ms_max: int = 60_000) -> None:
        """Let things happen until the condition holds; fail if it takes longer than `ms_max`."""
        assert self.sim.run_until(condition, ms_max * 1000), f"In vain for {ms_max} ms.\n{self}"

    # -- faults ------------------------------------------------------------------------------

    def start(self, broker_id: int) -> None:
        """Start a broker that is not running."""
        assert not self[broker_id].is_running
        self[broker_id].machine.start()

    def kill(self, broker_id: int, *, expire: bool = False) -> None:
        """End a process; what it wrote to its files stays. `expire` ends its session at once."""
        assert self[broker_id].is_running
        self[broker_id].machine.kill()
        if expire:
            self[broker_id].expire()

    def power_cut(self, broker_id: int, mode: PowerCut = "none", *, expire: bool = False) -> None:
        """End a machine; of what was not synced, only what `mode` lets stay does."""
        assert self[broker_id].is_running
        self[broker_id].machine.power_cut(mode)
        if expire:
            self[broker_id].expire()

    def stop(self, broker_id: int) -> bool:
        """Stop a broker as SIGTERM does; returns whether its files are in order."""
        ended: list[bool] = []
        self[broker_id].machine.stop(ended.append)
        self.run_until(lambda: bool(ended))
        return ended[0]

    def restart(self, broker_id: int) -> None:
        """Stop and start."""
        assert self.stop(broker_id)
        self.start(broker_id)

    def pause(self, broker_id: int) -> None:
        """Stop a process in its tracks; its session runs out."""
        self[broker_id].machine.pause()

    def resume(self, broker_id: int) -> None:
        """Let it go on: it acts on what it knows before it hears what has changed."""
        self[broker_id].machine.resume()

    def cut(
        self, some: Collection[int], others: Collection[int], *, and_metadata: bool = False
    ) -> None:
        """Cut brokers off from others, both ways; the first ones perhaps from the metadata too."""
        for a in some:
            for b in others:
                for pair in ((BrokerId(a), BrokerId(b)), (BrokerId(b), BrokerId(a))):
                    if pair not in self._cuts:
                        self._cuts |= {pair}
                        self.network.cut(*pair)
        if and_metadata:
            for broker_id in some:
                self.store.cut(BrokerId(broker_id), silent=False)

    def heal(self) -> None:
        """End all cuts."""
        for pair in sorted(self._cuts):
            self.network.mend(*pair)
        self._cuts = frozenset()
        for broker_id in self.machines:
            self.store.heal(broker_id)

    def hold(self, *pairs: tuple[int, int]) -> None:
        """Hold what goes from the first to the second broker of exactly these pairs."""
        wanted = frozenset((BrokerId(a), BrokerId(b)) for a, b in pairs)
        for pair in sorted(wanted - self._held):
            self.network.clog(*pair)
        for pair in sorted(self._held - wanted):
            self.network.unclog(*pair)
        self._held = wanted

    def is_held(self, sender: int, receiver: int) -> bool:
        """Whether something waits between two brokers."""
        return self.network.is_waiting(BrokerId(sender), BrokerId(receiver))

    def let_through(self, sender: int, receiver: int) -> None:
        """Deliver one held thing, and what follows from it at this moment and soon after."""
        assert self.network.let_one_through(BrokerId(sender), BrokerId(receiver)), "nothing is held"
        self.run(5)

    def sync(self, broker_id: int, topic: str, number: int = 0) -> None:
        """Bring one replica's log to the disk."""
        log = self.replica(broker_id, topic, number).log
        plan = log.flusher.flush_plan()
        assert plan is not None
        assert plan.carry_out(self[broker_id].disk.files)
        assert log.flusher.mark_flushed(plan, self[broker_id].now.wall_ms)

    # -- looking -----------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """The metadata as the store has it."""
        return self.store.image

    @property
    def controller(self) -> Broker:
        controller = self.image.controller
        assert controller is not None
        return self.machines[controller]

    def partition(self, topic: str, number: int = 0) -> PartitionImage:
        found = self.image.partition(TopicPartition(topic, number))
        assert found is not None
        return found

    def leader_of(self, topic: str, number: int = 0) -> Broker:
        """The broker that the metadata says leads."""
        return self.machines[self.partition(topic, number).leader]

    def replica(self, broker_id: int, topic: str, number: int = 0) -> Replica:
        """The replica on one broker, led or followed."""
        replica = self.sim.replica(broker_id, TopicPartition(topic, number))
        assert replica is not None
        return replica

    def offsets(self, broker_id: int, topic: str, number: int = 0) -> tuple[int, int]:
        """Log end and high watermark on one broker."""
        log = self.replica(broker_id, topic, number).log
        return log.log_end_offset, log.high_watermark

    def log_bytes(self, broker_id: int, topic: str, number: int = 0) -> bytes:
        """All bytes of a partition's log on one broker."""
        return settled.log_bytes(self.sim, broker_id, TopicPartition(topic, number))

    def is_settled(self) -> bool:
        """Whether all is well, see `settled.is_settled`."""
        return self.sim.is_settled()

    def are_logs_equal(self, topic: str, number: int = 0) -> bool:
        """Whether all running replicas hold the same bytes and offsets (I-21, I-49)."""
        return settled.are_logs_equal(self.sim, TopicPartition(topic, number))

    def check(self) -> None:
        """No bug was told of, no request was lost, every log is sound."""
        self.run(0)
        assert not self.bugs.found, self.bugs.found
        for broker in self.machines.values():
            broker.check()

    def __str__(self) -> str:
        return str(self.sim)

    # -- short ways --------------------------------------------------------------------------

    def create_topic(
        self, name: str, *assignments: Collection[int], partitions: int = 1, **configs: str
    ) -> None:
        """Make a topic with the given replicas per partition, or spread over all brokers."""
        replicas = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in enumerate(assignments)
        ]
        topic = CreatableTopic(
            name=name,
            num_partitions=-1 if replicas else partitions,
            replication_factor=-1 if replicas else len(self.machines),
            assignments=replicas,
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
        answer = self.controller.connect().ask(request, 5)
        assert [item.error_code for item in answer.topics] == [0], answer
        self.run_until(self.is_settled)


def _network(schedule: Schedule, streams: Streams) -> Network:
    return Network(schedule, streams, LATENCY, Tcp())
