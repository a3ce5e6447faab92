"""A real ZooKeeper server in a process of its own, and how to find what it needs.

Knows the server's configuration and its four-letter words; the jars come from Maven Central (see
`bench.kafka_jars`). Every server has a loopback address of its own, so that the ports which the
system chose for it stay free while it is down: nothing else uses that address.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.kafka_jars import JarsError, zookeeper_jars

PATIENCE_S: Final = 120.0
TICK_MS: Final = 200
_WORD_TIMEOUT_S: Final = 10.0
_STARTING_TIMEOUT_S: Final = 0.5
"""A server that is about to serve may take a connection and never answer: it is asked again."""
_FLAGS: Final = (
    # A small heap and no second compiler: the server starts in a third of the time.
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dzookeeper.forceSync=no",  # kill -9 keeps the page cache, and no test cuts the power
)
_addresses = itertools.count()


def missing() -> str | None:
    """Why no server can be started here, or None."""
    if shutil.which("java") is None:
        return "there is no java on the path"
    try:
        jars()
    except JarsError as error:
        return str(error)
    return None


def own_address() -> str:
    """A loopback address that no other server has, in this process or in another."""
    number = next(_addresses) % 250 + 2
    return f"127.{1 + (os.getpid() >> 8) % 250}.{os.getpid() % 256}.{number}"


@dataclass(frozen=True, slots=True)
class Ports:
    """Where one server listens: for clients, for its peers, and for their elections."""

    host: str
    client: int
    quorum: int
    election: int

    @classmethod
    def chosen(cls) -> Ports:
        """Free ports of a new address."""
        host = own_address()
        sockets = [socket.socket() for _ in range(3)]
        try:
            for bound in sockets:
                bound.bind((host, 0))
            return cls(host, *(bound.getsockname()[1] for bound in sockets))
        finally:
            for bound in sockets:
                bound.close()


class ZooKeeperServer:
    """One server; `number` is its place in the ensemble `peers`."""

    def __init__(
        self,
        directory: Path,
        peers: tuple[Ports, ...],
        number: int,
        *settings: str,
        before: str = "",
    ) -> None:
        """`settings` are further lines for it; `before` are jars to stand before its own."""
        self.ports = peers[number]
        self._peers = peers
        self._settings = settings
        self._before = before
        self._directory = directory
        self._config = directory / "zoo.cfg"
        self._process: subprocess.Popen[bytes] | None = None
        self._data = directory / "data"
        self._data.mkdir(parents=True)
        (self._data / "myid").write_text(str(number + 1))
        self._configure()

    def _configure(self) -> None:
        settings = [
            f"tickTime={TICK_MS}",
            "initLimit=50",
            "syncLimit=25",
            f"dataDir={self._data}",
            f"clientPortAddress={self.ports.host}",
            f"clientPort={self.ports.client}",
            "maxClientCnxns=0",
            "minSessionTimeout=200",
            "maxSessionTimeout=60000",
            "admin.enableServer=false",
            "4lw.commands.whitelist=*",
            *self._settings,
        ]
        if len(self._peers) > 1:
            settings += [
                f"server.{index + 1}={peer.host}:{peer.quorum}:{peer.election}"
                for index, peer in enumerate(self._peers)
            ]
        self._config.write_text("\n".join(settings) + "\n")

    def move(self, to: Ports) -> None:
        """Listen for clients elsewhere from the next start on; its peers find it where it was."""
        self.ports = replace(self.ports, host=to.host, client=to.client)
        self._configure()

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"{self.ports.host}:{self.ports.client}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """Everything that the server printed."""
        return (self._directory / "output").read_text(errors="replace")

    def start(self) -> None:
        """Start the process; `mode` tells when it serves."""
        if self.is_running:
            raise RuntimeError(f"ZooKeeper {self.address} runs already")
        classes = f"{jars()}/*"
        if self._before:
            # One by one: a Java with an archive (`quick_java`) puts that folder in front of all.
            own = map(str, sorted(jars().glob("*.jar")))
            classes = f"{self._before}{os.pathsep.join(own)}"
        command = ["java", *_FLAGS, "-cp", classes]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._config)]
        with (self._directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def kill(self) -> None:
        """kill -9, and wait until the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """SIGTERM, and wait until the process is gone."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def pause(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def mode(self, timeout_s: float = _WORD_TIMEOUT_S) -> str | None:
        """ "standalone", "leader" or "follower"; None while the server does not serve."""
        for line in self.ask("srvr", timeout_s).splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return None

    def ask(self, word: str, timeout_s: float = _WORD_TIMEOUT_S) -> str:
        """What the server answers to a four-letter word; nothing if it cannot be reached."""
        address = (self.ports.host, self.ports.client)
        try:
            with socket.create_connection(address, timeout=timeout_s) as connection:
                connection.sendall(word.encode())
                connection.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        except OSError:
            return ""

    def wait_until_serving(self) -> None:
        """Wait until the server serves; an error shows what it printed."""
        deadline = time.monotonic() + PATIENCE_S
        while self.mode(_STARTING_TIMEOUT_S) is None:
            if not self.is_running or time.monotonic() > deadline:
                raise RuntimeError(f"ZooKeeper {self.address} does not serve:\n{self.log}")
            time.sleep(0.01)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError(f"ZooKeeper {self.address} was not started")
        self._process.send_signal(number)


def jars() -> Path:
    """Where the jars are; they are fetched if need be. Raises `JarsError`."""
    default = str(Path.home() / ".cache" / "strandline-tests")
    cache = Path(os.environ.get("STRANDLINE_TEST_CACHE", default))
    cache.mkdir(parents=True, exist_ok=True)
    return zookeeper_jars(cache)
