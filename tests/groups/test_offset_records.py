"""The bytes of `__consumer_offsets`: round trips, versions, damage, Kafka's own classes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import CorruptRecords, InvariantViolated
from strandline.groups.offset_records import (
    GroupRecord,
    OffsetRecord,
    UnknownRecord,
    decode_record,
    encode_record,
)
from strandline.protocol.coordinator_log import CoordinatorRecord, partition_for
from strandline.protocol.messages.offsets_topic import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)
from strandline.types import NO_EPOCH, NO_TIMESTAMP, NO_TOPIC_ID, TopicPartition

T = TypeVar("T")
Stored = OffsetRecord | GroupRecord

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UUIDS = st.just(NO_TOPIC_ID) | st.uuids()

# A commit with an expiry of its own has neither an epoch nor a topic id on disk.
OFFSETS = st.builds(
    OffsetRecord,
    TEXT,
    st.builds(TopicPartition, TEXT, INT32),
    st.none()
    | st.builds(
        OffsetCommitValue,
        offset=INT64,
        leader_epoch=INT32,
        metadata=TEXT,
        commit_timestamp=INT64,
        expire_timestamp=st.just(NO_TIMESTAMP),
        topic_id=UUIDS,
    )
    | st.builds(
        OffsetCommitValue,
        offset=INT64,
        leader_epoch=st.just(NO_EPOCH),
        metadata=TEXT,
        commit_timestamp=INT64,
        expire_timestamp=INT64,
        topic_id=st.just(NO_TOPIC_ID),
    ),
)
MEMBERS = st.builds(
    MemberMetadata,
    member_id=TEXT,
    group_instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout=INT32,
    session_timeout=INT32,
    subscription=st.binary(max_size=20),
    assignment=st.binary(max_size=20),
)
GROUPS = st.builds(
    GroupRecord,
    TEXT,
    st.none()
    | st.builds(
        GroupMetadataValue,
        protocol_type=TEXT,
        generation=INT32,
        protocol=st.none() | TEXT,
        leader=st.none() | TEXT,
        current_state_timestamp=INT64,
        members=st.lists(MEMBERS, max_size=3),
    ),
)

OFFSET = OffsetRecord(
    "g",
    TopicPartition("t", 7),
    OffsetCommitValue(
        offset=258,
        leader_epoch=3,
        metadata="note",
        commit_timestamp=1_000,
        topic_id=UUID(int=0x0102),
    ),
)
GROUP = GroupRecord(
    "g",
    GroupMetadataValue(
        protocol_type="consumer",
        generation=5,
        protocol="range",
        leader="m-1",
        current_state_timestamp=99,
        members=[
            MemberMetadata(
                member_id="m-1",
                group_instance_id="i",
                client_id="c",
                client_host="/h",
                rebalance_timeout=6,
                session_timeout=7,
                subscription=b"s",
                assignment=b"a",
            )
        ],
    ),
)


@given(OFFSETS | GROUPS)
def test_round_trip(record: OffsetRecord | GroupRecord) -> None:
    assert decode_record(encode_record(record)) == record


def test_the_bytes_of_an_offset() -> None:
    record = encode_record(OFFSET)
    assert record.key == b"\0\1\0\1g\0\1t\0\0\0\7"
    assert record.value == (
        b"\0\4\0\0\0\0\0\0\1\2\0\0\0\3\5note\0\0\0\0\0\0\3\xe8\1\0\x10" + bytes(14) + b"\1\2"
    )
    own_expiry = OffsetCommitValue(
        offset=258, leader_epoch=3, metadata="note", commit_timestamp=1_000, expire_timestamp=5
    )
    record = encode_record(replace(OFFSET, value=own_expiry))
    assert record.value == (b"\0\1\0\0\0\0\0\0\1\2\0\4note\0\0\0\0\0\0\3\xe8\0\0\0\0\0\0\0\5")


def test_the_bytes_of_a_group() -> None:
    record = encode_record(GROUP)
    assert record.key == b"\0\2\0\1g"
    assert record.value == (
        b"\0\3"
        b"\0\x08consumer"
        b"\0\0\0\5"
        b"\0\5range"
        b"\0\3m-1"
        b"\0\0\0\0\0\0\0\x63"
        b"\0\0\0\1"
        b"\0\3m-1"
        b"\0\1i"
        b"\0\1c"
        b"\0\2/h"
        b"\0\0\0\6"
        b"\0\0\0\7"
        b"\0\0\0\1s"
        b"\0\0\0\1a"
    )


@pytest.mark.parametrize("record", [OFFSET, GROUP])
def test_every_cut_of_a_record_is_damage(record: OffsetRecord | GroupRecord) -> None:
    whole = encode_record(record)
    assert whole.value is not None
    for end in range(len(whole.value)):
        with pytest.raises(CorruptRecords):
            decode_record(CoordinatorRecord(whole.key, whole.value[:end]))
    for end in range(len(whole.key)):
        with pytest.raises(CorruptRecords):
            decode_record(CoordinatorRecord(whole.key[:end], whole.value))


def test_the_oldest_key_and_unknown_kinds() -> None:
    record = encode_record(OFFSET)
    legacy = CoordinatorRecord(b"\0\0" + record.key[2:], record.value)
    assert decode_record(legacy) == OFFSET
    assert decode_record(CoordinatorRecord(b"\0\x11\0\1g", b"??")) == UnknownRecord(17)
    assert decode_record(CoordinatorRecord(b"\xff\xff", None)) == UnknownRecord(-1)


@pytest.mark.parametrize("version", [b"\0\5", b"\xff\xff"])
def test_unknown_value_versions_are_damage(version: bytes) -> None:
    for record in (OFFSET, GROUP):
        whole = encode_record(record)
        assert whole.value is not None
        with pytest.raises(CorruptRecords, match="has no version"):
            decode_record(CoordinatorRecord(whole.key, version + whole.value[2:]))


def test_what_a_newer_version_adds_behind_a_record_is_left_alone() -> None:
    whole = encode_record(OFFSET)
    assert whole.value is not None
    assert decode_record(CoordinatorRecord(whole.key + b"new", whole.value + b"new")) == OFFSET


def test_too_long_a_string_is_not_written() -> None:
    with pytest.raises(InvariantViolated):
        encode_record(replace(OFFSET, group_id="x" * 32_768))


# Against Kafka's own classes.

JARS = os.environ.get("STRANDLINE_KAFKA_JARS")
needs_kafka = pytest.mark.skipif(not JARS, reason="STRANDLINE_KAFKA_JARS names no Kafka jars")


def ask_kafka(lines: Sequence[str]) -> list[str]:
    """The oracle's answers to these lines."""
    source = Path(__file__).with_name("RecordOracle.java")
    command = ["java", "-cp", f"{JARS}/*", str(source)]
    done = subprocess.run(command, input="\n".join(lines), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines)
    return answers


def as_version(record: Stored, version: int) -> Stored:
    """What is left of a record that was written in a version."""
    if isinstance(record, OffsetRecord):
        value = deepcopy(record.value)
        assert value is not None
        if version < 3:
            value.leader_epoch = NO_EPOCH
        if version != 1:
            value.expire_timestamp = NO_TIMESTAMP
        if version < 4:
            value.topic_id = NO_TOPIC_ID
        return replace(record, value=value)
    group = deepcopy(record.value)
    assert group is not None
    for member in group.members:
        if version < 3:
            member.group_instance_id = None
        if version < 1:
            member.rebalance_timeout = -1
    if version < 2:
        group.current_state_timestamp = NO_TIMESTAMP
    return replace(record, value=group)


@needs_kafka
def test_kafka_reads_what_we_write_and_we_read_all_that_kafka_writes() -> None:
    examples = _examples(OFFSETS | GROUPS, 300)
    encoded = [encode_record(record) for record in examples]
    lines = [f"{e.key.hex()} {'-' if e.value is None else e.value.hex()}" for e in encoded]
    for record, ours, answer in zip(examples, encoded, ask_kafka(lines), strict=True):
        key, *versions = (bytes.fromhex(word) for word in answer.split(" "))
        assert key == ours.key
        if record.value is None:
            assert versions == []
            continue
        assert ours.value is not None
        assert versions[int.from_bytes(ours.value[:2], "big")] == ours.value
        for version, value in enumerate(versions):
            expected = as_version(record, version)
            assert decode_record(CoordinatorRecord(key, value)) == expected


@needs_kafka
def test_groups_hash_as_in_java() -> None:
    names = [*_examples(TEXT, 300), "polygenelubricants", "\U0001f600"]
    answers = ask_kafka([f"hash {name.encode().hex()}" for name in names])
    for name, answer in zip(names, answers, strict=True):
        code = int(answer)
        for count in (1, 50, 2**31):
            expected = 0 if code == -(2**31) else abs(code) % count
            assert partition_for(name, count) == expected


def _examples(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """The same examples in every run."""
    from hypothesis import HealthCheck, Phase, settings

    found: list[T] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found
