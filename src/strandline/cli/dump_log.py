"""The batches and records of a `.log` file, with everything that is wrong about them.

Uses the readers of storage and records, so what is readable here is what a broker can read. The
walk ends at the first damaged batch: where the next one would begin is not known then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strandline.cli.dump_items import Item, Problem, Reading
from strandline.cli.output import json_bytes, time_text
from strandline.errors import CorruptRecords
from strandline.records.batch import HEADER_BYTES, BatchHeader
from strandline.records.control import control_type, parse_marker
from strandline.records.record import Record, read_records
from strandline.storage.batch_scan import checked_batches
from strandline.storage.files import File


def dump_log(reading: Reading) -> Iterator[Item | Problem]:
    """Every batch in order; records too if they are wanted."""
    file = reading.open()
    expected = reading.base_offset
    leader_epoch = -1
    position = batches = records = 0
    try:
        for position, header, batch in checked_batches(file, 0, file.size):
            yield Item("batch", _batch_fields(position, header))
            yield from _order_problems(position, header, expected, leader_epoch)
            if reading.with_records or reading.verify:
                yield from _records(reading, position, header, batch)
            expected, leader_epoch = header.next_offset, header.leader_epoch
            batches, records = batches + 1, records + header.record_count
            position += header.size_bytes
    except CorruptRecords as error:
        if _is_reserved(file, position):
            yield Item("reserved", {"position": position, "bytes": file.size - position})
        else:
            yield Problem(f"At position {position}, offset {expected}: {error}")
    yield Item(
        "log",
        {"batches": batches, "records": records, "bytes": file.size, "next_offset": expected},
    )


def _batch_fields(position: int, header: BatchHeader) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "offsets": f"{header.base_offset}-{header.last_offset}",
        "position": position,
        "bytes": header.size_bytes,
        "records": header.record_count,
        "leader_epoch": header.leader_epoch,
        "codec": header.codec.setting,
        header.timestamp_type.name.lower(): time_text(header.max_timestamp),
        "crc": f"{header.crc:#010x}",
    }
    if header.has_producer:
        fields["producer"] = f"{header.producer_id}/{header.producer_epoch}"
        fields["sequences"] = f"{header.base_sequence}-{header.last_sequence}"
    for name, is_set in (
        ("transactional", header.is_transactional),
        ("control", header.is_control),
    ):
        if is_set:
            fields[name] = True
    if header.delete_horizon_ms is not None:
        fields["delete_horizon"] = time_text(header.delete_horizon_ms)
    return fields


def _order_problems(
    position: int, header: BatchHeader, expected: int, leader_epoch: int
) -> Iterator[Problem]:
    if header.base_offset < expected:
        yield Problem(
            f"At position {position}: the batch begins with offset {header.base_offset}, but "
            f"{expected} is the least that can follow."
        )
    if header.leader_epoch < leader_epoch:
        yield Problem(
            f"At position {position}: leader epoch {header.leader_epoch} follows {leader_epoch}."
        )


def _records(
    reading: Reading, position: int, header: BatchHeader, batch: memoryview
) -> Iterator[Item | Problem]:
    try:
        for record in read_records(batch, check_crc=False):
            if reading.with_records:
                yield Item("record", _record_fields(header, record))
    except CorruptRecords as error:
        yield Problem(f"At position {position}, offset {header.base_offset}: {error}")


def _record_fields(header: BatchHeader, record: Record) -> dict[str, Any]:
    fields: dict[str, Any] = {"offset": record.offset, "time": time_text(record.timestamp)}
    if header.is_control:
        fields["control"] = control_type(record).name.lower()
        marker = parse_marker(record)
        if marker is not None:
            fields["coordinator_epoch"] = marker.coordinator_epoch
        return fields
    fields["key"] = json_bytes(record.key)
    fields["value"] = json_bytes(record.value)
    if record.headers:
        fields["headers"] = [
            [name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), json_bytes(value)]
            for name, value in record.headers
        ]
    return fields


def _is_reserved(file: File, position: int) -> bool:
    """Whether zeros follow: room that `preallocate` claimed, or that a crash left unwritten."""
    rest = file.read_at(position, HEADER_BYTES)
    return bool(rest) and not any(rest)
