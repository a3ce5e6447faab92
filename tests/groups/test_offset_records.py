"""The bytes of `__consumer_offsets`: round trips, versions, damage, Kafka's own classes."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import CorruptRecords, InvariantViolated
from strandline.groups.coordinator import partition_for
from strandline.groups.offset_records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupKey,
    GroupRecord,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetRecord,
    UnknownRecord,
    decode_record,
    encode_record,
)
from strandline.groups.wire import Reader, Writer, utf16_length
from strandline.types import NO_EPOCH, NO_TIMESTAMP, NO_TOPIC_ID, TopicPartition

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UUIDS = st.just(NO_TOPIC_ID) | st.uuids()

OFFSETS = st.builds(
    OffsetRecord,
    st.builds(OffsetKey, TEXT, st.builds(TopicPartition, TEXT, INT32)),
    st.none()
    | st.builds(CommittedOffset, INT64, INT32, TEXT, INT64, topic_id=UUIDS)
    | st.builds(CommittedOffset, INT64, st.just(NO_EPOCH), TEXT, INT64, INT64),
).filter(
    # A commit with an expiry of its own has neither an epoch nor a topic id on disk.
    lambda record: (
        record.value is None
        or record.value.expire_timestamp_ms == NO_TIMESTAMP
        or record.value.topic_id == NO_TOPIC_ID
    )
)
MEMBERS = st.builds(
    MemberValue,
    TEXT,
    st.none() | TEXT,
    TEXT,
    TEXT,
    INT32,
    INT32,
    st.binary(max_size=20),
    st.binary(max_size=20),
)
GROUPS = st.builds(
    GroupRecord,
    st.builds(GroupKey, TEXT),
    st.none()
    | st.builds(
        GroupValue,
        TEXT,
        INT32,
        st.none() | TEXT,
        st.none() | TEXT,
        INT64,
        st.lists(MEMBERS, max_size=3).map(tuple),
    ),
)

OFFSET = OffsetRecord(
    OffsetKey("g", TopicPartition("t", 7)),
    CommittedOffset(258, 3, "note", 1_000, topic_id=UUID(int=0x0102)),
)
GROUP = GroupRecord(
    GroupKey("g"),
    GroupValue(
        "consumer", 5, "range", "m-1", 99, (MemberValue("m-1", "i", "c", "/h", 6, 7, b"s", b"a"),)
    ),
)


@given(OFFSETS | GROUPS)
def test_round_trip(record):
    assert decode_record(encode_record(record)) == record


def test_the_bytes_of_an_offset():
    record = encode_record(OFFSET)
    assert record.key == b"\0\1\0\1g\0\1t\0\0\0\7"
    assert record.value == (
        b"\0\4\0\0\0\0\0\0\1\2\0\0\0\3\5note\0\0\0\0\0\0\3\xe8\1\0\x10" + bytes(14) + b"\1\2"
    )
    own_expiry = replace(OFFSET.value, expire_timestamp_ms=5, topic_id=NO_TOPIC_ID)
    record = encode_record(OffsetRecord(OFFSET.key, own_expiry))
    assert record.value == (b"\0\1\0\0\0\0\0\0\1\2\0\4note\0\0\0\0\0\0\3\xe8\0\0\0\0\0\0\0\5")


def test_the_bytes_of_a_group():
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
def test_every_cut_of_a_record_is_damage(record):
    whole = encode_record(record)
    for end in range(len(whole.value)):
        with pytest.raises(CorruptRecords):
            decode_record(CoordinatorRecord(whole.key, whole.value[:end]))
    for end in range(len(whole.key)):
        with pytest.raises(CorruptRecords):
            decode_record(CoordinatorRecord(whole.key[:end], whole.value))


def test_the_oldest_key_and_unknown_kinds():
    record = encode_record(OFFSET)
    legacy = CoordinatorRecord(b"\0\0" + record.key[2:], record.value)
    assert decode_record(legacy) == OFFSET
    assert decode_record(CoordinatorRecord(b"\0\3\0\1g", b"??")) == UnknownRecord(3)
    assert decode_record(CoordinatorRecord(b"\xff\xff", None)) == UnknownRecord(-1)


@pytest.mark.parametrize("version", [b"\0\5", b"\xff\xff"])
def test_unknown_value_versions_are_damage(version):
    for record in (OFFSET, GROUP):
        whole = encode_record(record)
        with pytest.raises(CorruptRecords, match="unknown"):
            decode_record(CoordinatorRecord(whole.key, version + whole.value[2:]))


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (Reader.varint, b"\xff\xff\xff\xff\xff\1"),
        (Reader.string, b"\xff\xff"),
        (Reader.string, b"\0\1\xff"),
        (Reader.count, b"\x7f\xff\xff\xff"),
        (Reader.count, b"\xff\xff\xff\xff"),
        (Reader.blob, b"\xff\xff\xff\xff"),
        (lambda reader: reader.string(flexible=True), b"\x81\x80\x02" + bytes(40_000)),
    ],
)
def test_damaged_primitives(read, data):
    with pytest.raises(CorruptRecords):
        read(Reader(data))


def test_too_long_a_string_is_not_written():
    with pytest.raises(InvariantViolated):
        Writer().string("x" * 32_768)


@given(TEXT)
def test_lengths_are_java_s(text):
    assert utf16_length(text) == len(text.encode("utf-16-be")) // 2


@given(st.lists(st.integers(0, 2**32 - 1), max_size=5))
def test_varints(values):
    writer = Writer()
    for value in values:
        writer.varint(value)
    reader = Reader(writer.done())
    assert [reader.varint() for _ in values] == values
    assert reader.remaining == 0


# Against Kafka's own classes.

JARS = os.environ.get("STRANDLINE_KAFKA_JARS")
needs_kafka = pytest.mark.skipif(not JARS, reason="STRANDLINE_KAFKA_JARS names no Kafka jars")


def ask_kafka(lines):
    """The oracle's answers to these lines."""
    source = Path(__file__).with_name("RecordOracle.java")
    command = ["java", "-cp", f"{JARS}/*", str(source)]
    done = subprocess.run(command, input="\n".join(lines), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines)
    return answers


def as_version(record, version):
    """What is left of a record that was written in a version."""
    value = record.value
    if isinstance(record, OffsetRecord):
        kept = CommittedOffset(
            value.offset,
            value.leader_epoch if version >= 3 else NO_EPOCH,
            value.metadata,
            value.commit_timestamp_ms,
            value.expire_timestamp_ms if version == 1 else NO_TIMESTAMP,
            value.topic_id if version >= 4 else NO_TOPIC_ID,
        )
        return OffsetRecord(record.key, kept)
    members = tuple(
        replace(
            member,
            group_instance_id=member.group_instance_id if version >= 3 else None,
            rebalance_timeout_ms=member.rebalance_timeout_ms if version >= 1 else -1,
        )
        for member in value.members
    )
    timestamp_ms = value.state_timestamp_ms if version >= 2 else NO_TIMESTAMP
    return GroupRecord(record.key, replace(value, members=members, state_timestamp_ms=timestamp_ms))


@needs_kafka
def test_kafka_reads_what_we_write_and_we_read_all_that_kafka_writes():
    examples = _examples(OFFSETS | GROUPS, 300)
    encoded = [encode_record(record) for record in examples]
    lines = [f"{e.key.hex()} {'-' if e.value is None else e.value.hex()}" for e in encoded]
    for record, ours, answer in zip(examples, encoded, ask_kafka(lines), strict=True):
        key, *versions = (bytes.fromhex(word) for word in answer.split(" "))
        assert key == ours.key
        if record.value is None:
            assert versions == []
            continue
        assert versions[int.from_bytes(ours.value[:2], "big")] == ours.value
        for version, value in enumerate(versions):
            expected = as_version(record, version)
            assert decode_record(CoordinatorRecord(key, value)) == expected


@needs_kafka
def test_groups_hash_as_in_java():
    names = [*_examples(TEXT, 300), "polygenelubricants", "\U0001f600"]
    answers = ask_kafka([f"hash {name.encode().hex()}" for name in names])
    for name, answer in zip(names, answers, strict=True):
        code = int(answer)
        for count in (1, 50, 2**31):
            expected = 0 if code == -(2**31) else abs(code) % count
            assert partition_for(name, count) == expected


def _examples(strategy, count):
    """The same examples in every run."""
    from hypothesis import HealthCheck, Phase, settings

    found = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example):
        found.append(example)

    collect()
    return found
