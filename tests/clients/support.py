"""What the tests with foreign clients share: a broker in its own process, and waiting for facts.

Nothing here sleeps for a while and hopes: every wait has a condition and a deadline, and a broker
that is not stopped by its test is killed by its context manager.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from strandline.broker.reserved_ports import ReservedPort

HERE: Final = Path(__file__).parent
SOURCES: Final = HERE.parents[1] / "src"
START_SECONDS: Final = 120.0
WAIT_SECONDS: Final = 120.0

QUICK_GROUPS: Final = {
    # A first member of a group waits this long for others; tests that count on it set it.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
    # Retention never runs: the records of many tests are years old.
    "log.initial.task.delay.ms": "86400000",
}

Value = TypeVar("Value")
_PAUSE: Final = threading.Event()


class BrokerProcess:
    """One Strandline broker, on a port of the system's choice, with its data in `home`."""

    def __init__(self, home: Path, settings: Mapping[str, str] | None = None) -> None:
        self.data = home / "data"
        self.log = home / "broker.log"
        self.settings = {**QUICK_GROUPS, **(settings or {})}
        self._child: subprocess.Popen[str] | None = None
        # No other process gets it while the broker is down.
        self._reserved = ReservedPort()
        self.port = self._reserved.number

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()
        self._reserved.release()

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start; again on the port that was had before, so that running clients find it."""
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data),
            **self.settings,
        }
        with self.log.open("ab") as errors:
            self._child = subprocess.Popen(
                [sys.executable, str(HERE / "serve.py"), *map("=".join, settings.items())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": str(SOURCES)},
            )
        assert self._line() == {"port": self.port}

    def stop(self) -> None:
        """Stop as an operator does, and check that the broker calls its end clean."""
        assert self._child is not None
        self._child.send_signal(signal.SIGTERM)
        assert self._line() == {"clean": True}, self.complaint()
        assert self._child.wait(START_SECONDS) == 0, self.complaint()
        self._forget()

    def restart(self) -> None:
        """Stop cleanly and start again with the same data."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """End it at once, whatever it does."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._forget()

    def complaint(self) -> str:
        """The end of the broker's log."""
        return self.log.read_text(errors="replace")[-4000:]

    def _forget(self) -> None:
        assert self._child is not None
        for stream in (self._child.stdin, self._child.stdout):
            assert stream is not None
            stream.close()
        self._child = None

    def _line(self) -> dict[str, Any]:
        assert self._child is not None
        output = self._child.stdout
        assert output is not None
        ready, _, _ = select.select([output], [], [], START_SECONDS)
        line = output.readline() if ready else ""
        assert line, f"The broker said nothing. {self.complaint()}"
        found: dict[str, Any] = json.loads(line)
        return found


def until(
    condition: Callable[[], Value | None], what: str, *, seconds: float = WAIT_SECONDS
) -> Value:
    """Ask until the answer is true, and return it. Fails at the deadline, naming `what`."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"Waited {seconds} s in vain for {what}: {found!r}."
        _PAUSE.wait(0.01)
