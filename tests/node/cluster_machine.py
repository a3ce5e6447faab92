"""One broker of a simulated cluster: its process, its disk, its clients and its links.

Starts a real `Node` as a broker does, carries its effects out in virtual time, and can end, hang
and start again on what its disk has kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any

from strandline.cluster.controller import adopt_partitions, bootstrap
from strandline.cluster.identifiers import random_uuid, uuid_text
from strandline.cluster.image import ClusterImage
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
from strandline.node.log_directories import LogDirectories
from strandline.node.node import Node
from strandline.node.settings import Settings
from strandline.storage.memory_files import MemoryFiles
from strandline.types import BrokerId, Instant, TopicPartition
from tests.node.cluster_metadata import MetadataClient
from tests.node.cluster_network import Wire
from tests.node.world import Client

if TYPE_CHECKING:
    from tests.node.cluster_world import ClusterWorld

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
