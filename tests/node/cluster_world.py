"""Several nodes in virtual time: the whole cluster without sockets, threads or waiting.

Every broker is a real `Node` on files in memory; they share a metadata tree with sessions, and
speak with each other in real bytes over simulated links. A seed decides all delays. A test drives
time (`run`, `run_until`), breaks things (`kill`, `power_cut`, `pause`, `cut`, `hold`), and asks the
nodes as clients do. `check()` holds what must be true at any moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from random import Random
from typing import Any

from strandline.broker.log_directories import LogDirectories
from strandline.cluster.controller import adopt_partitions, bootstrap
from strandline.cluster.identifiers import random_uuid, uuid_text
from strandline.cluster.image import ClusterImage
from strandline.cluster.image_parts import PartitionImage
from strandline.cluster.store import Changes, Create, StoreError
from strandline.cluster.znodes import BrokerNode, Endpoint, adoption_path
from strandline.config.load import load_broker_config
from strandline.config.topic import TopicConfig
from strandline.errors import StorageError
from strandline.node.effects import (
    Ask,
    Close,
    ConnectionId,
    Dial,
    Effect,
    HangUp,
    LinkId,
    Send,
    SyncLog,
    WriteMetadata,
)
from strandline.node.node import Node
from strandline.node.replica import Replica
from strandline.node.settings import Settings
from strandline.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from strandline.storage.memory_files import MemoryFiles
from strandline.types import BrokerId, Instant, TopicPartition
from tests.node.cluster_metadata import MetadataClient, MetadataService
from tests.node.cluster_network import Network, Wire
from tests.node.cluster_schedule import Schedule
from tests.node.world import BugWatch, Client

DATA = "/data"
QUICK = (
    f"log.dirs={DATA}",
    "offsets.topic.num.partitions=2",
    "replica.lag.time.max.ms=10000",
    "zookeeper.session.timeout.ms=6000",
)
ANSWER_MS_MAX = 60_000
_ROUNDS_MAX = 1000


class Machine:
    """One broker: its process, its disk, its clients and its links."""

    def __init__(self, world: ClusterWorld, broker_id: BrokerId, settings: Iterable[str]) -> None:
        self.broker_id = broker_id
        self.world = world
        self.config = load_broker_config(None, [f"node.id={broker_id}", *QUICK, *settings]).config
        self.random = Random(f"{world.seed} broker {broker_id}")
        self.files = MemoryFiles()
        self.files.make_directory(DATA)
        self.files.sync_directory("/")
        self.is_running = False
        self.is_paused = False
        self.clients: dict[ConnectionId, Client] = {}
        self.incoming: dict[ConnectionId, Wire] = {}
        self.outgoing: dict[LinkId, Wire] = {}
        self.node: Node
        self.metadata: MetadataClient
        self._life = 0
        self._image = ClusterImage()
        self._held: list[Callable[[Node, Instant], None]] = []
        self._has_turn = False
        self._alarm_ms: int | None = None

    @property
    def now(self) -> Instant:
        return self.world.schedule.now

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process, or have it wait until the session of its former life is over."""
        assert not self.is_running
        self._life += 1
        self.is_running = True
        self.is_paused = False
        self._image = ClusterImage()
        self._start_when_free(self._life)

    def _start_when_free(self, life: int) -> None:
        if life != self._life:
            return
        if self.broker_id in self.world.image.brokers:
            self.world.schedule.after(10, lambda: self._start_when_free(life))
            return
        self._start()

    def _start(self) -> None:
        store = self.world.store
        self.metadata, _ = store.connect(self)
        directories = LogDirectories(self.files, self.config.log_dirs, self.random)
        present = {node.path for node in store.tree.view().nodes}
        operations = bootstrap(
            present, random=self.random, cluster_id=uuid_text(random_uuid(self.random))
        )
        adoption = adoption_path(self.broker_id)
        if adoption not in present:
            operations += (Create(adoption),)
        if operations:
            store.apply(operations)
        image = store.image
        directories.open(self.broker_id, image.cluster_id or "")
        settings = Settings(self.config)
        settings.follow(image, self.broker_id)

        def config_of(partition: TopicPartition) -> TopicConfig:
            return settings.of_topic(partition.topic, image)

        directories.load(config_of, now_ms=self.now.wall_ms, producer_expiration_ms=86_400_000)
        found = adopt_partitions(
            image, directories.found(), self.broker_id, self.config, random=self.random
        )
        directories.set_aside(found.stray)
        endpoint = Endpoint("PLAINTEXT", f"broker-{self.broker_id}", 9092)
        registration = BrokerNode(
            self.broker_id,
            (endpoint,),
            self.config.broker_rack,
            self.now.wall_ms,
            previous_epoch=directories.previous_epoch,
        )
        self.node = Node(
            self.config,
            image,
            directories.all,
            files=self.files,
            random=self.random,
            registration=registration,
        )
        self.node.start(self.now)
        self.schedule_turn()

    @property
    def is_up(self) -> bool:
        """Whether there is a node that works."""
        return self.is_running and hasattr(self, "metadata") and not self.metadata.is_gone

    def end(self, *, at_once: bool) -> None:
        """The process is over."""
        assert self.is_running
        had_node = self.is_up
        self._life += 1
        self.is_running = False
        self._held.clear()
        self._has_turn = False
        self._alarm_ms = None
        for client in self.clients.values():
            if client.closed is None:
                client.closed = "its broker died"
        self.clients = {}
        if had_node:
            self.metadata.die(at_once=at_once)
        self.world.network.died(self)
        self.incoming = {}
        self.outgoing = {}

    # -- events ------------------------------------------------------------------------------

    def event(self, action: Callable[[Node, Instant], None]) -> None:
        """Let something happen to the node, now or when it goes on."""
        if not self.is_up:
            return
        if self.is_paused:
            self._held.append(action)
            return
        action(self.node, self.now)
        self.schedule_turn()

    def resume(self) -> None:
        """Let everything happen that has waited."""
        self.is_paused = False
        held, self._held = self._held, []
        for action in held:
            self.event(action)
        self.schedule_turn()

    def metadata_changed(self, changes: Changes) -> None:
        """The store tells of a change."""
        self.event(lambda node, now: node.metadata_changed(changes, now))

    def schedule_turn(self) -> None:
        """End the turn when everything of this moment has happened."""
        if self._has_turn or not self.is_up or self.is_paused:
            return
        self._has_turn = True
        life = self._life

        def turn() -> None:
            if life == self._life:
                self._has_turn = False
                if not self.is_paused:
                    self.turn()

        self.world.schedule.after(0, turn)

    def turn(self) -> None:
        """Finish turns until nothing is left to do at this moment."""
        for _ in range(_ROUNDS_MAX):
            effects = self.node.finish_turn(self.now)
            if not effects:
                break
            for effect in effects:
                self._carry_out(effect)
        else:
            raise AssertionError(f"Broker {self.broker_id} never comes to rest.")
        self._set_alarm()

    def _set_alarm(self) -> None:
        deadline_ms = self.node.next_deadline_ms()
        if deadline_ms is None or (
            self._alarm_ms is not None and self.now.monotonic_ms < self._alarm_ms <= deadline_ms
        ):
            return
        self._alarm_ms = deadline_ms
        life = self._life

        def ring() -> None:
            if life == self._life:
                if self._alarm_ms == deadline_ms:
                    self._alarm_ms = None
                self.schedule_turn()

        self.world.schedule.at(deadline_ms, ring)

    # -- effects -----------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(connection, chunks):
                if connection in self.incoming:
                    self.incoming[connection].reply(chunks)
                elif connection in self.clients and self.clients[connection].closed is None:
                    self._send(self.clients[connection], chunks)
            case Close(connection, reason):
                if connection in self.incoming:
                    wire = self.incoming[connection]
                    wire.close()
                    if wire.connection is not None:
                        self.node.close_connection(wire.connection)
                elif connection in self.clients:
                    self.clients[connection].closed_by_node(reason)
            case WriteMetadata(token, operations):
                life = self._life

                def told(error: StoreError | None) -> None:
                    if life == self._life:
                        self.event(lambda node, now: node.metadata_written(token, error, now))

                self.metadata.write(operations, told)
            case SyncLog():
                self._sync(effect)
            case Dial():
                target = self.world.machines[effect.broker_id]
                self.world.network.dial(self, target, effect)
            case Ask():
                if effect.link in self.outgoing:
                    self.outgoing[effect.link].ask(effect)
            case HangUp(link):
                if link in self.outgoing:
                    self.outgoing[link].hang_up()

    def _send(self, client: Client, chunks: Any) -> None:
        try:
            client.take(chunks)
        except StorageError as error:
            client.closed_by_node(str(error))

    def _sync(self, effect: SyncLog) -> None:
        result: bool | StorageError
        try:
            result = effect.plan.carry_out(self.files)
        except StorageError as error:
            result = error
        self.node.log_synced(effect.token, result, self.now)

    # -- short ways --------------------------------------------------------------------------

    def connect(self) -> Client:
        """A new client connection to this broker."""
        client = Client(self)
        self.clients[client.connection.id] = client
        return client

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Let time pass until a client has what it waits for."""
        self.schedule_turn()
        self.world.run_until(condition, ms_max=ANSWER_MS_MAX)


class ClusterWorld:
    """See the module."""

    def __init__(self, brokers: int = 3, *settings: str, seed: int = 1, start: bool = True) -> None:
        self.seed = seed
        self.schedule = Schedule()
        self._random = Random(f"{seed} network")
        self.machines = {
            BrokerId(number): Machine(self, BrokerId(number), settings)
            for number in range(1, brokers + 1)
        }
        first = self.machines[BrokerId(1)]
        self.network = Network(self.schedule, self._delay_ms)
        self.store = MetadataService(
            self.schedule,
            Random(f"{seed} store"),
            self._delay_ms,
            first.config.zookeeper_session_timeout_ms,
        )
        self._cuts: frozenset[tuple[BrokerId, BrokerId]] = frozenset()
        self._held: frozenset[tuple[BrokerId, BrokerId]] = frozenset()
        self.bugs = BugWatch()
        logging.getLogger("strandline").addHandler(self.bugs)
        if start:
            # The last one is the first, and so becomes the controller.
            for broker_id in reversed(self.machines):
                self.start(broker_id)
                self.run_until(lambda: self.image.controller is not None)
            self.run_until(self.is_settled)

    def _delay_ms(self) -> int:
        return self._random.choice((0, 0, 0, 1, 1, 2))

    def __getitem__(self, broker_id: int) -> Machine:
        return self.machines[BrokerId(broker_id)]

    # -- time --------------------------------------------------------------------------------

    def run(self, milliseconds: int) -> None:
        """Let time pass."""
        self.schedule.run_until(self.schedule.now_ms + milliseconds)

    def run_until(self, condition: Callable[[], bool], *, ms_max: int = 60_000) -> None:
        """Let things happen until the condition holds; fail if it takes longer than `ms_max`."""
        end_ms = self.schedule.now_ms + ms_max
        while not condition():
            next_ms = self.schedule.next_ms
            if next_ms is None or next_ms > end_ms:
                raise AssertionError(f"In vain for {ms_max} ms.\n{self}")
            self.schedule.step()

    # -- faults ------------------------------------------------------------------------------

    def start(self, broker_id: int) -> None:
        """Start a broker that is not running."""
        self[broker_id].start()

    def kill(self, broker_id: int, *, expire: bool = False) -> None:
        """End a process; what it wrote to its files stays. `expire` ends its session at once."""
        machine = self[broker_id]
        machine.end(at_once=expire)
        machine.files = machine.files.kill_clone()

    def power_cut(
        self, broker_id: int, *, keep: Random | None = None, expire: bool = False
    ) -> None:
        """End a machine; of what was not synced only what `keep` chooses stays."""
        machine = self[broker_id]
        machine.end(at_once=expire)
        machine.files = machine.files.crash_clone(keep)

    def stop(self, broker_id: int) -> bool:
        """Stop a broker as SIGTERM does; returns whether its files are in order."""
        machine = self[broker_id]
        machine.event(lambda node, now: node.begin_shutdown(now))
        self.run_until(lambda: machine.node.is_shutdown_complete)
        clean = machine.node.stop(machine.node.broker_epoch)
        machine.end(at_once=True)
        return clean

    def restart(self, broker_id: int) -> None:
        """Stop and start."""
        assert self.stop(broker_id)
        self.start(broker_id)

    def pause(self, broker_id: int) -> None:
        """Stop a process in its tracks; its session runs out."""
        self[broker_id].is_paused = True
        self[broker_id].metadata.cut()

    def resume(self, broker_id: int) -> None:
        """Let it go on: it acts on what it knows before it hears what has changed."""
        self[broker_id].resume()
        self[broker_id].metadata.heal()

    def cut(
        self, some: Collection[int], others: Collection[int], *, and_metadata: bool = False
    ) -> None:
        """Cut brokers off from others, both ways; the first ones perhaps from the metadata too."""
        pairs = {(BrokerId(a), BrokerId(b)) for a in some for b in others}
        self._cuts |= pairs | {(b, a) for a, b in pairs}
        self._hold()
        if and_metadata:
            for broker_id in some:
                self[broker_id].metadata.cut()

    def heal(self) -> None:
        """End all cuts."""
        self._cuts = frozenset()
        self._hold()
        for machine in self.machines.values():
            if machine.is_up and not machine.is_paused:
                machine.metadata.heal()

    def hold(self, *pairs: tuple[int, int]) -> None:
        """Hold what goes from the first to the second broker of exactly these pairs."""
        self._held = frozenset((BrokerId(a), BrokerId(b)) for a, b in pairs)
        self._hold()

    def let_through(self, sender: int, receiver: int) -> None:
        """Deliver one held thing, and what follows from it at this moment and soon after."""
        assert self.network.let_through(BrokerId(sender), BrokerId(receiver)), "nothing is held"
        self.run(5)

    def _hold(self) -> None:
        self.network.hold(self._cuts | self._held)

    def sync(self, broker_id: int, topic: str, number: int = 0) -> None:
        """Bring one replica's log to the disk."""
        log = self.replica(broker_id, topic, number).log
        plan = log.flush_plan()
        assert plan is not None
        assert plan.carry_out(self[broker_id].files)
        assert log.mark_flushed(plan, self.schedule.now.wall_ms)

    # -- looking -----------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """The metadata as the store has it."""
        return self.store.image

    def partition(self, topic: str, number: int = 0) -> PartitionImage:
        found = self.image.partition(TopicPartition(topic, number))
        assert found is not None
        return found

    def leader_of(self, topic: str, number: int = 0) -> Machine:
        """The broker that the metadata says leads."""
        return self.machines[self.partition(topic, number).leader]

    def replica(self, broker_id: int, topic: str, number: int = 0) -> Replica:
        """The replica on one broker, led or followed."""
        at = TopicPartition(topic, number)
        return next(each for each in self[broker_id].node.replicas if each.topic_partition == at)

    def offsets(self, broker_id: int, topic: str, number: int = 0) -> tuple[int, int]:
        """Log end and high watermark on one broker."""
        log = self.replica(broker_id, topic, number).log
        return log.log_end_offset, log.high_watermark

    def log_bytes(self, broker_id: int, topic: str, number: int = 0) -> bytes:
        """All bytes of a partition's log on one broker."""
        segments = self.replica(broker_id, topic, number).log.segments.all
        return b"".join(s.log.read_at(0, s.log.size) for s in segments)

    def is_settled(self) -> bool:
        """Whether all running brokers are registered and know the controller, and every partition
        is led by a live broker and in sync with all its live replicas."""
        image = self.image
        running = {b for b, m in self.machines.items() if m.is_running}
        if image.brokers.keys() != running or image.controller not in running:
            return False
        if not all(
            self[b].is_up and self[b].node.metadata.image.zxid == image.zxid for b in running
        ):
            return False
        present = {(b, broker.epoch) for b, broker in image.brokers.items()}
        return all(
            partition.leader in running
            and {*partition.replicas} & running == {*partition.in_sync_replicas}
            and partition.in_sync_epochs.items() <= present
            for topic in image.topics.values()
            for partition in topic.partitions.values()
        )

    def are_logs_equal(self, topic: str, number: int = 0) -> bool:
        """Whether all running replicas hold the same bytes and offsets (I-21, I-49)."""
        replicas = [
            broker_id
            for broker_id in self.partition(topic, number).replicas
            if self[broker_id].is_running
        ]
        return (
            len({self.log_bytes(b, topic, number) for b in replicas}) == 1
            and len({self.offsets(b, topic, number) for b in replicas}) == 1
        )

    def check(self) -> None:
        """No bug was logged, no request was lost, every log is sound."""
        self.run(0)
        assert not self.bugs.found, self.bugs.found
        for machine in self.machines.values():
            if not machine.is_up or machine.is_paused:
                continue
            for client in machine.clients.values():
                client.check()
            for replica in machine.node.replicas:
                replica.log.check()

    def __str__(self) -> str:
        lines = [f"at {self.schedule.now_ms} ms, controller {self.image.controller}"]
        for topic in self.image.topics.values():
            for number, state in topic.partitions.items():
                lines.append(f"  {topic.name}-{number}: {state}")
                for broker_id in state.replicas:
                    machine = self.machines[broker_id]
                    for replica in machine.node.replicas if machine.is_up else ():
                        if replica.topic_partition == TopicPartition(topic.name, number):
                            log = replica.log
                            lines.append(
                                f"    {broker_id}: {'leads' if replica.is_leading else 'follows'} "
                                f"in epoch {replica.leader_epoch}, log {log.log_start_offset} to "
                                f"{log.log_end_offset}, high watermark {log.high_watermark}, "
                                f"epochs {[tuple(e) for e in log.leader_epochs.entries]}"
                            )
        return "\n".join(lines)

    # -- short ways --------------------------------------------------------------------------

    @property
    def controller(self) -> Machine:
        controller = self.image.controller
        assert controller is not None
        return self.machines[controller]

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
