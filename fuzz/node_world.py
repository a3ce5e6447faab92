"""A whole node for fuzzing: broker 1 of three; what the other two say comes from the input.

The input is a sequence of steps: a byte with the length, one that says what the bytes after it
are, and these bytes:

    0 to 3   a frame on that client connection: requests of clients, followers and leaders alike
    4        an answer on the oldest link with an open question, under the right correlation id
    5        an answer on the newest such link
    12, 13   the same, under whatever correlation id the bytes begin with
    6        time that passes, in milliseconds; without bytes, the oldest link breaks
    7        the metadata change: the first byte says what, the second chooses among brokers

Of topic `t`, broker 1 leads partition 0, follows broker 2 in partition 1, and has partition 2 for
itself: it serves followers and is one. Everything is the same for every input, ids and epochs
included, so that inputs can name them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Final
from uuid import UUID

from strandline.cluster.controller import become_controller, bootstrap, register_broker
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Create, Delete, MultiRefused, Operation, SessionId, SetData
from strandline.cluster.tree import NodeTree
from strandline.cluster.znodes import (
    BrokerNode,
    ControllerNode,
    Endpoint,
    PartitionStateNode,
    TopicNode,
)
from strandline.cluster.znodes.topics import partition_path, partitions_path, state_path
from strandline.config.load import load_broker_config
from strandline.node.connection import Connection
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
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.memory_files import MemoryFiles
from strandline.types import BrokerId, Instant, LeaderEpoch, TopicPartition

NOW_MS: Final = 1_700_000_000_000
TOPIC: Final = "t"
TOPIC_ID: Final = UUID(int=0x5EED)
_REPLICAS: Final = {
    0: (BrokerId(1), BrokerId(2), BrokerId(3)),
    1: (BrokerId(2), BrokerId(1)),
    2: (BrokerId(1),),
}
_SETTINGS: Final = (
    "node.id=1",
    "log.dirs=/d",
    "offsets.topic.num.partitions=1",
    # Indexes are made in full size, and a fuzzer makes many nodes.
    "log.index.size.max.bytes=4096",
)
_CORRELATION: Final = slice(8, 12)
"""Where a request frame, its size included, has its correlation id."""
_ROUNDS_MAX: Final = 200
_LAST_WAIT_MS: Final = 3_600_000


def feed(data: bytes) -> None:
    """Do what the input says with a new node, and look at what is left of it."""
    world = NodeWorld()
    position = 0
    while position + 2 <= len(data):
        size, kind = data[position], data[position + 1]
        world.step(kind, data[position + 2 : position + 2 + size])
        position += 2 + size
    world.end()


class NodeWorld:
    """See the module."""

    def __init__(self) -> None:
        config = load_broker_config(None, _SETTINGS).config
        random = Random(1)  # noqa: S311 -- a finding must be repeatable
        self.monotonic_ms = 1000
        self.files = MemoryFiles()
        self.files.make_directory("/d")
        self._tree = NodeTree()
        self._slots: dict[int, Connection] = {}
        self._questions: dict[LinkId, deque[bytes]] = {}
        """The open links, oldest first, with the correlation ids of what was asked on them."""
        self._tree.multi(bootstrap(set(), random=random, cluster_id="AAAAAAAAAAAAAAAAAAAAAA"))
        for broker_id in (2, 3):
            self._tree.multi(register_broker(ClusterImage(), _broker(broker_id)), _of(broker_id))
        image = ClusterImage.from_view(self._tree.view())
        directory: LogDirectory[Log] = LogDirectory(self.files, "/d")
        directory.open(BrokerId(1), image.cluster_id or "")
        directory.load_logs(_no_log)
        self.node = Node(
            config, image, [directory], files=self.files, random=random, registration=_broker(1)
        )
        self.node.start(self.now)
        self._turn()
        self._make_topic()

    @property
    def now(self) -> Instant:
        return Instant(self.monotonic_ms, NOW_MS + self.monotonic_ms)

    @property
    def image(self) -> ClusterImage:
        """The metadata, as the node knows them."""
        return self.node.metadata.image

    def _make_topic(self) -> None:
        partitions = partitions_path(TOPIC)
        topic = TopicNode(TOPIC, TOPIC_ID, _REPLICAS)
        operations = [Create(topic.path, topic.encode()), Create(partitions)]
        for number in _REPLICAS:
            at = TopicPartition(TOPIC, number)
            state = self._state(number, _REPLICAS[number][0], LeaderEpoch(0))
            operations += [Create(partition_path(at)), Create(state_path(at), state.encode())]
        self._write(operations)
        self._turn()

    def _state(self, number: int, leader: BrokerId, epoch: LeaderEpoch) -> PartitionStateNode:
        brokers = self.image.brokers
        members = tuple(each for each in _REPLICAS[number] if each in brokers)
        return PartitionStateNode(
            leader,
            epoch,
            members,
            controller_epoch=1,
            in_sync_epochs={each: brokers[each].epoch for each in members},
        )

    # -- steps -------------------------------------------------------------------------------

    def step(self, kind: int, data: bytes) -> None:
        """One step of the input."""
        match kind % 8:
            case 4 | 5:
                self._answer(data, is_newest=bool(kind & 1), is_right=not kind & 8)
            case 6 if data:
                self.monotonic_ms += int.from_bytes(data[:3], "big")
            case 6:
                self._break_link()
            case 7 if data:
                self._change_metadata(data[0], BrokerId(data[-1] % 4))
            case slot:
                self._receive(slot % 4, data)
        self._turn()

    def _receive(self, slot: int, data: bytes) -> None:
        connection = self._slots.get(slot)
        if connection is None:
            connection = self._slots[slot] = self.node.open_connection("fuzz", "PLAINTEXT")
        if connection.wants_input:
            self.node.receive(connection, memoryview(bytearray(data)), self.now)

    def _answer(self, data: bytes, *, is_newest: bool, is_right: bool) -> None:
        links = [link for link, asked in self._questions.items() if asked]
        if not links:
            return
        link = links[-1 if is_newest else 0]
        correlation_id = self._questions[link].popleft()
        frame = bytearray(correlation_id + data if is_right else data)
        self.node.link_received(link, memoryview(frame), self.now)
        # The buffer belongs to the driver again: the node must not read it any more.
        frame[:] = b"\xee" * len(frame)

    def _break_link(self) -> None:
        for link in self._questions:
            del self._questions[link]
            self.node.link_closed(link, "by the input", self.now)
            return

    def _change_metadata(self, what: int, broker: BrokerId) -> None:
        """As the controller, another broker or the end of a session would."""
        match what % 7:
            case 0 | 1 | 2 as number:
                self._elect(number, broker)
            case 3:
                self._expire(broker)
            case 4 if broker in (2, 3) and broker not in self.image.brokers:
                self._write(register_broker(self.image, _broker(broker)), _of(broker))
            case 5 if broker in (2, 3) and broker in self.image.brokers:
                if self.image.controller is not None:
                    self._write([Delete(ControllerNode.path)])
                office = become_controller(self.image, broker, now_ms=NOW_MS)
                self._write(office, _of(broker))
            case _ if self.image.controller is not None:
                self._write([Delete(ControllerNode.path)])

    def _elect(self, number: int, broker: BrokerId) -> None:
        """Another leader, none (0), or the same one in another epoch."""
        at = TopicPartition(TOPIC, number)
        former = self.image.partition(at)
        if former is None or former.partition_epoch < 0:
            return
        leader = broker if broker in self.image.brokers else BrokerId(-1)
        if broker and broker not in former.replicas:
            return
        state = self._state(number, leader, LeaderEpoch(former.leader_epoch + 1))
        self._write([SetData(state_path(at), state.encode())])

    def _expire(self, broker: BrokerId) -> None:
        changes = self._tree.expire_session(_of(broker)).changes
        if changes is not None:
            self.node.metadata_changed(changes, self.now)

    def end(self) -> None:
        """Let everything run out; nothing may be left behind, and every log must be sound."""
        self.monotonic_ms += _LAST_WAIT_MS
        self._turn()
        for connection in self._slots.values():
            self.node.close_connection(connection)
        if len(self.node.purgatory):
            raise AssertionError("A parked request outlived its connection.")
        for replica in self.node.replicas:
            replica.log.check()
            if replica.leader is not None:
                replica.leader.check(replica.log.high_watermark, replica.log.log_end_offset)

    # -- the driver --------------------------------------------------------------------------

    def _turn(self) -> None:
        for _ in range(_ROUNDS_MAX):
            effects = self.node.finish_turn(self.now)
            if not effects:
                return
            for effect in effects:
                self._carry_out(effect)
        raise AssertionError("The node never comes to rest.")

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case WriteMetadata(token, operations):
                self._write(operations, _of(1), token)
            case SyncLog(token, plan):
                self.node.log_synced(token, plan.carry_out(self.files), self.now)
            case Send():
                pass
            case Close(connection):
                self._close(connection)
            case Dial(link):
                self._questions[link] = deque()
                self.node.link_opened(link, self.now)
            case Ask(link, chunks):
                if link in self._questions:
                    self._questions[link].append(b"".join(chunks)[_CORRELATION])
            case HangUp(link):
                self._questions.pop(link, None)

    def _close(self, connection_id: ConnectionId) -> None:
        for slot, connection in self._slots.items():
            if connection.id == connection_id:
                del self._slots[slot]
                self.node.close_connection(connection)
                return

    def _write(
        self,
        operations: Sequence[Operation],
        session: SessionId | None = None,
        token: int | None = None,
    ) -> None:
        """Write for the node, which has a token, or for another client."""
        refused: MultiRefused | None = None
        try:
            changes = self._tree.multi(operations, session or SessionId(0)).changes
        except MultiRefused as error:
            if token is None:
                raise
            changes, refused = None, error
        if changes is not None:
            self.node.metadata_changed(changes, self.now)
        if token is not None:
            self.node.metadata_written(token, refused, self.now)


def _broker(broker_id: int) -> BrokerNode:
    endpoint = Endpoint("PLAINTEXT", "localhost", 9091 + broker_id)
    return BrokerNode(BrokerId(broker_id), (endpoint,), None, NOW_MS)


def _of(broker_id: int) -> SessionId:
    """The session of that broker."""
    return SessionId(broker_id)


def _no_log(found: LogToLoad) -> Log:
    raise AssertionError(f"{found.directory} cannot be there.")
