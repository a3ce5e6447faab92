"""Differential test against kafka-python: each reads what the other writes."""

from __future__ import annotations

import random
import warnings

import pytest

from strandline.records.batch import parse_header, verify_crc
from strandline.records.builder import build_batch
from strandline.records.codec import Codec
from strandline.records.record import Record, read_records
from strandline.types import Offset, ProducerEpoch, ProducerId

with warnings.catch_warnings():
    # The library reads its own files through a deprecated function while it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords
    from kafka.record.default_records import (
        DefaultRecordBatchBuilder,
    )


def some_records(seed: int) -> list[Record]:
    source = random.Random(seed)

    def field() -> bytes | None:
        return None if source.random() < 0.2 else source.randbytes(source.randrange(300))

    return [
        Record(
            Offset(n),
            1_700_000_000_000 + source.randrange(-(10**6), 10**9),
            field(),
            field(),
            tuple((f"h{i}é", field()) for i in range(source.randrange(4))),
        )
        for n in range(source.randrange(1, 60))
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_uncompressed_and_gzip_both_ways(codec: Codec, seed: int) -> None:
    """kafka-python's other codecs need libraries of their own; Java covers those codecs."""
    records = some_records(seed)
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=True,
        producer_id=11,
        producer_epoch=2,
        base_sequence=7,
        batch_size=1 << 20,
    )
    for n, record in enumerate(records):
        assert builder.append(n, record.timestamp, record.key, record.value, list(record.headers))
    theirs = bytes(builder.build())
    assert verify_crc(theirs, 0, len(theirs))
    assert list(read_records(theirs)) == records

    ours = build_batch(
        records,
        codec=codec,
        producer_id=ProducerId(11),
        producer_epoch=ProducerEpoch(2),
        base_sequence=7,
        is_transactional=True,
        leader_epoch=parse_header(theirs).leader_epoch,
    )
    if codec is Codec.NONE:
        assert ours == theirs
    batch = MemoryRecords(ours).next_batch()
    assert batch is not None
    assert batch.validate_crc()
    read = [
        Record(Offset(entry.offset), entry.timestamp, entry.key, entry.value, tuple(entry.headers))
        for entry in batch
    ]
    assert read == records
