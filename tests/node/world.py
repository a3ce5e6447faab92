"""One node without sockets, threads or time: a driver that carries every effect out at once.

Files are in memory, the metadata store is a bare `NodeTree`, the clock only moves when a test says
so, and clients speak real bytes. `check()` holds what must be true after any test: every request
was answered once or its connection closed, and nothing that was parked is left behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Protocol

from strandline.cluster.controller import FoundPartition, adopt_partitions, bootstrap
from strandline.cluster.features import SUPPORTED
from strandline.cluster.identifiers import random_uuid, uuid_text
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import (
    Changes,
    MultiRefused,
    Operation,
    SessionId,
    StoreError,
)
from strandline.cluster.tree import NodeTree
from strandline.cluster.znodes import BrokerNode, Endpoint
from strandline.config.load import load_broker_config
from strandline.errors import StorageError, StrandlineError
from strandline.node.connection import Connection
from strandline.node.effects import (
    Ask,
    Chunk,
    CleanLog,
    Close,
    Dial,
    ExamineLog,
    Halt,
    HangUp,
    PaceCleaning,
    RemoveFiles,
    Send,
    StopCleaning,
    SyncLog,
    WriteMetadata,
)
from strandline.node.node import Node
from strandline.node.purgatory import ParkedEntry
from strandline.node.replica import Replica
from strandline.node.settings import Settings
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import parse_response_header, request_frame
from strandline.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest
from strandline.protocol.schema import decode_response
from strandline.sim.bugs import BugWatch
from strandline.storage.compaction.cleaning import CleaningAborted, Uncleanable, carry_out
from strandline.storage.compaction.dry_run import dry_run
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory
from strandline.storage.log_reader import LogSlice
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.memory_files import MemoryFiles
from strandline.types import ANONYMOUS, BrokerId, Instant, Principal, TopicPartition

WALL_MS = 1_700_000_000_000
DATA = "/data"
BROKER = BrokerId(1)
GONE = "by the client"
_ROUNDS_MAX = 1000

# Small tables keep a start at milliseconds.
QUICK = ("node.id=1", f"log.dirs={DATA}", "offsets.topic.num.partitions=2")


class World:
    """A node, its disk, its metadata store and its clients."""

    def __init__(self, *settings: str, seed: int = 1) -> None:
        self.config = load_broker_config(None, [*QUICK, *settings]).config
        self.random = Random(seed)
        self.files = MemoryFiles()
        self.tree = NodeTree()
        self.monotonic_ms = 1_000
        self.store_error: StoreError | None = None
        self.holds_metadata = False
        self.held: deque[WriteMetadata] = deque()
        self.synced: list[SyncLog] = []
        self.holds_syncs = False
        self.held_syncs: deque[SyncLog] = deque()
        self.halted: list[str] = []
        self.holds_cleaning = False
        self.held_cleaning: list[CleanLog] = []
        self.stopped_cleaning: list[int] = []
        self.paces: list[float] = []
        self.links: list[Dial | Ask | HangUp] = []
        """What the node wanted of other brokers, of which nothing comes here."""
        self.sync_error: StorageError | None = None
        self.clients: dict[int, Client] = {}
        self.sessions = 0
        self.bugs: list[str] = []
        self._watch = _watch_for(self.bugs)
        self.start()

    # -- life --------------------------------------------------------------------------------

    @property
    def now(self) -> Instant:
        return Instant(self.monotonic_ms, WALL_MS + self.monotonic_ms)

    def start(self) -> None:
        """Start the node as a broker does."""
        self.node: Node
        self.clients = {}
        self.held.clear()
        self.sessions += 1
        self.session = SessionId(self.sessions)
        self.image = ClusterImage.from_view(self.tree.view())
        self._decide(
            bootstrap(
                {node.path for node in self.tree.view().nodes},
                random=self.random,
                cluster_id=uuid_text(random_uuid(self.random)),
            )
        )
        self.files.make_directory(DATA)
        self.directory: LogDirectory[Log] = LogDirectory(self.files, DATA)
        self.directory.open(BROKER, self.image.cluster_id or "")
        settings = Settings(self.config)
        settings.follow(self.image, BROKER)

        def load(found: LogToLoad) -> Log:
            return Log.load(
                self.files,
                found,
                settings.of_topic(found.topic_partition.topic, self.image),
                now_ms=self.now.wall_ms,
                random=self.random,
            )

        self.directory.load_logs(load)
        self._adopt()
        registration = BrokerNode(
            BROKER,
            (Endpoint("PLAINTEXT", "localhost", 9092),),
            None,
            self.now.wall_ms,
            previous_epoch=self._previous_epoch(),
            lives=None
            if self.directory.clean_shutdown is None
            else self.directory.clean_shutdown.lives,
            features=SUPPORTED,
        )
        self.node = Node(
            self.config,
            self.image,
            [self.directory],
            files=self.files,
            random=self.random,
            registration=registration,
        )
        self.node.start(self.now)
        self.turn()

    def _previous_epoch(self) -> int:
        marker = self.directory.clean_shutdown
        return -1 if marker is None or marker.broker_epoch is None else marker.broker_epoch

    def _adopt(self) -> None:
        found = [
            FoundPartition(at, log.topic_id, log.leader_epochs.latest)
            for at, log in self.directory.logs.items()
        ]
        adoption = adopt_partitions(self.image, found, BROKER, self.config, random=self.random)
        self._decide(adoption.operations)

    def _decide(self, operations: Sequence[Operation]) -> None:
        if not operations:
            return
        changes = self.tree.multi(operations).changes
        if changes is not None:
            self.image, _ = self.image.apply(changes)

    def stop(self) -> bool:
        """Shut down cleanly."""
        clean = self.node.stop(self.node.metadata.image.brokers[BROKER].epoch)
        self.tree.expire_session(self.session)
        return clean

    def restart(self) -> None:
        """A clean stop and a start on the same files."""
        assert self.stop()
        self.start()

    def kill_and_restart(self) -> None:
        """The process dies (what it wrote is kept) and a new one starts on the same files."""
        self.files = self.files.kill_clone()
        self.tree.expire_session(self.session)
        self.start()

    # -- driving -----------------------------------------------------------------------------

    def turn(self) -> None:
        """Finish turns until there is nothing left to do at this moment."""
        for _ in range(_ROUNDS_MAX):
            effects = self.node.finish_turn(self.now)
            if not effects:
                return
            for effect in effects:
                match effect:
                    case Send(connection, chunks):
                        # As a driver does: what comes too late for a connection is dropped.
                        client = self.clients.get(connection)
                        if client is not None and client.closed is None:
                            self._send(client, chunks)
                    case Close(connection, reason):
                        if connection in self.clients:
                            self.clients[connection].closed_by_node(reason)
                    case WriteMetadata() if self.holds_metadata:
                        self.held.append(effect)
                    case WriteMetadata():
                        self.write_metadata(effect)
                    case SyncLog() if self.holds_syncs:
                        self.held_syncs.append(effect)
                    case SyncLog():
                        self.sync(effect)
                    case Dial() | Ask() | HangUp():
                        self.links.append(effect)
                    case CleanLog() if self.holds_cleaning:
                        self.held_cleaning.append(effect)
                    case CleanLog():
                        self._clean(effect)
                    case StopCleaning(token):
                        self.stopped_cleaning.append(token)
                    case PaceCleaning(bytes_per_second):
                        self.paces.append(bytes_per_second)
                    case ExamineLog(token, plan):
                        self.node.log_examined(token, dry_run(plan, self.files), self.now)
                    case RemoveFiles(token):
                        error = self._remove(effect)
                        self.node.files_removed(token, error, self.now)
                    case Halt(reason):
                        self.halted.append(reason)
        raise AssertionError("The node never comes to rest.")

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Let happen what can happen at this moment; the caller sees whether it was enough."""
        del condition
        self.turn()

    def receive(self, connection: Connection, frame: memoryview) -> None:
        """A client's bytes have come."""
        self.node.receive(connection, frame, self.now)

    def _send(self, client: Client, chunks: Iterable[Chunk]) -> None:
        try:
            client.take(chunks)
        except StorageError as error:
            # The topic went between the answer and its sending.
            client.closed_by_node(str(error))

    def write_metadata(self, effect: WriteMetadata) -> None:
        """Carry a metadata write out, or refuse it."""
        if self.store_error is not None:
            self.node.metadata_written(effect.token, self.store_error, self.now)
            return
        try:
            changes = self.tree.multi(effect.operations, self.session).changes
        except MultiRefused as refused:
            self.node.metadata_written(effect.token, refused, self.now)
            return
        if changes is not None:
            self.metadata_changed(changes)
        self.node.metadata_written(effect.token, None, self.now)

    def metadata_changed(self, changes: Changes) -> None:
        """Deliver a change of the metadata that another broker wrote."""
        self.node.metadata_changed(changes, self.now)

    def carry_on_cleaning(self) -> None:
        """Carry out what was held back; what comes next is held back again."""
        while self.held_cleaning:
            self._clean(self.held_cleaning.pop(0))
        self.turn()

    def _clean(self, effect: CleanLog) -> None:
        error: StrandlineError | None = None
        try:
            for result in carry_out(effect.plan, self.files):
                self.node.log_cleaned(effect.token, result, self.now)
        except (CleaningAborted, Uncleanable, StorageError) as ended:
            error = ended
        self.node.cleaning_ended(effect.token, error, self.now)

    def _remove(self, effect: RemoveFiles) -> StorageError | None:
        try:
            effect.carry_out(self.files)
        except StorageError as error:
            return error
        return None

    def sync(self, effect: SyncLog) -> None:
        """Carry a sync out and tell the node."""
        self.synced.append(effect)
        result: bool | StorageError
        try:
            if self.sync_error is not None:
                raise self.sync_error
            result = effect.plan.carry_out(self.files)
        except StorageError as error:
            result = error
        self.node.log_synced(effect.token, result, self.now)

    def advance(self, milliseconds: int) -> None:
        """Let time pass, with a turn at every deadline on the way."""
        end_ms = self.monotonic_ms + milliseconds
        while True:
            deadline_ms = self.node.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.monotonic_ms = max(self.monotonic_ms, deadline_ms)
            self.turn()
        self.monotonic_ms = end_ms
        self.turn()

    # -- short ways --------------------------------------------------------------------------

    def connect(self, principal: Principal = ANONYMOUS) -> Client:
        """A new client connection."""
        client = Client(self, principal)
        self.clients[client.connection.id] = client
        return client

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Make a topic; underscores in the names of settings stand for dots."""
        entries = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=entries
        )
        answer = self.connect().ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        assert [item.error_code for item in answer.topics] == [0], answer

    def delete_topic(self, name: str) -> None:
        """Delete a topic by name."""
        answer = self.connect().ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5)
        assert [item.error_code for item in answer.responses] == [0], answer

    def replica(self, topic: str, partition: int = 0) -> Replica:
        return self.node.replicas.leader(topic, partition)

    def log_bytes(self, topic: str, partition: int = 0) -> bytes:
        """All bytes of a partition's log."""
        segments = self.replica(topic, partition).log.segments.all
        return b"".join(s.log.read_at(0, s.log.size) for s in segments)

    def check(self) -> None:
        """Nothing leaks, no request waits in vain (I-40), every log is sound, no bug was logged."""
        assert not self.bugs, self.bugs
        for client in self.clients.values():
            client.check()
        for replica in self.node.replicas:
            replica.log.check()
            for entry in replica.waiters:
                assert not self._is_gone(entry.operation.connection.id)
        parked = sum(
            isinstance(each, ParkedEntry)  # share sessions are there as well
            for client in self.clients.values()
            for each in client.connection.parked
        )
        assert len(self.node.purgatory) == parked

    def _is_gone(self, connection: int) -> bool:
        client = self.clients.get(connection)
        return client is None or client.closed is not None


def _watch_for(bugs: list[str]) -> BugWatch[str]:
    """Collects what is logged with a traceback, for as long as its world lives."""
    watch: BugWatch[str] = BugWatch(lambda _, sentence: bugs.append(sentence))
    watch.working = "the only node"
    return watch


class Driver(Protocol):
    """What a client needs of the world that it is in."""

    @property
    def node(self) -> Node: ...

    @property
    def now(self) -> Instant: ...

    def receive(self, connection: Connection, frame: memoryview) -> None:
        """A client's bytes have come."""

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Go on until the condition holds or nothing more will happen."""


class Client:
    """One connection: sends requests, and takes answers in the order of the requests."""

    def __init__(self, world: Driver, principal: Principal = ANONYMOUS) -> None:
        self.world = world
        self.connection = world.node.open_connection("test-host", "PLAINTEXT", principal)
        self.asked: deque[tuple[ApiKey, int, int]] = deque()
        self.answers: list[Any] = []
        self.closed: str | None = None
        self._correlation_id = 100
        self._bytes = bytearray()

    def send(self, message: object, version: int, *, silent: bool = False) -> int:
        """Send a request without a turn; `silent` for produce with acks=0."""
        frame, key, correlation_id = self.frame(message, version)
        self.send_frame(frame)
        if not silent:
            self.asked.append((key, version, correlation_id))
        return correlation_id

    def frame(self, message: object, version: int) -> tuple[bytearray, ApiKey, int]:
        """A request's bytes, its size left out."""
        api = next(api for api in KNOWN.values() if _class_name(message) == api.name + "Request")
        self._correlation_id += 1
        chunks = request_frame(api, version, self._correlation_id, "test", message)
        frame = bytearray(joined(chunks))
        return frame[4:], api.key, self._correlation_id

    def send_frame(self, frame: bytes | bytearray) -> None:
        """Send bytes as they are."""
        assert self.closed is None
        buffer = memoryview(bytearray(frame))
        self.world.receive(self.connection, buffer)
        # The buffer belongs to the driver again: the node must not read it any more.
        buffer[:] = b"\xee" * len(buffer)

    def ask(self, message: object, version: int) -> Any:
        """Send a request and take its answer, which must come in this turn."""
        waiting = len(self.asked)
        before = len(self.answers)
        self.send(message, version)
        self.world.wait_for(lambda: self.closed is not None or len(self.answers) > before + waiting)
        assert len(self.answers) == before + waiting + 1, (self.closed, self.asked)
        return self.answers[-1]

    def take(self, chunks: Iterable[Chunk]) -> None:
        """The node sent bytes."""
        if self.closed is not None:
            return
        for chunk in chunks:
            if isinstance(chunk, LogSlice):
                data = chunk.file.read_at(chunk.position, chunk.length)
                assert len(data) == chunk.length
                self._bytes += data
            else:
                self._bytes += chunk
        while len(self._bytes) >= 4:
            size = int.from_bytes(self._bytes[:4], "big")
            if len(self._bytes) < 4 + size:
                break
            self._answer(bytes(self._bytes[4 : 4 + size]))
            del self._bytes[: 4 + size]

    def _answer(self, frame: bytes) -> None:
        key, version, correlation_id = self.asked.popleft()
        api = KNOWN[key]
        found, position = parse_response_header(memoryview(frame), api, version)
        assert found == correlation_id, "answers are out of order"
        self.answers.append(decode_response(key, version, frame, position))

    def closed_by_node(self, reason: str) -> None:
        """The node closed the connection."""
        self.close()
        self.closed = reason

    def broker_died(self) -> None:
        """There is no node any more."""
        if self.closed is None:
            self.closed = "its broker died"

    def close(self) -> None:
        """The client goes away."""
        if self.closed is None:
            self.closed = GONE
            self.world.node.close_connection(self.connection)

    def check(self) -> None:
        """No half answers, no wrong number of answers."""
        assert not self._bytes, "half an answer was sent"
        if self.closed is None:
            assert len(self.connection.slots) == len(self.asked), "a request was lost"
        else:
            assert not self.connection.parked


def _class_name(message: object) -> str:
    return type(message).__name__


def failing(
    operations: set[str], part_of_path: str, kind: type[StorageError] = StorageError
) -> Callable[[str, str], None]:
    """A hook for `MemoryFiles.on_call`: these operations fail on paths that contain a text."""

    def on_call(operation: str, path: str) -> None:
        if operation in operations and part_of_path in path:
            raise kind(f"Cannot {operation} {path}: the test says so.")

    return on_call


def joined(chunks: Iterable[Any]) -> bytes:
    """A frame in one piece; requests consist of bytes only."""
    return b"".join(chunks)


def partition(topic: str, number: int = 0) -> TopicPartition:
    return TopicPartition(topic, number)
