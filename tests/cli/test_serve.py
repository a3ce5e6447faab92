"""Starting and stopping a broker as a process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from strandline.broker.start_report import StartReport
from strandline.cli.serving import RunningBrokers, run_until_stopped
from strandline.config.listeners import Listener
from strandline.errors import InvalidSetting
from tests.cli.conftest import DEADLINE_S

COMMAND = (sys.executable, "-m", "strandline.cli", "serve")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_says_what_it_does_and_stops_cleanly(
    serve: Callable[..., Any], tmp_path: Path, number: int
) -> None:
    serving = serve("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    said = "\n".join(serving.said)
    assert f"listening   PLAINTEXT://{serving.address}" in said
    assert f"data        {tmp_path / 'data'}" in said
    assert f"kcat -b {serving.address} -L" in said
    assert f"strandline -b {serving.address} topics list" in said
    assert re.search(r"cluster id  [\w-]{22}\n", said)
    assert re.search(r"^ready in \d+\.\d\d s", serving.said[-1])
    assert "\x1b" not in said
    ended = serving.stop(number)
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == ["Stopping. Ctrl-C again stops at once.", "Stopped cleanly."]
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_being_told_to_stop_twice_is_no_reason_to_hurry(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    serving = serve("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    serving.process.send_signal(signal.SIGTERM)
    ended = serving.stop(signal.SIGTERM)
    assert ended.code == 0, ended.err
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_kill_is_recovered_and_said(serve: Callable[..., Any], tmp_path: Path) -> None:
    arguments = ("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    first = serve(*arguments)
    made = subprocess.run(
        [sys.executable, "-m", "strandline.cli", "-b", first.address, "produce", "t"],
        input=b"one\ntwo\n",
        capture_output=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert b"2 records" in made.stderr
    first.stop(signal.SIGKILL)
    log = tmp_path / "t-0" / "00000000000000000000.log"
    with log.open("ab") as torn:
        torn.write(b"torn")
    again = serve(*arguments)
    said = "\n".join(again.said)
    assert "the last shutdown was not clean" in said
    assert f"Cut 4 bytes from {log}; the log now ends at offset 2" in said
    assert "topics      1 with 1 partition\n" in said
    assert again.stop().code == 0


def test_output_that_is_read_no_more_is_no_hindrance_to_a_clean_stop(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    """`strandline serve | tee log`, whose Ctrl-C ends `tee` first."""
    serving = serve("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    serving.process.stdout.close()
    serving.process.send_signal(signal.SIGINT)
    assert serving.process.wait(DEADLINE_S) == 0, serving.process.stderr.read()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    serving.process.stdout = None


class Runs:
    """Brokers that run, as it were."""

    notice = None

    def __init__(self) -> None:
        self.reports = {1: StartReport("c", (Listener("A", "h", 1),), ("d",), 0, 0, True, ())}
        self.is_stopped = False

    async def until_unfit(self) -> str:
        raise AssertionError("There is something wrong already.")

    async def stop(self) -> bool:
        self.is_stopped = True
        return True


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (InvalidSetting("ui", "The page did not start."), click.ClickException),
        (OSError(24, "Too many open files"), click.ClickException),
        (ValueError("A bug of ours."), ValueError),
    ],
    ids=["refused", "system", "bug"],
)
def test_what_fails_beside_the_brokers_stops_them_as_ever(
    error: Exception, raised: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    running = Runs()

    async def start() -> Runs:
        return running

    @asynccontextmanager
    async def beside(brokers: RunningBrokers) -> AsyncIterator[str]:
        raise error
        yield ""  # type: ignore[unreachable]  # what makes it a generator

    with pytest.raises(raised, match=re.escape(str(error))):
        run_until_stopped(start, beside, has_brokers=False)
    assert running.is_stopped
    assert "Stopped cleanly." in capsys.readouterr().out


def test_a_page_that_no_listener_lets_in_is_refused_before_a_broker_starts(tmp_path: Path) -> None:
    data = tmp_path / "data"
    ended = run("--ui", "--data-dir", str(data), "--set", "listeners=SSL://127.0.0.1:0")
    assert ended.returncode == 2
    assert "The page of --ui needs a PLAINTEXT listener." in ended.stderr
    assert "strandline ui --client-config FILE" in ended.stderr
    assert not data.exists()


def test_data_that_is_in_use(serve: Callable[..., Any], tmp_path: Path) -> None:
    serve("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    ended = run("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    assert ended.returncode == 1
    assert "Another process holds the lock" in ended.stderr
    assert "--data-dir" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_address_that_is_in_use(serve: Callable[..., Any], tmp_path: Path) -> None:
    serving = serve("--data-dir", str(tmp_path / "a"), "--listen", "127.0.0.1:0")
    ended = run("--data-dir", str(tmp_path / "b"), "--listen", serving.address)
    assert ended.returncode == 1
    assert f"{serving.address} cannot be bound: Address already in use. " in ended.stderr
    assert "--listen" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("more", [(), ("--processes",)])
def test_a_setting_that_is_found_wrong_at_the_start(tmp_path: Path, more: tuple[str, ...]) -> None:
    """As one that is found wrong before: the command line is to be changed, but not the address."""
    store = tmp_path / "none.pem"
    ended = run(
        *("--data-dir", str(tmp_path / "data"), "--set", "listeners=SSL://127.0.0.1:0"),
        *("--set", f"ssl.keystore.location={store}", *more),
    )
    assert ended.returncode == 2
    assert f"the file {store} cannot be read: No such file or directory." in ended.stderr
    assert "--listen" not in ended.stderr


def test_a_properties_file_and_its_warnings(serve: Callable[..., Any], tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        f"log.dirs={tmp_path / 'data'}\nlisteners=PLAINTEXT://127.0.0.1:0\nnum.io.threads=4\n"
    )
    serving = serve("--config", str(config))
    assert any(str(tmp_path / "data") in line for line in serving.said)
    assert "num.io.threads is accepted but has no effect" in serving.stop().err
