"""What stands in for the calls that a system does not have keeps the same promise."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.storage import system_calls
from strandline.storage.real_files import RealFiles


def test_the_full_barrier_is_used_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On macOS fsync is none: the drive may lose what it was only handed."""
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(system_calls, "_FULL_SYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", lambda fd, what: calls.append((fd, what)))
    monkeypatch.setattr(system_calls, "_sync_file", _never)
    monkeypatch.setattr(os, "fsync", _never)
    file = RealFiles().open(f"{tmp_path}/f", create=True)
    file.append(b"x")
    file.sync()
    RealFiles().write_atomically(f"{tmp_path}/g", b"y")
    assert [what for _, what in calls] == [51, 51, 51]  # the file, the other, its directory


def test_a_disk_without_the_full_barrier_is_synced_as_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([errno.ENOTSUP, errno.EIO])
    synced: list[int] = []

    def refuse(descriptor: int, command: int) -> int:
        raise OSError(next(answers), f"{descriptor} {command}")

    monkeypatch.setattr(system_calls, "_FULL_SYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    monkeypatch.setattr(system_calls, "_sync_file", synced.append)
    system_calls.sync_data(7)
    assert synced == [7]
    with pytest.raises(OSError, match="7 51") as raised:  # a disk that fails is not forgiven
        system_calls.sync_data(7)
    assert raised.value.errno == errno.EIO
    assert synced == [7]


def _never(*arguments: object) -> None:
    raise AssertionError(f"A plain fsync of {arguments} in place of the barrier.")


def test_space_is_claimed_with_zeros_where_there_is_no_call_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_calls, "_allocate", None)
    file = RealFiles().open(f"{tmp_path}/f", create=True)
    file.append(b"abc")
    file.reserve(3_000_000)
    status = os.stat(f"{tmp_path}/f")
    assert (file.size, status.st_size) == (3, 3_000_000)
    assert status.st_blocks * 512 >= 3_000_000
    file.append(b"de")
    assert Path(f"{tmp_path}/f").read_bytes()[:8] == b"abcde\0\0\0"


def test_buffers_are_written_without_the_call_for_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_calls, "_write_vector", None)
    file = RealFiles().open(f"{tmp_path}/f", create=True)
    file.append_all([b"ab", bytearray(b"c"), memoryview(b"de")] * 1000)
    assert file.read_at(0, 9999) == b"abcde" * 1000


def test_a_range_is_sent_by_reading_it_where_there_is_no_sendfile_to_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_calls, "_send_file", None)
    Path(f"{tmp_path}/f").write_bytes(bytes(range(256)) * 8192)
    ours, theirs = socket.socketpair()
    with ours, theirs, open(f"{tmp_path}/f", "rb") as file:
        ours.setblocking(False)
        out = ours.fileno()
        assert system_calls.send_range(out, file.fileno(), 1, 3) == 3
        assert theirs.recv(9) == b"\1\2\3"
        position = 0
        sent: int | None = 0
        while sent is not None:
            position += sent
            sent = _sent(out, file.fileno(), position)
        taken = 0
        while taken < position:
            taken += len(theirs.recv(1 << 20))
        assert taken == position
        assert system_calls.send_range(out, file.fileno(), 1 << 21, 5) == 0


def _sent(socket: int, file: int, position: int) -> int | None:
    try:
        return system_calls.send_range(socket, file, position, 1 << 30)
    except BlockingIOError:
        return None


def test_the_tests_can_be_run_with_linuxs_own_calls_taken_away() -> None:
    """The directory that `./check` puts on PYTHONPATH does what it says, in child processes too."""
    there = Path(__file__).parents[1] / "without_linux"
    code = (
        "import os, select, strandline.storage.system_calls as calls\n"
        "print([hasattr(os, n) for n in ('fdatasync', 'posix_fallocate', 'sendfile', 'pwritev')],\n"
        "      hasattr(select, 'epoll'), calls._send_file, calls._FULL_SYNC)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(there)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "[False, False, False, False] False None 51\n"


def test_windows_gets_a_sentence() -> None:
    code = "import sys; sys.platform = 'win32'; import strandline.cli.main"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "WSL" in run.stderr
    assert "Traceback" not in run.stderr
