"""The final value of each key, where compaction may have left each replica something else.

This file knows which differences compaction explains. It must not know batches' order or indexes.

Theory: a cleaner drops a record only for a newer one of the same key below the active segment, or
drops a tombstone that is old enough. Below the frontier, the highest base of an active segment
among the replicas, each replica's newest record of a key is therefore the same one, unless that is
a tombstone, which some may have dropped. Records of aborted transactions do not count: cleaners
drop them too.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from strandline.errors import CorruptRecords, StorageError
from strandline.records.batch import BatchHeader
from strandline.records.columns import BuilderLimits, VariableColumn, new_builder
from strandline.storage.files import Files
from strandline.storage.segment_names import TRANSACTION_INDEX
from strandline.storage.transaction_index import AbortedTransaction, TransactionIndex
from strandline.storage.verify.directories import Replica
from strandline.storage.verify.files import SegmentFiles
from strandline.storage.verify.findings import Findings, Kind
from strandline.storage.verify.reading import checked_batches

_DIGEST_BYTES: Final = 12
_KEYS_PER_PASS: Final = 2_000_000
"""More records than that are read several times, each time for a part of the keys."""
_NAMED_MAX: Final = 5


class FinalValue(NamedTuple):
    """The newest record of a key. The digest is None for a tombstone."""

    offset: int
    digest: bytes | None


class CompactedReplica(NamedTuple):
    """What is to be read of one replica."""

    replica: Replica
    segments: Sequence[SegmentFiles]
    first_offset: int


def compare_final_values(
    files: Files,
    replicas: Sequence[CompactedReplica],
    findings: Findings,
    *,
    frontier: int,
    records: int,
) -> None:
    """Note keys whose newest record below `frontier` is not the same everywhere.

    `records` is about how many there are in one replica.
    """
    start = max(each.first_offset for each in replicas)
    passes = 1 + records // _KEYS_PER_PASS
    for number in range(passes):
        maps = {
            each.replica.broker: _final_values(
                files, each, start=start, end=frontier, passes=passes, number=number
            )
            for each in replicas
        }
        _compare(maps, findings)


def _compare(maps: Mapping[int, Mapping[bytes, FinalValue]], findings: Findings) -> None:
    """One finding for each set of brokers that differ in the same way, with a few offsets."""
    wrong: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    for key in {key for each in maps.values() for key in each}:
        values = {broker: each.get(key) for broker, each in maps.items()}
        known = {value for value in values.values() if value is not None}
        is_complete = len(known) == 1 and None not in values.values()
        newest = max(known)
        if is_complete or (len(known) == 1 and newest.digest is None):
            continue
        have = tuple(sorted(b for b, value in values.items() if value == newest))
        lack = tuple(sorted(b for b, value in values.items() if value != newest))
        others = {value.offset for value in values.values() if value is not None}
        what = "other contents at the same offset" if others == {newest.offset} else "an older one"
        what = "none" if all(values[b] is None for b in lack) else what
        sentence = f"Brokers {_names(have)} have the newest record of a key, {_names(lack)} {what}"
        wrong.setdefault(sentence, []).append((newest.offset, tuple(sorted(values))))
    for sentence, places in sorted(wrong.items()):
        places.sort()
        offsets = ", ".join(str(offset) for offset, _ in places[:_NAMED_MAX])
        more = f" and {len(places) - _NAMED_MAX} more" if len(places) > _NAMED_MAX else ""
        findings.add(
            Kind.COMPACTION,
            f"{sentence}: offset {offsets}{more}.",
            offset=places[0][0],
            end_offset=places[-1][0] + 1,
            brokers=places[0][1],
        )


def _final_values(
    files: Files, source: CompactedReplica, *, start: int, end: int, passes: int, number: int
) -> dict[bytes, FinalValue]:
    """The newest record of each key of this pass in `[start, end)`, by the digest of the key."""
    found: dict[bytes, FinalValue] = {}
    limits = BuilderLimits(start=start, end=end, checks_crc=False)
    aborted = _aborted_transactions(files, source.segments)
    for header, batch in _sound_batches(files, source.segments, end):
        if header.is_control or _is_aborted(header, aborted):
            continue
        builder = new_builder(limits)
        try:
            builder.take_batch(header, batch, 0)
        except CorruptRecords:
            continue  # the walk has said so
        columns = builder.columns()
        offsets = array("q", memoryview(columns.offset).tobytes())  # type: ignore[arg-type]
        rows = zip(
            offsets,
            _values(columns.key, columns.rows),
            _values(columns.value, columns.rows),
            strict=True,
        )
        for offset, key, value in rows:
            if key is None:
                continue
            digest = _digest(key)
            if digest[0] % passes == number:
                found[digest] = FinalValue(offset, None if value is None else _digest(value))
    return found


def _sound_batches(
    files: Files, segments: Sequence[SegmentFiles], end: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches as far as each segment can be read; the walk has said where it cannot."""
    for segment in segments:
        if segment.base_offset >= end:
            return
        file = files.open(segment.path)
        try:
            for _, header, batch in checked_batches(file, 0, file.size):
                yield header, batch
        except CorruptRecords:
            continue
        finally:
            file.close()


def _aborted_transactions(
    files: Files, segments: Sequence[SegmentFiles]
) -> dict[int, list[AbortedTransaction]]:
    """By producer. An index that cannot be read says nothing; the walk has said so."""
    found: dict[int, list[AbortedTransaction]] = {}
    for segment in segments:
        index = TransactionIndex(files, segment.index_path(TRANSACTION_INDEX))
        try:
            for entry in index.entries():
                found.setdefault(entry.producer_id, []).append(entry)
        except StorageError:
            continue
    return found


def _is_aborted(header: BatchHeader, aborted: Mapping[int, list[AbortedTransaction]]) -> bool:
    return header.is_transactional and any(
        entry.first_offset <= header.base_offset <= entry.last_offset
        for entry in aborted.get(header.producer_id, ())
    )


def _values(column: VariableColumn, rows: int) -> Iterator[bytes | None]:
    data = memoryview(column.data)  # type: ignore[arg-type]
    bounds = array("i", memoryview(column.offsets).tobytes())  # type: ignore[arg-type]
    there = None if column.validity is None else memoryview(column.validity).tobytes()  # type: ignore[arg-type]
    for row in range(rows):
        if there is None or there[row >> 3] >> (row & 7) & 1:
            yield bytes(data[bounds[row] : bounds[row + 1]])
        else:
            yield None


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _names(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))
