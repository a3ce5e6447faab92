"""Starting, watching and stopping the brokers under test: Strandline, Apache Kafka, the mock.

Each broker is a process of its own, on 127.0.0.1, with a directory of its own that goes when the
run is over. All get the same settings where a setting exists for both, so that none of them works
under another's rules. Only processes that this file started are ever signalled.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import processes
from bench.kafka_settings import Quorum, as_properties, kafka_settings
from bench.readiness import free_port, wait_until_ready
from bench.secure import Security
from bench.topics import Topics

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 20.0

COMMON_SETTINGS: Mapping[str, str] = {
    # Bounds what a run may leave on the disk: each workload also deletes its topic.
    "log.segment.bytes": str(256 << 20),
    "log.retention.bytes": str(2 << 30),
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "1000",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}

# What Kafka's own start script passes to the JVM for a broker.
KAFKA_JVM_FLAGS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)

LOG4J_WARN = """\
status = warn
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


class BrokerError(Exception):
    """A broker did not start, or ended; the sentence holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Start:
    """What starting cost, up to the first answered request."""

    seconds: float
    cpu_seconds: float


class Broker(ABC):
    """One broker process, or a cluster of several. `label` names it in the report, `kind` says
    what it is."""

    kind: str
    nodes = 1
    """How many brokers it is made of: a workload runs on those that it is meant for."""

    def __init__(self, label: str, directory: Path) -> None:
        self.label = label
        self.directory = directory
        self.port = 0
        self.secure_port = 0
        """Of the listener with TLS, if it has one."""
        self._process: subprocess.Popen[str] | None = None
        self._admin: Topics | None = None

    @property
    def address(self) -> str:
        """Bootstrap server."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the process that was started; its children belong to the broker too."""
        return self._running().pid

    @abstractmethod
    def prepare(self) -> None:
        """What comes before the start and is not timed: directories, formatting, files."""

    @abstractmethod
    def start(self) -> Start:
        """Start and wait until it answers. Raises BrokerError."""

    def create_topic(self, name: str, partitions: int, *, replicas: int = 1) -> None:
        """Create, and wait until every partition can be written. The broker at `port` leads all
        of them."""
        self._topics().create(name, partitions, leader_port=self.port, replicas=replicas)

    def delete_topic(self, name: str) -> None:
        """Delete, so that the next run finds the disk free."""
        self._topics().delete(name)

    def cpu_seconds(self) -> float:
        """CPU time used so far."""
        return processes.cpu_seconds(self.pid)

    def resident_bytes(self) -> int:
        """Resident memory now."""
        return processes.resident_bytes(self.pid)

    def stop(self) -> None:
        """End the process and its children, and remove its directory."""
        self.end()
        shutil.rmtree(self.directory, ignore_errors=True)

    def end(self) -> None:
        """End the process and its children, politely; it can be started again."""
        self._admin = None
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    def _topics(self) -> Topics:
        if self._admin is None:
            self._admin = Topics(self.address)
        return self._admin

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise BrokerError(f"{self.label} was not started")
        if self._process.poll() is not None:
            raise BrokerError(f"{self.label} ended by itself:\n{self._log_end()}")
        return self._process

    def _log_end(self) -> str:
        log = self.directory / "broker.log"
        return log.read_text(errors="replace")[-4000:] if log.exists() else "(no log)"


def _environment() -> dict[str, str]:
    """Ours, but with Python's bytecode cache on, as an installed package has it."""
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


class SocketBroker(Broker):
    """A broker that is started by a command and found by its port."""

    def __init__(self, label: str, directory: Path) -> None:
        super().__init__(label, directory)
        self._command: Sequence[str] = ()

    def start(self) -> Start:
        before = time.monotonic()
        self.launch()
        self.wait_until_it_answers(before + START_TIMEOUT_S)
        return Start(time.monotonic() - before, self.cpu_seconds())

    def launch(self) -> None:
        """Start the process, and wait for nothing. Raises BrokerError."""
        with (self.directory / "broker.log").open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    text=True,
                    env=_environment(),
                )
            except OSError as error:
                raise BrokerError(f"{self.label} cannot be started: {error}") from error

    def wait_until_it_answers(self, deadline: float) -> None:
        """Until its first answer. Raises BrokerError, at once if the process ends by itself."""
        # Short waits, so that a broker that ends at once is reported at once.
        while not wait_until_ready(self.port, deadline=min(deadline, time.monotonic() + 1)):
            self._running()
            if time.monotonic() > deadline:
                end = self._log_end()
                raise BrokerError(f"{self.label} did not answer in {START_TIMEOUT_S} s:\n{end}")

    def kill(self) -> None:
        """kill -9; it can be launched again."""
        process, self._process = self._running(), None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Launch:
    """How the brokers of this session are started."""

    strandline_command: Sequence[str]
    kafka_jars: Path | None
    rdperf: Path
    zookeeper_jars: Path | None = None
    settings: Mapping[str, str] = field(default_factory=lambda: COMMON_SETTINGS)
    security: Security | None = None
    """For brokers with a second listener, which has TLS."""


class StrandlineBroker(SocketBroker):
    """Strandline, from the command that serves it."""

    kind = "strandline"

    def __init__(self, label: str, directory: Path, launch: Launch) -> None:
        super().__init__(label, directory)
        self._launch = launch

    def prepare(self) -> None:
        """A free port and an empty data directory."""
        self.directory.mkdir(parents=True)
        self.port = free_port()
        self._command = [*self._launch.strandline_command, *self._settings()]

    def _settings(self) -> list[str]:
        """The words that say where it listens, where it writes, and what all brokers are told."""
        (self.directory / "data").mkdir()
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.directory / "data"),
            **self._launch.settings,
        }
        if self._launch.security is not None:
            self.secure_port = free_port()
            settings = self._launch.security.added_to(settings, self.secure_port)
        return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


@contextmanager
def running_strandline(
    directory: Path, settings: Mapping[str, str] = COMMON_SETTINGS
) -> Iterator[StrandlineBroker]:
    """A broker by this environment's own command, with its files in `directory`."""
    command = [sys.executable, "-m", "strandline.cli", "serve"]
    launch = Launch(command, None, Path(), settings=settings)
    broker = StrandlineBroker(StrandlineBroker.kind, directory, launch)
    broker.prepare()
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


class KafkaBroker(SocketBroker):
    """Apache Kafka: one process that is broker and controller, formatted beforehand."""

    kind = "kafka"

    def __init__(
        self,
        label: str,
        directory: Path,
        launch: Launch,
        *,
        node_id: int = 1,
        quorum: Quorum | None = None,
    ) -> None:
        super().__init__(label, directory)
        self._launch = launch
        self._node_id = node_id
        self._quorum = quorum

    def prepare(self) -> None:
        """Free ports, a configuration, and a formatted data directory."""
        if self._launch.kafka_jars is None:
            raise BrokerError("Kafka's jars are needed to start Kafka")
        self.directory.mkdir(parents=True)
        self.port = free_port()
        quorum = self._quorum or Quorum({self._node_id: free_port()})
        properties = self.directory / "server.properties"
        data = self.directory / "data"
        settings = kafka_settings(self._node_id, self.port, quorum, data, self._launch.settings)
        if self._launch.security is not None:
            self.secure_port = free_port()
            settings = self._launch.security.added_to(settings, self.secure_port)
        properties.write_text(as_properties(settings))
        logging = self.directory / "log4j2.properties"
        logging.write_text(LOG4J_WARN)
        flags = [*KAFKA_JVM_FLAGS, f"-Dlog4j2.configurationFile={logging}"]
        java = [java_command(), *flags, "-cp", f"{self._launch.kafka_jars}/*"]
        self._command = [*java, "kafka.Kafka", str(properties)]
        tool = [*java, "kafka.tools.StorageTool", "format", "-t", quorum.cluster_id, "-c"]
        try:
            done = subprocess.run(
                [*tool, str(properties)], capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise BrokerError(f"Java is needed to start Kafka: {error}") from error
        if done.returncode:
            raise BrokerError(f"Kafka's data directory was not formatted:\n{done.stderr}")


class MockBroker(Broker):
    """librdkafka's mock cluster in a process of its own. Its topics stay: it bounds them itself."""

    kind = "mock"

    def __init__(self, label: str, directory: Path, launch: Launch) -> None:
        super().__init__(label, directory)
        self._rdperf = launch.rdperf
        self._created: set[str] = set()

    def prepare(self) -> None:
        """Nothing but the directory for its log."""
        self.directory.mkdir(parents=True)

    def start(self) -> Start:
        before = time.monotonic()
        with (self.directory / "broker.log").open("wb") as log:
            self._process = subprocess.Popen(
                [str(self._rdperf), "mock"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
            )
        word, _, address = self._read_line().partition(" ")
        if word != "ready":
            raise BrokerError(f"{self.label} did not start:\n{self._log_end()}")
        self.port = int(address.rpartition(":")[2])
        return Start(time.monotonic() - before, self.cpu_seconds())

    def create_topic(self, name: str, partitions: int, *, replicas: int = 1) -> None:
        if replicas > 1:
            raise BrokerError(f"{self.label} replicates nothing")
        process = self._running()
        if name in self._created:
            return
        if process.stdin is None:
            raise BrokerError(f"{self.label} takes no commands")
        process.stdin.write(f"topic {name} {partitions}\n")
        process.stdin.flush()
        answer = self._read_line()
        if answer != "ok":
            raise BrokerError(f"{self.label} did not create {name}: {answer}")
        self._created.add(name)

    def delete_topic(self, name: str) -> None:
        """The mock cannot delete a topic; it keeps about 5 MB of each partition."""

    def _read_line(self) -> str:
        stdout = self._running().stdout
        return stdout.readline().strip() if stdout else ""


def java_command() -> str:
    """`java` of JAVA_HOME, else of the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _end(process: subprocess.Popen[str]) -> None:
    """First politely. The session was started for it, so its group holds only its own children."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    for ask in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, ask)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            continue
