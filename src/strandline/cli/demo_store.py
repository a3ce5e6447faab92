"""The demo's object store: an S3 server in a process of its own, which ends with the demo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import click

from strandline.cli.demo_cluster import kill_now
from strandline.lakehouse.demo.lake import BUCKET, Lake
from strandline.lakehouse.demo.s3_server import MODULE, missing_packages


class DemoStore:
    """A context manager; `lake` is what is kept in it, with the catalog's file in `home`."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._process: subprocess.Popen[str] | None = None
        self._lake: Lake | None = None

    @property
    def lake(self) -> Lake:
        """Inside the `with` block."""
        if self._lake is None:
            raise click.ClickException("The S3 server does not run.")
        return self._lake

    def __enter__(self) -> Self:
        # A session of its own: Ctrl-C is for the demo, which still needs the store to end well.
        self._process = subprocess.Popen(  # noqa: S603 -- our own module
            [sys.executable, "-m", MODULE, BUCKET],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        address = self._process.stdout.readline().strip() if self._process.stdout else ""
        if not address:
            _, wrong = self._process.communicate()
            last = wrong.strip().rpartition("\n")[2]
            raise click.ClickException(f"The S3 server did not start: {last}")
        self._lake = Lake(address, self._home)
        self._lake.enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """End it, from wherever: its data are in memory, and nothing of them is to be saved."""
        process, self._process = self._process, None
        if process is not None:
            kill_now(process)


def check_store_installed() -> None:
    """Raises `click.ClickException` with the remedy where the server's packages are missing."""
    missing = missing_packages()
    if missing:
        raise click.ClickException(
            f"--lake s3 needs {' and '.join(missing)}: pip install 'strandline[lake]' brings all."
        )
