"""`partition.metadata` and Kafka's notation of UUIDs."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import StorageError
from strandline.storage.checkpoint_file import DamagedCheckpoint
from strandline.storage.files import OutOfHandles
from strandline.storage.kafka_uuid import format_uuid, parse_uuid
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.partition_metadata import read_topic_id, write_topic_id
from strandline.types import NO_TOPIC_ID

DIRECTORY = "/d/t-0"
ID = UUID("b7bc6b44-0ef1-48bc-8a8d-b7c5a979e452")
TEXT = "t7xrRA7xSLyKjbfFqXnkUg"


def disk(data: bytes | None = None) -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    files.sync_directory("/d")
    if data is not None:
        files.write_atomically(f"{DIRECTORY}/partition.metadata", data)
    return files


@given(st.uuids())
def test_uuids_round_trip(uuid: UUID) -> None:
    text = format_uuid(uuid)
    assert len(text) == 22
    assert parse_uuid(text) == parse_uuid(f"{text}==") == uuid


@pytest.mark.parametrize("text", ["", "AAAA", TEXT[:-2], TEXT + "AAA", TEXT[:-1] + "+", " " + TEXT])
def test_other_text_is_no_uuid(text: str) -> None:
    with pytest.raises(ValueError, match="UUID"):
        parse_uuid(text)


def test_the_bytes_are_kafkas_and_durable() -> None:
    files = disk()
    assert read_topic_id(files, DIRECTORY) is None
    write_topic_id(files, DIRECTORY, ID)
    expected = f"version: 0\ntopic_id: {TEXT}".encode()
    assert files.read_bytes(f"{DIRECTORY}/partition.metadata") == expected
    assert read_topic_id(files.crash_clone(Random(1)), DIRECTORY) == ID


def test_writing_the_same_id_again_is_free_and_another_is_refused() -> None:
    files = disk()
    write_topic_id(files, DIRECTORY, ID)
    calls: list[str] = []
    files.on_call = lambda operation, _path: calls.append(operation)
    write_topic_id(files, DIRECTORY, ID)
    assert calls == ["read"]
    with pytest.raises(StorageError, match=TEXT):
        write_topic_id(files, DIRECTORY, UUID(int=5))
    with pytest.raises(StorageError):
        write_topic_id(files, DIRECTORY, NO_TOPIC_ID)
    assert read_topic_id(files, DIRECTORY) == ID


def test_a_later_version_is_read() -> None:
    assert (
        read_topic_id(disk(f"version: 7\ntopic_id:  {TEXT}\nmore: x\n".encode()), DIRECTORY) == ID
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0",
        b"version: 0\n",
        b"version 0\ntopic_id: " + TEXT.encode(),
        b"version: -1\ntopic_id: " + TEXT.encode(),
        b"version: x\ntopic_id: " + TEXT.encode(),
        b"version: 0\ntopic_id: AAAA",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"\xff\xfe",
    ],
)
def test_damage_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedCheckpoint, match=r"partition\.metadata"):
        read_topic_id(disk(data), DIRECTORY)


@pytest.mark.parametrize("refused", ["append", "create"])
def test_an_id_that_cannot_be_written_is_written_later(refused: str) -> None:
    """Without file handles half of the file stayed, and damaged the log (seed 103000111)."""
    files = disk()

    def refuse(operation: str, _path: str) -> None:
        if operation == refused:
            raise OutOfHandles("Too many open files.")

    files.on_call = refuse
    with pytest.raises(OutOfHandles):
        write_topic_id(files, DIRECTORY, ID, durably=False)
    files.on_call = lambda _operation, _path: None
    assert read_topic_id(files, DIRECTORY) is None
    write_topic_id(files, DIRECTORY, ID, durably=False)
    assert read_topic_id(files, DIRECTORY) == ID
