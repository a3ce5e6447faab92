"""A standalone Spark: a master and workers in processes of their own, as on several machines.

Each worker has a work directory of its own, and may have a mount namespace of its own, in which
directories are hidden by empty ones: then it is, as far as disks go, another machine.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from strandline.lakehouse.session_files import session_files
from strandline.lakehouse.session_java import find_java
from tests.faults.processes import until

PATIENCE_S: Final = 120.0
_SPARK: Final = Path(pyspark.__file__).parent
_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = "Successfully registered with master"
_HIDING: Final = 'for each in $HIDDEN; do mount -t tmpfs hidden "$each" || exit 1; done; exec "$@"'
_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_RECOVERY_S: Final = 10
"""How long a master waits for those who do not come back to it."""
_DEFAULTS: Final = """\
spark.executor.memory 512m
spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.executor.processTreeMetrics.enabled false
"""


def can_hide() -> bool:
    """Whether a process may have a mount namespace of its own here."""
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "hidden", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


class StandaloneSpark:
    """A master and `workers` workers on loopback; `hidden` directories are empty for the latter.

    A context manager. `environment` is what a driver needs to run on it.
    """

    def __init__(
        self,
        home: Path,
        *,
        workers: int = 2,
        hidden: Sequence[Path] = (),
        settings: str = "",
        memory: str = "600m",
        recovers: bool = False,
    ) -> None:
        """`settings` are further lines of the drivers' `spark-defaults.conf`, and `memory` is what
        a worker has for its executors. A master that `recovers` knows its workers and programs
        again when it is started again."""
        self._home = home
        self._memory = memory
        self._recovers = recovers
        self._settings = settings
        self._hidden = hidden
        self._workers = workers
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.master = ""

    def __enter__(self) -> Self:
        self._home.mkdir(parents=True)
        self.configuration(self._home / "conf", self._settings)
        try:
            self._start_master(port=0)
            self.master = until(self._said_by_master, "a master", seconds=PATIENCE_S)
            for name in self.workers:
                self._start_worker(name)
            for name in self.workers:
                self._wait_for_worker(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all of it, executors and their Python as well."""
        running = [*reversed(self._running.values())]
        for each in running:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGTERM)
        for each in running:
            try:
                each.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait()
        self._running.clear()

    def add_worker(self) -> None:
        """One more, registered with the master."""
        self._workers += 1
        self._start_worker(self.workers[-1])
        self._wait_for_worker(self.workers[-1])

    @property
    def workers(self) -> list[str]:
        """The names of the workers, for `kill` and `start`."""
        return [f"worker{number}" for number in range(self._workers)]

    def kill(self, name: str) -> int:
        """SIGKILL of a worker, or of `master`, without what is below it; the process."""
        process = self._running[name]
        process.kill()
        process.wait(PATIENCE_S)
        return process.pid

    def start(self, name: str) -> None:
        """Start again what was killed, and wait until it is there. The master has its address, and
        knows its workers and programs if it `recovers`."""
        if name == "master":
            self._start_master(int(self.master.rpartition(":")[2]))
            until(lambda: self._said_by_master() == self.master, "the master", seconds=PATIENCE_S)
        else:
            self._start_worker(name)
            self._wait_for_worker(name)

    @property
    def pids(self) -> list[int]:
        """Of the master and the workers; executors are below the latter."""
        return [each.pid for each in self._running.values()]

    @staticmethod
    def configuration(directory: Path, settings: str = "") -> Path:
        """Make a directory for `SPARK_CONF_DIR`; small executors that start quickly."""
        directory.mkdir()
        (directory / "spark-defaults.conf").write_text(_DEFAULTS + settings)
        return directory

    @property
    def environment(self) -> Mapping[str, str]:
        """Of a driver: the Python of its executors is this one."""
        return {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(self._home / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    @property
    def submitting(self) -> list[str]:
        """The beginning of a command that has a program run by this Spark, in client mode."""
        program = str(_SPARK / "bin" / "spark-submit")
        return [program, "--master", self.master, "--driver-memory", "512m"]

    @property
    def java(self) -> Mapping[str, str]:
        """What finds Java and Spark, in the environment of its programs."""
        files = session_files(find_java().executable, log_level="ERROR")
        return {"JAVA_HOME": str(files.java_home), "SPARK_HOME": str(_SPARK)}

    def _start_master(self, port: int) -> None:
        self._start("master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")

    def _start_worker(self, name: str) -> None:
        self._start(
            name,
            *("--host", "127.0.0.1", "--cores", "1", "--memory", self._memory),
            *("--webui-port", "0", "--work-dir", str(self._home / name), self.master),
        )

    def _wait_for_worker(self, name: str) -> None:
        until(
            lambda: _REGISTERED in self._log(name),
            "a registered worker",
            seconds=PATIENCE_S,
        )

    def _start(self, name: str, *arguments: str) -> None:
        kind = "Master" if name == "master" else "Worker"
        command = [
            str(_SPARK / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{kind.lower()}.{kind}",
            *arguments,
        ]
        if kind == "Worker" and self._hidden:
            command = ["unshare", "-m", "sh", "-c", _HIDING, "sh", *command]
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
            "HIDDEN": " ".join(map(str, self._hidden)),
            **self.java,
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join([*_JAVA, *self._recovery()]),
            **self.environment,
        }
        with open(self._home / f"{name}.log", "wb") as output:
            self._running[name] = subprocess.Popen(
                command,
                env=environment,
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _recovery(self) -> list[str]:
        """How a master that is started again knows what it had."""
        if not self._recovers:
            return []
        settings = {
            "recoveryMode": "FILESYSTEM",
            "recoveryDirectory": str(self._home / "recovery"),
            "recoveryTimeout": str(_RECOVERY_S),
        }
        return [f"-Dspark.deploy.{name}={value}" for name, value in settings.items()]

    def _said_by_master(self) -> str:
        found = _MASTER.search(self._log("master"))
        return "" if found is None else found[1]

    def _log(self, name: str) -> str:
        return (self._home / f"{name}.log").read_text(errors="replace")
