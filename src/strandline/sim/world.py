"""A whole cluster in virtual time: machines, network, metadata store, and observers.

Every broker is a real `Node` on a simulated disk and speaks real bytes over simulated wires; all of
them follow one simulated metadata store. Nothing happens but what is in the schedule, and nothing
is random but what a stream of the seed gives: the same options give the same run, and the same
`trace_hash` (I-52).

This file puts the parts together and lets time pass. It must not know what clients want, which
faults there are, or what must be true.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final
from zlib import crc32

from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes
from strandline.cluster.topic_names import CONSUMER_OFFSETS
from strandline.config.broker import BrokerConfig
from strandline.config.load import load_broker_config
from strandline.errors import ProtocolError
from strandline.node.replica import Replica
from strandline.protocol.coordinator_log import partition_for
from strandline.sim import settled
from strandline.sim.bugs import BugWatch
from strandline.sim.clock import NodeClock
from strandline.sim.compacted import is_compacted
from strandline.sim.disk import Disk
from strandline.sim.history.lookups import Leadership
from strandline.sim.history.operations import Event
from strandline.sim.latency import End
from strandline.sim.machine import Machine
from strandline.sim.network import Network
from strandline.sim.observer import Observer
from strandline.sim.plan import Options
from strandline.sim.schedule import Schedule
from strandline.sim.store import Store
from strandline.sim.streams import Streams
from strandline.sim.tokens import settings_of_tokens
from strandline.sim.trace import Kind, Trace
from strandline.types import BrokerId, TopicId, TopicPartition

QUICK: Final = {
    "offsets.topic.num.partitions": "1",
    "replica.lag.time.max.ms": "10000",
    "zookeeper.session.timeout.ms": "6000",
    # Indexes are preallocated, and tables of a million entries take their time.
    "log.index.size.max.bytes": "4096",
}
"""The settings of a simulated broker unless the plan gives others."""

NOTES_MAX: Final = 300
_CLIENT: Final = 0x8000
_INTRUDERS: Final = 100


class World:
    """See the module."""

    def __init__(
        self,
        options: Options,
        *,
        permute: bool = True,
        network: Callable[[Schedule, Streams], Network] | None = None,
    ) -> None:
        """Everything, and nothing is started. Without `permute`, what is due at the same
        microsecond comes in the order in which it was planned, and processes end turns at once.
        `network` makes one that is not as the options say."""
        self.options = options
        self.streams = Streams(options.seed)
        self.schedule = Schedule(self.streams("schedule") if permute else None)
        self.trace = Trace()
        self.clocks_set_ms = 0
        """How far faults have set wall clocks forward or back so far, in all."""
        self.observers: list[Observer[Machine]] = []
        self.history: list[Event] = []
        self.on_note: Callable[[int, str], None] | None = None
        """Hears every note with its time in microseconds."""
        self.bugs: BugWatch[BrokerId] = BugWatch(self.bug)
        self._notes: deque[tuple[int, str]] = deque(maxlen=NOTES_MAX)
        self.network = (
            Network(self.schedule, self.streams, options.latency)
            if network is None
            else network(self.schedule, self.streams)
        )
        self.network.trace = self._delivered
        self.addresses: dict[str, BrokerId] = {}
        """Machines by what their brokers say is their host."""
        self.machines: dict[BrokerId, Machine] = {}
        for number in range(1, options.brokers + 1):
            broker_id = BrokerId(number)
            self.machines[broker_id] = self._make_machine(broker_id, is_exact=not permute)
        timeout_ms = self.machines[BrokerId(1)].config.zookeeper_session_timeout_ms
        self.store = Store(
            self.schedule,
            self.streams,
            session_timeout_us=timeout_ms * 1000,
            latency_us=options.store_latency_us,
            lag_us=options.store_lag_us,
        )
        self.store.watchers.append(self._metadata_changed)

    def intrude(self, broker_id: int) -> Machine:
        """Another machine, with its own disk, whose configuration has the id of a broker (F-21).

        It is not one of `machines`, and observers hear nothing of it.
        """
        address = BrokerId(_INTRUDERS * (len(self.addresses) + 1) + broker_id)
        return self._make_machine(BrokerId(broker_id), address=address)

    def _make_machine(
        self, broker_id: BrokerId, *, address: BrokerId | None = None, is_exact: bool = False
    ) -> Machine:
        options = self.options
        address = broker_id if address is None else address
        data_dirs = [f"/data{number}" for number in range(1, options.disks + 1)]
        clock = NodeClock(
            self.schedule,
            wall_offset_ms=options.wall_offset_ms(broker_id),
            drift_ppm=options.drift_ppm(broker_id),
        )
        disk = Disk(self.streams(f"disk {address}"), data_dirs=data_dirs)
        config = make_config(options, broker_id, data_dirs)
        observers = self.observers if address == broker_id else ()
        machine = Machine(
            self, config, disk, clock, address=address, observers=observers, is_exact=is_exact
        )
        self.addresses[machine.host] = address
        self.network.attach(address, machine)
        return machine

    def close(self) -> None:
        """Watch no logs any more, and let go what holds each other. The world is over."""
        self.bugs.close()
        self.observers.clear()
        self.schedule.clear()

    # -- time --------------------------------------------------------------------------------

    def start_all(self) -> None:
        """Start every broker that does not run, in a drawn order."""
        machines = list(self.machines.values())
        self.streams("start").shuffle(machines)
        for machine in machines:
            machine.start()

    def run_for(self, ms: int) -> None:
        """Let time pass."""
        self.schedule.run_until(self.schedule.now_us + ms * 1000)

    def run_until(self, condition: Callable[[], bool], within_us: int = 60_000_000) -> bool:
        """Let things happen until the condition holds; whether it did within that time."""
        schedule = self.schedule
        end_us = schedule.now_us + within_us
        while not condition():
            next_us = schedule.next_us
            if next_us is None or next_us > end_us:
                schedule.run_until(end_us)
                return False
            schedule.step()
        return True

    def wall_ms(self, broker_id: BrokerId) -> int:
        """What a broker's wall clock shows."""
        return self.machines[broker_id].clock.now.wall_ms

    # -- telling -----------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Write into the ring of last events, with the time."""
        now_us = self.schedule.now_us
        self._notes.append((now_us, text))
        if self.on_note is not None:
            self.on_note(now_us, text)

    @property
    def notes(self) -> list[str]:
        """The last events in words, each with its time."""
        return [f"{us // 1000}.{us % 1000:03} ms: {text}" for us, text in self._notes]

    def bug(self, broker_id: BrokerId | None, sentence: str) -> None:
        """Report a bug of a node, or of the simulator (`broker_id` is None)."""
        self.note(f"BUG {'' if broker_id is None else f'of {broker_id}'}: {sentence}")
        for observer in self.observers:
            observer.bug(broker_id, sentence)

    @property
    def trace_hash(self) -> str:
        """Of everything that has been delivered so far, and of what it changed."""
        return self.trace.hash

    def _delivered(self, source: End, target: End, data: bytes) -> None:
        del source
        who = _CLIENT | crc32(target.encode()) & 0x7FFF if isinstance(target, str) else target
        self.trace.add(self.schedule.now_us, Kind.BYTES, who, data)

    def leader_epoch(self, at: TopicPartition, topic_id: TopicId | None = None) -> int:
        """The newest leader epoch of a partition; -1 without any. With `topic_id`: of the topic
        with that id, which may be a former one of its name."""
        state = self.image.partition(at)
        if state is None or topic_id not in (None, self.image.topics[at.topic].topic_id):
            return -1
        return state.leader_epoch

    def high_watermark(self, broker_id: BrokerId, at: TopicPartition) -> int:
        """That of a broker's replica; 0 if it has none at this moment."""
        replica = self.replica(broker_id, at)
        return 0 if replica is None else replica.log.high_watermark

    def is_compacted(self, at: TopicPartition) -> bool:
        """Whether compaction takes records out of the partition, or did at the beginning."""
        if any(topic.name == at.topic and is_compacted(topic) for topic in self.options.topics):
            return True
        replicas = [self.replica(broker_id, at) for broker_id in self.machines]
        return any(each is not None and each.log.config.is_compacted for each in replicas)

    def log_start(self, at: TopicPartition) -> int:
        """The highest start of the partition's log on any broker that is up; 0 without any."""
        replicas = [self.replica(broker_id, at) for broker_id in self.machines]
        return max((each.log.log_start_offset for each in replicas if each is not None), default=0)

    def leadership(self, broker_id: BrokerId, at: TopicPartition) -> Leadership | None:
        """As what a broker's process leads a partition at this moment, if it believes to."""
        replica = self.replica(broker_id, at)
        if replica is None or not replica.is_leading:
            return None
        return Leadership(broker_id, self[broker_id].life, replica.leader_epoch, replica.topic_id)

    def coordinates(self, broker_id: BrokerId, group: str) -> Leadership | None:
        """As what a broker coordinates a consumer group at this moment, if the metadata agree."""
        topic = self.image.topics.get(CONSUMER_OFFSETS)
        if topic is None:
            return None
        number = partition_for(group, len(topic.partitions))
        state, led = topic.partitions[number], None
        if state.leader == broker_id:
            led = self.leadership(broker_id, TopicPartition(CONSUMER_OFFSETS, number))
        is_true = led is not None and (led.leader_epoch, led.topic_id) == (
            state.leader_epoch,
            topic.topic_id,
        )
        return led if is_true else None

    def _metadata_changed(self, changes: Changes, image: ClusterImage) -> None:
        for observer in self.observers:
            observer.metadata_changed(changes, image)

    # -- looking -----------------------------------------------------------------------------

    def __getitem__(self, broker_id: int) -> Machine:
        return self.machines[BrokerId(broker_id)]

    @property
    def image(self) -> ClusterImage:
        """The metadata as the store has it: the truth."""
        return self.store.image

    @property
    def controller(self) -> Machine | None:
        """The machine of the controller, if there is one."""
        controller = self.image.controller
        return None if controller is None else self.machines.get(controller)

    def replica(self, broker_id: int, partition: TopicPartition) -> Replica | None:
        """A broker's replica of a partition, if it is up and has one."""
        machine = self[broker_id]
        if not machine.is_up:
            return None
        try:
            return machine.node.replicas.hosted(partition.topic, partition.partition)
        except ProtocolError:
            return None

    def is_settled(self) -> bool:
        """Whether all is well, see `settled.is_settled`."""
        return settled.is_settled(self)

    def __str__(self) -> str:
        return settled.table(self)


def make_config(options: Options, broker_id: BrokerId, data_dirs: list[str]) -> BrokerConfig:
    """The configuration of one broker."""
    settings = QUICK | dict(options.settings)
    if options.minimums:
        settings["min.insync.replicas"] = str(options.minimum(broker_id))
    rack = options.rack(broker_id)
    if rack is not None:
        settings["broker.rack"] = rack
    settings |= settings_of_tokens(settings)
    overrides = [f"{name}={value}" for name, value in settings.items()]
    overrides += [f"node.id={broker_id}", f"log.dirs={','.join(data_dirs)}"]
    return load_broker_config(None, overrides).config
