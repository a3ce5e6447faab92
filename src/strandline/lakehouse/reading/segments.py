"""Reading a partition's own files instead of asking a broker: for backfill, where they are at hand.

This file knows segments and their transaction indexes. It must not know brokers, and so not what is
committed: the caller gives an end that is, the high watermark or the last stable offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from strandline.client.aborted import AbortedFilter
from strandline.client.fetching import Isolation
from strandline.lakehouse.decode.decoder import Decoder
from strandline.lakehouse.reading.errors import RangeGone
from strandline.records.columns import BuilderLimits, whole_batches
from strandline.storage.files import File, Files
from strandline.storage.segment_names import (
    LOG,
    TRANSACTION_INDEX,
    parse_segment_name,
    segment_path,
)
from strandline.storage.transaction_index import TransactionIndex
from strandline.types import TopicPartition

_CHUNK_BYTES: Final = 8 * 1024 * 1024


def read_segments(
    files: Files,
    directory: str,
    partition: TopicPartition,
    limits: BuilderLimits,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Iterator[pa.RecordBatch]:
    """The rows with offsets in `[limits.start, limits.end)`, in the schema of `kafka_schema`.

    Raises `RangeGone` when the first segment begins behind the start or the last one ends before
    the end, `CorruptRecords`, and `StorageError`.
    """
    named = (parse_segment_name(name) for name in files.list_directory(directory))
    bases = sorted(n.base_offset for n in named if n and n.kind == LOG and not n.suffix)
    if not bases or bases[0] > limits.start:
        raise RangeGone(partition, limits.start, bases[0] if bases else limits.end, limits.end)
    following = [*bases[1:], limits.end]
    needed = [
        base
        for base, after in zip(bases, following, strict=True)
        if base < limits.end and after > limits.start
    ]
    aborted = None
    if isolation is Isolation.READ_COMMITTED:
        aborted = _aborted(files, directory, bases, limits.start)
    decoder = Decoder(partition, limits)
    for base in needed:
        file = files.open(segment_path(directory, base, LOG))
        try:
            for chunk in _chunks(file):
                yield from decoder.feed(chunk, aborted)
                if decoder.is_complete:
                    break
        finally:
            file.close()
    if not decoder.is_complete:
        raise RangeGone(partition, decoder.next_offset, bases[0], decoder.next_offset)
    yield from decoder.finish()


def _chunks(file: File) -> Iterator[memoryview]:
    """The file in pieces that each begin with a batch; the last may end inside one."""
    position, length = 0, _CHUNK_BYTES
    while position < file.size:
        chunk = memoryview(file.read_at(position, length))
        end, _ = whole_batches(chunk)
        if end == 0 and position + len(chunk) < file.size:
            length *= 2  # a batch that is larger than a piece
            continue
        yield chunk
        if end == 0:
            return
        position, length = position + end, _CHUNK_BYTES


def _aborted(files: Files, directory: str, bases: list[int], start: int) -> AbortedFilter:
    entries = [
        entry
        for base in bases
        for entry in TransactionIndex(
            files, segment_path(directory, base, TRANSACTION_INDEX)
        ).entries()
        if entry.last_offset >= start
    ]
    return AbortedFilter((entry.producer_id, entry.first_offset) for entry in entries)
