"""Finding a record of a stored batch by its time.

This file knows the pure-Python twin of the compiled walk (`_kernels/produced.pyx`) and takes the
kernel where there is one: a batch may have tens of thousands of records, and one request may ask
for a time in every partition. It must not know files nor the indexes that lead to the batch.
"""

from __future__ import annotations

from typing import Any, Final

from strandline.records._kernels import compiled
from strandline.records.batch import BatchHeader
from strandline.records.record import iterate_payload

_kernel: Final[Any] = compiled("produced")


def first_at_least_in_python(
    header: BatchHeader, payload: bytes, timestamp: int, offset: int
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record in the decompressed `payload` that is at least as
    new as `timestamp` and does not lie in front of `offset`; None if there is none.

    What stands behind that record is not read. Raises `CorruptRecords` for what is malformed in
    front of it.
    """
    for record in iterate_payload(header, payload):
        if record.timestamp >= timestamp and record.offset >= offset:
            return record.offset, record.timestamp
    return None


first_at_least = first_at_least_in_python if _kernel is None else _kernel.first_at_least
