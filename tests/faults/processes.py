"""One server in a process of its own that can be killed, frozen, thawed and told to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

START_S: Final = 120.0
STOP_S: Final = 120.0
LOG_END_BYTES: Final = 3000
_PAUSE_S: Final = 0.01

Value = TypeVar("Value")


class ServerProcess:
    """A server with its log in `log`; restarts append to it. Only what it started is signalled."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """Of the running process."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Started, and neither ended nor killed."""
        return self._process is not None and self._process.poll() is None

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start it; `wait_for` tells when it serves."""
        assert not self.is_running, f"{self.name} runs already"
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
            )

    def wait_for(self, find: Callable[[str], Value | None], what: str) -> Value:
        """Read what it printed since its start until `find` finds something there."""

        def found() -> Value | None:
            self._running()
            return find(self.output())

        return until(found, f"{self.name}: {what}", seconds=START_S, complaint=self.complaint)

    def output(self) -> str:
        """What it printed since its start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def kill(self) -> None:
        """The end without any warning; frozen or not."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)
            self._process = None

    def pause(self) -> None:
        """Freeze it: sockets stay open, nothing is answered."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Thaw it."""
        self._running().send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM, and wait for an end that the server itself calls a success."""
        process = self._running()
        process.terminate()
        status = process.wait(STOP_S)
        self._process = None
        assert status in (0, 128 + signal.SIGTERM), f"{self.name} ended with status {status}"

    def complaint(self) -> str:
        """The end of its log."""
        if not self.log.exists():
            return "(no log)"
        return self.log.read_bytes()[-LOG_END_BYTES:].decode(errors="replace")

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.name} does not run"
        status = self._process.poll()
        assert status is None, f"{self.name} ended by itself ({status}):\n{self.complaint()}"
        return self._process


def until(
    condition: Callable[[], Value | None],
    what: str,
    *,
    seconds: float,
    complaint: Callable[[], str] = str,
) -> Value:
    """Ask until the answer is true, and return it. Fails at the deadline, naming `what`."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"Waited {seconds} s in vain for {what}.\n{complaint()}")
        time.sleep(_PAUSE_S)
