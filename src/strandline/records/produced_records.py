"""Walking the records of a produced batch: whether all can be read, and what they break.

This file knows the pure-Python twins of the compiled walk (`_kernels/produced.pyx`) and takes the
kernel where there is one. It must not know topics' settings (`rules.py`) nor error codes
(`record_checks.py`).

Every field is read and none is kept: a record must fill its declared length, its offset delta must
be its index (a client's batch has no gaps), its timestamp must fit in 64 bits, sizes must stay
inside of it, headers must have keys, and nothing may follow the last record. What passes is what
`record.py`, the reader of everything else here, reads without an error.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from strandline.errors import CorruptRecords
from strandline.records._kernels import compiled
from strandline.records.batch import MAGIC, TIMESTAMP_TYPE_BIT, BatchHeader, Buffer
from strandline.records.record import iterate_payload
from strandline.types import (
    NO_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Offset,
)

_kernel: Final[Any] = compiled("produced")

Refused: TypeAlias = tuple[int, bool, int]
"""A record that breaks a rule: its index, whether it has a key, its timestamp."""
Findings: TypeAlias = tuple[int, int, list[Refused], int, int]
"""Index of the record that is malformed (-1: none; the count of records: bytes follow the last
one), largest timestamp, some refused records, how many have no key, how many a wrong timestamp."""


class Terms(NamedTuple):
    """What the records of a batch are held against. Times are in milliseconds."""

    base_timestamp: int
    stamp: int | None
    """The timestamp of all records instead of their own, where the header says LogAppendTime."""
    earliest: int
    latest: int
    wants_keys: bool


def newest_of_in_python(
    payload: Buffer,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    earliest: int,
    latest: int,
    wants_keys: bool,
) -> int | None:
    """The largest timestamp of the `count` records in `payload[start:end]`, if all are in order.

    None if there is anything wrong: `look_closely` says what. Timestamps must lie in
    `[earliest, latest]` or be -1, none.
    """
    if not 0 <= start <= end <= len(payload):
        return None
    terms = Terms(base_timestamp, None, earliest, latest, wants_keys)
    found = look_closely_in_python(memoryview(payload)[start:end], count, *terms, 0)
    malformed, newest, _, without_key, out_of_range = found
    return newest if malformed < 0 and not without_key and not out_of_range else None


def look_closely_in_python(
    payload: Buffer,
    count: int,
    base_timestamp: int,
    stamp: int | None,
    earliest: int,
    latest: int,
    wants_keys: bool,
    most: int,
) -> Findings:
    """What is wrong with the `count` records in `payload`; names at most `most` refused ones.

    Stops at the first record that is malformed: nothing behind it can be found.
    """
    newest: int = NO_TIMESTAMP
    refused: list[Refused] = []
    index = without_key = out_of_range = 0
    if count <= 0:
        return 0, newest, refused, 0, 0
    header = _header(count, base_timestamp, stamp)
    try:
        for record in iterate_payload(header, bytes(payload)):
            if record.offset != index:
                break  # the reader allows the gaps that compaction leaves
            timestamp, has_key = record.timestamp, record.key is not None
            lacks_key = wants_keys and not has_key
            is_in_range = earliest <= timestamp <= latest
            if not is_in_range and stamp is None:
                is_in_range = timestamp == NO_TIMESTAMP
            if lacks_key or not is_in_range:
                without_key += lacks_key
                out_of_range += not lacks_key
                if len(refused) < most:
                    refused.append((index, has_key, timestamp))
            newest = max(newest, timestamp)
            index += 1
        else:
            return -1, newest, refused, without_key, out_of_range
    except CorruptRecords:
        pass  # in the record at `index`, or behind the last one
    return index, newest, refused, without_key, out_of_range


def _header(count: int, base_timestamp: int, stamp: int | None) -> BatchHeader:
    """A header that makes the reader of records read what stands behind it."""
    return BatchHeader(
        base_offset=Offset(0),
        length=0,
        leader_epoch=NO_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=0 if stamp is None else TIMESTAMP_TYPE_BIT,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=NO_TIMESTAMP if stamp is None else stamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=count,
    )


newest_of = newest_of_in_python if _kernel is None else _kernel.newest_of
look_closely = look_closely_in_python if _kernel is None else _kernel.look_closely
