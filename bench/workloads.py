"""The workloads: what is sent, and what is read off each run.

A workload is a value; `run` carries it out on one broker and returns its metrics. Every loop is
bounded by time and by bytes. Broker CPU is read before and after the client's whole run and divided
by everything that the client did in it (warm-up and drain included): dividing by the measured
window alone would charge the window for work outside it.
"""

from __future__ import annotations

import json
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench import processes
from bench.brokers import Broker
from bench.native import Tools
from bench.secure import Security

CLIENT_TIMEOUT_S = 180.0
SETTLE_S = 2.0
MEGABYTE = 1e6
GIGABYTE = 1e9
MIB = 1 << 20

Metrics = dict[str, float]


class ClientError(Exception):
    """A client reported an error: a wrong answer, a stall, a failed delivery."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and how much: the one difference between a full and a quick session."""

    milliseconds: int
    warmup_ms: int
    max_bytes: int
    client_records_bytes: int
    """Payload that a librdkafka client sends at most per run."""

    @property
    def client_milliseconds(self) -> int:
        """Bound for a slow broker."""
        return 3 * self.milliseconds


FULL = Effort(milliseconds=3000, warmup_ms=500, max_bytes=1 << 30, client_records_bytes=400 << 20)
QUICK = Effort(milliseconds=800, warmup_ms=200, max_bytes=256 << 20, client_records_bytes=80 << 20)


def _no_other(label: str) -> Broker:
    raise LookupError(f"There is no other broker like {label} here.")


@dataclass(frozen=True, slots=True)
class Setup:
    """What a workload needs besides the broker."""

    tools: Tools
    effort: Effort
    fresh_broker: Callable[[str], Broker] = _no_other
    """A new, prepared, not yet started broker of the same kind as the one with this label."""
    security: Security | None = None
    """For clients that log in over TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload(ABC):
    """One line of the report's list. `mock` tells whether the mock cluster can serve it, `nodes`
    how many brokers it is meant for."""

    name: str
    title: str
    mock: bool = False
    nodes: int = 1
    secure: bool = False
    """Whether it needs the brokers' second listener, with TLS and a login."""

    def suits(self, broker: Broker) -> bool:
        """Whether it means brokers of this kind and size."""
        return broker.nodes == self.nodes and (self.mock or broker.kind != "mock")

    @abstractmethod
    def run(self, broker: Broker, topic: str, setup: Setup) -> Metrics:
        """Carry it out; `topic` is a name that no run used before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawProduce(Workload):
    """The C load generator, Produce v9. `rate` (requests/s) makes it an open loop; `acks` -1 is
    acks=all."""

    connections: int
    inflight: int
    record_bytes: int
    batch_bytes: int = 0
    records_per_batch: int = 0
    rate: int = 0
    acks: int = 1
    replicas: int = 1
    partitions: int = 0
    """As many as connections if it is 0."""
    mock: bool = True

    def run(self, broker: Broker, topic: str, setup: Setup) -> Metrics:
        """Throughput and cost; latency only at a fixed rate (in a closed loop it is the depth)."""
        partitions = self.partitions or self.connections
        broker.create_topic(topic, partitions, replicas=self.replicas)
        measured = measure(broker, self.command(broker, topic, setup))
        if self.rate:
            names = ("requests_per_second", "p50_us", "p99_us", "p999_us", "service_p50_us")
            metrics = {name: measured.client[name] for name in names}
            metrics["cpu_us_per_request"] = measured.cpu_us_per_request
        elif self.records_per_batch:
            metrics = {
                "requests_per_second": measured.client["requests_per_second"],
                "cpu_us_per_request": measured.cpu_us_per_request,
            }
        else:
            metrics = measured.throughput()
        broker.delete_topic(topic)
        return metrics | measured.noise()

    def command(self, broker: Broker, topic: str, setup: Setup) -> list[str]:
        """The load generator's words."""
        options = {
            "connections": self.connections,
            "partitions": self.partitions or self.connections,
            "inflight": self.inflight,
            "record-bytes": self.record_bytes,
            "batch-bytes": self.batch_bytes,
            "records-per-batch": self.records_per_batch,
            "rate": self.rate,
            "acks": self.acks,
            "milliseconds": setup.effort.milliseconds,
            "warmup-ms": setup.effort.warmup_ms,
            "max-bytes": setup.effort.max_bytes,
        }
        return _loadgen("produce", broker, topic, setup, options)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFetch(Workload):
    """The C load generator, Fetch v11, over partitions that it filled just before (so that they
    are in the page cache), from the beginning to the end and over again."""

    connections: int
    fetch_bytes: int
    record_bytes: int
    batch_bytes: int
    fill_bytes: int = 256 << 20
    fill_requests: int = 20_000

    def run(self, broker: Broker, topic: str, setup: Setup) -> Metrics:
        """Only the fetches are measured."""
        broker.create_topic(topic, self.connections)
        per_request = max(self.batch_bytes, self.record_bytes)
        fill = {
            "connections": self.connections,
            "partitions": self.connections,
            "inflight": 4,
            "record-bytes": self.record_bytes,
            "batch-bytes": self.batch_bytes,
            "milliseconds": setup.effort.client_milliseconds,
            "max-bytes": min(self.fill_bytes, self.fill_requests * per_request),
        }
        _run_client(_loadgen("produce", broker, topic, setup, fill))
        options = {
            "connections": self.connections,
            "partitions": self.connections,
            "fetch-bytes": self.fetch_bytes,
            "milliseconds": setup.effort.milliseconds,
            "warmup-ms": setup.effort.warmup_ms,
            "max-bytes": 1 << 50,  # reading fills no disk: only the time is a bound
        }
        measured = measure(broker, _loadgen("fetch", broker, topic, setup, options))
        broker.delete_topic(topic)
        requests = {
            "requests_per_second": measured.client["requests_per_second"],
            "cpu_us_per_request": measured.cpu_us_per_request,
        }
        return measured.throughput() | requests | measured.noise()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProduce(Workload):
    """librdkafka's producer: linger 5 ms, 4 partitions; acks=1 if nothing else is said."""

    record_bytes: int
    batch_bytes: int
    codec: str
    acks: int = 1
    replicas: int = 1
    mock: bool = True

    def run(self, broker: Broker, topic: str, setup: Setup) -> Metrics:
        """Rate over all deliveries, from the first message to the last confirmation."""
        broker.create_topic(topic, CLIENT_PARTITIONS, replicas=self.replicas)
        measured = measure(broker, self.command(broker, topic, setup))
        broker.delete_topic(topic)
        return _client_metrics(measured)

    def command(self, broker: Broker, topic: str, setup: Setup) -> list[str]:
        """The client's words."""
        settings = {
            "acks": str(self.acks),
            "linger.ms": "5",
            "batch.size": str(self.batch_bytes),
            "batch.num.messages": "1000000",  # so that the size alone closes a batch
            "queue.buffering.max.messages": "1000000",
            "queue.buffering.max.kbytes": str(1 << 20),
            "compression.codec": self.codec,
        }
        options = {
            "messages": setup.effort.client_records_bytes // self.record_bytes,
            "milliseconds": setup.effort.client_milliseconds,
        }
        return _rdperf("produce", broker, topic, setup, self, options, settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConsume(Workload):
    """librdkafka's consumer over what librdkafka's producer wrote just before. Not for the mock,
    which keeps no more than the end of a partition."""

    record_bytes: int
    batch_bytes: int
    codec: str

    def run(self, broker: Broker, topic: str, setup: Setup) -> Metrics:
        """Only the consumer is measured. CRCs are not checked, which is librdkafka's default."""
        producer = ClientProduce(
            name=self.name,
            title=self.title,
            record_bytes=self.record_bytes,
            batch_bytes=self.batch_bytes,
            codec=self.codec,
            secure=self.secure,
        )
        broker.create_topic(topic, CLIENT_PARTITIONS)
        written = _run_client(producer.command(broker, topic, setup))
        options = {"messages": int(written["records"])}
        settings = {"fetch.message.max.bytes": str(MIB), "queued.min.messages": "1000000"}
        command = _rdperf("consume", broker, topic, setup, self, options, settings)
        measured = measure(broker, command)
        broker.delete_topic(topic)
        return _client_metrics(measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup(Workload):
    """A second broker of the same kind on an empty directory: time to the first answer, and what
    it holds in memory two seconds later."""

    def run(self, broker: Broker, topic: str, setup: Setup) -> Metrics:  # noqa: ARG002
        """The broker under load is left alone."""
        fresh = setup.fresh_broker(broker.label)
        try:
            start = fresh.start()
            time.sleep(SETTLE_S)
            idle = fresh.resident_bytes()
        finally:
            fresh.stop()
        return {
            "startup_seconds": start.seconds,
            "startup_cpu_seconds": start.cpu_seconds,
            "idle_rss_mib": idle / MIB,
        }


CLIENT_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Measured:
    """A client's own report and what the broker and the machine did meanwhile."""

    client: Mapping[str, float]
    broker_cpu_seconds: float
    machine_busy_seconds: float
    elapsed_seconds: float

    @property
    def cpu_us_per_request(self) -> float:
        """Broker CPU over all requests of the run."""
        return self.broker_cpu_seconds * 1e6 / self.client["total_requests"]

    def throughput(self) -> Metrics:
        """Rate in the measured window, broker CPU over all bytes of the run."""
        return {
            "megabytes_per_second": self.client["bytes_per_second"] / MEGABYTE,
            "cpu_seconds_per_gigabyte": self.broker_cpu_seconds
            * GIGABYTE
            / self.client["total_bytes"],
        }

    def noise(self) -> Metrics:
        """How much of the machine the client took, and how much neither of the two."""
        client = self.client["client_cpu_seconds"]
        foreign = self.machine_busy_seconds - self.broker_cpu_seconds - client
        return {
            "client_cores": client / self.elapsed_seconds,
            "foreign_cores": max(0.0, foreign) / self.elapsed_seconds,
        }


def _client_metrics(measured: Measured) -> Metrics:
    records = {"records_per_second": measured.client["records_per_second"]}
    return records | measured.throughput() | measured.noise()


def measure(broker: Broker, command: list[str]) -> Measured:
    """Run a client, and note what the broker and the machine did meanwhile."""
    busy, cpu, clock = processes.machine_busy_seconds(), broker.cpu_seconds(), time.monotonic()
    client = _run_client(command)
    return Measured(
        client,
        broker_cpu_seconds=broker.cpu_seconds() - cpu,
        machine_busy_seconds=processes.machine_busy_seconds() - busy,
        elapsed_seconds=time.monotonic() - clock,
    )


def load(broker: Broker, topic: str, setup: Setup, size: int) -> None:
    """Write records of 1 KB in batches of 64 KB into one partition: so many bytes."""
    options = {
        "connections": 1,
        "partitions": 1,
        "inflight": 4,
        "record-bytes": 1024,
        "batch-bytes": 64 * 1024,
        "milliseconds": int(CLIENT_TIMEOUT_S * 1000),
        "max-bytes": size,
    }
    _run_client(_loadgen("produce", broker, topic, setup, options))


def _run_client(command: list[str]) -> dict[str, float]:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise ClientError(f"{' '.join(command)}\n{done.stderr.strip()}")
    report: dict[str, object] = json.loads(done.stdout)
    return {name: value for name, value in report.items() if isinstance(value, int | float)}


def _loadgen(
    mode: str, broker: Broker, topic: str, setup: Setup, options: Mapping[str, int]
) -> list[str]:
    """Options that are 0 are left out: the load generator's default is then 'not used'."""
    words = [str(setup.tools.loadgen), mode, "--port", str(broker.port), "--topic", topic]
    for name, value in options.items():
        words += [f"--{name}", str(value)] if value else []
    return words


def _rdperf(
    mode: str,
    broker: Broker,
    topic: str,
    setup: Setup,
    workload: ClientProduce | ClientConsume,
    options: Mapping[str, int],
    settings: Mapping[str, str],
) -> list[str]:
    address = broker.address
    if workload.secure:
        if setup.security is None or not broker.secure_port:
            raise ClientError(f"{broker.label} has no listener with TLS")
        address = f"127.0.0.1:{broker.secure_port}"
        settings = {**settings, **setup.security.client_settings()}
    words = [str(setup.tools.rdperf), mode, "--brokers", address, "--topic", topic]
    words += ["--partitions", str(CLIENT_PARTITIONS)]
    words += ["--record-bytes", str(workload.record_bytes)]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    for name, text in settings.items():
        words += ["--set", f"{name}={text}"]
    return words
