"""Differential test against Kafka's own Java classes: formats both ways, and validation.

Needs a Java 17 runtime and a directory with the jars of a Kafka 4.3 broker, named by the
environment variable STRANDLINE_KAFKA_JARS. All commands of a test go through one Java process.
"""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct, pack, unpack
from typing import TypeAlias

import pytest

from strandline.errors import ErrorCode, ProtocolError
from strandline.records.batch import (
    HEADER,
    OFFSET_LENGTH_EPOCH,
    TimestampType,
    parse_header,
    set_crc,
)
from strandline.records.builder import build_batch, build_control_batch, rebuild_batch
from strandline.records.codec import Codec
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record, read_records
from strandline.records.validation import (
    AppendRules,
    RecordsRejectedError,
    validate_client_batch,
)
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId

Java: TypeAlias = Callable[[list[bytes]], io.BytesIO]

JARS = os.environ.get("STRANDLINE_KAFKA_JARS", "")
pytestmark = [
    pytest.mark.skipif(not JARS, reason="STRANDLINE_KAFKA_JARS names no directory of Kafka's jars"),
    pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java runtime"),
]

NOW = 1_700_000_000_000
DEFAULT_LEVEL = -(2**31)
LEVELS = [
    *[(codec, None) for codec in Codec],
    *[(Codec.GZIP, 1), (Codec.GZIP, 9), (Codec.ZSTD, -5), (Codec.ZSTD, 19), (Codec.ZSTD, 22)],
    *[(Codec.LZ4, 1), (Codec.LZ4, 12), (Codec.LZ4, 17)],
]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    """Runs commands and returns the stream of answers. One process for all tests of the file: most
    of what an answer costs is to start it."""
    source = Path(__file__).with_name("JavaRecords.java")
    errors = tmp_path_factory.mktemp("java") / "stderr"
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(
            ["java", "-Xmx512m", "-cp", f"{JARS}/*", str(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        ) as process,
    ):
        to_java, from_java = process.stdin, process.stdout
        assert to_java is not None
        assert from_java is not None

        def run(commands: list[bytes]) -> io.BytesIO:
            to_java.write(pack(">i", len(commands)) + b"".join(commands))
            to_java.flush()
            size = from_java.read(4)
            assert size, errors.read_text()
            return io.BytesIO(from_java.read(*unpack(">i", size)))

        yield run
        to_java.write(pack(">i", 0))
    assert process.returncode == 0, errors.read_text()


def take(answers: io.BytesIO, form: str) -> tuple[int, ...]:
    layout = Struct(">" + form)
    return layout.unpack(answers.read(layout.size))


def take_bytes(answers: io.BytesIO) -> bytes | None:
    (size,) = take(answers, "i")
    return None if size < 0 else answers.read(size)


def sized(data: bytes | bytearray | None) -> bytes:
    return pack(">i", -1) if data is None else pack(">i", len(data)) + bytes(data)


def compression(codec: Codec, level: int | None) -> bytes:
    return pack(">bi", codec, DEFAULT_LEVEL if level is None else level)


def some_records(seed: int) -> list[Record]:
    """Small and large, repetitive and random, across the codecs' block sizes."""
    source = random.Random(seed)

    def field() -> bytes | None:
        kind = source.random()
        if kind < 0.15:
            return None
        if kind < 0.5:
            return source.randbytes(source.randrange(200))
        if kind < 0.55:
            return source.randbytes(source.randrange(90_000))
        return b"%d," % source.randrange(50) * source.randrange(300)

    return [
        Record(
            Offset(n),
            NOW + source.randrange(-(10**9), 10**6),
            field(),
            field(),
            tuple((f"häder{i}", field()) for i in range(source.choice([0, 0, 1, 3]))),
        )
        for n in range(source.choice([1, 2, 40]))
    ]


def test_batches_that_java_writes_are_read(java: Java) -> None:
    cases = [(codec, level, some_records(seed)) for codec, level in LEVELS for seed in range(4)]
    commands = []
    for codec, level, records in cases:
        command = b"W" + compression(codec, level)
        command += pack(">?qhiqqi", True, 77, 3, 9, 0, -1, len(records))
        for record in records:
            command += pack(">q", record.timestamp) + sized(record.key) + sized(record.value)
            command += pack(">i", len(record.headers))
            for key, value in record.headers:
                command += sized(key.encode()) + sized(value)
        commands.append(command)
    answers = java(commands)
    for codec, level, records in cases:
        theirs = take_bytes(answers)
        assert theirs is not None
        assert list(read_records(theirs)) == records
        ours = build_batch(
            records,
            codec=codec,
            level=level,
            producer_id=ProducerId(77),
            producer_epoch=ProducerEpoch(3),
            base_sequence=9,
            is_transactional=True,
        )
        if codec is Codec.NONE:
            assert ours == theirs
        else:
            left, right = parse_header(ours), parse_header(theirs)
            assert left._replace(length=0, crc=0) == right._replace(length=0, crc=0)
    assert answers.read() == b""


def test_batches_that_we_write_are_read_by_java(java: Java) -> None:
    batches = []
    for codec, level in LEVELS:
        for seed in range(4):
            batch = build_batch(
                some_records(seed),
                base_offset=Offset(10**12 + seed),
                leader_epoch=LeaderEpoch(4),
                codec=codec,
                level=level,
                log_append_time_ms=NOW if seed == 3 else None,
                producer_id=ProducerId(5),
                producer_epoch=ProducerEpoch(0),
                base_sequence=2**31 - 2,
            )
            batches.append(batch)
            survivors = list(read_records(batch))[::3]
            horizon = NOW if seed % 2 else None
            batches.append(rebuild_batch(parse_header(batch), survivors, delete_horizon_ms=horizon))
            batches.append(rebuild_batch(parse_header(batch), []))
    answers = java([b"R" + sized(batch) for batch in batches])
    for batch in batches:
        (readable,) = take(answers, "?")
        assert readable, take_bytes(answers)
        header = parse_header(batch)
        assert take(answers, "b??iqhiqqqi") == (
            header.codec,
            header.is_transactional,
            header.is_control,
            header.leader_epoch,
            header.producer_id,
            header.producer_epoch,
            header.last_sequence,
            header.last_offset,
            header.max_timestamp,
            -1 if header.delete_horizon_ms is None else header.delete_horizon_ms,
            header.record_count,
        )
        for record in read_records(batch):
            assert take(answers, "qq") == (record.offset, record.timestamp)
            assert (take_bytes(answers), take_bytes(answers)) == (record.key, record.value)
            (count,) = take(answers, "i")
            pairs = [(take_bytes(answers), take_bytes(answers)) for _ in range(count)]
            assert pairs == [(key.encode(), value) for key, value in record.headers]
    assert answers.read() == b""


def test_transaction_markers_are_the_same_bytes(java: Java) -> None:
    command = pack(">iqhqqi", 12, 2**40, 30_000, NOW, 2**50, 6)
    answers = java([b"C\x00" + command, b"C\x01" + command])
    for kind in (ControlType.ABORT, ControlType.COMMIT):
        assert take_bytes(answers) == build_control_batch(
            EndTransactionMarker(kind, 12),
            timestamp=NOW,
            producer_id=ProducerId(2**40),
            producer_epoch=ProducerEpoch(30_000),
            base_offset=Offset(2**50),
            leader_epoch=LeaderEpoch(6),
        )


def with_fields(batch: bytearray, **fields: int) -> bytearray:
    out = bytearray(batch)
    header = parse_header(batch)
    HEADER.pack_into(out, 0, *header._replace(**fields))  # type: ignore[arg-type]
    set_crc(out, 0, header.size_bytes)
    return out


def with_byte(batch: bytearray, at: int, value: int) -> bytearray:
    return batch[:at] + bytes([value]) + batch[at + 1 :]


Damage = Callable[[bytearray, random.Random], bytearray]
DAMAGES: list[Damage] = [
    lambda batch, _: batch,
    lambda batch, _: batch,
    lambda batch, _: batch,
    lambda batch, _: batch + batch,
    lambda batch, source: batch + batch[: source.randrange(len(batch))],
    lambda batch, source: batch[: source.randrange(len(batch))],
    lambda batch, _: batch + bytes(20),
    lambda batch, source: with_byte(batch, source.randrange(17, len(batch)), 0x5A),
    lambda batch, source: with_byte(batch, 16, source.choice([0, 1, 3, 0x7F, 0x80, 0xFF])),
    lambda batch, source: with_fields(batch, base_offset=source.choice([-1, 1, 2**60])),
    lambda batch, source: with_fields(batch, record_count=source.choice([-1, 0, 1, 99])),
    lambda batch, source: with_fields(
        batch, last_offset_delta=source.choice([-1, 0, 7, 2**31 - 1])
    ),
    lambda batch, _: with_fields(batch, record_count=0, last_offset_delta=-1),
    lambda batch, _: with_fields(batch, attributes=parse_header(batch).attributes | 0x20),
    lambda batch, _: with_fields(batch, attributes=parse_header(batch).attributes | 0x08),
    lambda batch, _: with_fields(
        batch, attributes=parse_header(batch).attributes | 0x08, max_timestamp=-1
    ),
    lambda batch, _: with_fields(
        batch,
        attributes=parse_header(batch).attributes | 0x10,
        producer_id=5,
        producer_epoch=0,
        base_sequence=2**31 - 1,
    ),
    lambda batch, source: with_fields(
        batch,
        producer_id=source.choice([0, 9]),
        producer_epoch=1,
        base_sequence=source.choice([-5, -1, 0, 3]),
    ),
    lambda batch, _: with_fields(batch, base_sequence=-5),
    lambda batch, _: with_fields(batch, max_timestamp=NOW * 2),
]


def some_rules(source: random.Random) -> AppendRules:
    codec = source.choice([None, None, *Codec])
    levels = {Codec.GZIP: 6, Codec.LZ4: 9, Codec.ZSTD: 3}
    return AppendRules(
        compacted=source.random() < 0.3,
        timestamp_type=source.choice(list(TimestampType)),
        before_max_ms=source.choice([2**63 - 1, 2**63 - 1, 5_000]),
        after_max_ms=source.choice([3_600_000, 500]),
        # How large a recompressed batch becomes differs between the libraries.
        max_message_bytes=source.choice([1_048_588, 200]) if codec is None else 1_048_588,
        codec=codec,
        level=None if codec is None else levels.get(codec),
    )


def some_produced_batch(source: random.Random) -> bytearray:
    records = [
        Record(
            timestamp=source.choice([NOW, NOW, NOW + 400, NOW - 4_900, NOW + 600, NOW - 6_000, -1]),
            key=source.choice([b"key", b"", b"k" * 80, None]) if source.random() < 0.3 else b"key",
            value=source.choice([None, b"", b"value" * 30]),
        )
        for _ in range(source.choice([1, 1, 2, 5]))
    ]
    return bytearray(build_batch(records, codec=source.choice(list(Codec))))


def test_validation_decides_as_java_does(java: Java) -> None:
    source = random.Random(20_240)
    cases = []
    for _ in range(3000):
        buffer = source.choice(DAMAGES)(some_produced_batch(source), source)
        cases.append((buffer, some_rules(source)))
    commands = []
    for buffer, rules in cases:
        command = b"V" + sized(buffer)
        by_append = rules.timestamp_type is TimestampType.LOG_APPEND_TIME
        command += pack(
            ">??qq", rules.compacted, by_append, rules.before_max_ms, rules.after_max_ms
        )
        command += pack(">i?", rules.max_message_bytes, rules.codec is not None)
        if rules.codec is not None:
            command += compression(rules.codec, rules.level)
        commands.append(command + pack(">q", NOW))
    answers = java(commands)
    seen = {
        check_one(answers, buffer, rules, f"case {n}: {rules}")
        for n, (buffer, rules) in enumerate(cases)
    }
    assert answers.read() == b""
    assert seen == {
        "taken",
        "repacked",
        ErrorCode.INVALID_RECORD.name,
        ErrorCode.CORRUPT_MESSAGE.name,
        ErrorCode.INVALID_TIMESTAMP.name,
        ErrorCode.MESSAGE_TOO_LARGE.name,
    }


def check_one(answers: io.BytesIO, buffer: bytearray, rules: AppendRules, case: str) -> str:
    """Compare one answer of Java's with ours; returns what kind of answer it was."""
    (code,) = take(answers, "h")
    if code != 0:
        (count,) = take(answers, "i")
        indexes = list(take(answers, f"{count}i"))
        with pytest.raises(ProtocolError) as caught:
            validate_client_batch(buffer, rules, NOW)
        assert caught.value.code == code, (case, caught.value)
        errors = (
            caught.value.record_errors if isinstance(caught.value, RecordsRejectedError) else ()
        )
        assert [error.index for error in errors] == indexes, case
        return ErrorCode(code).name
    take(answers, "?")
    theirs = take_bytes(answers)
    assert theirs is not None
    claims_append_time = parse_header(buffer).timestamp_type is TimestampType.LOG_APPEND_TIME
    result = validate_client_batch(buffer, rules, NOW)
    OFFSET_LENGTH_EPOCH.pack_into(result.buffer, 0, 100, result.header.length, 5)
    if not result.is_repacked:
        assert result.buffer == theirs, case
        return "taken"
    left, right = parse_header(result.buffer), parse_header(theirs)
    if claims_append_time:
        left = left._replace(base_timestamp=right.base_timestamp)
    assert left._replace(length=0, crc=0) == right._replace(length=0, crc=0), case
    ours_read, theirs_read = list(read_records(result.buffer)), list(read_records(theirs))
    if claims_append_time:
        # Java writes the claimed time into the records that it packs anew; see validation.py.
        ours_read = [record._replace(timestamp=0) for record in ours_read]
        theirs_read = [record._replace(timestamp=0) for record in theirs_read]
    assert ours_read == theirs_read, case
    return "repacked"
