"""Signals to commands that run brokers: at any moment, and from a terminal that is closed."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, DEADLINE_S, Serving, run_here

CLEAN = ".kafka_cleanshutdown"


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes connections in and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(DEADLINE_S)
        yield listening


def test_a_terminal_that_is_closed_ends_its_broker_cleanly(tmp_path: Path) -> None:
    """The system sends SIGHUP, and every write to the terminal fails from then on."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    said = b""
    while b"ready in" not in said:
        said += os.read(master, 4096)
    os.close(master)
    try:
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
    assert (tmp_path / CLEAN).exists()


def test_nohup_keeps_a_broker_from_being_stopped_by_its_terminal(
    serve: Callable[..., Serving], tmp_path: Path
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        serving = serve("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    finally:
        signal.signal(signal.SIGHUP, before)
    serving.process.send_signal(signal.SIGHUP)
    assert run_here(["topics", "create", "lines"], serving.address).code == 0
    ended = serving.stop()
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "Stopped cleanly."), ended.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_a_broker_is_ready_ends_it_in_order(
    silent: socket.socket, tmp_path: Path, number: int
) -> None:
    """Not by the signal itself, which the first process of a container would not even hear."""
    place = "{}:{}".format(*silent.getsockname())
    with subprocess.Popen(
        [
            *(*COMMAND, "broker", "--zookeeper", place, "--id", "1"),
            *("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"),
            *("--set", "zookeeper.connection.timeout.ms=600000"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            connection, _ = silent.accept()  # now it waits for ZooKeeper
            with connection:
                process.send_signal(number)
                out, err = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert out.splitlines() == [
        "Stopping before the start is done. Ctrl-C again stops at once.",
        "Stopped before the start was done; the next start begins it again.",
    ]
    assert "Traceback" not in err


BUSY = """
import signal
from strandline.cli.serving import run_until_stopped

async def start():
    handler = signal.getsignal(signal.SIGINT)

    def handle(*arguments):
        handler(*arguments)
        print("still busy", flush=True)

    signal.signal(signal.SIGINT, handle)
    print("busy", flush=True)
    while True:  # the loop has no turn, as while logs are recovered
        pass

run_until_stopped(start)
"""


def test_a_second_ctrl_c_ends_a_start_that_lets_nothing_else_run() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            for said in (b"busy\n", b"still busy\n"):
                assert process.stdout.readline() == said
                process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_S) == 130
        finally:
            process.kill()
