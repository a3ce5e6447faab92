"""Networks of a machine of their own: namespaces in which processes are started.

Needs `unshare`, `nsenter`, `ip`, and root or the right to make namespaces of users.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MAP_USER: Final = () if os.geteuid() == 0 else ("--map-root-user",)
JOIN_USER: Final = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
NEW: Final = ("unshare", *MAP_USER, "--net", "--mount", "bash", "-c")

# The hosts are bound over the machine's, by inode: writing to the file changes them at once.
SET_UP: Final = """
set -e
mount --make-rprivate /
mount --bind "$1" /etc/hosts
eval "$2"
echo made
read -r _
"""


class Network:
    """A network in which commands are run."""

    def __init__(self, process: subprocess.Popen[str], hosts: Path) -> None:
        self._process = process
        self._hosts = hosts

    def within(self, *command: str) -> tuple[str, ...]:
        """The command that runs this one there."""
        enter = ("nsenter", f"--target={self._process.pid}", "--net", "--mount", *JOIN_USER)
        return (*enter, f"--wd={os.getcwd()}", *command)

    def ip(self, words: str) -> None:
        """Change an address or a link."""
        subprocess.run(self.within("ip", *words.split()), check=True)

    def tell_names(self, hosts: str) -> None:
        """What names are resolved to from now on."""
        self._hosts.write_text(hosts)


@functools.cache
def missing() -> str:
    """Why there can be no network here, or nothing."""
    for tool in ("unshare", "nsenter", "ip"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    tried = subprocess.run([*NEW, "true"], capture_output=True, text=True, check=False)
    return tried.stderr.strip()


@contextmanager
def network(directory: Path, hosts: str, set_up: str) -> Iterator[Network]:
    """A network with these names, changed by shell commands such as `ip link set lo up`."""
    names = directory / "hosts"
    names.write_text(hosts)
    process = subprocess.Popen(
        [*NEW, SET_UP, "network", str(names), set_up],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "made\n"
        try:
            yield Network(process, names)
        finally:
            process.kill()
