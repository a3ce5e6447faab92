"""The demo's cluster: `strandline serve` in a process of its own, which ends with the demo."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import click

_STOP_S: Final = 20.0
_LISTENING: Final = re.compile(r"PLAINTEXT://(127\.0\.0\.1:\d+)")


class DemoCluster:
    """A context manager: brokers on ports of this machine that were free."""

    def __init__(self, data: Path, brokers: int) -> None:
        self.brokers = brokers
        self.address = ""
        """Of all brokers, once it runs."""
        self._data = data
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        # A session of its own: Ctrl-C is for the demo, which still needs the cluster to stop well.
        self._process = subprocess.Popen(  # noqa: S603 -- our own command
            [
                *(sys.executable, "-m", "strandline.cli", "serve"),
                *("--brokers", str(self.brokers), "--data-dir", str(self._data)),
                *("--listen", "127.0.0.1:0", "--log-level", "error"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            self.address = ",".join(self._addresses(self._process))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    def kill(self) -> None:
        """End it without a word, from wherever: its data are not needed any more."""
        if self._process is not None:
            kill_now(self._process)

    def _addresses(self, process: subprocess.Popen[str]) -> list[str]:
        said: list[str] = []
        if process.stdout is None:
            raise click.ClickException("The cluster cannot be listened to.")
        for line in process.stdout:
            said += _LISTENING.findall(line)
            if line.startswith("ready"):
                return said
        _, wrong = process.communicate()
        raise click.ClickException(f"The cluster did not start: {wrong.strip()}")


def kill_now(process: subprocess.Popen[str]) -> None:
    """Kill a process and see it end, from wherever, also from a handler of a signal."""
    process.kill()
    deadline = time.monotonic() + _STOP_S
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)  # between two looks; `wait` may be under way in what was interrupted
