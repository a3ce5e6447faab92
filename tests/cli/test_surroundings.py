"""The command where a machine is unlike others: places, environment variables, the umask."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from strandline.cli.sentences import sentence_of
from tests.cli.conftest import COMMAND, DEADLINE_S

NOWHERE: Final = "http://127.0.0.1:9"
"""A proxy that is not there: what is sent to it fails."""
PROXIES: Final = {
    name: NOWHERE
    for lower in ("http_proxy", "https_proxy", "all_proxy")
    for name in (lower, lower.upper())
}
KEPT: Final = ("PATH", "PYTHONPATH", "COVERAGE_PROCESS_START")
POWERS: Final = "-dac_override,-dac_read_search"
AS_ANOTHER_USER: Final = (
    ("setpriv", f"--bounding-set={POWERS}", f"--inh-caps={POWERS}")
    if os.geteuid() == 0 and shutil.which("setpriv") is not None
    else ()
)
"""Root without the right to read and write everything."""
PLACE: Final = "data ä 水"
WITHOUT_LOCKS: Final = """
import errno, fcntl, os

def flock(descriptor, operation):
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

fcntl.flock = flock
from strandline.cli.main import main
main()
"""


def surroundings(**more: str) -> dict[str, str]:
    """An environment with nothing but what Python needs: no HOME, no language."""
    return {**{name: os.environ[name] for name in KEPT if name in os.environ}, **more}


@contextmanager
def serving(
    folder: Path, *words: str, umask: int = -1, **environment: str
) -> Iterator[tuple[str, str]]:
    """`strandline serve` in a folder: its address, and what it said."""
    with subprocess.Popen(
        [*COMMAND, "serve", "--listen", "127.0.0.1:0", "--log-level", "error", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        cwd=folder,
        env=surroundings(**environment),
        umask=umask,
    ) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line.startswith("ready"):
                break
        try:
            assert "ready" in said, process.communicate(timeout=DEADLINE_S)
            yield said.partition("PLAINTEXT://")[2].split()[0], said
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=DEADLINE_S)
            assert (process.returncode, out.splitlines()[-1]) == (0, "Stopped cleanly."), err
        finally:
            process.kill()


def run(folder: Path, *words: str, stdin: str = "", **environment: str) -> str:
    """The output of a command that works."""
    ended = subprocess.run(
        [*COMMAND, *words],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        cwd=folder,
        env=surroundings(**environment),
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def modes(folder: Path) -> dict[str, int]:
    """The permissions of all that is below a folder, by name."""
    return {str(each.relative_to(folder)): each.stat().st_mode for each in folder.rglob("*")}


def test_no_home_no_language_proxies_and_a_linked_place_that_all_may_write_to(
    tmp_path: Path,
) -> None:
    (tmp_path / PLACE).mkdir()
    (tmp_path / "linked").symlink_to(PLACE)
    odd = {**PROXIES, "LC_ALL": "C", "TMPDIR": str(tmp_path / "there is no such folder")}
    page = ("--ui", "--ui-port", "0", "--faults")
    with serving(tmp_path, "--data-dir", "linked/a", *page, umask=0, **odd) as (address, said):
        assert f"data        {tmp_path / 'linked' / 'a'}\n" in said
        where = said.partition("page        ")[2].split()[0]
        look = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).status)"
        direct = surroundings()
        asked = [sys.executable, "-c", look, where]
        assert subprocess.check_output(asked, env=direct, text=True) == "200\n"
        run(tmp_path, "-b", address, "produce", "t", stdin="one\n", **odd)
        read = ("-b", address, "consume", "t", "--offset", "earliest", "-e")
        assert run(tmp_path, *read, **odd) == "one\n"
        assert run(tmp_path, "-b", address, "fault", "slow-disk", "1", **odd)
    made = modes(tmp_path / PLACE)
    assert any(name.endswith("t-0/00000000000000000000.log") for name in made)
    assert not [name for name, mode in made.items() if mode & stat.S_IWOTH]


def test_a_strict_umask_is_kept(tmp_path: Path) -> None:
    with serving(tmp_path, "--data-dir", "data", umask=0o077) as (address, _):
        run(tmp_path, "-b", address, "produce", "t", stdin="one\n")
    made = modes(tmp_path)
    assert "data/t-0" in made
    assert not [name for name, mode in made.items() if mode & (stat.S_IRWXG | stat.S_IRWXO)]


def a_file(place: Path) -> None:
    place.write_text("letters")


def below_a_file(place: Path) -> None:
    place.parent.rmdir()
    place.parent.write_text("letters")


def a_link_to_nothing(place: Path) -> None:
    place.symlink_to("nowhere")


def a_link_to_itself(place: Path) -> None:
    place.symlink_to(place)


def not_to_be_written(place: Path) -> None:
    place.parent.chmod(0o555)
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and setpriv is not installed")


def not_to_be_read(place: Path) -> None:
    place.mkdir()
    (place / "meta.properties").touch(mode=0o000)
    not_to_be_written(place)


@pytest.mark.parametrize(
    "occupy",
    [a_file, below_a_file, a_link_to_nothing, a_link_to_itself, not_to_be_written, not_to_be_read],
)
@pytest.mark.parametrize("brokers", ["1", "2"])
def test_a_place_that_cannot_be_used(
    tmp_path: Path, occupy: Callable[[Path], None], brokers: str
) -> None:
    options = ("--listen", "127.0.0.1:0", "--brokers", brokers)
    place = tmp_path / "folder" / "data"
    place.parent.mkdir()
    occupy(place)
    ended = subprocess.run(
        [*AS_ANOTHER_USER, *COMMAND, "serve", *options, "--data-dir", place],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: Cannot ")
    assert str(place) in ended.stderr
    assert ended.stderr.endswith("Choose another directory with --data-dir DIR or log.dirs.\n")


def test_a_file_system_without_locks(tmp_path: Path) -> None:
    words = ("serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_LOCKS, *words],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        f"Error: The file system of {tmp_path}/data/metadata.lock refuses to lock files "
        f"({os.strerror(errno.EOPNOTSUPP)}). Without a lock two brokers could write to the same "
        "data. Choose another directory with --data-dir DIR or log.dirs."
    )


def test_an_error_of_the_system_without_a_file_is_its_sentence() -> None:
    assert sentence_of(FileNotFoundError(2, "No usable temporary directory found")) == (
        "No usable temporary directory found"
    )
    assert sentence_of(PermissionError(13, "Permission denied", "/x")) == "/x: Permission denied."


def test_closed_standard_streams(tmp_path: Path) -> None:
    """As some supervisors start programs: nothing to read, and what is printed is lost, which is
    said where it can be."""
    with serving(tmp_path, "--data-dir", "data") as (address, _):

        def ended(streams: str, *words: str) -> tuple[int, str]:
            script = f'exec "$@" {streams}'
            done = subprocess.run(
                ["sh", "-c", script, "sh", *COMMAND, "-b", address, *words],
                stderr=subprocess.PIPE,
                encoding="utf-8",
                timeout=DEADLINE_S,
                check=False,
            )
            return done.returncode, done.stderr

        run(tmp_path, "-b", address, "produce", "t", stdin="one\n")
        code, said = ended("<&-", "produce", "t")
        assert (code, said[:10]) == (0, "0 records ")
        refused = (1, "strandline: Bad file descriptor\n")
        for words in (("consume", "t", "-e"), ("topics", "list"), ("status", "--json")):
            assert ended(">&-", *words) == refused
        assert ended(">&-", "dump", str(tmp_path / "data" / "t-0")) == refused
        assert ended(">&- 2>&-", "topics", "list") == (1, "")
        assert ended(">/dev/null 2>&-", "topics", "list") == (0, "")


def test_bytes_that_are_not_utf_8(tmp_path: Path) -> None:
    """A separator may be any; names are sent as UTF-8."""
    with serving(tmp_path, "--data-dir", "data") as (address, _):
        separator: tuple[str, bytes] = ("--key-separator", b"\xff")
        produce: list[str | bytes] = [*COMMAND, "-b", address, "produce", "t", *separator]
        subprocess.run(produce, input=b"k\xffv\n", check=True, timeout=DEADLINE_S)
        read = ("consume", "t", "-e", "--offset", "earliest", "--format", "%k %s")
        assert run(tmp_path, "-b", address, *read) == "k v"
        for words in (("topics", "describe"), ("groups", "describe")):
            command: list[str | bytes] = [*COMMAND, "-b", address, *words, b"\xff"]
            wrong = subprocess.run(
                command,
                capture_output=True,
                timeout=DEADLINE_S,
                check=False,
            )
            assert wrong.stderr == b"strandline: '\\udcff' cannot be sent: it is not UTF-8.\n"
            assert wrong.returncode == 1
