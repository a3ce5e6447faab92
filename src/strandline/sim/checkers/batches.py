"""Every batch that any replica of one partition ever had, each known once.

Two logs are compared without reading them side by side. A batch is named by its leader epoch and
its base offset, since one leader wrote it there once. The first replica that shows it settles what
it is and which batch stands before it; every other replica that shows it must agree. So, batch by
batch, two logs that hold the same `Batch` hold the same bytes before it as well (I-21), and whether
a replica has everything up to some batch is one look-up.

A batch that does not agree becomes another `Batch`, which equals none: then everything that depends
on it is found to differ, too.

Compaction takes records out of a batch and leaves it its place. On compacted topics a batch with
another checksum is therefore the same one if each of its records is one of those that were written
there. Who may lack a batch because all of its records are gone is said by `compacted_away`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias, cast

from strandline.errors import CorruptRecords
from strandline.records.batch import (
    CONTROL_BIT,
    HEADER,
    MAGIC,
    SEQUENCE_MAX,
    TRANSACTIONAL_BIT,
    parse_header,
)
from strandline.records.record import iterate_payload, payload_of, read_records
from strandline.sim.checkers.violations import Findings
from strandline.storage.files import File
from strandline.storage.memory_files import MemoryFile
from strandline.types import BrokerId


def unreadable(data: bytes, position: int, *, may_have_gaps: bool) -> str | None:
    """The fault in the records of an undamaged batch; None without one."""
    header = parse_header(data, position)
    name = f"the batch at offset {header.base_offset}"
    if header.attributes & TRANSACTIONAL_BIT and header.producer_id < 0:
        return f"{name} belongs to a transaction without a producer"
    try:
        records = list(iterate_payload(header, payload_of(header, data, position)))
    except CorruptRecords as error:
        return f"{name} cannot be read: {error}"
    if not records:
        return None if may_have_gaps else f"{name} has no records"
    newest = max(record.timestamp for record in records)
    if header.max_timestamp != max(newest, -1):
        return f"{name} has the largest timestamp {header.max_timestamp}, its records {newest}"
    if not may_have_gaps and len(records) != header.last_offset_delta + 1:
        return f"{name} has {len(records)} records for {header.last_offset_delta + 1} offsets"
    return None


class Fields(NamedTuple):
    """The header of a batch as it stands on disk, in wire order (see `records.batch`)."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


class Written(NamedTuple):
    """One record as it stands in a log."""

    key: bytes | None
    value: bytes | None
    timestamp: int


Records: TypeAlias = Mapping[int, Written]
"""By offset."""


class Writer(NamedTuple):
    """The producer of a batch, and its last sequence number."""

    producer_id: int
    epoch: int
    last_sequence: int


class Batch:
    """One batch, compared by identity.

    - `before`: the batch in front of it, None while unknown: the log of every replica that has
      shown it so far starts with it, or has a gap there.
    - `records`: of a compacted topic, all that were written; None if they were not read.
    - `is_transactional`, `is_control`: whether it is part of a transaction, or ends one.
    - `is_readable`: whether its records were read one by one, as they were written.
    - `compacted_away`: some replica has rightly nothing left of it.
    - `was_followed`: a log has rightly nothing left of it which had a later batch of its producer.
    - `writer`: the producer it is from; its producer id is -1 if that did not say.
    """

    __slots__ = (
        "base_offset",
        "before",
        "compacted_away",
        "crc",
        "first_seen_on",
        "is_control",
        "is_readable",
        "is_transactional",
        "leader_epoch",
        "max_timestamp",
        "next_offset",
        "records",
        "size",
        "was_followed",
        "writer",
    )

    def __init__(
        self, fields: tuple[int, ...], size: int, before: Batch | None, broker: BrokerId
    ) -> None:
        self.base_offset = fields[0]
        self.leader_epoch = fields[2]
        self.crc = fields[4]
        self.is_control = bool(fields[5] & CONTROL_BIT)
        self.is_transactional = bool(fields[5] & TRANSACTIONAL_BIT)
        self.next_offset = fields[0] + fields[6] + 1
        self.max_timestamp = fields[8]
        self.size = size
        self.before = before
        self.first_seen_on = broker
        self.records: Records | None = None
        self.is_readable = False
        self.compacted_away = False
        self.was_followed = False
        sequence = fields[11]
        last = sequence if sequence < 0 else (sequence + fields[6]) & SEQUENCE_MAX
        self.writer = Writer(fields[9], fields[10], last)

    def __repr__(self) -> str:
        last = self.next_offset - 1
        offsets = (
            f"{self.base_offset}" if last == self.base_offset else f"{self.base_offset}-{last}"
        )
        return f"batch {offsets} of epoch {self.leader_epoch} ({self.crc:08x})"


class Remains(NamedTuple):
    """What compaction has left of a batch."""

    records: Records
    crc: int
    horizon_ms: int | None
    """From when on its tombstones may go, too (KIP-534)."""
    max_timestamp: int
    """By what it ages now."""


class Dropped(NamedTuple):
    """A batch that went with the front of the log."""

    batch: Batch
    size: int
    max_timestamp: int
    """What it had here: compaction may have made it smaller, and older."""


class Batches:
    """The batches of one partition. `is_compacted`: its topic is a compacted one, or was."""

    def __init__(self, partition: str, findings: Findings) -> None:
        self._partition = partition
        self._findings = findings
        self.is_compacted = False
        self._known: dict[tuple[int, int], Batch] = {}

    def __len__(self) -> int:
        return len(self._known)

    def meet(
        self,
        fields: tuple[int, ...],
        size: int,
        before: Batch | None,
        broker: BrokerId,
        records: Records | None = None,
    ) -> Batch:
        """The batch with this header, which a broker shows behind `before`.

        `records` says what is in it where the topic is compacted, so that some may be missing.
        """
        key = (fields[2], fields[0])
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Batch(fields, size, before, broker)
            known.records = records
            return known
        is_same = known.crc == fields[4] and known.size == size
        if not is_same and records is not None:
            is_same = _is_part_of(records, known.records)
        if not is_same or known.next_offset != _next(fields):
            other = Batch(fields, size, before, broker)
            self._findings.add(
                "I-21",
                f"{self._partition}: broker {broker} has {other}, but broker "
                f"{known.first_seen_on} has {known} at the same place",
                self._partition,
            )
            return other
        if before is not None and before is not known.before:
            if known.before is None:
                known.before = before
            else:
                self._findings.add(
                    "I-21",
                    f"{self._partition}: on broker {broker} {known} follows {before}, but on "
                    f"broker {known.first_seen_on} it follows {known.before}",
                    self._partition,
                )
                return Batch(fields, size, before, broker)
        return known

    def is_whole(self, fields: tuple[int, ...], size: int) -> bool:
        """Whether the batch with this header is known, and is as it was written."""
        known = self._known.get((fields[2], fields[0]))
        return known is not None and known.crc == fields[4] and known.size == size

    def was_followed(self, writer: Writer, last_offset: int) -> bool:
        """Whether such a batch that ends there was compacted away, as there was a later one."""
        return any(
            batch.was_followed and batch.writer == writer
            for batch in self._known.values()
            if batch.next_offset == last_offset + 1
        )


def peek(file: File, position: int, length: int) -> bytes:
    """The bytes of an open file as its reader would see them, without a read: that could meet an
    injected fault, cost simulated time, or open what the broker would have opened later."""
    return cast(MemoryFile, file).peek(position, length)


def size_in_world(file: File) -> int:
    """How many bytes an open file has, also after its process died while it wrote."""
    return cast(MemoryFile, file).size_in_world


def records_in(data: bytes, position: int) -> Records | None:
    """The records of the batch there, which is whole; None if there is nonsense in it."""
    try:
        return {
            record.offset: Written(record.key, record.value, record.timestamp)
            for record in read_records(memoryview(data), position, check_crc=False)
        }
    except CorruptRecords:
        return None


def _is_part_of(some: Records, written: Records | None) -> bool:
    """Whether compaction may have left these; True if the records were not read before it."""
    return written is None or some.items() <= written.items()


def header_fields(data: bytes | bytearray, position: int) -> tuple[int, ...] | None:
    """The header at that position, in the order of `Fields`; None if there is no whole batch."""
    if len(data) - position < HEADER.size:
        return None
    fields = HEADER.unpack_from(data, position)
    if (
        fields[3] != MAGIC
        or fields[6] < 0
        or not HEADER.size <= fields[1] + 12 <= len(data) - position
    ):
        return None
    return fields


def _next(fields: tuple[int, ...]) -> int:
    return fields[0] + fields[6] + 1
