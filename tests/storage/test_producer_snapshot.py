"""Producer snapshots: their bytes, their damage, and which files there are."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import StorageError
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.producer_entry import ProducerEntry
from strandline.storage.producer_snapshot import (
    DamagedSnapshot,
    ProducerSnapshots,
    decode_snapshot,
    encode_snapshot,
    offset_in_name,
    snapshot_name,
)
from strandline.types import Offset, ProducerEpoch, ProducerId
from tests.storage.failing import failing_call

DIRECTORY = "/d"

INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)


@st.composite
def entries(draw: st.DrawFn) -> ProducerEntry:
    entry = ProducerEntry(ProducerId(draw(INT64)), ProducerEpoch(draw(st.integers(0, 2**15 - 1))))
    if draw(st.booleans()):
        delta = draw(INT32)
        entry.remember(draw(INT32), draw(st.integers(delta, 2**63 - 1)), delta, 0)
    entry.last_timestamp = draw(st.integers(-1, 2**63 - 1))
    entry.coordinator_epoch = draw(st.integers(-1, 2**31 - 1))
    entry.transaction_first_offset = Offset(draw(st.integers(-1, 2**63 - 1)))
    return entry


def fields(entry: ProducerEntry) -> tuple[object, ...]:
    return (
        entry.producer_id,
        entry.epoch,
        entry.last_sequence,
        entry.last_offset,
        [batch[2] for batch in entry.batches],
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
        entry.next_sequence,
    )


def sample() -> ProducerEntry:
    entry = ProducerEntry(ProducerId(4711), ProducerEpoch(2))
    entry.remember(9, 109, 9, 1000)
    return entry


def disk() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    return files


def snapshots_on(files: MemoryFiles) -> ProducerSnapshots:
    snapshots = ProducerSnapshots(files, DIRECTORY)
    snapshots.scan(files.list_directory(DIRECTORY))
    return snapshots


def test_the_layout() -> None:
    data = encode_snapshot([sample()])
    assert len(data) == 10 + 46
    assert data[:2] == b"\0\1"
    assert data[6:] == bytes.fromhex(
        "00000001"  # one producer
        "0000000000001267 0002 00000009 000000000000006d 00000009"
        "00000000000003e8 ffffffff ffffffffffffffff"
    )


@given(st.lists(entries(), max_size=6))
def test_what_is_encoded_is_decoded(written: list[ProducerEntry]) -> None:
    read = decode_snapshot(encode_snapshot(written))
    assert [fields(entry) for entry in read] == [fields(entry) for entry in written]


def test_no_single_byte_may_differ() -> None:
    data = encode_snapshot([sample(), sample()])
    for position in range(len(data)):
        for flip in (1, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= flip
            with pytest.raises(DamagedSnapshot):
                decode_snapshot(bytes(damaged))


def test_no_byte_may_be_missing_or_too_many() -> None:
    data = encode_snapshot([sample(), sample()])
    for size in range(len(data)):
        with pytest.raises(DamagedSnapshot):
            decode_snapshot(data[:size])
    with pytest.raises(DamagedSnapshot):
        decode_snapshot(data + b"\0")


def test_names() -> None:
    assert snapshot_name(Offset(1234)) == "00000000000000001234.snapshot"
    assert offset_in_name("00000000000000001234.snapshot") == 1234
    for name in ("1234.snapshot", "00000000000000001234.log", "x.snapshot", ".snapshot"):
        assert offset_in_name(name) is None


def test_scan_finds_snapshots_and_clears_what_was_left_over() -> None:
    files = disk()
    for name in (
        "00000000000000000020.snapshot",
        "00000000000000000003.snapshot",
        "00000000000000000007.snapshot.tmp",
        "00000000000000000001.snapshot.deleted",
        "00000000000000000003.log",
    ):
        files.open(f"{DIRECTORY}/{name}", create=True)
    snapshots = snapshots_on(files)
    assert snapshots.offsets == [3, 20]
    assert (snapshots.oldest, snapshots.newest) == (3, 20)
    assert files.list_directory(DIRECTORY) == [
        "00000000000000000003.log",
        "00000000000000000003.snapshot",
        "00000000000000000020.snapshot",
    ]


@pytest.mark.parametrize(
    ("bases", "kept"),
    [
        ([0, 10, 20], [10, 20, 25]),  # 25 was taken at the end by a clean shutdown
        ([0, 10, 30], [10]),
        ([30], []),
        ([], [25]),
    ],
)
def test_strays_are_removed(bases: list[int], kept: list[int]) -> None:
    files = disk()
    snapshots = snapshots_on(files)
    for offset in (5, 10, 15, 20, 25):
        snapshots.write(Offset(offset), [sample()], sync=True)
    snapshots.remove_strays([Offset(base) for base in bases])
    assert snapshots.offsets == kept
    assert snapshots_on(files).offsets == kept


def test_removing_and_retiring() -> None:
    files = disk()
    snapshots = snapshots_on(files)
    for offset in (5, 10, 15):
        snapshots.write(Offset(offset), [], sync=False)
    assert snapshots.remove_below(Offset(10))
    assert not snapshots.remove_below(Offset(10))
    assert snapshots.retire(Offset(10)) == "/d/00000000000000000010.snapshot.deleted"
    assert snapshots.retire(Offset(10)) is None
    assert snapshots.offsets == [15]
    files.remove(snapshots.path_of(Offset(15)))
    assert snapshots.retire(Offset(15)) is None
    assert snapshots.newest is None


def test_an_unsynced_snapshot_replaces_a_longer_one() -> None:
    files = disk()
    snapshots = snapshots_on(files)
    snapshots.write(Offset(5), [sample(), sample()], sync=False)
    snapshots.write(Offset(5), [sample()], sync=False)
    assert snapshots.offsets == [5]
    assert len(snapshots.read(Offset(5))) == 1


def test_a_snapshot_that_cannot_be_written_leaves_nothing_behind() -> None:
    """A part of it would belong to nothing (I-08)."""
    files = disk()
    snapshots = snapshots_on(files)

    def fail(operation: str, path: str) -> None:
        if operation == "append":
            raise StorageError(f"Cannot {operation} {path}: it is a test.")

    files.on_call = fail
    with pytest.raises(StorageError, match="it is a test"):
        snapshots.write(Offset(5), [sample()], sync=False)
    assert not files.exists(snapshots.path_of(Offset(5)))
    assert snapshots.offsets == []


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("succeeding", range(8))
def test_r25_after_a_crash_a_snapshot_is_whole_or_recognised(succeeding: int, sync: bool) -> None:
    files = disk()
    snapshots = snapshots_on(files)
    written = [sample() for _ in range(40)]
    files.on_call = failing_call(succeeding + 1, sticky=True)
    try:
        snapshots.write(Offset(5), written, sync=sync)
        done = True
    except StorageError:
        done = False
        assert snapshots.offsets == []
    for seed in range(30):
        after = snapshots_on(files.crash_clone(Random(seed)))
        assert after.offsets == [5] or not (done and sync)
        for offset in after.offsets:
            try:
                assert len(after.read(offset)) == len(written)
            except DamagedSnapshot:
                assert not sync
