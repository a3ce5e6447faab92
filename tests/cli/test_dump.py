"""Dumping a data directory, whole and damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.config.topic import TopicConfig
from strandline.records.batch import iterate_headers
from strandline.records.builder import build_batch, build_control_batch
from strandline.records.codec import Codec
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record
from strandline.storage.producer_entry import ProducerEntry
from strandline.storage.producer_snapshot import encode_snapshot
from strandline.storage.real_files import RealFiles
from strandline.storage.segment import Segment
from strandline.storage.segment_names import INDEXES, LOG, SNAPSHOT, segment_path
from strandline.storage.transaction_index import AbortedTransaction
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId

Run = Callable[..., Any]
BASE = 5
CONFIG = TopicConfig(index_interval_bytes=0, segment_index_bytes=4096)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A segment of twelve batches from offset 5 on, the last an abort marker."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    segment = Segment.create(RealFiles(), str(directory), BASE, CONFIG)
    segment.start_clock(CONFIG, 0, 0)
    for number in range(11):
        add(
            segment,
            build_batch(
                [Record(timestamp=1000 * number, key=b"k", value=b"\xff", headers=(("h", b"v"),))],
                base_offset=Offset(BASE + number),
                leader_epoch=LeaderEpoch(3),
                codec=Codec.ZSTD if number % 2 else Codec.NONE,
                producer_id=ProducerId(9),
                producer_epoch=ProducerEpoch(0),
                base_sequence=number,
                is_transactional=True,
            ),
        )
    add(
        segment,
        build_control_batch(
            EndTransactionMarker(ControlType.ABORT, 4),
            timestamp=20_000,
            producer_id=ProducerId(9),
            producer_epoch=ProducerEpoch(0),
            base_offset=Offset(BASE + 11),
            leader_epoch=LeaderEpoch(3),
        ),
    )
    segment.transaction_index.append(
        AbortedTransaction(ProducerId(9), Offset(BASE), Offset(BASE + 11), Offset(BASE + 12))
    )
    for index in (segment.offset_index, segment.time_index):
        index.trim()
        index.close()
    segment.transaction_index.close()
    segment.log.close()
    entry = ProducerEntry(ProducerId(9), ProducerEpoch(0))
    entry.remember(10, BASE + 10, 0, 10_000)
    path(directory, SNAPSHOT).write_bytes(encode_snapshot([entry]))
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n3 5\n")
    return directory


def add(segment: Segment, batch: bytes) -> None:
    ((_, header),) = iterate_headers(batch)
    segment.append_batch(batch, len(batch), header.last_offset, header.max_timestamp)


def path(directory: Path, kind: str) -> Path:
    return Path(segment_path(str(directory), BASE, kind))


def items(run: Run, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("dump", "--json", *arguments).out.splitlines()]


def test_a_whole_directory_is_sound(alone: Run, partition: Path) -> None:
    ended = alone("dump", "--verify", "--records", str(partition))
    assert (ended.code, ended.err) == (0, "")
    found = items(alone, "--verify", "--records", str(partition))
    kinds = [each["kind"] for each in found]
    assert kinds.count("batch") == 12
    assert kinds.count("record") == 12
    assert kinds.count("aborted") == kinds.count("producer") == kinds.count("epoch") == 1
    assert kinds.count("entry") > 10
    batch = next(each for each in found if each["kind"] == "batch")
    assert (batch["offsets"], batch["position"], batch["producer"]) == ("5-5", 0, "9/0")
    records = [each for each in found if each["kind"] == "record"]
    assert records[1]["time"] == "1970-01-01T00:00:01.000Z"
    assert records[1]["value"] == {"base64": "/w=="}
    assert records[1]["headers"] == [["h", "v"]]
    assert (records[-1]["control"], records[-1]["coordinator_epoch"]) == ("abort", 4)
    (log,) = [each for each in found if each["kind"] == "log"]
    assert (log["batches"], log["records"], log["next_offset"]) == (12, 12, 17)


def test_every_flipped_byte_of_a_log_is_noticed(alone: Run, partition: Path) -> None:
    log = path(partition, LOG)
    sound = log.read_bytes()
    unprotected = {*range(8), *range(12, 16)}  # offset and leader epoch, which brokers assign
    for at in sorted({*range(61), len(sound) - 1} - unprotected):
        damaged = bytearray(sound)
        damaged[at] ^= 0x10
        log.write_bytes(damaged)
        ended = alone("dump", str(log))
        assert ended.code == 1, at
        assert f"{log}: At position " in ended.err


def test_wrong_order_is_noticed(alone: Run, partition: Path) -> None:
    log = path(partition, LOG)
    damaged = bytearray(log.read_bytes())
    damaged[0:8] = (BASE - 1).to_bytes(8, "big")
    second = 12 + int.from_bytes(damaged[8:12], "big")
    damaged[second + 12 : second + 16] = (2).to_bytes(4, "big")
    log.write_bytes(damaged)
    ended = alone("dump", str(log))
    assert ended.code == 1
    assert "begins with offset 4, but 5 is the least" in ended.err
    assert "leader epoch 2 follows 3." in ended.err


def test_an_offset_that_no_index_could_name_is_noticed(alone: Run, partition: Path) -> None:
    log = path(partition, LOG)
    damaged = bytearray(log.read_bytes())
    damaged[0:8] = (BASE + 2**31).to_bytes(8, "big")
    log.write_bytes(damaged)
    ended = alone("dump", str(log))
    assert ended.code == 1
    assert f"{BASE + 2**31 - 1} is the greatest of its segment." in ended.err


def test_a_torn_end_and_reserved_room_are_told_apart(alone: Run, partition: Path) -> None:
    log = path(partition, LOG)
    whole = log.read_bytes()
    log.write_bytes(whole + bytes(100))
    reserved = alone("dump", str(log))
    assert reserved.code == 0
    assert f"reserved  position {len(whole)}  bytes 100" in reserved.out
    log.write_bytes(whole[:-1])
    torn = alone("dump", str(log))
    assert torn.code == 1
    assert "offset 16: A record batch of 78 bytes is cut off after 77." in torn.err


@pytest.mark.parametrize("kind", INDEXES)
def test_an_index_of_another_log_is_noticed(alone: Run, partition: Path, kind: str) -> None:
    index = path(partition, kind)
    data = bytearray(index.read_bytes())
    # Offsets of entries: the low byte of the last entry's number that means one.
    at = {".index": len(data) - 5, ".timeindex": len(data) - 1, ".txnindex": 25}[kind]
    data[at] ^= 0x40
    index.write_bytes(data)
    assert alone("dump", "--verify", str(index)).code == 1
    path(partition, LOG).unlink()
    alone_again = alone("dump", "--verify", str(index))
    assert "is not there to compare with" in alone_again.err


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_an_index_that_is_being_written_is_sound(alone: Run, partition: Path, kind: str) -> None:
    index = path(partition, kind)
    index.write_bytes(index.read_bytes() + bytes(240))
    ended = alone("dump", "--verify", str(index))
    assert ended.code == 0
    assert "reserved  entries " in ended.out
    index.write_bytes(index.read_bytes()[:-1])
    assert "ends inside an entry" in alone("dump", str(index)).err


def test_order_in_indexes(alone: Run, partition: Path) -> None:
    for kind, size in ((".index", 8), (".timeindex", 12)):
        index = path(partition, kind)
        data = index.read_bytes()
        index.write_bytes(data[size : 2 * size] + data[:size] + data[2 * size :])
        assert "Entry 1 (offset " in alone("dump", str(index)).err


def test_a_damaged_snapshot(alone: Run, partition: Path) -> None:
    snapshot = path(partition, SNAPSHOT)
    data = bytearray(snapshot.read_bytes())
    data[-1] ^= 1
    snapshot.write_bytes(data)
    assert "checksum" in alone("dump", str(snapshot)).err


def test_tables(alone: Run, tmp_path: Path) -> None:
    checkpoint = tmp_path / "replication-offset-checkpoint"
    checkpoint.write_text("0\n2\nb 1 7\na 0 5\n")
    found = items(alone, str(checkpoint))
    assert [(each["topic"], each["partition"], each["offset"]) for each in found] == [
        ("a", 0, 5),
        ("b", 1, 7),
    ]
    checkpoint.write_text("0\n3\na 0 5\n")
    assert "announces 3 entries and has 1" in alone("dump", str(checkpoint)).err
    epochs = tmp_path / "leader-epoch-checkpoint"
    epochs.write_text("0\n2\n3 9\n2 10\n")
    assert "Of 2 entries, 1 contradict a later one" in alone("dump", str(epochs)).err
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=3\ncluster.id=abc\n")
    (owner,) = items(alone, str(tmp_path / "meta.properties"))
    assert (owner["broker"], owner["cluster_id"]) == (3, "abc")


def test_a_file_that_is_not_there(alone: Run, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\n")
    for missing in (
        tmp_path / "none",
        tmp_path / "none" / "leader-epoch-checkpoint",
        path(tmp_path, LOG),
    ):
        ended = alone("dump", str(tmp_path / "meta.properties"), str(missing), "--json")
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.endswith(f"Error: There is no file or directory '{missing}'.\n")


def test_what_a_broker_writes_is_sound(
    spawn: Run, strandline: Run, data: Path, name: str, tmp_path: Path
) -> None:
    strandline("topics", "create", name, "--config", "segment.bytes=1048576")
    spawn("produce", name, "--compression", "lz4", stdin=b"some value\n" * 5000)
    copy = tmp_path / "copy"
    shutil.copytree(data / f"{name}-0", copy)
    ended = strandline("dump", "--verify", "--records", str(copy))
    assert (ended.code, ended.err) == (0, "")
    assert "records 5000" in ended.out


def test_files_that_are_on_their_way_out_are_not_checked(
    alone: Run, partition: Path, tmp_path: Path
) -> None:
    """Their indexes go one after the other, and nothing reads them."""
    for each in list(partition.iterdir()):
        shutil.copy(each, partition / f"{each.name}.deleted")
    removed = next(partition.glob("*.timeindex.deleted"))
    removed.unlink()
    said = alone("dump", str(partition), "--verify")
    assert said.code == 0, said
    assert ".deleted" not in said.out
    (left,) = partition.glob("*.log.deleted")
    assert "batch" in alone("dump", str(left)).out, "one that is named is shown"


def test_a_cluster_directory_names_the_log_directories_in_it(alone: Run, tmp_path: Path) -> None:
    for name in ("broker-2", "broker-1", "other"):
        (tmp_path / name).mkdir()
    for number in (1, 2):
        (tmp_path / f"broker-{number}" / "meta.properties").write_text("")
    ended = alone("dump", str(tmp_path))
    assert ended.code == 2
    assert "no files that can be dumped. Name one of those in it: broker-1, broker-2." in ended.err
