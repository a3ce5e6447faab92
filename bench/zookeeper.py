"""A ZooKeeper server for the brokers under test that need one."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

from bench import processes
from bench.brokers import START_TIMEOUT_S, STOP_TIMEOUT_S, BrokerError, Launch, java_command
from bench.readiness import free_port

RETRY_S = 0.01
FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:-UsePerfData")


class ZooKeeper:
    """One server, in memory and on disk as its defaults have it."""

    def __init__(self, label: str, directory: Path, launch: Launch) -> None:
        self.label = label
        self._directory = directory
        self._jars = launch.zookeeper_jars
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What a broker is told."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it and wait until it listens. Raises BrokerError."""
        if self._jars is None:
            raise BrokerError("ZooKeeper's jars are needed to start ZooKeeper")
        self._directory.mkdir(parents=True)
        settings = self._directory / "zoo.cfg"
        settings.write_text(
            f"dataDir={self._directory}\nclientPortAddress=127.0.0.1\nclientPort={self._port}\n"
            "tickTime=500\nmaxClientCnxns=0\nadmin.enableServer=false\n"
        )
        command = [java_command(), *FLAGS, "-cp", f"{self._jars}/*"]
        command += ["org.apache.zookeeper.server.ZooKeeperServerMain", str(settings)]
        with (self._directory / "zookeeper.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log_text = (self._directory / "zookeeper.log").read_text(errors="replace")
                raise BrokerError(f"{self.label} did not start:\n{log_text[-2000:]}")
            time.sleep(RETRY_S)

    def stop(self) -> None:
        """End it and remove its data."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_TIMEOUT_S)
        shutil.rmtree(self._directory, ignore_errors=True)

    def cpu_seconds(self) -> float:
        """CPU time used so far."""
        return processes.cpu_seconds(self._process.pid) if self._process else 0.0

    def resident_bytes(self) -> int:
        """Resident memory now."""
        return processes.resident_bytes(self._process.pid) if self._process else 0

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), 1.0).close()
        except OSError:
            return False
        return True
