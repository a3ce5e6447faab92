"""The small files of a data directory: producer snapshots, checkpoints, identities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from strandline.cli.dump_items import Item, Problem, Reading
from strandline.cli.output import time_text
from strandline.storage import leader_epochs, meta_properties, partition_metadata
from strandline.storage.checkpoint_file import OffsetCheckpoint
from strandline.storage.files import parent_of
from strandline.storage.kafka_uuid import format_uuid
from strandline.storage.log_directory import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
)
from strandline.storage.producer_snapshot import decode_snapshot
from strandline.storage.verify.epochs import load_table
from strandline.types import NO_OFFSET

Reader = Callable[[Reading], Iterator[Item | Problem]]


def dump_snapshot(reading: Reading) -> Iterator[Item | Problem]:
    """What a partition remembered of its producers."""
    for entry in decode_snapshot(reading.files.read_bytes(reading.path)):
        last_sequence, last_offset = entry.batches[-1][:2] if entry.batches else (-1, NO_OFFSET)
        yield Item(
            "producer",
            {
                "id": entry.producer_id,
                "epoch": entry.epoch,
                "last_sequence": last_sequence,
                "last_offset": last_offset,
                "last_time": time_text(entry.last_timestamp),
                "coordinator_epoch": entry.coordinator_epoch,
                "transaction_first_offset": (
                    None
                    if entry.transaction_first_offset == NO_OFFSET
                    else entry.transaction_first_offset
                ),
            },
        )


def dump_offset_checkpoint(reading: Reading) -> Iterator[Item | Problem]:
    """One offset per partition."""
    table = OffsetCheckpoint(reading.files, reading.path).read()
    for (topic, partition), offset in sorted(table.items()):
        yield Item("entry", {"topic": topic, "partition": partition, "offset": offset})


def dump_leader_epochs(reading: Reading) -> Iterator[Item | Problem]:
    """Where each leader began to write."""
    table, fault = load_table(reading.files, reading.path)
    for entry in table.entries:
        yield Item("epoch", {"epoch": entry.epoch, "start_offset": entry.start_offset})
    if fault:
        yield Problem(fault)


def dump_partition_metadata(reading: Reading) -> Iterator[Item | Problem]:
    """Whose partition a directory is."""
    topic_id = partition_metadata.read_topic_id(reading.files, parent_of(reading.path))
    if topic_id is None:
        yield Problem("The file is gone.")
    else:
        yield Item("partition", {"topic_id": format_uuid(topic_id)})


def dump_meta_properties(reading: Reading) -> Iterator[Item | Problem]:
    """Whose log directory a directory is."""
    found = meta_properties.read_meta_properties(reading.files, parent_of(reading.path))
    if found is None:
        yield Problem("The file is gone.")
        return
    yield Item(
        "owner",
        {
            "version": found.version,
            "broker": found.broker_id,
            "cluster_id": found.cluster_id,
            "directory_id": None if found.directory_id is None else format_uuid(found.directory_id),
        },
    )


TABLES: Final[Mapping[str, Reader]] = {
    RECOVERY_POINTS: dump_offset_checkpoint,
    LOG_STARTS: dump_offset_checkpoint,
    HIGH_WATERMARKS: dump_offset_checkpoint,
    CLEANER_OFFSETS: dump_offset_checkpoint,
    leader_epochs.FILE_NAME: dump_leader_epochs,
    partition_metadata.FILE_NAME: dump_partition_metadata,
    meta_properties.FILE_NAME: dump_meta_properties,
}
"""By the names of the files."""
