"""Finding and reading KRaft's metadata log in the log directories that Kafka wrote.

    <log dir>/__cluster_metadata-0/<offset, 20 digits>.log                      segments
                                   <offset, 20 digits>-<epoch, 10>.checkpoint   snapshots

A snapshot has everything below the offset in its name and the same batches as a log; the newest is
read, and then the log from that offset on. Nothing is written. A log that is damaged or has a gap
is not read in part: see `cluster.kraft_settings`, which knows what the records mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

from strandline.cluster.kraft_settings import (
    KraftSettings,
    UnreadableMetadata,
    read_kraft_settings,
)
from strandline.cluster.topic_names import CLUSTER_METADATA
from strandline.records.batch import BatchHeader
from strandline.records.record import Record, read_records
from strandline.storage.files import Files, join
from strandline.storage.verify.reading import checked_batches

_DIRECTORY: Final = f"{CLUSTER_METADATA}-0"
_SEGMENT: Final = re.compile(r"(\d{20})\.log", re.ASCII)
_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)


def read_kraft_metadata(files: Files, log_dirs: Sequence[str]) -> KraftSettings | None:
    """The settings of the metadata log in the first of the directories that has one, or None.

    Raises `UnreadableMetadata`, `CorruptRecords` and `StorageError`.
    """
    for log_dir in log_dirs:
        directory = join(log_dir, _DIRECTORY)
        if files.is_directory(directory):
            return read_kraft_settings(_values(files, directory))
    return None


def _values(files: Files, directory: str) -> Iterator[bytes | None]:
    """The values of all data records that still count, in order."""
    names = files.list_directory(directory)
    segments = [(int(found[1]), found[0]) for name in names if (found := _SEGMENT.fullmatch(name))]
    snapshots = [
        (int(found[1]), int(found[2]), found[0])
        for name in names
        if (found := _SNAPSHOT.fullmatch(name))
    ]
    if not segments and not snapshots:
        raise UnreadableMetadata(f"There is no metadata log in {directory}.")
    start = 0
    if snapshots:
        start, _, newest = max(snapshots)
        yield from _snapshot(files, join(directory, newest))
    position: int | None = None
    for base_offset, name in sorted(segments):
        if base_offset > start if position is None else base_offset != position:
            raise UnreadableMetadata(f"Offsets before {directory}/{name} are missing.")
        position = base_offset
        for header, records in _batches(files, join(directory, name)):
            if header.base_offset != position:
                raise UnreadableMetadata(f"Offset {position} is missing in {directory}/{name}.")
            position = header.next_offset
            yield from (record.value for record in records if record.offset >= start)


def _snapshot(files: Files, path: str) -> Iterator[bytes | None]:
    """A snapshot that is whole ends with a control batch, its footer."""
    is_whole = False
    for header, records in _batches(files, path):
        is_whole = header.is_control
        yield from (record.value for record in records)
    if not is_whole:
        raise UnreadableMetadata(f"The metadata snapshot {path} has no end.")


def _batches(files: Files, path: str) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """The whole file, batch by batch; control batches have no records here."""
    with closing(files.open(path)) as file:
        for _, header, batch in checked_batches(file, 0, file.size):
            yield header, [] if header.is_control else list(read_records(batch, check_crc=False))
