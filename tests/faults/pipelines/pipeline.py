"""`strandline table run` in a process that may be killed at any moment, and is started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.spec import save_spec
from tests.faults.pipelines import descent
from tests.faults.pipelines.lake import TABLES, Lake
from tests.faults.pipelines.load import EVENT_TIME, TABLE
from tests.faults.pipelines.phases import Durations, Phases
from tests.faults.processes import until
from tests.lakehouse.standalone import StandaloneSpark

PATIENCE_S: Final = 300.0
TREE: Final = Path(__file__).parents[3]
ONE_JVM: Final = "local[2,4]"
"""As most people run it: Spark's JVM is driver and executor."""
WATERMARK_MS: Final = 5_000
_COMPLAINT_BYTES: Final = 3000


class Pipeline:
    """See the module. `home` gets the tables and what all runs told."""

    def __init__(
        self,
        home: Path,
        bootstrap: str,
        *,
        spark: StandaloneSpark | None = None,
        lake: Lake | None = None,
        **spec: Any,
    ) -> None:
        """`spark` is what it runs on, with executors in JVMs of their own; `lake` has the tables,
        which else are files of this machine."""
        self.home = home
        self._spark = spark
        self._lake = lake
        self._tables = str(home / "tables") if lake is None else TABLES
        if spec.get("mode") != "upsert":
            spec |= {"event_time": EVENT_TIME, "watermark_ms": WATERMARK_MS}
        self.spec = TableSpec(
            name=TABLE, topics=(TABLE,), location=f"{self._tables}/{TABLE}", **spec
        )
        save_spec(self.spec)
        self.starts = 0
        self.durations = Durations()
        self._bootstrap = bootstrap
        self._log = home / "run.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._phases: Phases | None = None
        self._below: set[descent.Process] = set()
        """Everything that was ever seen below the command."""

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        return self._started.pid

    @property
    def is_running(self) -> bool:
        """Whether there is a process now."""
        return self._process is not None and self._process.poll() is None

    @property
    def phases(self) -> Phases:
        """What the process that was started last tells."""
        assert self._phases is not None, "the pipeline was never started"
        return self._phases

    def ensure_running(self) -> None:
        """Start it, unless it runs."""
        if self.is_running:
            return
        self.starts += 1
        tells, told = os.pipe()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(told),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[told],
                env=self._environment(),
            )
        os.close(told)
        self._phases = Phases(os.fdopen(tells, "rb"), self.durations)

    def wait_for_phase(self, stage: str, seconds: float = PATIENCE_S) -> None:
        """Until it begins, started again if need be."""
        deadline = time.monotonic() + seconds
        while True:
            self.ensure_running()
            if self.phases.wait_for(stage, deadline - time.monotonic()):
                return
            assert time.monotonic() < deadline, f"{stage} never began: {self.complaint()}"

    def stop(self) -> None:
        """SIGTERM once it can be stopped; it must end well, with everything that is there."""

        def can_be_stopped() -> bool:
            self.ensure_running()
            return self.phases.has_told

        until(can_be_stopped, "a run", seconds=PATIENCE_S, complaint=self.complaint)
        self._started.send_signal(signal.SIGTERM)
        status = self._started.wait(PATIENCE_S)
        assert status == 0, f"{status}: {self.complaint()}"
        self.phases.close()

    def kill_driver(self) -> str:
        """SIGKILL of the command; the phase that it was in. What is below it ends by itself."""
        self.look_below()
        self._started.kill()
        self._started.wait(PATIENCE_S)
        self.phases.close()
        return self.phases.now

    def look_below(self) -> None:
        """Remember what is below the command, whose end must be waited for."""
        self._below |= {descent.Process.of(each) for each in descent.descendants(self.pid)}

    def end(self) -> None:
        """Kill it if it runs, and wait for the end of everything that ever was below it."""
        if self.is_running:
            self.kill_driver()
        until(
            lambda: not any(each.is_there() for each in self._below),
            "the end of Spark",
            seconds=PATIENCE_S,
            complaint=lambda: str([each for each in self._below if each.is_there()]),
        )

    def complaint(self) -> str:
        """The end of its log."""
        return self._log.read_bytes()[-_COMPLAINT_BYTES:].decode(errors="replace")

    @property
    def _started(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the pipeline was never started"
        return self._process

    def _command(self, told: int) -> Sequence[str]:
        return [
            *(sys.executable, "-m", "tests.faults.pipelines.told_run", str(told)),
            *("table", "run", TABLE, "--json", "--tables", self._tables),
            *("--bootstrap", self._bootstrap, "--interval", "200 ms"),
            *("--master", ONE_JVM if self._spark is None else self._spark.master),
            *("--memory", "512m", "--compact-every", "5"),
        ]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": os.pathsep.join([str(TREE / "src"), str(TREE)]),
            **({} if self._spark is None else self._spark.environment),
            **({} if self._lake is None else self._lake.environment),
        }
