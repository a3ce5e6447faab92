"""Batches that a broker writes itself: the state of coordinators, and the ends of transactions.

They come with their headers, so that an append need not read again what was just written. All of
their records have one timestamp and no headers, which makes them simpler than those of clients
(`builder`): each is put together in one step.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from strandline.errors import InvariantViolated
from strandline.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from strandline.records.codec import Codec
from strandline.records.compression import compress
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.varint import write_varint
from strandline.types import (
    NO_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Offset,
    ProducerEpoch,
    ProducerId,
)

_BEFORE_CRC: Final = Struct(">qiibI")
_BEHIND_CRC: Final = Struct(">hiqqqhii")
_FIRST_OFFSET: Final = Offset(0)
_NULL: Final = b"\x01"
"""The varint of -1, where a key or a value has its size."""


class OwnBatch(NamedTuple):
    """A whole batch. Its place in the log, base offset and leader epoch, is not in it yet."""

    buffer: bytearray
    header: BatchHeader
    marker: EndTransactionMarker | None
    """What it says if it is a control batch."""


def own_batch(
    records: Iterable[tuple[bytes | None, bytes | None]],
    *,
    timestamp: int,
    codec: Codec = Codec.NONE,
    producer: tuple[ProducerId, ProducerEpoch] | None = None,
) -> OwnBatch:
    """A batch of records, each a key and a value; of a transaction, if it has a producer."""
    packed = [_record(index, key, value) for index, (key, value) in enumerate(records)]
    if not packed:
        raise InvariantViolated("A record batch was built without a record.")
    payload = packed[0] if len(packed) == 1 else b"".join(packed)
    if codec is not Codec.NONE:
        payload = bytes(compress(codec, payload))
    if producer is None:
        producer_id, producer_epoch, attributes = NO_PRODUCER_ID, NO_PRODUCER_EPOCH, int(codec)
    else:
        (producer_id, producer_epoch), attributes = producer, codec | TRANSACTIONAL_BIT
    return _batch(payload, len(packed), attributes, timestamp, producer_id, producer_epoch, None)


def own_marker(
    *,
    commits: bool,
    coordinator_epoch: int,
    timestamp: int,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
) -> OwnBatch:
    """The batch that ends a producer's transaction."""
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    marker, payload = _marker(commits, coordinator_epoch)
    return _batch(payload, 1, attributes, timestamp, producer_id, producer_epoch, marker)


def _batch(
    payload: bytes,
    count: int,
    attributes: int,
    timestamp: int,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    marker: EndTransactionMarker | None,
) -> OwnBatch:
    checked = (
        attributes,
        count - 1,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        count,
    )
    behind = _BEHIND_CRC.pack(*checked) + payload
    length = HEADER_BYTES - LOG_OVERHEAD + len(payload)
    header = BatchHeader(_FIRST_OFFSET, length, NO_EPOCH, MAGIC, crc32c(behind), *checked)
    buffer = bytearray(_BEFORE_CRC.pack(*header[:5]))
    buffer += behind
    return OwnBatch(buffer, header, marker)


def _record(index: int, key: bytes | None, value: bytes | None) -> bytes:
    body = bytearray(2)  # no attributes are defined; the timestamp is that of the batch
    write_varint(body, index)
    for field in (key, value):
        if field is None:
            body += _NULL
        else:
            write_varint(body, len(field))
            body += field
    body.append(0)  # headers
    packed = bytearray()
    write_varint(packed, len(body))
    packed += body
    return bytes(packed)


@lru_cache(maxsize=64)
def _marker(commits: bool, coordinator_epoch: int) -> tuple[EndTransactionMarker, bytes]:
    """A marker and its record. Of a coordinator there are two, for as long as it leads."""
    kind = ControlType.COMMIT if commits else ControlType.ABORT
    marker = EndTransactionMarker(kind, coordinator_epoch)
    record = marker.record(NO_TIMESTAMP)
    return marker, _record(0, record.key, record.value)
