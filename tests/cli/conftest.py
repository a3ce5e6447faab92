"""A broker started by `strandline serve`, and the command as people run it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from strandline.cli.main import cli
from strandline.cli.sentences import sentence_of
from strandline.errors import StrandlineError

COMMAND = (sys.executable, "-W", "error", "-m", "strandline.cli")
DEADLINE_S = 240
"""For a machine with ten times as much to do as it can: it only bounds what hangs."""


@pytest.fixture(autouse=True)
def heard_hangups() -> Iterator[None]:
    """SIGHUP as from a terminal, also for commands that are started by tests under `nohup`."""
    before = signal.getsignal(signal.SIGHUP)
    if before is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


class Ended(NamedTuple):
    """What a run of the command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Serving:
    """A command that runs a broker, or several, and has said that they are ready."""

    def __init__(self, command: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, command, "--set", "offsets.topic.num.partitions=2", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip())
            if "ready" in line:
                break
        else:
            _, err = self.process.communicate(timeout=DEADLINE_S)
            pytest.fail(f"The broker did not start: {err}")
        found = re.search(r"PLAINTEXT://(127\.0\.0\.1:\d+)", "\n".join(self.said))
        assert found is not None
        self.address = found[1]

    def stop(self, number: int = signal.SIGTERM) -> Ended:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=DEADLINE_S)
        return Ended(self.process.returncode, out, err)


@pytest.fixture
def start() -> Iterator[Callable[..., Serving]]:
    """Starts commands that run brokers, which do not outlive the test."""
    running: list[Serving] = []

    def begin(*arguments: str) -> Serving:
        running.append(Serving(*arguments))
        return running[-1]

    yield begin
    for each in running:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def serve(start: Callable[..., Serving]) -> Callable[..., Serving]:
    """Starts `strandline serve`."""
    return partial(start, "serve")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="session")
def address(data: Path) -> Iterator[str]:
    """Where a broker for all tests listens. Retention never runs: some records are of 1970."""
    never = ("--set", "log.initial.task.delay.ms=86400000")
    serving = Serving("serve", "--data-dir", str(data), "--listen", "127.0.0.1:0", *never)
    yield serving.address
    ended = serving.stop()
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "Stopped cleanly."), ended.err


def environment(address: str = "") -> dict[str, str]:
    return {**os.environ, "STRANDLINE_BOOTSTRAP": address or "127.0.0.1:1"}


@pytest.fixture
def spawn(address: str) -> Callable[..., Ended]:
    """Runs the command as a process: for standard input, pipes and signals."""

    def run(*arguments: str, stdin: bytes = b"") -> Ended:
        ended = subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            timeout=DEADLINE_S,
            env=environment(address),
            check=False,
        )
        return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    return run


def run_here(arguments: Sequence[str], address: str = "") -> Ended:
    """Runs the command in this process, which is faster."""
    ended = CliRunner().invoke(cli, arguments, env={"STRANDLINE_BOOTSTRAP": address})
    if isinstance(ended.exception, StrandlineError):
        return Ended(1, ended.stdout, sentence_of(ended.exception))
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return Ended(ended.exit_code, ended.stdout, ended.stderr)


@pytest.fixture
def strandline(address: str) -> Callable[..., Ended]:
    return lambda *arguments: run_here(arguments, address)


@pytest.fixture
def alone() -> Callable[..., Ended]:
    """The command without a broker."""
    return lambda *arguments: run_here(arguments)


_numbers = count()


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"thing-{next(_numbers)}"
