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
from strandline.records.batch import BatchHeader
from strandline.records.control import control_type, parse_marker
from strandline.records.record import Record, read_records
from strandline.storage.offset_index import RELATIVE_OFFSET_MAX
from strandline.storage.verify.order import BatchOrder
from strandline.storage.verify.reading import checked_batches, is_reserved
from strandline.types import Offset


def dump_log(reading: Reading) -> Iterator[Item | Problem]:
    """Every batch in order; records too if they are wanted."""
    file = reading.open()
    base_offset = reading.base_offset
    order = BatchOrder(Offset(base_offset), base_offset + RELATIVE_OFFSET_MAX)
    position = batches = records = 0
    try:
        for position, header, batch in checked_batches(file, 0, file.size):
            yield Item("batch", _batch_fields(position, header))
            for fault in (order.offset_fault(header), order.epoch_fault(header)):
                if fault:
                    yield Problem(f"At position {position}: {fault}.")
            if reading.with_records or reading.verify:
                yield from _records(reading, position, header, batch)
            order.follow(header)
            batches, records = batches + 1, records + header.record_count
            position += header.size_bytes
    except CorruptRecords as error:
        if is_reserved(file, position):
            yield Item("reserved", {"position": position, "bytes": file.size - position})
        else:
            yield Problem(f"At position {position}, offset {order.next_offset}: {error}")
    yield Item(
        "log",
        {
            "batches": batches,
            "records": records,
            "bytes": file.size,
            "next_offset": order.next_offset,
        },
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
