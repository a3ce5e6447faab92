"""What the logs of group and transaction coordinators have in common.

A coordinator keeps its state as records of a compacted, internal topic. The key of a record begins
with its kind (int16), its value with its version (int16); `schema.encode_versioned` writes both. A
record without value is a tombstone. Which partition holds whose state follows from a hash of the
name, on which all brokers and clients of all versions agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from strandline.errors import CorruptRecords, ErrorCode, MalformedFrame
from strandline.protocol.declare import shape_of
from strandline.protocol.schema import decode_from
from strandline.types import ProducerId

T = TypeVar("T")

APPEND_UNDECIDED: Final = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)
"""After these errors of an append its records are in the log, and may become durable later."""

APPEND_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""What clients are told where an append of a coordinator ended with these errors."""


class CoordinatorRecord(NamedTuple):
    """A record as it lies in the log."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class OpenRecord:
    """A record that counts if the open transaction of this producer commits."""

    producer_id: ProducerId
    record: CoordinatorRecord


@lru_cache(maxsize=128)
def partition_for(name: str, partition_count: int) -> int:
    """The partition in which a group, or a transactional id, lives.

    Java's string hash over UTF-16 units, in 32 bits; the one value without a positive counterpart
    counts as 0.
    """
    units = name.encode("utf-16-be", "surrogatepass")
    code = 0
    for index in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[index : index + 2], "big")) & 0xFFFF_FFFF
    signed = code - (1 << 32) if code & 0x8000_0000 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partition_count


def read_number(data: bytes) -> int:
    """The kind of a key, or the version of a value. Raises `CorruptRecords`."""
    if len(data) < 2:
        raise CorruptRecords(f"A record has {len(data)} bytes where its version stands.")
    return int.from_bytes(data[:2], "big", signed=True)


def read_message(declared: type[T], data: bytes) -> T:
    """A message behind its number, whatever follows it: a newer Kafka may have written that.

    Raises `CorruptRecords`.
    """
    version = read_number(data)
    if not shape_of(declared).versions.covers(version):
        raise CorruptRecords(f"{declared.__name__} has no version {version} that is known here.")
    try:
        return decode_from(declared, version, data, 2)[0]
    except MalformedFrame as error:
        raise CorruptRecords(str(error)) from error
