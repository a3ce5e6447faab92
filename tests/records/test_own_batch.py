"""Batches that the broker writes itself are, byte for byte, those of the builder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvariantViolated
from strandline.records.batch import parse_header
from strandline.records.builder import build_batch, build_control_batch
from strandline.records.codec import Codec
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.own_batch import own_batch, own_marker
from strandline.records.record import Record
from strandline.types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId

fields = st.none() | st.binary(max_size=200)
producers = st.tuples(
    st.integers(0, 2**63 - 1).map(ProducerId), st.integers(0, 2**15 - 1).map(ProducerEpoch)
)
times = st.integers(0, 2**62)


@given(
    st.lists(st.tuples(fields, fields), min_size=1, max_size=70),
    times,
    st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4]),
    st.none() | producers,
)
def test_it_is_what_the_builder_makes(
    records: list[tuple[bytes | None, bytes | None]],
    timestamp: int,
    codec: Codec,
    producer: tuple[ProducerId, ProducerEpoch] | None,
) -> None:
    own = own_batch(records, timestamp=timestamp, codec=codec, producer=producer)

    producer_id, producer_epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    assert own.buffer == build_batch(
        [Record(NO_OFFSET, timestamp, key, value) for key, value in records],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=producer is not None,
    )
    assert own.header == parse_header(own.buffer)
    assert own.marker is None


@given(st.booleans(), st.integers(0, 2**31 - 1), times, producers)
def test_so_is_a_marker(
    commits: bool,
    coordinator_epoch: int,
    timestamp: int,
    producer: tuple[ProducerId, ProducerEpoch],
) -> None:
    producer_id, producer_epoch = producer
    own = own_marker(
        commits=commits,
        coordinator_epoch=coordinator_epoch,
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )

    kind = ControlType.COMMIT if commits else ControlType.ABORT
    said = EndTransactionMarker(kind, coordinator_epoch)
    assert own.buffer == build_control_batch(
        said, timestamp=timestamp, producer_id=producer_id, producer_epoch=producer_epoch
    )
    assert own.header == parse_header(own.buffer)
    assert own.marker == said


def test_there_is_no_batch_without_records() -> None:
    with pytest.raises(InvariantViolated, match="without a record"):
        own_batch([], timestamp=1)
