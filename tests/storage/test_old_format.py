"""Logs with messages of the formats 0 and 1: refused whole, and left as they are."""

from __future__ import annotations

from random import Random
from struct import pack
from typing import Any
from zlib import crc32

import pytest

from strandline.errors import StorageError
from strandline.storage.batch_scan import OldFormat
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.old_messages import old_magic_at
from strandline.types import Offset
from tests.storage.conftest import NOW_MS, PARTITION, SMALL, TOPIC_ID, World
from tests.storage.test_log_directory import US

FIRST = f"{0:020d}.log"
EPOCHS = "leader-epoch-checkpoint"


def message(offset: int, value: bytes, magic: int = 1) -> bytes:
    times = pack(">q", NOW_MS) if magic else b""
    body = pack(">BB", magic, 0) + times + pack(">i", -1) + pack(">i", len(value)) + value
    return pack(">qiI", offset, len(body) + 4, crc32(body)) + body


def messages(count: int, magic: int = 1) -> bytes:
    return b"".join(message(offset, b"old%d" % offset, magic) for offset in range(count))


def contents(world: World) -> dict[str, bytes]:
    names = world.files.list_directory(world.directory)
    return {name: world.files.read_bytes(f"{world.directory}/{name}") for name in names}


def write(world: World, name: str, data: bytes, *, behind: int = 0) -> None:
    file = world.files.open(f"{world.directory}/{name}", create=True)
    file.truncate(behind)
    file.append(data)
    file.close()


def check_refused(log: Log, magic: int = 1) -> None:
    assert log.is_refused
    assert f"message of format {magic}" in str(log.failure)
    assert not log.recovery_report.cuts
    with pytest.raises(StorageError, match="left as it is"):
        log.health.check_usable()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("segments", [1, 3])
def test_a_log_that_begins_with_old_messages_is_left_as_it_is(
    world: Any, kit: Any, is_clean: bool, magic: int, segments: int
) -> None:
    log = world.create()
    for _ in range(segments):
        kit.fill(log, 3)
        log.roller.roll(kit.now_ms)
    log.close_clean()
    write(world, FIRST, messages(3, magic))
    world.files.remove(f"{world.directory}/{EPOCHS}")
    before = contents(world)
    log = world.load(clean=is_clean, recovery_point=3, high_watermark=2)
    check_refused(log, magic)
    assert contents(world) == before
    assert (log.recovery_point, log.high_watermark, log.topic_id) == (3, 2, TOPIC_ID)
    log.close()


def test_an_old_log_that_was_never_synced_is_not_cleared(world: Any) -> None:
    """Before Kafka 2.8 there was no file that names the topic."""
    world.files.make_directory(world.directory)
    write(world, FIRST, messages(4))
    check_refused(world.load(clean=False))
    assert contents(world) == {FIRST: messages(4)}


@pytest.mark.parametrize("is_clean", [True, False])
def test_old_messages_behind_batches_are_not_cut(world: Any, kit: Any, is_clean: bool) -> None:
    log = world.create()
    kit.fill(log, 3)
    size = log.active.size
    log.close_clean()
    write(world, FIRST, message(3, b"old"), behind=size)
    before = contents(world)[FIRST]
    check_refused(world.load(clean=is_clean, recovery_point=3))
    assert contents(world)[FIRST] == before


def test_who_reads_old_messages_is_told(world: Any, kit: Any) -> None:
    """Where no start looks: in an older segment, behind batches."""
    log = world.create()
    kit.fill(log, 3)
    size = log.active.size
    log.roller.roll(kit.now_ms)
    kit.fill(log, 3)
    log.close_clean()
    write(world, FIRST, message(2, b"old"), behind=size * 2 // 3)
    for kind in ("index", "timeindex"):
        world.files.remove(f"{world.directory}/{0:020d}.{kind}")
    log = world.load(clean=True, recovery_point=6)
    assert not log.is_refused
    with pytest.raises(OldFormat, match="message of format 1"):
        kit.bytes_from(log, 2)


@pytest.mark.parametrize("flip", [8, 11, 12, 16, 17, 30])
def test_damage_that_looks_old_is_cut(world: Any, kit: Any, flip: int) -> None:
    log = world.create()
    kit.fill(log, 3)
    size = log.active.size
    log.close_clean()
    torn = bytearray(message(3, b"old"))
    torn[flip] ^= 2
    write(world, FIRST, bytes(torn), behind=size)
    log = world.load(clean=False)
    assert (log.is_refused, log.log_end_offset) == (False, 3)
    assert log.recovery_report.lost_bytes == len(torn)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_is_known_by_its_checksum(world: Any, magic: int) -> None:
    world.files.make_directory(world.directory)
    whole = message(7, b"v" * 3_000_000, magic)
    write(world, "x", b"in front" + whole)
    file = world.files.open(f"{world.directory}/x")
    assert old_magic_at(file, 8) == magic
    assert old_magic_at(file, 7) is None
    assert old_magic_at(file, file.size - 5) is None
    file.truncate(file.size - 1)
    assert old_magic_at(file, 8) is None
    file.close()


def opened(files: MemoryFiles) -> LogDirectory[Log]:
    directory: LogDirectory[Log] = LogDirectory(files, "/data")
    assert directory.open(*US)

    def load(found: LogToLoad) -> Log:
        return Log.load(files, found, SMALL, now_ms=NOW_MS, random=Random(7))

    assert directory.load_logs(load)
    return directory


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_tables_keep_what_they_say_of_a_refused_log(kit: Any, is_clean: bool) -> None:
    files = MemoryFiles()
    world = kit.world(files, "/data", "memory")
    directory = opened(files)
    log = world.create()
    directory.add(log)
    kit.fill(log, 4)
    log.advance_high_watermark_to(Offset(3))
    assert directory.close_clean(1)
    if not is_clean:
        files.remove("/data/.kafka_cleanshutdown")
    write(world, FIRST, messages(4))
    tables = [n for n in files.list_directory("/data") if n.endswith("checkpoint")]
    before = {name: files.read_bytes(f"/data/{name}") for name in tables}

    directory = opened(files)
    assert directory.logs[PARTITION].is_refused
    assert directory.held == frozenset({(TOPIC_ID, 0)})
    # What was not recovered must not pass for sound when another process reads it.
    assert directory.close_clean(2) is is_clean
    assert directory.offline_reason is None
    assert {name: files.read_bytes(f"/data/{name}") for name in tables} == before
