"""The truncation ledger on real files, in memory, and after power was lost."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.errors import StorageError
from strandline.records.batch import iterate_headers
from strandline.records.record import read_records
from strandline.storage.files import DiskFull, MissingFile, join, parent_of
from strandline.storage.ledger import ENTRY_BYTES_MAX, Cause, Entry, Ledger
from strandline.storage.log import Log
from strandline.storage.memory_files import MemoryFiles
from strandline.types import Offset
from tests.storage.failing import failing_call

DAY_MS = 86_400_000


def cause(now_ms: int) -> Cause:
    return Cause(
        broker=3, wall_ms=now_ms, leader=1, leader_epoch=7, reason="it is a test", unclean=True
    )


def ledger_of(world: Any) -> Ledger:
    return Ledger(world.files, parent_of(world.directory))


def copy(world: Any, log: Log, offset: int, now_ms: int = 5) -> Entry:
    entry = ledger_of(world).copy(log, Offset(offset), cause(now_ms), bytes_max=ENTRY_BYTES_MAX)
    assert entry is not None
    return entry


def values(data: bytes) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.value)
        for position, header in iterate_headers(data)
        for record in read_records(data[position : position + header.size_bytes])
    ]


def test_a_suffix_is_kept_whole_with_its_epochs(world: Any, kit: Any) -> None:
    log = world.create()
    for number, epoch in enumerate((0, 0, 3, 3, 5)):
        kit.append(log, b"%d" % number * 200, epoch=epoch)
    log.leader_epochs.assign(0, Offset(0))
    log.leader_epochs.assign(3, Offset(2))
    log.leader_epochs.assign(5, Offset(4))
    before = kit.records(log, 2)
    entry = copy(world, log, 2)
    log.truncation.truncate_to(Offset(2), 0)
    assert (entry.from_offset, entry.to_offset, entry.kept_to_offset) == (2, 5, 5)
    assert entry.epochs == [[3, 2], [5, 4]]
    assert (entry.topic, entry.partition, entry.leader, entry.leader_epoch) == ("orders", 0, 1, 7)
    assert entry.unclean
    if world.kind == "crashed":
        world.files = world.files.crash_clone()
    assert ledger_of(world).entries() == [entry]
    data = ledger_of(world).read(entry.id, 0, 1 << 20)
    assert len(data) == entry.size_bytes
    assert values(data) == before
    assert ledger_of(world).read(entry.id, 10, 20) == data[10:30]


def test_a_suffix_over_many_segments(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 30)
    assert len(log.segments) > 2
    before = kit.records(log, 3)
    entry = copy(world, log, 3)
    assert values(ledger_of(world).read(entry.id, 0, 1 << 20)) == before


def test_batches_are_kept_whole(world: Any, kit: Any) -> None:
    log = world.create()
    kit.append(log, b"a", b"b", b"c")
    assert copy(world, log, 2).from_offset == 0


def test_nothing_is_kept_of_nothing(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 2)
    ledger = ledger_of(world)
    assert ledger.copy(log, Offset(2), cause(1), bytes_max=1000) is None
    assert ledger.copy(log, Offset(9), cause(1), bytes_max=1000) is None
    assert ledger.entries() == []


def test_of_a_long_suffix_the_beginning_is_kept(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 30)
    entry = ledger_of(world).copy(log, Offset(3), cause(1), bytes_max=1500)
    assert entry is not None
    assert entry.size_bytes <= 1500
    assert 3 < entry.kept_to_offset < entry.to_offset == 30
    kept = values(ledger_of(world).read(entry.id, 0, 1 << 20))
    assert [offset for offset, _ in kept] == list(range(3, entry.kept_to_offset))


def test_entries_of_one_moment_have_names_of_their_own(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 2)
    entries = [copy(world, log, 0) for _ in range(12)]
    assert len({entry.id for entry in entries}) == 12
    assert ledger_of(world).entries() == entries


def test_what_is_old_or_too_much_goes(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 2)
    entries = [copy(world, log, 0, now_ms=day * DAY_MS) for day in range(1, 5)]
    ledger = ledger_of(world)
    limits = {"retention_ms": -1, "retention_bytes": -1}
    assert ledger.expire(100 * DAY_MS, **limits) == 0
    assert ledger.expire(4 * DAY_MS, **{**limits, "retention_ms": 2 * DAY_MS}) == 1
    assert ledger.entries() == entries[1:]
    size = world.files.size_of(
        join(parent_of(world.directory), f"truncated-{entries[1].id}.ledger")
    )
    assert ledger.expire(4 * DAY_MS, **{**limits, "retention_bytes": 2 * size}) == 1
    assert ledger.entries() == entries[2:]
    assert ledger.expire(4 * DAY_MS, **{**limits, "retention_bytes": 0}) == 2


def test_files_of_others_are_left_alone(world: Any, kit: Any) -> None:
    ours = parent_of(world.directory)
    log = world.create()
    kit.fill(log, 2)
    copy(world, log, 0)
    for name in ("truncated-notes.ledger", "meta.properties", "truncated-1-2-x.ledger"):
        world.files.open(join(ours, name), create=True).close()
    ledger = ledger_of(world)
    assert ledger.expire(1 << 60, retention_ms=1, retention_bytes=0) == 1
    assert world.files.exists(join(ours, "truncated-notes.ledger"))
    assert world.files.exists(join(ours, "truncated-1-2-x.ledger"))


def test_a_missing_or_damaged_entry_says_so(world: Any, kit: Any) -> None:
    ledger = ledger_of(world)
    for missing in ("1-2-3", "../../etc/passwd", ""):
        with pytest.raises(MissingFile, match="There is no entry"):
            ledger.read(missing, 0, 10)
    path = join(parent_of(world.directory), "truncated-1-2-3.ledger")
    for content in (b"", b"{}\n", b"[1]\n", b'{"version": 2}\n', b'{"version": 1}\n', b"\xff\n"):
        world.files.write_atomically(path, content)
        with pytest.raises(StorageError, match="is no entry of the ledger"):
            ledger.entries()


def test_a_copy_leaves_as_much_room_as_it_takes(kit: Any) -> None:
    files = MemoryFiles(capacity_bytes=5000)
    world = kit.world(files, "/data", "memory")
    log = world.create()
    kit.fill(log, 15)
    with pytest.raises(DiskFull, match="no room"):
        ledger_of(world).copy(log, Offset(0), cause(1), bytes_max=1 << 20)
    assert ledger_of(world).entries() == []
    assert copy(world, log, 12).from_offset == 12


def test_whatever_fails_leaves_no_half_entry(kit: Any) -> None:
    """Every call in turn fails: then there is a whole entry or none, and what is left goes."""
    done = False
    fails_at = 0
    while not done:
        fails_at += 1
        files = MemoryFiles()
        world = kit.world(files, "/data", "memory")
        log = world.create()
        kit.fill(log, 20)
        files.on_call = failing_call(fails_at)
        try:
            copy(world, log, 1)
            done = True
        except StorageError:
            pass
        files.on_call = None
        assert kit.records(log)[0][0] == 0
        for entry in ledger_of(world).entries():
            assert len(ledger_of(world).read(entry.id, 0, 1 << 20)) == entry.size_bytes
        ledger_of(world).expire(0, retention_ms=-1, retention_bytes=-1)
        names = files.list_directory("/data")
        assert not [name for name in names if name.endswith(".new")]
    assert fails_at > 10


def test_a_crash_leaves_no_half_entry(kit: Any) -> None:
    files = MemoryFiles()
    world = kit.world(files, "/data", "memory")
    log = world.create()
    kit.fill(log, 20)
    images = []
    files.on_call = lambda operation, path: images.append(files.crash_clone())
    entry = copy(world, log, 1)
    files.on_call = None
    seen = set()
    for image in (*images, files.crash_clone()):
        ledger = Ledger(image, "/data")
        for found in ledger.entries():
            assert found == entry
            assert len(ledger.read(found.id, 0, 1 << 20)) == entry.size_bytes
        seen.add(len(ledger.entries()))
    assert seen == {0, 1}
