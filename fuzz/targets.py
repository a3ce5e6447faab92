"""What is fuzzed, and which errors each thing may raise for bytes that make no sense.

A target takes bytes and returns. Any exception but the declared ones is a finding; so is an
allocation beyond what the input explains, which whoever runs the targets has to watch. Targets keep
no state from one call to the next, so that a finding is repeated by its input alone.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from strandline.cluster import journal_format
from strandline.cluster.controller import become_controller, bootstrap, register_broker
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import MultiRefused, Operation, SessionId
from strandline.cluster.tree import NodeTree
from strandline.cluster.znodes import BrokerNode, Endpoint
from strandline.config.broker import SettingLayers
from strandline.config.load import load_broker_config, make_broker_config
from strandline.config.properties import parse_properties
from strandline.config.topic import TopicConfig
from strandline.errors import (
    CorruptRecords,
    InvalidSetting,
    MalformedFrame,
    ProtocolError,
    StorageError,
)
from strandline.groups.consumer_protocol import assigned_partitions, subscribed_topics
from strandline.groups.offset_records import CoordinatorRecord, decode_record
from strandline.node.connection import Connection
from strandline.node.effects import Send, SyncLog, WriteMetadata
from strandline.node.node import Node
from strandline.protocol.apis import KNOWN
from strandline.protocol.framing import parse_request_header, parse_response_header, split_frames
from strandline.protocol.schema import decode_from
from strandline.records.batch import HEADER_BYTES, iterate_headers, set_crc
from strandline.records.record import read_records
from strandline.records.rules import AppendRules
from strandline.records.validation import validate_client_batch
from strandline.storage.checkpoint_file import OffsetCheckpoint
from strandline.storage.directory_names import parse_directory_name
from strandline.storage.leader_epochs import LeaderEpochs
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory, LogToLoad
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.meta_properties import read_meta_properties
from strandline.storage.partition_metadata import read_topic_id
from strandline.storage.producer_snapshot import decode_snapshot
from strandline.storage.transaction_index import TransactionIndex
from strandline.types import BrokerId, Instant, Offset, TopicPartition

Target = Callable[[bytes], None]

_NOW_MS: Final = 1_700_000_000_000
_APIS: Final = [KNOWN[key] for key in sorted(KNOWN)]
_RULES: Final = (
    AppendRules.for_topic(TopicConfig()),
    AppendRules.for_topic(TopicConfig(cleanup_policies=frozenset({"compact"}))),
    AppendRules.for_topic(TopicConfig(compression_type="gzip")),
    AppendRules.for_topic(TopicConfig(message_timestamp_type="LogAppendTime")),
)
_SESSION: Final = SessionId(1)
_SEGMENT: Final = f"{0:020d}"


def _any_message(data: bytes, *, requests: bool) -> None:
    if len(data) < 2:
        return
    api = _APIS[data[0] % len(_APIS)]
    versions = range(api.versions.lowest, api.versions.highest + 1)
    version = versions[data[1] % len(versions)]
    declared = api.request_class if requests else api.response_class
    try:
        decode_from(declared, version, memoryview(data), 2)
    except MalformedFrame:
        return


def requests(data: bytes) -> None:
    """Every request decoder: byte 0 chooses the API, byte 1 the version."""
    _any_message(data, requests=True)


def responses(data: bytes) -> None:
    """Every response decoder, chosen in the same way."""
    _any_message(data, requests=False)


def framing(data: bytes) -> None:
    """Frames and both headers."""
    view = memoryview(data)
    try:
        frames, _ = split_frames(view)
        for frame in (*frames, view):
            header, _ = parse_request_header(frame)
            parse_response_header(frame, KNOWN[header.api_key], header.api_version)
    except MalformedFrame:
        return


def batches(data: bytes) -> None:
    """Validation of a client's batch; byte 0 chooses the topic's rules, or a checksum that fits."""
    if not data:
        return
    records = bytearray(data[1:])
    if data[0] & 0x80 and len(records) > HEADER_BYTES:
        # Behind a wrong checksum nothing would ever be looked at.
        struct.pack_into(">qi", records, 0, 0, len(records) - 12)
        records[16] = 2
        set_crc(records, 0, len(records))
    try:
        validate_client_batch(records, _RULES[data[0] % len(_RULES)], _NOW_MS)
    except ProtocolError:
        return


def records(data: bytes) -> None:
    """Reading the records of whatever batches there are."""
    try:
        for position, _ in iterate_headers(data):
            for _ in read_records(data, position):
                pass
    except CorruptRecords:
        return


def _disk(name: str, data: bytes) -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/d")
    file = files.open(f"/d/{name}", create=True)
    file.append(data)
    file.close()
    return files


def checkpoints(data: bytes) -> None:
    """The small text files of a log directory."""
    for name, read in (
        ("table", lambda files: OffsetCheckpoint(files, "/d/table").read()),
        ("leader-epoch-checkpoint", lambda files: LeaderEpochs.load(files, f"/d/{_EPOCHS}")),
        ("meta.properties", lambda files: read_meta_properties(files, "/d")),
        ("partition.metadata", lambda files: read_topic_id(files, "/d")),
    ):
        try:
            read(_disk(name, data))
        except StorageError:
            continue
    parse_directory_name(data.decode("latin-1"))


_EPOCHS: Final = "leader-epoch-checkpoint"


def snapshots(data: bytes) -> None:
    """Producer snapshots, the transaction index, and the metadata store's two files."""
    readers: tuple[Callable[[], object], ...] = (
        lambda: decode_snapshot(data),
        lambda: TransactionIndex(_disk("x.txnindex", data), "/d/x.txnindex").collect_aborted(
            Offset(0), Offset(1 << 40)
        ),
        lambda: journal_format.decode_journal(data),
        lambda: journal_format.decode_snapshot(data),
    )
    for read in readers:
        try:
            read()
        except StorageError:
            continue


def recovery(data: bytes) -> None:
    """A whole log directory of damaged files: byte 0 says which file the bytes are."""
    if not data:
        return
    suffix = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")[data[0] % 5]
    files = MemoryFiles()
    files.make_directory("/d/t-0")
    file = files.open(f"/d/t-0/{_SEGMENT}{suffix}", create=True)
    file.append(data[1:])
    file.close()
    found = LogToLoad(
        topic_partition=TopicPartition("t", 0),
        directory="/d/t-0",
        recovery_point=Offset(0),
        log_start_offset=Offset(0),
        high_watermark=Offset(0),
        needs_recovery=not data[0] & 0x80,
    )
    try:
        log = Log.load(files, found, TopicConfig(), now_ms=_NOW_MS, random=_random())
    except StorageError:
        return
    log.check()


def properties(data: bytes) -> None:
    """A properties file, and a broker's configuration made of it."""
    text = data.decode("latin-1")
    try:
        make_broker_config(SettingLayers(static=parse_properties(text)))
        load_broker_config(None, text.split("\n")[:3])
    except InvalidSetting:
        return


def group_records(data: bytes) -> None:
    """Records of `__consumer_offsets`, and what consumers put into groups."""
    if not data:
        return
    size = data[0]
    with suppress(CorruptRecords):
        decode_record(CoordinatorRecord(data[1 : 1 + size], data[1 + size :]))
    for read in (subscribed_topics, assigned_partitions):
        try:
            read(data)
        except CorruptRecords:
            continue


class _Node:
    """A node with one topic, fresh for every input: what one input does must not show in others."""

    def __init__(self) -> None:
        config = load_broker_config(
            None, ["node.id=1", "log.dirs=/d", "offsets.topic.num.partitions=1"]
        ).config
        random = _random()
        self.tree, self.image = NodeTree(), ClusterImage()
        self.monotonic_ms = 1000
        files = MemoryFiles()
        files.make_directory("/d")
        self._decide(bootstrap(set(), random=random, cluster_id="AAAAAAAAAAAAAAAAAAAAAA"))
        endpoint = Endpoint("PLAINTEXT", "localhost", 9092)
        broker = BrokerNode(BrokerId(1), (endpoint,), None, _NOW_MS)
        self._decide(register_broker(self.image, broker))
        self._decide(become_controller(self.image, BrokerId(1), now_ms=_NOW_MS))
        directory: LogDirectory[Log] = LogDirectory(files, "/d")
        directory.open(BrokerId(1), self.image.cluster_id or "")
        directory.load_logs(lambda found: _no_log(found))
        self.files = files
        self.node = Node(config, self.image, [directory], files=files, random=random)
        self.node.start(self.now)

    @property
    def now(self) -> Instant:
        return Instant(self.monotonic_ms, _NOW_MS + self.monotonic_ms)

    def _decide(self, operations: Sequence[Operation]) -> None:
        changes = self.tree.multi(operations, _SESSION).changes
        if changes is not None:
            self.image, _ = self.image.apply(changes)

    def turn(self, connections: dict[int, Connection]) -> None:
        for _ in range(100):
            effects = self.node.finish_turn(self.now)
            if not effects:
                return
            for effect in effects:
                match effect:
                    case WriteMetadata(token, operations):
                        self._write(token, operations)
                    case SyncLog(token, plan):
                        self.node.log_synced(token, plan.carry_out(self.files), self.now)
                    case Send():
                        pass
                    case _:
                        connection = connections.pop(effect.connection, None)
                        if connection is not None:
                            self.node.close_connection(connection)
        raise AssertionError("The node never comes to rest.")

    def _write(self, token: int, operations: Sequence[Operation]) -> None:
        try:
            changes = self.tree.multi(operations, _SESSION).changes
        except MultiRefused as refused:
            self.node.metadata_written(token, refused, self.now)
            return
        if changes is not None:
            self.node.metadata_changed(changes, self.now)
        self.node.metadata_written(token, None, self.now)


def _random() -> Random:
    return Random(1)  # noqa: S311 -- a finding must be repeatable


def _no_log(found: LogToLoad) -> Log:
    raise AssertionError(f"{found.directory} cannot be there.")


class _Bugs(logging.Handler):
    """The node survives its own bugs and logs them with a traceback: here they are findings."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            raise record.exc_info[1]


def node(data: bytes) -> None:
    """A whole node, fed with frames: each begins with one byte of length, one of connection."""
    logger = logging.getLogger("strandline")
    handler, propagated = _Bugs(), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        _feed(_Node(), data)
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


def _feed(world: _Node, data: bytes) -> None:
    connections: dict[int, Connection] = {}
    slots: dict[int, int] = {}
    position = 0
    while position + 2 <= len(data):
        size, slot = data[position], data[position + 1] % 4
        frame = bytearray(data[position + 2 : position + 2 + size])
        position += 2 + size
        if slots.get(slot) not in connections:
            fresh = world.node.open_connection("fuzz", "PLAINTEXT")
            connections[fresh.id] = fresh
            slots[slot] = fresh.id
        connection = connections[slots[slot]]
        if connection.wants_input:
            world.node.receive(connection, memoryview(frame), world.now)
        world.turn(connections)
    world.monotonic_ms += 3_600_000
    world.turn(connections)
    for connection in connections.values():
        world.node.close_connection(connection)
    if len(world.node.purgatory):
        raise AssertionError("A parked request outlived its connection.")


def mixed(data: bytes) -> None:
    """Any of the others, chosen by byte 0: one process that looks at everything for a while."""
    if data:
        target = list(TARGETS.values())[data[0] % len(TARGETS)]
        target(data[1:])


TARGETS: Final[dict[str, Target]] = {
    "requests": requests,
    "responses": responses,
    "framing": framing,
    "batches": batches,
    "records": records,
    "checkpoints": checkpoints,
    "snapshots": snapshots,
    "recovery": recovery,
    "properties": properties,
    "group_records": group_records,
    "node": node,
}
