"""Running out of descriptors: idle files give theirs up, and what cannot be done breaks nothing."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.errors import StorageError
from strandline.storage.file_handles import FileHandles
from strandline.storage.files import File, LostWrites, NoRoom, OutOfHandles
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.real_files import RealFiles
from strandline.storage.system_calls import sync_data


class Scarcity:
    """The operating system, which gives `left` more descriptors and counts those that come back."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left = 1000
        self._taken: set[int] = set()
        self._open, self._dup, self._close = os.open, os.dup, os.close
        patch.setattr(os, "open", lambda *a, **k: self._take(self._open, *a, **k))
        patch.setattr(os, "dup", lambda *a: self._take(self._dup, *a))
        patch.setattr(os, "close", self._give_back)

    def _take(self, call: object, *arguments: object, **named: object) -> int:
        if self.left <= 0:
            self._find_closed()
        if self.left <= 0:
            raise OSError(errno.EMFILE, "Too many open files")
        descriptor: int = call(*arguments, **named)  # type: ignore[operator]
        self._taken.add(descriptor)
        self.left -= 1
        return descriptor

    def _find_closed(self) -> None:
        """Also file objects close descriptors."""
        for descriptor in list(self._taken):
            try:
                os.fstat(descriptor)
            except OSError:
                self._taken.remove(descriptor)
                self.left += 1

    def _give_back(self, descriptor: int) -> None:
        self._close(descriptor)
        if descriptor in self._taken:
            self._taken.remove(descriptor)
            self.left += 1


@pytest.fixture
def scarcity(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scarcity]:
    with monkeypatch.context() as patch:
        yield Scarcity(patch)


def several(files: RealFiles, directory: Path, count: int) -> list[File]:
    return [files.open(f"{directory}/{number}", create=True) for number in range(count)]


def test_files_go_on_with_what_descriptors_there_are(tmp_path: Path, scarcity: Scarcity) -> None:
    """The budget is wrong: the process has less than it was promised."""
    handles = FileHandles(100)
    opened = several(RealFiles(handles=handles), tmp_path, 8)
    scarcity.left = 3
    for _ in range(3):
        for number, file in enumerate(opened):
            file.append(b"%d" % number)
    assert handles.count <= 3
    assert [file.read_at(0, 9) for file in opened] == [b"%d" % n * 3 for n in range(8)]
    assert handles.refused > 0


def test_what_needs_a_descriptor_for_a_moment_gets_that_of_an_idle_file(
    tmp_path: Path, scarcity: Scarcity
) -> None:
    files = RealFiles(handles=FileHandles(100))
    (file,) = several(files, tmp_path, 1)
    for work in (
        lambda: files.sync_directory(str(tmp_path)),
        lambda: files.write_atomically(f"{tmp_path}/table", b"x"),
        lambda: files.read_bytes(f"{tmp_path}/table"),
        lambda: files.open(f"{tmp_path}/new", create=True),
        file.sync,
    ):
        scarcity.left = 1000
        file.append(b"a")
        scarcity.left = 0
        work()


def test_the_reserve_serves_threads_that_may_close_no_file(
    tmp_path: Path, scarcity: Scarcity
) -> None:
    handles = FileHandles(100)
    files = RealFiles(handles=handles)
    (file,) = several(files, tmp_path, 1)
    file.append(b"a")
    handles.hold_reserve(2)
    scarcity.left = 0
    outcomes: list[object] = []

    def sync() -> None:
        for _ in range(3):
            try:
                file.sync()
                outcomes.append(None)
                scarcity.left = 0  # another one was faster to take what came back
            except StorageError as error:
                outcomes.append(error)

    thread = threading.Thread(target=sync)
    thread.start()
    thread.join()
    assert outcomes[:2] == [None, None]
    assert isinstance(outcomes[2], OutOfHandles)
    assert not file.failed, "nothing was asked of the disk"
    scarcity.left = 5
    file.sync()
    handles.close_idle()
    scarcity.left = 0
    files.sync_directory(str(tmp_path))  # the reserve was filled up again
    handles.hold_reserve(0)


def test_when_nothing_is_left_at_all_the_error_says_that_nothing_is_broken(
    tmp_path: Path, scarcity: Scarcity
) -> None:
    """EMFILE is not EIO: a file that cannot be opened is as good as before."""
    files = RealFiles(handles=FileHandles(100))
    (file,) = several(files, tmp_path, 1)
    scarcity.left = 0
    for work in (lambda: file.append(b"b"), lambda: file.read_at(0, 1), file.sync):
        with pytest.raises(OutOfHandles, match="Too many open files"):
            work()
    for call in (
        lambda: files.open(f"{tmp_path}/new", create=True),
        lambda: files.write_atomically(f"{tmp_path}/table", b"x"),
        lambda: files.sync_directory(str(tmp_path)),
        lambda: files.lock(f"{tmp_path}/.lock"),
    ):
        with pytest.raises(NoRoom):
            call()
    scarcity.left = 1000
    file.append(b"c")
    file.sync()
    assert (file.read_at(0, 9), file.failed) == (b"c", False)


def test_files_at_rest_hold_nothing(tmp_path: Path) -> None:
    handles = FileHandles(100)
    files = RealFiles(handles=handles)
    opened = several(files, tmp_path, 5)
    for file in opened:
        file.append(b"a")
    journal = files.open(f"{tmp_path}/journal", create=True)
    journal.keep_open()
    assert handles.close_idle() == 0
    opened[2].append(b"b")
    assert handles.close_idle() == 4
    assert handles.close_idle() == 1
    assert handles.count == 1, "a file that is kept open is never at rest"
    assert [file.read_at(0, 2) for file in opened] == [b"a", b"a", b"ab", b"a", b"a"]


def test_a_file_that_is_kept_open_needs_no_descriptor_any_more(
    tmp_path: Path, scarcity: Scarcity
) -> None:
    handles = FileHandles(1)
    files = RealFiles(handles=handles)
    journal, other = several(files, tmp_path, 2)
    journal.keep_open()
    other.append(b"a")
    handles.give_way(10)
    scarcity.left = 0
    journal.append(b"b")
    journal.sync()
    assert journal.read_at(0, 9) == b"b"
    journal.close()
    assert handles.count == 0


def test_a_failed_sync_of_the_disk_is_told_from_one_that_was_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = several(RealFiles(), tmp_path, 1)
    file.append(b"a")
    full = OSError(errno.ENOSPC, "No space left on device")

    def fail(descriptor: int) -> None:
        sync_data(descriptor)
        raise full

    monkeypatch.setattr("strandline.storage.real_files.sync_data", fail)
    with pytest.raises(LostWrites) as raised:
        file.sync()
    assert isinstance(raised.value.shortage, NoRoom)
    assert file.failed


def test_files_in_memory_tell_it_apart_too() -> None:
    files = MemoryFiles()
    file = files.open("/f", create=True)
    file.append(b"a")

    def starve(operation: str, path: str) -> None:
        raise OutOfHandles(f"Cannot {operation} {path}: Too many open files.")

    files.on_call = starve
    for work in (lambda: file.append(b"b"), lambda: file.read_at(0, 1), file.sync):
        with pytest.raises(OutOfHandles):
            work()
    files.on_call = None
    file.sync()
    assert (file.read_at(0, 9), file.failed) == (b"a", False)
