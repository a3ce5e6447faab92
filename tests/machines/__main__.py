"""`python -m tests.machines`: the commands of README on machines that are not like this one.

    python -m tests.machines --directory /somewhere/large        all of them, as a table
    python -m tests.machines --directory ... --only "Debian 12"  those that are called so

Needs root, `debootstrap`, `unshare`, a network, and some gigabytes. What is cheap of this (odd
paths, the locale C, an interruption, no network the second time) is in `test_environment.py`,
which ./check runs. Machines that have little of something are in `limits.py`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.machines.bare import USER, BareDebian, Run, bare_debian
from tests.machines.limits import LIMITS

ROOT: Final = Path(__file__).parents[2]
DEBIANS: Final = {"Debian 12": "bookworm", "Debian 13": "trixie"}
FIRST_ROW: Final = "commit 1:"
INSTALL: Final = "sudo apt-get update && sudo apt-get install -y python3-venv"
ODD: Final = "a folder of ä and 水"
CLOSED_PORT: Final = "http://127.0.0.1:9"
PROXY_VARIABLES: Final = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
SMALL_CHECK: Final = "-k addresses_are_read tests/client"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row of the table."""

    machine: str
    typed: str
    happened: str


def _expect(run: Run, code: int, *words: str) -> None:
    if run.code != code or any(word not in run.text for word in words):
        raise AssertionError(f"Ended with {run.code}; expected {code} and {words}:\n{run.text}")


def demo_as_root(debian: BareDebian) -> str:
    """The first command, from the clone to the end."""
    debian.add_clone(ROOT, "root")
    first = debian.run("root", "git clone -q strandline again && cd again && ./demo", echo=True)
    _expect(first, 0, FIRST_ROW, "nothing is missing", "All of it took")
    rows = first.seconds_until(FIRST_ROW)
    return f"done; the first rows {rows:.0f} s after `git clone`, all after {first.seconds:.0f} s"


def check_as_root(debian: BareDebian) -> str:
    """A small part of the tests."""
    debian.add_clone(ROOT, "root")
    run = debian.run("root", f"cd strandline && ./check {SMALL_CHECK}", echo=True)
    _expect(run, 0, "[100%]")
    return f"the tests passed, after {run.seconds:.0f} s"


def refused_to_a_user(debian: BareDebian) -> str:
    """Both say the line to type, and make nothing."""
    debian.add_clone(ROOT, USER)
    for command in ("./demo", f"./check {SMALL_CHECK}"):
        run = debian.run(USER, f"cd strandline && {command}")
        _expect(run, 1, "sudo apt-get update && sudo apt-get install -y python3-venv")
    left = debian.run(USER, "cd strandline && git status --short --ignored")
    _expect(left, 0)
    if left.text:
        raise AssertionError(f"Something was left: {left.text}")
    return f"`{INSTALL}` is said; nothing was made"


def demo_as_a_user(debian: BareDebian) -> str:
    """After that line, in an odd path and the locale C."""
    debian.add_clone(ROOT, USER, ODD)
    done = debian.run("root", INSTALL.replace("sudo ", ""))
    _expect(done, 0)
    first = debian.run(USER, f"cd '{ODD}' && LC_ALL=C ./demo --records 20000", echo=True)
    _expect(first, 0, FIRST_ROW, "All of it took")
    second = debian.run(USER, f"cd '{ODD}' && PIP_NO_INDEX=1 ./demo --records 20000", echo=True)
    _expect(second, 0, FIRST_ROW, "All of it took")
    if "making the virtual environment" in second.text:
        raise AssertionError("The second time made the environment again.")
    return (
        f"done after {first.seconds:.0f} s; again, without an index of packages, "
        f"{second.seconds:.0f} s"
    )


def demo_with_uv(debian: BareDebian) -> str:
    """As root, where uv is on the path."""
    debian.add_clone(ROOT, "root")
    made = debian.run(
        "root", f"{INSTALL.replace('sudo ', '')} && python3 -m venv uv && uv/bin/pip install -q uv"
    )
    _expect(made, 0)
    command = 'cd strandline && PATH="$HOME/uv/bin:$PATH" ./demo --records 20000'
    first = debian.run("root", command, echo=True)
    _expect(first, 0, FIRST_ROW, "All of it took")
    by_uv = debian.run("root", "grep '^uv = ' strandline/.venv/pyvenv.cfg")
    _expect(by_uv, 0)
    return f"`.venv` is made by uv; done after {first.seconds:.0f} s"


def demo_in_odd_surroundings(debian: BareDebian) -> str:
    """No HOME, /tmp read-only, a proxy that nothing of this machine is to be asked through."""
    debian.add_clone(ROOT, "root")
    _expect(debian.run("root", "cd strandline && ./demo --records 1000", echo=True), 0)
    proxies = " ".join(f"{name}={CLOSED_PORT}" for name in PROXY_VARIABLES)
    odd = debian.run(
        "root",
        "mkdir 'tmp dir' && mount -t tmpfs -o ro tmpfs /tmp && cd strandline && "
        f'env -u HOME TMPDIR="$HOME/tmp dir" {proxies} ./demo --records 20000',
        echo=True,
    )
    _expect(odd, 0, FIRST_ROW, "All of it took")
    return f"done after {odd.seconds:.0f} s"


TRIES: Final[dict[str, tuple[str, Callable[[BareDebian], str]]]] = {
    "root": ("`./demo`", demo_as_root),
    "root, uv": ("`./demo --records 20000`", demo_with_uv),
    "root, `HOME` unset, `/tmp` read-only, `TMPDIR=.../tmp dir`, all proxies at a closed port": (
        "`./demo --records 20000`",
        demo_in_odd_surroundings,
    ),
    "root, tests": ("`./check -k ...`", check_as_root),
    "another user": ("`./demo`, `./check -k ...`", refused_to_a_user),
    f"another user, after that line, in `{ODD}`, `LC_ALL=C`": (
        "`./demo --records 20000`, twice",
        demo_as_a_user,
    ),
}


@contextmanager
def _reported(machine: str, typed: str, rows: list[Outcome]) -> Iterator[list[str]]:
    happened: list[str] = []
    try:
        yield happened
    except AssertionError as wrong:
        print(wrong, file=sys.stderr)
        happened.append(f"**failed**: {str(wrong).splitlines()[0]}")
    rows.append(Outcome(machine, typed, " ".join(happened)))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.machines", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="where Debians are made")
    parser.add_argument("--only", default="", metavar="WORDS", help="machines that are called so")
    options = parser.parse_args()
    if os.geteuid():
        parser.error("Only root can make a Debian in a folder.")
    rows: list[Outcome] = []
    for name, suite in DEBIANS.items():
        for who, (typed, attempt) in TRIES.items():
            machine = f"bare {name}, {who}"
            if options.only not in machine:
                continue
            with (
                _reported(machine, typed, rows) as happened,
                bare_debian(suite, options.directory) as debian,
            ):
                happened.append(partial(attempt, debian)())
    for machine, (typed, try_limit) in LIMITS.items():
        if options.only in machine:
            with _reported(machine, typed, rows) as happened, TemporaryDirectory() as folder:
                happened.append(try_limit(Path(folder)))
    print("| machine | typed | what happened |\n|---|---|---|")
    for row in rows:
        print(f"| {row.machine} | {row.typed} | {row.happened} |")
    sys.exit(any("**failed**" in row.happened for row in rows))


if __name__ == "__main__":
    main()
