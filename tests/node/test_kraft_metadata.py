"""Reading KRaft's metadata log from its files: snapshots, segments, gaps and damage."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from strandline.cluster.kraft_settings import UnreadableMetadata
from strandline.errors import CorruptRecords
from strandline.node.kraft_metadata import read_kraft_metadata
from strandline.records.builder import build_batch, build_control_batch
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record
from strandline.storage.memory_files import MemoryFiles
from strandline.types import Offset, ProducerEpoch, ProducerId

DIRECTORY = "/second/__cluster_metadata-0"
DIRECTORIES = ("/first", "/second")
ID = UUID(int=0xABC)
TOPIC = b"\x01\x02\x00\x02a" + ID.bytes + b"\x00"


def retention(value: str) -> bytes:
    return (
        b"\x01\x04\x00\x02\x02a\x0dretention.ms" + bytes([len(value) + 1]) + value.encode() + b"\0"
    )


def batch(offset: int, *values: bytes) -> bytes:
    return build_batch([Record(value=value) for value in values], base_offset=Offset(offset))


def control(offset: int) -> bytes:
    """Leader changes, snapshot headers and footers are control batches; none is of interest."""
    return build_control_batch(
        EndTransactionMarker(ControlType.COMMIT, 0),
        timestamp=0,
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        base_offset=Offset(offset),
    )


def disk(**contents: bytes) -> MemoryFiles:
    """Files of the metadata log, named by `log_<offset>` or `snapshot_<offset>`."""
    files = MemoryFiles()
    for path in ("/first", DIRECTORY):
        files.make_directory(path)
    for name, data in contents.items():
        kind, offset = name.split("_")
        number = f"{int(offset):020}"
        full = f"{number}.log" if kind == "log" else f"{number}-0000000003.checkpoint"
        files.write_atomically(f"{DIRECTORY}/{full}", data)
    return files


def retention_on(files: MemoryFiles) -> str | None:
    settings = read_kraft_metadata(files, DIRECTORIES)
    assert settings is not None
    overrides = settings.of_topic("a", ID)
    return None if overrides is None else overrides.get("retention.ms")


def test_no_directory_of_kafka_is_no_settings() -> None:
    files = MemoryFiles()
    files.make_directory("/first")
    assert read_kraft_metadata(files, DIRECTORIES) is None


def test_a_log_from_its_beginning() -> None:
    files = disk(
        log_0=control(0) + batch(1, TOPIC, retention("1")) + batch(3, retention("2")),
        log_4=batch(4, retention("3")),
    )
    files.write_atomically(f"{DIRECTORY}/quorum-state", b"{}")
    files.write_atomically(f"{DIRECTORY}/{4:020}.index", b"x")
    assert retention_on(files) == "3"


def test_the_newest_snapshot_and_the_log_behind_it() -> None:
    """What is below the snapshot's offset is in it already; to follow it again would be wrong."""
    files = disk(
        snapshot_2=b"not looked at",
        snapshot_4=control(0) + batch(1, TOPIC, retention("snapshot")) + control(3),
        log_2=batch(2, retention("old"), retention("old"), b"\x01\x14\x00\x00"),
    )
    assert retention_on(files) == "snapshot"
    files.write_atomically(f"{DIRECTORY}/{5:020}.log", batch(5, retention("new")))
    assert retention_on(files) == "new"


def test_a_snapshot_alone_is_enough() -> None:
    assert retention_on(disk(snapshot_4=batch(0, TOPIC, retention("1")) + control(2))) == "1"


@pytest.mark.parametrize(
    "files",
    [
        lambda: disk(),
        lambda: disk(log_1=batch(1, TOPIC)),
        lambda: disk(log_0=batch(0, TOPIC), log_2=batch(2, retention("1"))),
        lambda: disk(log_0=batch(0, TOPIC, retention("1")), log_1=batch(1, retention("2"))),
        lambda: disk(log_0=batch(0, TOPIC) + batch(2, retention("1"))),
        lambda: disk(snapshot_4=control(0) + batch(1, TOPIC), log_4=batch(4, retention("1"))),
        lambda: disk(snapshot_4=batch(0, TOPIC) + control(1), log_5=batch(5, retention("1"))),
        lambda: disk(snapshot_4=b""),
    ],
)
def test_gaps_are_unreadable(files: Callable[[], MemoryFiles]) -> None:
    with pytest.raises(UnreadableMetadata):
        read_kraft_metadata(files(), DIRECTORIES)


def test_every_cut_inside_a_batch_is_noticed() -> None:
    whole = batch(0, TOPIC) + batch(1, retention("1"))
    border = len(batch(0, TOPIC))
    for size in set(range(1, len(whole))) - {border}:
        with pytest.raises(CorruptRecords):
            read_kraft_metadata(disk(log_0=whole[:size]), DIRECTORIES)


def test_every_flipped_byte_behind_a_batchs_checksum_is_noticed() -> None:
    whole = batch(0, TOPIC, retention("1"))
    for at in range(17, len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x40
        with pytest.raises(CorruptRecords):
            read_kraft_metadata(disk(log_0=bytes(damaged)), DIRECTORIES)
