"""Shortcuts for the two requests that a busy broker sees all the time, in their commonest shape.

A produce request of one topic and one partition (librdkafka sends no others) is read without
building messages, and its answer, like that to a fetch from one partition, is put together from
a few packed runs around the topic's name. Measured against the generated codecs these take
a third of the time or less; where a shortcut did not win clearly there is none.

The rule of every shortcut: it covers exactly the shape it is made for and returns None for all
others, malformed ones included, so that the generated codec remains the only judge of what is
valid. `tests/protocol/test_hot.py` holds the two against each other.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, error
from typing import Final, TypeAlias
from uuid import UUID

from strandline.errors import MalformedFrame
from strandline.protocol.wire import long_string_length, read_long_varint, uuid_of, varint

SingleProduce: TypeAlias = tuple[int, int, str | UUID, int, memoryview]
"""acks, timeout_ms, topic name or (from version 13) id, partition, records."""

_FIRST_FLEXIBLE_PRODUCE: Final = 9
_FIRST_PRODUCE_BY_ID: Final = 13
_FIRST_FLEXIBLE_FETCH: Final = 12

_OLD_HEAD: Final = Struct(">hhiih")  # no transactional id, acks, timeout, 1 topic, name's size
_OLD_PARTITION: Final = Struct(">iii")  # 1 partition, index, size of the records
_HEAD: Final = Struct(">BhiBB")
_PARTITION: Final = Struct(">BiB")
_HEAD_BY_ID: Final = Struct(">BhiB16sBiB")
_NO_TAGS: Final = b"\0\0\0"  # of the partition, of its topic and of the request


def read_single_produce(frame: memoryview, version: int, position: int) -> SingleProduce | None:
    """Read the body of a produce request with one partition and no transaction, else None."""
    try:
        if version >= _FIRST_PRODUCE_BY_ID:
            return _read_by_id(frame, position)
        if version >= _FIRST_FLEXIBLE_PRODUCE:
            return _read_flexible(frame, position)
        return _read_inflexible(frame, position)
    except (error, IndexError, UnicodeDecodeError, MalformedFrame):
        return None


def _read_inflexible(frame: memoryview, position: int) -> SingleProduce | None:
    transaction, acks, timeout_ms, topics, size = _OLD_HEAD.unpack_from(frame, position)
    if transaction != -1 or topics != 1 or size < 0:
        return None
    start = position + _OLD_HEAD.size
    end = start + size
    partitions, index, length = _OLD_PARTITION.unpack_from(frame, end)
    records = end + _OLD_PARTITION.size
    if partitions != 1 or length < 0 or records + length != len(frame):
        return None
    return acks, timeout_ms, str(frame[start:end], "utf-8"), index, frame[records:]


def _read_flexible(frame: memoryview, position: int) -> SingleProduce | None:
    transaction, acks, timeout_ms, topics, size = _HEAD.unpack_from(frame, position)
    if transaction or topics != 2 or not 0 < size < 128:
        return None
    start = position + _HEAD.size
    end = start + size - 1
    partitions, index, length = _PARTITION.unpack_from(frame, end)
    if partitions != 2:
        return None
    records = _records(frame, end + _PARTITION.size, length)
    if records is None:
        return None
    return acks, timeout_ms, str(frame[start:end], "utf-8"), index, records


def _read_by_id(frame: memoryview, position: int) -> SingleProduce | None:
    transaction, acks, timeout_ms, topics, topic_id, partitions, index, length = (
        _HEAD_BY_ID.unpack_from(frame, position)
    )
    if transaction or topics != 2 or partitions != 2:
        return None
    records = _records(frame, position + _HEAD_BY_ID.size, length)
    if records is None:
        return None
    return acks, timeout_ms, uuid_of(topic_id), index, records


def _records(frame: memoryview, start: int, length: int) -> memoryview | None:
    """The records, if they reach to the three empty tag sections with which the request ends."""
    if length > 127:
        length, start = read_long_varint(frame, start - 1)
    end = start + length - 1
    if not length or end + 3 != len(frame) or bytes(frame[end:]) != _NO_TAGS:
        return None
    return frame[start:end]


# --- Responses --------------------------------------------------------------------------------
# In flexible versions `x` is a zero byte: an empty tag section, or a null error message.

_OLD_RESPONSE: Final = Struct(">iii")  # size, correlation id, 1 topic
_RESPONSE: Final = Struct(">iixB")  # the same; tags of the header
_PRODUCE_TAILS: Final = {
    # 1 partition, index, error, offset, append time[, log start[, 0 record errors, message]]
    **dict.fromkeys((3, 4), Struct(">iihqqi")),
    **dict.fromkeys((5, 6, 7), Struct(">iihqqqi")),
    8: Struct(">iihqqqihi"),
    **dict.fromkeys((9, 10, 11, 12, 13), Struct(">BihqqqBxxxix")),
}


def single_produce_response(
    version: int,
    correlation_id: int,
    topic: str | UUID,
    partition: int,
    *,
    error_code: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes:
    """A whole response frame for one partition, without messages and with no throttling."""
    tail = _PRODUCE_TAILS[version]
    common = (partition, error_code, base_offset, log_append_time_ms)
    if version >= _FIRST_FLEXIBLE_PRODUCE:
        name = _topic_field(topic, flexible=True)
        size = _RESPONSE.size - 4 + len(name) + tail.size
        head = _RESPONSE.pack(size, correlation_id, 2)
        return b"".join((head, name, tail.pack(2, *common, log_start_offset, 1, 0)))
    name = _topic_field(topic, flexible=False)
    head = _OLD_RESPONSE.pack(_OLD_RESPONSE.size - 4 + len(name) + tail.size, correlation_id, 1)
    if version == 8:
        return b"".join((head, name, tail.pack(1, *common, log_start_offset, 0, -1, 0)))
    if version >= 5:
        return b"".join((head, name, tail.pack(1, *common, log_start_offset, 0)))
    return b"".join((head, name, tail.pack(1, *common, 0)))


_FETCH_HEADS: Final = {
    # size, correlation id, throttle time[, error, session], 1 topic
    **dict.fromkeys((4, 5, 6), Struct(">iiii")),
    **dict.fromkeys((7, 8, 9, 10, 11), Struct(">iiihii")),
    **dict.fromkeys(range(12, 19), Struct(">iixihiB")),
}
_FETCH_PARTITIONS: Final = {
    # 1 partition, index, error, high watermark, last stable offset[, log start],
    # number of aborted transactions[, preferred replica], size of the records
    4: Struct(">iihqqii"),
    **dict.fromkeys((5, 6, 7, 8, 9, 10), Struct(">iihqqqii")),
    11: Struct(">iihqqqiii"),
    **dict.fromkeys(range(12, 19), Struct(">BihqqqBi")),
}
FETCH_TAIL: Final = _NO_TAGS


def single_fetch_head(
    version: int,
    correlation_id: int,
    topic: str | UUID,
    partition: int,
    *,
    session_id: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    aborted_transactions_known: bool,
    records_bytes: int,
) -> bytes:
    """What precedes the records in the answer to a fetch from one partition, without errors.

    The records follow, and after them, from version 12 on, `FETCH_TAIL`. An unknown list of
    aborted transactions is null, as for readers of uncommitted records; a known one is empty.
    """
    flexible = version >= _FIRST_FLEXIBLE_FETCH
    name = _topic_field(topic, flexible)
    head, inner = _FETCH_HEADS[version], _FETCH_PARTITIONS[version]
    offsets: tuple[int, ...] = (high_watermark, last_stable_offset)
    if version > 4:
        offsets += (log_start_offset,)
    if flexible:
        known = 1 if aborted_transactions_known else 0
        described = inner.pack(2, partition, 0, *offsets, known, -1) + varint(records_bytes + 1)
        size = head.size - 4 + len(name) + len(described) + records_bytes + len(FETCH_TAIL)
        return b"".join((head.pack(size, correlation_id, 0, 0, session_id, 2), name, described))
    known = 0 if aborted_transactions_known else -1
    preferred = (-1,) if version == 11 else ()
    described = inner.pack(1, partition, 0, *offsets, known, *preferred, records_bytes)
    size = head.size - 4 + len(name) + len(described) + records_bytes
    session = (0, session_id) if version > 6 else ()
    return b"".join((head.pack(size, correlation_id, 0, *session, 1), name, described))


@lru_cache(maxsize=4096)
def _topic_field(topic: str | UUID, flexible: bool) -> bytes:
    """A topic's name or id as it stands in a response. Names repeat in every request."""
    if isinstance(topic, UUID):
        return topic.bytes
    name = topic.encode()
    if not flexible:
        return len(name).to_bytes(2, "big", signed=True) + name
    return long_string_length(len(name) + 1) + name
