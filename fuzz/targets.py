"""What is fuzzed, and which errors each thing may raise for bytes that make no sense.

A target takes bytes and returns. Any exception but the declared ones is a finding; so is an
allocation beyond what the input explains, which the runner of the targets has to watch. Targets
keep no state from one call to the next, so that a finding is repeated by its input alone.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

from fuzz.node_world import feed
from strandline.authorization.acls import PatternType, ResourcePattern, ResourceType
from strandline.authorization.authorizer import parse_super_users
from strandline.client.security.jaas import parse_jaas
from strandline.cluster import journal_format
from strandline.cluster.scram_credentials import ScramCredential, ScramMechanism
from strandline.cluster.store import MalformedNode
from strandline.cluster.znodes import AclNode
from strandline.config.broker import SettingLayers
from strandline.config.load import load_broker_config, make_broker_config
from strandline.config.properties import parse_properties
from strandline.config.topic import TopicConfig
from strandline.errors import (
    CorruptRecords,
    InvalidSetting,
    InvariantViolated,
    MalformedFrame,
    ProtocolError,
    StorageError,
)
from strandline.groups.consumer_protocol import assigned_partitions, subscribed_topics
from strandline.groups.offset_records import decode_record
from strandline.node.authentication.delegation_tokens import TokenCredential
from strandline.node.authentication.distinguished_name import subject_of
from strandline.node.authentication.mechanisms import Authenticated, Plain, Refused
from strandline.node.authentication.principal_rules import PrincipalRules
from strandline.node.authentication.scram_server import Scram
from strandline.node.authentication.tokens import BadToken, OauthBearer
from strandline.protocol.apis import KNOWN
from strandline.protocol.coordinator_log import CoordinatorRecord
from strandline.protocol.framing import parse_request_header, parse_response_header, split_frames
from strandline.protocol.schema import decode_from
from strandline.records.batch import HEADER_BYTES, iterate_headers, parse_header, set_crc
from strandline.records.columns import (
    BuilderLimits,
    ColumnBuilder,
    PythonColumnBuilder,
    new_builder,
)
from strandline.records.record import read_records
from strandline.records.rules import AppendRules
from strandline.records.validation import validate_client_batch
from strandline.schemas.avro import AvroSchema
from strandline.schemas.errors import BadSchema, Unreadable
from strandline.schemas.shown import json_text
from strandline.schemas.walk import Limits
from strandline.storage.checkpoint_file import OffsetCheckpoint
from strandline.storage.directory_names import parse_directory_name
from strandline.storage.leader_epochs import LeaderEpochs
from strandline.storage.log import Log
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.meta_properties import read_meta_properties
from strandline.storage.partition_metadata import read_topic_id
from strandline.storage.producer_snapshot import decode_snapshot
from strandline.storage.transaction_index import TransactionIndex
from strandline.types import NO_TIMESTAMP, Instant, Offset, TopicPartition

Target = Callable[[bytes], None]

_NOW_MS: Final = 1_700_000_000_000
_APIS: Final = [KNOWN[key] for key in sorted(KNOWN)]
_RULES: Final = (
    AppendRules.for_topic(TopicConfig()),
    AppendRules.for_topic(TopicConfig(cleanup_policies=frozenset({"compact"}))),
    AppendRules.for_topic(TopicConfig(compression_type="gzip")),
    AppendRules.for_topic(TopicConfig(message_timestamp_type="LogAppendTime")),
)
_AVRO_LIMITS: Final = Limits(items=20_000)
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
    rules = _RULES[data[0] % len(_RULES)]
    try:
        taken = validate_client_batch(records, rules, _NOW_MS)
    except ProtocolError:
        return
    found = list(read_records(taken.buffer))
    assert [record.offset for record in found] == list(range(taken.header.record_count))
    assert taken.header.max_timestamp == max(NO_TIMESTAMP, *(each.timestamp for each in found))


def columns(data: bytes) -> None:
    """Columns of a batch, with both builders; byte 0 chooses limits, or a checksum that fits."""
    if not data:
        return
    batch = bytearray(data[1:])
    if data[0] & 0x80 and len(batch) > HEADER_BYTES:
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        batch[16] = 2
        set_crc(batch, 0, len(batch))
    limits = BuilderLimits(
        start=data[0] & 0x03, end=2**63 - 1 - (data[0] & 0x04), with_headers=bool(data[0] & 0x08)
    )
    first, second = (_columns(make(limits), batch) for make in (new_builder, PythonColumnBuilder))
    if first != second:
        raise InvariantViolated(f"The builders of columns disagree: {first}, {second}.")


def _columns(builder: ColumnBuilder, batch: bytearray) -> tuple[object, ...]:
    """All that can be seen of a builder after one batch."""
    error = ""
    position = builder.take_plain(batch, 0, stops_at_transactions=False)
    if position == 0:
        try:
            builder.take_batch(parse_header(batch), batch, 0)
        except CorruptRecords as raised:
            error = str(raised)
    seen = (position, builder.rows, builder.size_bytes, builder.next_offset, error)
    made = builder.columns()
    buffers: list[Any] = [*made.key, *made.value]
    buffers += [made.offset, made.timestamp, made.timestamp_type]
    if made.headers is not None:
        buffers += [made.headers.offsets, made.headers.validity]
        buffers += [*made.headers.key, *made.headers.value]
    return (*seen, *(None if each is None else bytes(memoryview(each)) for each in buffers))


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


def avro(data: bytes) -> None:
    """The text of a schema, which the first two bytes say the length of, and a value."""
    size = int.from_bytes(data[:2], "big")
    with suppress(BadSchema, Unreadable):
        schema = AvroSchema(data[2 : 2 + size].decode("latin-1"))
        json_text(schema.read(data[2 + size :], _AVRO_LIMITS))


def acls(data: bytes) -> None:
    """A node with ACLs, which are written as they were read; and the words of settings."""
    resource = ResourcePattern(ResourceType.GROUP, "g", PatternType.LITERAL)
    with suppress(MalformedNode):
        node = AclNode.decode(resource, data)
        assert AclNode.decode(resource, node.encode()) == node
    with suppress(ValueError):
        parse_super_users(data.decode("latin-1"))


def sasl(data: bytes) -> None:
    """Messages of mechanisms, of which none may authenticate; texts of settings; certificates."""
    now = Instant(0, _NOW_MS)
    for mechanism in (_PLAIN, _SCRAM, _OAUTH):
        exchange = mechanism.begin()
        with suppress(Refused):
            for message in data.split(b"\xff\xff"):
                if isinstance(exchange.answer(message, now), Authenticated):
                    raise InvariantViolated("A message authenticated without a password.")
    with suppress(ValueError):
        subject_of(data)
    text = data.decode("latin-1")
    with suppress(ValueError):
        ScramCredential.parse(text)
    for read in (parse_jaas, PrincipalRules):
        with suppress(InvalidSetting):
            read(text)


def _known(name: str, mechanism: ScramMechanism) -> ScramCredential | None:
    del mechanism
    return ScramCredential(b"salt", bytes(64), bytes(64), 4096) if name == "u" else None


def _known_token(token_id: str, mechanism: ScramMechanism, now: Instant) -> TokenCredential | None:
    credential = _known(token_id, mechanism)
    return None if credential is None else TokenCredential(credential, "owner", now.wall_ms + 1)


class _NoTokens:
    """Accepts no token."""

    def check(self, token: str, now: Instant) -> Authenticated:
        del now
        raise BadToken(token)


_PLAIN: Final = Plain({"u": bytes(32)})
_SCRAM: Final = Scram(
    ScramMechanism.SCRAM_SHA_512,
    _known,
    _known_token,
    Random(1),  # noqa: S311 -- as below
)
_OAUTH: Final = OauthBearer(_NoTokens())


def _random() -> Random:
    return Random(1)  # noqa: S311 -- a finding must be repeatable


class _Bugs(logging.Handler):
    """The node survives its own bugs and logs them with a traceback: here they are findings."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            raise record.exc_info[1]


def node(data: bytes) -> None:
    """A whole node among others, fed with frames and changes: see `node_world`."""
    logger = logging.getLogger("strandline")
    handler, propagated = _Bugs(), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        feed(data)
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


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
    "columns": columns,
    "records": records,
    "checkpoints": checkpoints,
    "snapshots": snapshots,
    "recovery": recovery,
    "properties": properties,
    "group_records": group_records,
    "avro": avro,
    "acls": acls,
    "sasl": sasl,
    "node": node,
}
