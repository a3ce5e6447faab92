"""Parses the records of a fetch, and checks all that a reader can check.

Every batch must match its checksum (I-47), lie below what its reader may see (I-26), and follow the
one before it. A last batch that is cut off is no fault: a broker fills the space that it was given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from strandline.client.aborted import AbortedFilter
from strandline.errors import CorruptRecords
from strandline.protocol.messages.fetch import PartitionData
from strandline.records.batch import iterate_headers, verify_crc
from strandline.records.record import read_records
from strandline.sim.clients.batches import value_of
from strandline.types import NO_EPOCH, LeaderEpoch, Offset, ProducerId

COMMITTED: Final = 1


@dataclass(slots=True)
class Read:
    """The records of one partition's part of an answer, from the position on."""

    position: int
    """Where to go on."""
    epoch: LeaderEpoch = NO_EPOCH
    """The leader epoch of the last batch."""
    records: list[tuple[int, bytes]] = field(default_factory=list)
    epochs: list[tuple[int, LeaderEpoch]] = field(default_factory=list)
    """Of each batch, the first offset and the leader epoch."""
    corrupt: str | None = None
    """The fault in the bytes behind `position`."""
    beyond: str | None = None
    """Records that were sent although this reader may not see them yet."""


def read(data: PartitionData, position: int, *, isolation: int) -> Read:
    """Everything whole from `position` on."""
    found = Read(position)
    buffer = data.records
    if not isinstance(buffer, memoryview) or not buffer:
        return found
    limit = data.last_stable_offset if isolation == COMMITTED else data.high_watermark
    aborted = AbortedFilter(
        (ProducerId(each.producer_id), Offset(each.first_offset))
        for each in data.aborted_transactions or ()
    )
    try:
        for at, header in iterate_headers(buffer):
            if not verify_crc(buffer, at, header.size_bytes):
                found.corrupt = f"the batch at offset {header.base_offset} has a wrong checksum"
                break
            if header.is_control:
                for marker in read_records(buffer, at, check_crc=False):
                    aborted.pass_marker(header, marker)
            is_skipped = isolation == COMMITTED and aborted.skips(header)
            if header.next_offset <= found.position:
                continue  # a broker sends whole batches, also from before the position
            if header.last_offset >= limit and found.beyond is None:
                found.beyond = f"offset {header.last_offset}, but the limit is {limit}"
            if not header.is_control and not is_skipped:
                for record in read_records(buffer, at, check_crc=False):
                    value = value_of(record.value)
                    if record.offset >= found.position and value is not None:
                        found.records.append((record.offset, value))
            found.epochs.append((header.base_offset, header.leader_epoch))
            found.position = header.next_offset
            found.epoch = header.leader_epoch
    except CorruptRecords as error:
        found.corrupt = str(error)
    return found
