"""The checkpoint grammar: what is read, what is refused, and what a crash leaves."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import StorageError
from strandline.storage.checkpoint_file import (
    DamagedCheckpoint,
    OffsetCheckpoint,
    decode_checkpoint,
    encode_checkpoint,
)
from strandline.storage.files import parent_of
from strandline.storage.memory_files import MemoryFiles
from strandline.types import Offset, TopicPartition
from tests.storage.failing import failing_call

PATH = "/data/recovery-point-offset-checkpoint"

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=20)
TABLES = st.dictionaries(
    st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1)),
    st.builds(Offset, st.integers(0, 2**63 - 1)),
    max_size=20,
)
OLD = {TopicPartition("orders", 0): Offset(1287), TopicPartition("orders", 1): Offset(990)}
NEW = {TopicPartition("orders", 0): Offset(1300), TopicPartition("payments", 7): Offset(3)}


def disk_with(data: bytes | None = None) -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(parent_of(PATH))
    files.sync_directory("/")
    if data is not None:
        files.write_atomically(PATH, data)
    return files


def test_the_bytes_are_kafkas() -> None:
    files = disk_with()
    OffsetCheckpoint(files, PATH).write(OLD)
    assert files.read_bytes(PATH) == b"0\n2\norders 0 1287\norders 1 990\n"


@given(TABLES)
def test_what_is_written_is_read(table: dict[TopicPartition, Offset]) -> None:
    files = disk_with()
    OffsetCheckpoint(files, PATH).write(table)
    assert OffsetCheckpoint(files, PATH).read() == table


@pytest.mark.parametrize("data", [None, b"", b"0", b"0\n", b"0\n0\n"])
def test_an_absent_or_bare_file_is_an_empty_table(data: bytes | None) -> None:
    assert OffsetCheckpoint(disk_with(data), PATH).read() == {}


@pytest.mark.parametrize(
    "data",
    [b"0\r\n1\r\nt 0 5\r\n", b"0\n1\nt\t0  5", b"0\n1\nt 0 5   \n", b"+0\n+1\nt +0 +5\n"],
)
def test_what_kafka_tolerates_is_read(data: bytes) -> None:
    assert OffsetCheckpoint(disk_with(data), PATH).read() == {TopicPartition("t", 0): 5}


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"x\n0\n",
        b" 0\n0\n",
        b"0\nmany\n",
        b"0\n-1\n",
        b"0\n2\nt 0 5\n",
        b"0\n0\nt 0 5\n",
        b"0\n1\n t 0 5\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt 0 5 6\n",
        b"0\n1\nt zero 5\n",
        b"0\n1\nt 0 1_000\n",
        b"0\n1\nt 2147483648 5\n",
        b"0\n1\nt 0 9223372036854775808\n",
        b"0\n1\nt 0 -5\n",
        b"0\n1\nt -1 5\n",
        b"0\n1\n\n",
        b"0\n1\n\xff 0 5\n",
        "0\n1\nt 0 \N{ARABIC-INDIC DIGIT FIVE}\n".encode(),
    ],
)
def test_departures_from_the_grammar_are_refused(data: bytes) -> None:
    with pytest.raises(DamagedCheckpoint, match=PATH):
        OffsetCheckpoint(disk_with(data), PATH).read()


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        fields = decode_checkpoint(data, PATH)
    except DamagedCheckpoint as damage:
        assert PATH in str(damage)  # noqa: PT017
    else:
        assert all(isinstance(line, list) for line in fields)


@given(st.lists(st.lists(st.text("abc09.-", min_size=1, max_size=5), min_size=1, max_size=4)))
def test_any_fields_round_trip(entries: list[list[str]]) -> None:
    data = encode_checkpoint(" ".join(fields) for fields in entries)
    assert decode_checkpoint(data, PATH) == entries


def test_equal_contents_are_written_once() -> None:
    files = disk_with()
    table = OffsetCheckpoint(files, PATH)
    table.write(OLD)
    calls: list[str] = []
    files.on_call = lambda operation, _path: calls.append(operation)
    table.write(dict(reversed(OLD.items())))
    assert calls == []
    table.write(NEW)
    assert "sync" in calls


def count_calls(files: MemoryFiles) -> int:
    calls: list[str] = []
    files.on_call = lambda operation, _path: calls.append(operation)
    OffsetCheckpoint(files, PATH).write(NEW)
    return len(calls)


CALLS = count_calls(disk_with())


@pytest.mark.parametrize("succeeding", range(CALLS))
def test_a_failure_or_crash_at_any_call_leaves_the_old_or_the_new_table(succeeding: int) -> None:
    files = disk_with()
    table = OffsetCheckpoint(files, PATH)
    table.write(OLD)
    files.on_call = failing_call(succeeding + 1, sticky=True)
    with pytest.raises(StorageError):
        table.write(NEW)
    for seed in range(40):
        after = files.crash_clone(Random(seed))
        assert OffsetCheckpoint(after, PATH).read() in (OLD, NEW)
        OffsetCheckpoint(after, PATH).write(NEW)
        assert OffsetCheckpoint(after.crash_clone(), PATH).read() == NEW
    files.on_call = lambda operation, path: None
    table.write(NEW)
    assert OffsetCheckpoint(files.crash_clone(), PATH).read() == NEW


def test_a_finished_write_survives_any_crash() -> None:
    files = disk_with()
    OffsetCheckpoint(files, PATH).write(OLD)
    OffsetCheckpoint(files, PATH).write(NEW)
    for seed in range(40):
        assert OffsetCheckpoint(files.crash_clone(Random(seed)), PATH).read() == NEW
