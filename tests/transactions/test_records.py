"""The records of `__transaction_state`, against bytes that follow from Kafka's declarations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import CorruptRecords
from strandline.protocol.coordinator_log import CoordinatorRecord
from strandline.transactions.records import decode_record, encode_record
from strandline.transactions.transaction import Transaction, TransactionState
from strandline.types import ProducerEpoch, ProducerId, TopicPartition

ONGOING = Transaction(
    producer_id=ProducerId(7),
    producer_epoch=ProducerEpoch(3),
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({TopicPartition("a", 1), TopicPartition("a", 0)}),
    started_ms=5,
    updated_ms=6,
)


def test_bytes_of_an_open_transaction() -> None:
    record = encode_record("id", ONGOING)

    assert record.key.hex() == "0000" + "0002" + b"id".hex()
    assert record.value is not None
    assert (
        record.value.hex()
        == (
            "0001"  # version
            "0000000000000007" + "0003" + "0000ea60" + "01"
            # one topic, "a" with the partitions 0 and 1
            "02" + "0261" + "03" + "00000000" + "00000001" + "00"
            "0000000000000006" + "0000000000000005"
            "00"  # no tags: all are at their defaults
        )
    )


def test_bytes_of_an_empty_one_have_no_list() -> None:
    record = encode_record(
        "id",
        Transaction(
            producer_id=ProducerId(7),
            producer_epoch=ProducerEpoch(0),
            previous_producer_id=ProducerId(6),
            timeout_ms=1,
            updated_ms=6,
            client_version=2,
        ),
    )

    assert record.value is not None
    assert record.value.hex() == (
        "0001" + "0000000000000007" + "0000" + "00000001" + "00" + "00"
        "0000000000000006" + "ffffffffffffffff"
        "02" + "0008" + "0000000000000006" + "0202" + "0002"
    )


transactions = st.builds(
    Transaction,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    last_producer_epoch=st.just(-1),  # which is not stored
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from([s for s in TransactionState if s is not TransactionState.EMPTY]),
    partitions=st.frozensets(
        st.builds(TopicPartition, st.text("ab.", min_size=1, max_size=3), st.integers(0, 9))
    ),
    started_ms=st.integers(-1, 2**62),
    updated_ms=st.integers(-1, 2**62),
    client_version=st.integers(0, 2),
)


@given(transactions)
def test_what_is_written_is_read(transaction: Transaction) -> None:
    assert decode_record(encode_record("x", transaction)) == ("x", transaction)


def test_a_cluster_of_version_0_writes_no_tags_unless_they_mean_something() -> None:
    plain = encode_record("x", ONGOING, 0)
    assert plain.value is not None
    assert plain.value[:2] == b"\0\0"
    assert decode_record(plain) == ("x", ONGOING)
    raising = ONGOING._replace(client_version=2)
    assert encode_record("x", raising, 0) == encode_record("x", raising)


def test_a_tombstone_forgets_the_id() -> None:
    assert decode_record(encode_record("x", None)) == ("x", None)


def test_a_newer_kind_is_left_alone_and_damage_is_told() -> None:
    whole = encode_record("x", ONGOING)
    assert whole.value is not None

    assert decode_record(CoordinatorRecord(b"\0\1" + whole.key[2:], None)) is None
    for end in range(len(whole.value)):
        with pytest.raises(CorruptRecords):
            decode_record(CoordinatorRecord(whole.key, whole.value[:end]))
    with pytest.raises(CorruptRecords):
        decode_record(CoordinatorRecord(whole.key, whole.value[:16] + b"\x63" + whole.value[17:]))
