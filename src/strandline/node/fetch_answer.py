"""The answer to a fetch as bytes and file ranges, written by hand.

A fetch answer is the one message that carries file ranges, and the one that is encoded most often
by a consuming client, so it does not go through the generated codecs. A differential test holds
the bytes against them, for every version.

    size │ correlation id │ [tags] │ throttle │ error │ session │ topics:
      name or id │ partitions: head │ length │ <file range> │ [tags] ...
"""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct
from typing import Any, Final
from uuid import UUID

from strandline.errors import ErrorCode
from strandline.node.effects import Chunk
from strandline.node.leader_hints import LeaderEndpoint, LeaderHint
from strandline.node.request import Request
from strandline.storage.log_reader import LogSlice
from strandline.storage.transaction_index import AbortedTransaction
from strandline.types import NO_OFFSET, BrokerId

_FLEXIBLE_SINCE: Final = 12
_TOPIC_IDS_SINCE: Final = 13
_SESSIONS_SINCE: Final = 7
_LOG_START_SINCE: Final = 5
_PREFERRED_REPLICA_SINCE: Final = 11
_HINTS_SINCE: Final = 16
_NO_REPLICA: Final = -1

_HEAD: Final = Struct(">ihqq")
_HEAD_WITH_START: Final = Struct(">ihqqq")
_INT: Final = Struct(">i")
_SHORT: Final = Struct(">h")
_ABORTED: Final = Struct(">qq")
_TOP: Final = Struct(">ihi")
# tag 0, size 13: epoch, end offset, and no tags of their own
_DIVERGING: Final = Struct(">bbiqb")
# tag 1, size 9: leader, leader epoch, and no tags of their own
_CURRENT_LEADER: Final = Struct(">bbiib")


# A whole frame up to the length of the records: size, correlation id, tags, throttle time, error,
# session; one topic, one partition with its offsets; no aborted transactions, preferred replica.
_SINGLE: Final = Struct(">iibihib16sbihqqqbi")
_SINGLE_END: Final = bytes(3)
"""No tags of the partition, the topic and the answer."""
_COMPACT_ONE: Final = 2
_COMPACT_NULL: Final = 0


class PartitionAnswer:
    """What one partition answers. `records` is a range of its log, or None for nothing."""

    __slots__ = (
        "aborted_transactions",
        "current_leader",
        "diverging",
        "error_code",
        "high_watermark",
        "is_full",
        "last_stable_offset",
        "log_start_offset",
        "partition",
        "preferred_replica",
        "records",
    )

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.error_code = ErrorCode.NONE
        self.high_watermark: int = NO_OFFSET
        self.last_stable_offset: int = NO_OFFSET
        self.log_start_offset: int = NO_OFFSET
        self.diverging: tuple[int, int] | None = None
        self.current_leader: LeaderHint | None = None
        self.aborted_transactions: list[AbortedTransaction] | None = None
        self.preferred_replica: BrokerId | None = None
        self.records: LogSlice | None = None
        self.is_full = False
        """There is more to read, but not for this answer, however long it waits: the segment has
        no more than `records`, but there is another one; or the request has no room left."""

    @property
    def length(self) -> int:
        """Bytes of records."""
        return 0 if self.records is None else self.records.length

    @property
    def is_urgent(self) -> bool:
        """Whether the client must hear this without waiting for more data."""
        return self.is_news or self.is_full

    @property
    def is_plain(self) -> bool:
        """Whether it has only what every answer has."""
        return (
            self.diverging is None
            and self.aborted_transactions is None
            and self.current_leader is None
        )

    @property
    def is_news(self) -> bool:
        """Whether this belongs into an incremental answer, whatever its offsets are."""
        return (
            self.error_code is not ErrorCode.NONE
            or self.diverging is not None
            or self.preferred_replica is not None
        )

    def refuse(self, code: ErrorCode) -> None:
        """Answer with an error and nothing else."""
        self.error_code = code
        self.high_watermark = NO_OFFSET
        self.last_stable_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.aborted_transactions = None
        self.preferred_replica = None
        self.leave_out()

    def leave_out(self) -> None:
        """Send no records of this partition."""
        self.records = None
        self.is_full = False


_THROTTLE_AT: Final = 8
"""Behind the size and the correlation id, and in flexible versions behind a byte of tags."""


class FetchAnswer:
    """A whole answer: an error for the request, or partitions in the order of the reading."""

    __slots__ = ("error_code", "leaders", "session_id", "topics")

    def __init__(self, *, error_code: ErrorCode = ErrorCode.NONE, session_id: int = 0) -> None:
        self.error_code = error_code
        self.session_id = session_id
        self.leaders: Collection[LeaderEndpoint] = ()
        """Where the leaders are that partitions name instead of this broker."""
        self.topics: list[tuple[str | UUID, list[PartitionAnswer]]] = []

    def add(self, topic: str | UUID, partition: PartitionAnswer) -> None:
        """Add a partition; neighbours of one topic share its entry."""
        topics = self.topics
        if topics and topics[-1][0] == topic:
            topics[-1][1].append(partition)
        else:
            topics.append((topic, [partition]))


def encode_fetch_answer(request: Request[Any], answer: FetchAnswer) -> list[Chunk]:
    """The frame, its size included, as bytes and file ranges in the order of sending."""
    version = request.version
    topics = answer.topics
    if (
        version >= _TOPIC_IDS_SINCE
        and not answer.leaders
        and len(topics) == 1
        and len(topics[0][1]) == 1
    ):
        topic_id, (single,) = topics[0]
        if isinstance(topic_id, UUID) and single.is_plain:
            return _encode_single(request.correlation_id, answer, topic_id, single)
    flexible = version >= _FLEXIBLE_SINCE
    writer = _Writer(flexible)
    writer.buffer += bytes(4) + _INT.pack(request.correlation_id)
    if flexible:
        writer.buffer.append(0)
    if version >= _SESSIONS_SINCE:
        writer.buffer += _TOP.pack(0, answer.error_code, answer.session_id)
    else:
        writer.buffer += _INT.pack(0)
    writer.array(len(answer.topics))
    for topic, partitions in answer.topics:
        if isinstance(topic, UUID):
            writer.buffer += topic.bytes
        else:
            writer.string(topic)
        writer.array(len(partitions))
        for partition in partitions:
            _write_partition(writer, partition, version)
        writer.no_tags()
    if answer.leaders and version >= _HINTS_SINCE:
        _write_leaders(writer, answer.leaders)
    else:
        writer.no_tags()
    return writer.finish()


def set_throttle(chunks: list[Chunk], version: int, throttle_ms: int) -> None:
    """Put a throttle time into an encoded frame."""
    head = bytearray(chunks[0])  # type: ignore[arg-type]  # a frame begins with bytes
    at = _THROTTLE_AT + (version >= _FLEXIBLE_SINCE)
    _INT.pack_into(head, at, throttle_ms)
    chunks[0] = head


def size_of(chunks: list[Chunk]) -> int:
    """The bytes of a frame."""
    return sum(each.length if isinstance(each, LogSlice) else len(each) for each in chunks)


def _write_leaders(writer: _Writer, leaders: Collection[LeaderEndpoint]) -> None:
    """The only tag of an answer: number 0, its size, an array of endpoints."""
    tag = _Writer(flexible=True)
    tag.array(len(leaders))
    for leader in leaders:
        tag.buffer += _INT.pack(leader.broker_id)
        tag.string(leader.host)
        tag.buffer += _INT.pack(leader.port)
        if leader.rack is None:
            tag.array(-1)
        else:
            tag.string(leader.rack)
        tag.no_tags()
    writer.buffer += bytes((1, 0))
    writer.varint(len(tag.buffer))
    writer.buffer += tag.buffer


def _encode_single(
    correlation_id: int, answer: FetchAnswer, topic_id: UUID, partition: PartitionAnswer
) -> list[Chunk]:
    """The frame with one partition and nothing unusual: what followers get all the time."""
    records = partition.records
    length = 0 if records is None else records.length
    varint = bytearray()
    rest = length + 1
    while rest > 0x7F:
        varint.append(rest & 0x7F | 0x80)
        rest >>= 7
    varint.append(rest)
    preferred = partition.preferred_replica
    head = _SINGLE.pack(
        _SINGLE.size - 4 + len(varint) + length + len(_SINGLE_END),
        correlation_id,
        0,
        0,
        answer.error_code,
        answer.session_id,
        _COMPACT_ONE,
        topic_id.bytes,
        _COMPACT_ONE,
        partition.partition,
        partition.error_code,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
        _COMPACT_NULL,
        _NO_REPLICA if preferred is None else preferred,
    )
    if records is None or not length:
        return [head + varint + _SINGLE_END]
    return [head + varint, records, _SINGLE_END]


def _write_partition(writer: _Writer, answer: PartitionAnswer, version: int) -> None:
    buffer = writer.buffer
    if version >= _LOG_START_SINCE:
        buffer += _HEAD_WITH_START.pack(
            answer.partition,
            answer.error_code,
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
        )
    else:
        buffer += _HEAD.pack(
            answer.partition, answer.error_code, answer.high_watermark, answer.last_stable_offset
        )
    aborted = answer.aborted_transactions
    writer.array(-1 if aborted is None else len(aborted))
    for transaction in aborted or ():
        buffer += _ABORTED.pack(transaction.producer_id, transaction.first_offset)
        writer.no_tags()
    if version >= _PREFERRED_REPLICA_SINCE:
        preferred = answer.preferred_replica
        buffer += _INT.pack(_NO_REPLICA if preferred is None else preferred)
    writer.array(answer.length)  # the length of bytes has the same form as that of arrays
    if answer.records is not None and answer.length:
        writer.range(answer.records)
    diverging = answer.diverging if writer.flexible else None
    leader = answer.current_leader if version >= _HINTS_SINCE else None
    if diverging is None and leader is None:
        writer.no_tags()
        return
    writer.buffer.append((diverging is not None) + (leader is not None))
    if diverging is not None:
        writer.buffer += _DIVERGING.pack(0, 13, *diverging, 0)
    if leader is not None:
        writer.buffer += _CURRENT_LEADER.pack(1, 9, *leader, 0)


class _Writer:
    """Bytes being written, broken wherever a file range stands."""

    __slots__ = ("_chunks", "_ranges_bytes", "buffer", "flexible")

    def __init__(self, flexible: bool) -> None:
        self.flexible = flexible
        self.buffer = bytearray()
        self._chunks: list[Chunk] = []
        self._ranges_bytes = 0

    def array(self, count: int) -> None:
        """A length; -1 means null."""
        if not self.flexible:
            self.buffer += _INT.pack(count)
            return
        self.varint(count + 1)

    def varint(self, value: int) -> None:
        """An unsigned number in as few bytes as it takes."""
        while value > 0x7F:
            self.buffer.append(value & 0x7F | 0x80)
            value >>= 7
        self.buffer.append(value)

    def string(self, text: str) -> None:
        """A string that is not null."""
        data = text.encode()
        if self.flexible:
            self.array(len(data))
        else:
            self.buffer += _SHORT.pack(len(data))
        self.buffer += data

    def no_tags(self) -> None:
        """An empty set of tagged fields, where the version has them."""
        if self.flexible:
            self.buffer.append(0)

    def range(self, records: LogSlice) -> None:
        """A file range between what was and what will be written."""
        self._chunks += (self.buffer, records)
        self._ranges_bytes += records.length
        self.buffer = bytearray()

    def finish(self) -> list[Chunk]:
        """All pieces, with the size in front."""
        if self.buffer:
            self._chunks.append(self.buffer)
        size = self._ranges_bytes - 4
        for chunk in self._chunks:
            if not isinstance(chunk, LogSlice):
                size += len(chunk)
        first = self._chunks[0]
        if isinstance(first, bytearray):
            _INT.pack_into(first, 0, size)
        return self._chunks
