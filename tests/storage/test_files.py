"""Both file systems keep the contract of `files`; and each can fail in its own way."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from strandline.errors import StorageError
from strandline.storage import real_files, real_lock, system_calls
from strandline.storage.files import (
    DiskFull,
    Files,
    LockHeld,
    LostWrites,
    MissingFile,
    NoRoom,
    OutOfHandles,
    UnreadableFile,
    join,
    name_of,
    parent_of,
    sync_new,
)
from strandline.storage.memory_files import MemoryFiles, ProcessEnded, UsedAfterEnd
from strandline.storage.memory_inodes import PowerCut
from strandline.storage.real_files import RealFiles


@pytest.fixture(params=["real", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    return RealFiles() if request.param == "real" else MemoryFiles()


@pytest.fixture
def place(files: Files, tmp_path: Path) -> str:
    path = f"{tmp_path}/place"
    files.make_directory(path)
    return path


def test_paths() -> None:
    assert join("/a", "b") == join("/a/", "b") == "/a/b"
    assert (parent_of("/a/b"), parent_of("/a"), name_of("/a/b")) == ("/a", "/", "b")


def test_a_file_is_appended_read_overwritten_and_cut(files: Files, place: str) -> None:
    file = files.open(f"{place}/f", create=True)
    file.append(b"abc")
    file.append_all([b"de", bytearray(b"f"), memoryview(b"ghi")])
    assert (file.size, file.read_at(0, 99), file.read_at(4, 2)) == (9, b"abcdefghi", b"ef")
    assert file.read_at(9, 5) == file.read_at(50, 5) == b""
    file.write_at(1, b"XY")
    file.write_at(11, b"Z")
    assert file.read_at(0, 99) == b"aXYdefghi\0\0Z"
    file.truncate(2)
    file.truncate(4)
    assert (file.size, file.read_at(0, 99)) == (4, b"aX\0\0")
    file.sync()
    file.close()
    with pytest.raises(StorageError, match="closed"):
        file.append(b"late")
    assert files.read_bytes(f"{place}/f") == b"aX\0\0"


def test_many_buffers_are_written_in_one_append(files: Files, place: str) -> None:
    file = files.open(f"{place}/f", create=True)
    buffers = [b"%04d" % number for number in range(3000)]
    file.append_all(buffers)
    assert file.read_at(0, 12000) == b"".join(buffers)


def test_reserved_space_does_not_count(files: Files, place: str) -> None:
    file = files.open(f"{place}/f", create=True)
    file.reserve(5000)
    file.append(b"abc")
    assert (file.size, file.read_at(0, 100)) == (3, b"abc")
    assert files.read_bytes(f"{place}/f") == b"abc".ljust(5000, b"\0")
    file.truncate(file.size)
    assert files.size_of(f"{place}/f") == 3


def test_what_is_not_there_is_a_missing_file(files: Files, place: str) -> None:
    path = f"{place}/none"
    for act in (
        lambda: files.open(path),
        lambda: files.read_bytes(path),
        lambda: files.size_of(path),
        lambda: files.modified_ms(path),
        lambda: files.list_directory(path),
        lambda: files.rename(path, place + "/x"),
        lambda: files.sync_directory(path),
    ):
        with pytest.raises(MissingFile, match="none"):
            act()
    assert not files.exists(path)
    assert not files.remove(path)
    files.remove_tree(path)


def test_names_are_listed_renamed_and_removed(files: Files, place: str) -> None:
    files.make_directory(f"{place}/d/e")
    files.make_directory(f"{place}/d/e")
    for name in ("b", "a"):
        files.open(f"{place}/d/{name}", create=True).append(name.encode())
    assert files.list_directory(f"{place}/d") == ["a", "b", "e"]
    assert files.is_directory(f"{place}/d/e")
    assert not files.is_directory(f"{place}/d/a")
    files.rename(f"{place}/d/a", f"{place}/d/b")
    assert files.read_bytes(f"{place}/d/b") == b"a"
    files.rename(f"{place}/d", f"{place}/moved")
    assert files.remove(f"{place}/moved/b")
    files.remove_tree(f"{place}/moved")
    assert files.list_directory(place) == []
    files.sync_directory(place)
    assert 0 < files.free_bytes(place) <= files.total_bytes(place)


def test_a_renamed_file_stays_usable(files: Files, place: str) -> None:
    file = files.open(f"{place}/f", create=True)
    file.append(b"abc")
    files.rename(f"{place}/f", f"{place}/g")
    file.moved_to(f"{place}/g")
    file.append(b"d")
    file.sync()
    assert files.read_bytes(f"{place}/g") == b"abcd"


def test_atomic_writing_replaces_all_or_nothing(files: Files, place: str) -> None:
    files.write_atomically(f"{place}/f", b"long contents")
    files.write_atomically(f"{place}/f", b"short")
    assert files.read_bytes(f"{place}/f") == b"short"
    assert files.list_directory(place) == ["f"]


def test_a_lock_is_held_once(files: Files, place: str) -> None:
    if isinstance(files, RealFiles):
        script = (
            "import sys; from strandline.storage.real_files import RealFiles\n"
            "try: RealFiles().lock(sys.argv[1])\n"
            "except Exception as error: print(type(error).__name__)\n"
        )
        with files.lock(f"{place}/.lock"):
            command = [sys.executable, "-c", script, f"{place}/.lock"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            assert done.stdout.strip() == "LockHeld"
    with files.lock(f"{place}/.lock"), pytest.raises(LockHeld):
        files.lock(f"{place}/.lock")
    files.lock(f"{place}/.lock").release()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(real_lock, "lock_exclusively", refuse)
    with pytest.raises(StorageError, match=r"refuses to lock files .*two brokers") as refused:
        RealFiles().lock(f"{tmp_path}/.lock")
    assert not isinstance(refused.value, LockHeld)


# -- Real files ------------------------------------------------------------------------------------


def test_open_handles_stay_few(tmp_path: Path) -> None:
    files = RealFiles(open_handles_max=4)
    opened = [files.open(f"{tmp_path}/{number}", create=True) for number in range(50)]
    for turn in range(3):
        for number, file in enumerate(opened):
            file.append(b"%d" % turn)
            opened[0].append(b".")
            assert files.open_handles <= 4
            assert file.size == (turn + 1 if number else opened[0].size)
    assert [file.read_at(0, 9) for file in opened[1:]] == [b"012"] * 49
    for file in opened:
        file.sync()
        file.close()
    assert files.open_handles == 0


def test_closed_files_leave_the_clock(tmp_path: Path) -> None:
    files = RealFiles(open_handles_max=3)
    for number in range(100):
        file = files.open(f"{tmp_path}/{number}", create=True)
        file.append(b"x")
        file.close()
    assert files.open_handles == 0


def _failing(*results: Any) -> Any:
    left = list(results)

    def call(*arguments: Any) -> Any:
        result = left.pop(0)
        if isinstance(result, OSError):
            raise result
        return result(*arguments)

    return call


def test_a_short_write_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealFiles().open(f"{tmp_path}/f", create=True)
    whole = os.pwrite

    def short(descriptor: int, data: bytes, position: int) -> int:
        return whole(descriptor, bytes(data)[:2], position)

    monkeypatch.setattr(os, "pwrite", short)
    file.append(b"abcdefg")
    assert (file.size, file.read_at(0, 9)) == (7, b"abcdefg")


@pytest.mark.parametrize("many", [False, True])
def test_a_failed_append_is_cut_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    file = RealFiles().open(f"{tmp_path}/f", create=True)
    file.append(b"abc")
    full = OSError(errno.ENOSPC, "No space left on device")
    write, write_all = os.pwrite, system_calls.write_buffers
    monkeypatch.setattr(
        os,
        "pwrite",
        _failing(*([] if many else [lambda f, d, p: write(f, bytes(d)[:2], p)]), full),
    )
    monkeypatch.setattr(
        real_files, "write_buffers", _failing(lambda f, b, p: write_all(f, [b[0]], p))
    )
    with pytest.raises(StorageError, match="No space left"):
        file.append_all([b"de", b"fg"]) if many else file.append(b"defg")
    assert (file.size, file.failed) == (3, False)
    assert os.stat(f"{tmp_path}/f").st_size == 3
    monkeypatch.undo()
    file.append(b"d")
    assert file.read_at(0, 9) == b"abcd"


def test_a_failed_write_lets_go_of_what_was_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealFiles().open(str(tmp_path / "f"), create=True)
    full = OSError(errno.ENOSPC, "No space left on device")
    data = bytearray(b"abc")
    monkeypatch.setattr(os, "pwrite", _failing(full, lambda *_: 1, full))
    with pytest.raises(DiskFull) as at_a_place:
        file.write_at(0, data)
    with pytest.raises(DiskFull) as at_the_end:
        file.append(data)
    data.clear()  # a log that cannot be closed for want of room gives up what waits for its index
    del at_a_place, at_the_end


def test_a_file_that_cannot_be_cut_back_refuses_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealFiles().open(f"{tmp_path}/f", create=True)
    broken = OSError(errno.EIO, "Input/output error")
    monkeypatch.setattr(os, "pwrite", _failing(broken))
    monkeypatch.setattr(os, "ftruncate", _failing(broken))
    with pytest.raises(StorageError, match="cutting it back"):
        file.append(b"x")
    monkeypatch.undo()
    acts: tuple[Callable[[], object], ...] = (
        lambda: file.append(b"x"),
        lambda: file.append_all([b"x"]),
        lambda: file.write_at(0, b"x"),
        lambda: file.truncate(0),
        file.sync,
    )
    for act in acts:
        with pytest.raises(StorageError, match="earlier write or sync failed"):
            act()


def test_what_a_disk_does_not_give_back_is_told_from_other_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-47: no descriptor left, for one, is no reason to give a disk up."""
    files = RealFiles()
    file = files.open(f"{tmp_path}/f", create=True)
    file.append(b"x")
    monkeypatch.setattr(os, "pread", _failing(OSError(errno.EIO, "I/O error")))
    with pytest.raises(UnreadableFile, match="I/O error"):
        file.read_at(0, 1)
    monkeypatch.undo()
    assert file.read_at(0, 1) == b"x"
    file = RealFiles().open(f"{tmp_path}/f")
    monkeypatch.setattr(os, "open", _failing(OSError(errno.EMFILE, "Too many")))
    with pytest.raises(StorageError, match="Too many") as raised:
        file.read_at(0, 1)
    assert not isinstance(raised.value, UnreadableFile)


def test_a_failed_sync_is_never_forgiven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F-45: after an error the kernel calls the next fsync a success, with the data gone."""
    file = RealFiles().open(f"{tmp_path}/f", create=True)
    file.append(b"x")
    monkeypatch.setattr(real_files, "sync_data", _failing(OSError(errno.EIO, "I/O error")))
    with pytest.raises(StorageError, match="I/O error"):
        file.sync()
    monkeypatch.undo()
    with pytest.raises(StorageError, match="earlier write or sync failed"):
        file.sync()


@pytest.mark.parametrize(
    ("number", "shortage"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.ENOMEM, NoRoom),
        (errno.EMFILE, OutOfHandles),  # of a network file system, for one
        (errno.EIO, None),
    ],
)
def test_no_failed_sync_is_a_want_of_room_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    shortage: type[NoRoom] | None,
) -> None:
    """The kernel calls the pages clean whatever the reason was."""
    file = RealFiles().open(f"{tmp_path}/f", create=True)
    file.append(b"x")
    monkeypatch.setattr(real_files, "sync_data", _failing(*[OSError(number, "The reason")] * 2))
    with pytest.raises(LostWrites, match="The reason") as raised:
        file.sync()
    assert file.failed
    assert type(raised.value.shortage) is (shortage or type(None))
    again = RealFiles().open(f"{tmp_path}/f")
    with pytest.raises(shortage or LostWrites):  # what is made anew may be made when there is room
        sync_new(again)
    monkeypatch.undo()


def test_a_sync_that_was_not_begun_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealFiles().open(f"{tmp_path}/f", create=True)
    file.append(b"x")
    with monkeypatch.context() as without_handles:
        for name in ("open", "dup"):
            without_handles.setattr(os, name, _failing(OSError(errno.EMFILE, "Too many")))
        with pytest.raises(OutOfHandles):
            file.sync()
    assert not file.failed
    file.sync()


@pytest.mark.parametrize("kind", [DiskFull, NoRoom, StorageError, OutOfHandles])
def test_in_memory_a_failed_sync_is_what_it_is_on_a_disk(kind: type[StorageError]) -> None:
    files = MemoryFiles()
    file = files.open("/f", create=True)

    def fail(operation: str, path: str) -> None:
        if operation == "sync":
            raise kind(f"Cannot sync {path}: it is a test.")

    files.on_call = fail
    # Only for want of a handle nothing was asked of the disk.
    with pytest.raises(OutOfHandles if kind is OutOfHandles else LostWrites):
        file.sync()
    assert file.failed == (kind is not OutOfHandles)
    with pytest.raises(kind):
        files.write_atomically("/checkpoint", b"x")
    files.on_call = None
    files.write_atomically("/checkpoint", b"x")


def test_syncing_in_another_thread_while_handles_come_and_go(tmp_path: Path) -> None:
    files = RealFiles(open_handles_max=2)
    opened = [files.open(f"{tmp_path}/{number}", create=True) for number in range(6)]
    failures: list[StorageError | OSError] = []
    stop = threading.Event()

    def sync_all() -> None:
        try:
            while not stop.is_set():
                for file in opened:
                    file.sync()
        except (StorageError, OSError) as error:
            failures.append(error)

    thread = threading.Thread(target=sync_all)
    thread.start()
    for _ in range(300):
        for file in opened:
            file.append(b"x")
    stop.set()
    thread.join()
    assert not failures
    assert all(file.read_at(0, 999) == b"x" * 300 for file in opened)


# -- Memory files ----------------------------------------------------------------------------------


def test_a_full_disk_refuses_and_keeps_what_it_has() -> None:
    files = MemoryFiles(capacity_bytes=10)
    file = files.open("/f", create=True)
    file.append(b"12345678")
    with pytest.raises(StorageError, match="No space left"):
        file.append(b"abc")
    assert file.read_at(0, 99) == b"12345678"
    file.truncate(2)
    assert files.free_bytes("/") == 8
    file.append(b"abc")
    files.remove("/f")
    assert files.free_bytes("/") == 10


def test_without_luck_only_what_was_synced_survives() -> None:
    files = MemoryFiles()
    files.make_directory("/d")
    files.sync_directory("/")
    kept = files.open("/d/kept", create=True)
    kept.append(b"synced")
    kept.sync()
    files.sync_directory("/d")
    kept.append(b" and not")
    files.open("/d/unnamed", create=True).sync()
    clone = files.crash_clone()
    assert clone.list_directory("/d") == ["kept"]
    assert clone.read_bytes("/d/kept") == b"synced"
    assert files.kill_clone().read_bytes("/d/kept") == b"synced and not"


def test_crash_images_are_seeded_and_differ() -> None:
    files = MemoryFiles()
    file = files.open("/f", create=True)
    files.sync_directory("/")
    file.append(b"a" * 2000)
    file.sync()
    file.append(b"b" * 2000)
    file.write_at(0, b"c" * 700)
    images = [files.crash_clone(Random(seed)).read_bytes("/f") for seed in range(50)]
    assert images == [files.crash_clone(Random(seed)).read_bytes("/f") for seed in range(50)]
    assert {len(image) for image in images} >= {2000, 4000}
    assert any(image.startswith(b"a" * 512 + b"c" * 188) for image in images), "holes occur"
    assert all(2000 <= len(image) <= 4000 for image in images)


def _listings(files: MemoryFiles, mode: PowerCut) -> set[tuple[str, ...]]:
    return {tuple(files.crash_clone(Random(seed), mode).list_directory("/")) for seed in range(200)}


def test_names_survive_in_the_order_in_which_they_changed() -> None:
    files = MemoryFiles()
    for name in "abc":
        files.open(f"/{name}", create=True)
    files.rename("/a", "/z")
    in_order = {(), ("a",), ("a", "b"), ("a", "b", "c"), ("b", "c", "z")}
    assert _listings(files, "prefix") == in_order
    assert _listings(files, "none") == {()}
    assert _listings(files, "all") == _listings(files, "torn") == {("b", "c", "z")}
    # Without an order what does not build upon something lost may survive by itself.
    some_of = {tuple(n for n in names if n in "abcz") for names in (("a",), ("z",), ())}
    assert _listings(files, "hole") == {
        tuple(sorted((*first, *rest)))
        for first in some_of
        for rest in ((), ("b",), ("c",), ("b", "c"))
    }
    assert _listings(files, "any") >= in_order


def test_the_next_process_has_the_page_cache_and_the_last_one_nothing() -> None:
    files = MemoryFiles()
    old = files.open("/f", create=True)
    files.sync_directory("/")
    old.append(b"durable")
    old.sync()
    old.append(b", not yet")
    lock = files.lock("/.lock")
    following = files.next_process()
    assert following.read_bytes("/f") == b"durable, not yet"
    assert following.durable_end("/f") == 7
    assert following.crash_clone().read_bytes("/f") == b"durable"
    following.lock("/.lock").release()
    for use in (
        lambda: old.append(b"x"),
        lambda: old.read_at(0, 1),
        old.sync,
        lambda: files.read_bytes("/f"),
        lambda: files.remove("/f"),
        lambda: files.lock("/other"),
    ):
        with pytest.raises(UsedAfterEnd):
            use()
    old.close()
    lock.release()
    assert following.read_bytes("/f") == b"durable, not yet"


def test_a_process_can_end_in_the_middle_of_an_append() -> None:
    files = MemoryFiles()
    file = files.open("/f", create=True)
    file.append(b"whole")

    def end(operation: str, path: str) -> None:
        raise ProcessEnded(0.5, "test")

    files.on_call = end
    with pytest.raises(ProcessEnded):
        file.append(b"half")
    assert files.next_process().read_bytes("/f") == b"wholeha"


def test_holes_take_no_room() -> None:
    files = MemoryFiles(capacity_bytes=100)
    file = files.open("/f", create=True)
    file.truncate(1 << 20)
    assert (file.size, files.size_of("/f"), files.free_bytes("/")) == (1 << 20, 1 << 20, 100)
    file.write_at(10, b"x")
    assert file.read_at(5, 10) == bytes(5) + b"x" + bytes(4)
    assert (len(files.read_bytes("/f")), files.free_bytes("/")) == (1 << 20, 89)


def test_every_call_can_be_made_to_fail() -> None:
    calls: list[str] = []
    files = MemoryFiles(on_call=lambda operation, path: calls.append(operation))
    file = files.open("/f", create=True)
    file.append(b"x")
    file.sync()
    assert calls == ["create", "append", "sync"]

    def refuse(operation: str, path: str) -> None:
        raise StorageError(f"{operation} {path}")

    files.on_call = refuse
    with pytest.raises(StorageError):
        file.sync()
    files.on_call = lambda operation, path: None
    with pytest.raises(StorageError, match="earlier"):
        file.append(b"y")
    with pytest.raises(StorageError, match="in memory"):
        file.fileno()
