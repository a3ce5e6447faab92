"""Starting after a kill, a torn write, bit rot, lost files and an interrupted compaction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline.config.topic import TopicConfig
from strandline.errors import StorageError
from strandline.records.batch import iterate_headers
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.real_files import RealFiles
from tests.storage.conftest import World


def _rewrite(world: Any, name: str, data: bytes) -> None:
    file = world.files.open(f"{world.directory}/{name}", create=True)
    file.truncate(0)
    file.append(data)
    file.close()


def _read(world: Any, name: str) -> bytes:
    data: bytes = world.files.read_bytes(f"{world.directory}/{name}")
    return data


def test_a_kill_loses_nothing(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 30)
    before = kit.bytes_from(log, 0)
    log = world.kill(log)
    assert kit.bytes_from(log, 0) == before
    assert not log.recovery_report.cuts
    assert log.recovery_point == 0, "nothing was synced, so nothing may be promised"
    log.check()
    kit.fill(log, 5)
    assert [offset for offset, _ in kit.records(world.reopen(log))] == list(range(35))


def test_a_clean_start_reads_only_the_end_of_the_last_segment(kit: Any) -> None:
    files = MemoryFiles()
    world = kit.world(files, "/data", "memory")
    log = world.create()
    kit.fill(log, 200)
    log.roller.roll(kit.now_ms)
    before = log.segments.all[-2]
    log.close_clean()
    read: list[str] = []
    files.on_call = lambda operation, path: read.append(path) if operation == "read" else None
    log = world.load(clean=True, recovery_point=200)
    kinds = (".log", ".index", ".timeindex")
    read_logs = {path for path in read if path.endswith(kinds)}
    allowed = (log.active, before)
    assert read_logs <= {p for s in allowed for p in (s.path(k) for k in kinds)}
    assert read.count(before.log.path) <= 3, "an index lookup, and a look at the last batches"


@pytest.mark.parametrize("cut", [1, 11, 12, 17, 60, 61, 62, 100, 177])
def test_a_torn_last_batch_is_cut_off(world: Any, kit: Any, cut: int) -> None:
    log = world.create()
    kit.fill(log, 4)
    whole = kit.bytes_from(log, 0)
    log.close()
    name = f"{0:020d}.log"
    size = len(whole) // 4
    _rewrite(world, name, whole[: 3 * size + cut])
    log = world.load(clean=False)
    assert kit.bytes_from(log, 0) == whole[: 3 * size]
    assert log.log_end_offset == 3
    (report,) = log.recovery_report.cuts
    assert (report.offset, report.removed_bytes) == (3, cut)
    assert name in str(report)
    assert kit.append(log, b"next") == 3


@pytest.mark.parametrize("flip", [0, 8, 11, 16, 17, 21, 23, 60, 61, 150])
def test_everything_from_the_first_bad_batch_on_is_cut(world: Any, kit: Any, flip: int) -> None:
    log = world.create()
    kit.fill(log, 30)
    second = log.segments.all[1]
    whole = kit.bytes_from(log, 0)
    log.close()
    name = f"{second.base_offset:020d}.log"
    data = bytearray(_read(world, name))
    (_, _), (at, bad), *_ = iterate_headers(data)
    data[at + flip] ^= 0x41
    _rewrite(world, name, bytes(data))
    log = world.load(clean=False)
    kept = bad.base_offset
    assert log.log_end_offset == kept
    assert whole.startswith(kit.bytes_from(log, 0))
    assert len(log.segments) == 2
    assert len(log.recovery_report.cuts) >= 4, "the bad segment and each later one"
    assert len(kit.names(world, ".log")) == len(kit.names(world, ".index")) == 2
    assert kit.append(log, b"next") == kept


def test_segments_below_the_recovery_point_are_trusted(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 30)
    point = log.segments.all[3].base_offset
    count = len(log.segments)
    log = world.kill(log, recovery_point=point)
    assert log.recovery_report.recovered_segments == count - 3
    assert log.recovery_point == point
    assert [offset for offset, _ in kit.records(log)] == list(range(30))


def test_a_segment_that_lost_its_end_at_a_batch_takes_later_ones_with_it(
    world: Any, kit: Any
) -> None:
    log = world.create()
    kit.fill(log, 30)
    whole = kit.bytes_from(log, 0)
    log.close()
    name = f"{0:020d}.log"
    data = _read(world, name)
    *_, (at, last) = iterate_headers(data)
    _rewrite(world, name, data[:at])
    log = world.load(clean=False)
    assert log.log_end_offset == last.base_offset
    assert whole.startswith(kit.bytes_from(log, 0))


def test_an_empty_segment_inside_another_goes(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 5)
    log.close()
    _rewrite(world, f"{3:020d}.log", b"")
    log = world.load(clean=False)
    assert log.log_end_offset == 5
    assert len(log.segments) == 1


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "zeros", "garbage", "odd", "pointing out"])
def test_damaged_indexes_are_made_anew(
    world: Any, kit: Any, kind: str, damage: str, clean: bool
) -> None:
    log = world.create()
    for index in range(30):
        kit.append(log, b"%03d" % index * 30, timestamp=kit.now_ms + index)
    expected = kit.records(log)
    log.close_clean()
    contents = {
        "empty": b"",
        "zeros": bytes(34 * 12),
        "garbage": bytes(range(200)) * 3,
        "odd": b"\x00\x00\x00\x07\x00",
        "pointing out": b"\x00\x00\x00\x01\x7f\xff\xff\x00" * 3,
    }
    for base in log.segments.base_offsets:
        name = f"{base:020d}{kind}"
        if damage == "missing":
            world.files.remove(f"{world.directory}/{name}")
        else:
            _rewrite(world, name, contents[damage])
    log = world.load(clean=clean, recovery_point=30)
    assert kit.records(log) == expected
    for offset in range(30):
        assert kit.records(log, offset) == expected[offset:]
    assert log.reader.aborted_transactions(0, 30) == []
    for index in range(30):
        found = log.reader.offset_for_timestamp(kit.now_ms + index)
        assert found is not None
        assert found.offset == index
    kit.fill(log, 10)
    assert log.log_end_offset == 40


def test_index_files_without_a_segment_go(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 3)
    log.close_clean()
    _rewrite(world, f"{77:020d}.index", b"x" * 8)
    log = world.load(clean=True, recovery_point=3)
    assert not [name for name in kit.names(world, ".index") if "77" in name]
    assert any("no segment" in note for note in log.recovery_report.notes)


def test_a_log_that_ends_below_its_start_begins_anew(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 10)
    log.close()
    log = world.load(clean=False, log_start_offset=25)
    assert (log.log_start_offset, log.log_end_offset) == (25, 25)
    assert kit.append(log, b"next") == 25


def test_reserved_space_is_given_back(world: Any, kit: Any) -> None:
    log = world.create(TopicConfig(segment_bytes=10_000, preallocate=True))
    kit.fill(log, 3)
    size = log.active.size
    log = world.kill(log)
    assert log.log_end_offset == 3
    assert world.files.size_of(log.active.log.path) == size
    assert not log.recovery_report.cuts
    kit.fill(log, 100)
    assert [offset for offset, _ in kit.records(world.reopen(log))] == list(range(103))


def test_reserved_space_is_given_back_by_a_roll_under_other_settings(
    tmp_path: Path, kit: Any
) -> None:
    world = World(RealFiles(), str(tmp_path / "orders-0"), "real")
    reserved = TopicConfig(segment_bytes=10_000, preallocate=True)
    log = world.create(reserved)
    kit.fill(log, 3)
    log.update_config(replace(reserved, preallocate=False))
    log.roller.roll(kit.now_ms)
    kit.fill(log, 3)
    log = world.reopen(log)
    assert [offset for offset, _ in kit.records(log)] == list(range(6))


def test_a_clean_start_survives_a_last_segment_that_was_damaged_since(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 8)
    name = f"{log.active.base_offset:020d}.log"
    kept = log.active.base_offset + 1
    log.close_clean()
    data = _read(world, name)
    _rewrite(world, name, data[: len(data) // 3 + 20])
    log = world.load(clean=True, recovery_point=8)
    assert log.log_end_offset == kept
    assert log.recovery_report.cuts


def test_a_read_of_a_rotten_segment_is_an_error_and_no_data(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 30)
    log = world.reopen(log)
    log.segments.first.log.write_at(0, b"\xff" * 500)
    with pytest.raises(StorageError, match="has no record batch"):
        kit.bytes_from(log, 0)


def _compacted(world: Any, kit: Any, log: Any) -> tuple[list[str], bytes]:
    """Files as compaction would write them for the first two segments; names and new contents."""
    first, second = log.segments.all[:2]
    data = kit.bytes_from(log, 0)[: first.size + second.size]
    batches = [data[p : p + h.size_bytes] for p, h in iterate_headers(data)]
    cleaned = b"".join(batches[::2] if len(batches) % 2 else [*batches[::2], batches[-1]])
    return [f"{first.base_offset:020d}.log", f"{second.base_offset:020d}.log"], cleaned


def test_an_undecided_compaction_is_undone(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 30)
    expected = kit.records(log)
    names, cleaned = _compacted(world, kit, log)
    log.close()
    _rewrite(world, names[0] + ".cleaned", cleaned)
    _rewrite(world, names[1] + ".swap", cleaned)
    log = world.load(clean=False)
    assert kit.records(log) == expected
    assert not kit.names(world, ".cleaned", ".swap")


def test_a_decided_compaction_is_finished(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 30)
    names, cleaned = _compacted(world, kit, log)
    rest = kit.bytes_from(log, log.segments.all[2].base_offset)
    log.close()
    world.config = TopicConfig(segment_bytes=1000, cleanup_policies=frozenset({"compact"}))
    _rewrite(world, names[0] + ".swap", cleaned)
    _rewrite(world, f"{5:020d}.log.deleted", b"old")
    log = world.load(clean=False)
    assert kit.bytes_from(log, 0) == cleaned + rest
    assert not kit.names(world, ".swap", ".deleted")
    assert names[1] not in kit.names(world, ".log")
