"""A bare Debian in a folder: made by debootstrap, entered in namespaces of its own.

It has what `git clone` and `python3` need, and nothing else. Network, certificates and pip's
configuration are those of the machine around it, copied in. Needs root, `debootstrap`, `unshare`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

USER: Final = "ann"
PACKAGES: Final = "git,python3,ca-certificates"
COPIED: Final = ("/etc/resolv.conf", "/etc/pip.conf")
AUTHORITIES: Final = "usr/local/share/ca-certificates"
"""Where Debian keeps what this machine's proxy signs with: Java installs from there, too."""
HOSTS: Final = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"

# The machine's own name is not among them: many a laptop's is not resolved, either.
ENTER: Final = """
mount --make-rprivate /
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/dev/shm"
root=$1 user=$2 home=$3
shift 3
exec chroot --userspec="$user:$user" "$root" /usr/bin/env -i HOME="$home" \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line that was printed, and how long after the start."""

    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class Run:
    """What a command did."""

    code: int
    lines: list[Line]

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines)

    @property
    def seconds(self) -> float:
        return self.lines[-1].seconds if self.lines else 0.0

    def seconds_until(self, word: str) -> float | None:
        """When a line with this word came."""
        return next((line.seconds for line in self.lines if word in line.text), None)


class BareDebian:
    """One that is changed by what is run in it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def add_clone(self, source: Path, user: str, folder: str = "strandline") -> None:
        """A clone of this checkout's commit, in the home of a user."""
        home = self._root / _home(user).lstrip("/")
        subprocess.run(["git", "clone", "-q", source, home / folder], check=True)
        if user != "root":
            self.run("root", f"chown -R {user}:{user} {_home(user)}")

    def run(self, user: str, command: str, *, echo: bool = False) -> Run:
        """Let bash run it in the user's home."""
        began = time.monotonic()
        process = subprocess.Popen(
            [
                *("unshare", "-m", "-p", "-f", "--kill-child", "bash", "-c", ENTER, "enter"),
                *(str(self._root), user, _home(user)),
                *("bash", "-c", f'cd "$HOME" && {command}'),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        assert process.stdout is not None
        lines = []
        for text in process.stdout:
            lines.append(Line(time.monotonic() - began, text.rstrip()))
            if echo:
                print(f"{lines[-1].seconds:7.1f}  {lines[-1].text}", flush=True)
        return Run(process.wait(), lines)

    def exists(self, path: str) -> bool:
        return (self._root / path.lstrip("/")).exists()


def _home(user: str) -> str:
    return "/root" if user == "root" else f"/home/{user}"


def make_base(suite: str, directory: Path) -> Path:
    """The folder of a bare Debian that is copied for each try; made once."""
    base = directory / f"base-{suite}"
    if not (base / "made").exists():
        shutil.rmtree(base, ignore_errors=True)
        subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, base],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        (base / "made").touch()
    for path in COPIED:
        if os.path.exists(path):
            shutil.copy(path, base / path.lstrip("/"))
    (base / "etc/hosts").write_text(HOSTS)
    if os.path.exists(f"/{AUTHORITIES}"):
        shutil.copytree(f"/{AUTHORITIES}", base / AUTHORITIES, dirs_exist_ok=True)
        subprocess.run(
            ["chroot", base, "update-ca-certificates"], stdout=subprocess.DEVNULL, check=True
        )
    return base


@contextmanager
def bare_debian(suite: str, directory: Path) -> Iterator[BareDebian]:
    """A fresh one, gone at the end."""
    root = directory / f"{suite}-{os.getpid()}"
    subprocess.run(["cp", "-a", make_base(suite, directory), root], check=True)
    try:
        debian = BareDebian(root)
        added = debian.run("root", f"useradd -m {USER}")
        assert added.code == 0, added.text
        yield debian
    finally:
        shutil.rmtree(root)
