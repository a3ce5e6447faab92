"""`python -m bench.hostile`: a broker under clients that mean no good, and an honest one beside.

One broker with a plain listener, one with SASL, and one with SASL over TLS. An honest client,
authenticated, writes a record of 1 KB with acks=1 a hundred times a second, each when it is due,
and now and then comes anew; its latency counts from when a record was due. Meanwhile, one after the
other and each beside a calm of the same length before it:

    silent       connections to the plain listener that say nothing, as far as `ulimit -n` goes
    before       frames that are none, of clients that have not authenticated
    after        the same of clients that have
    handshakes   complete handshakes of TLS, one connection after the other
    half         handshakes that end with the client's first message
    stalled      handshakes that end within that message

Beside the last three the honest client comes by the listener with TLS, too.

Goals: the honest client's p99 at most doubles, memory stays bounded, nothing of the broker fails.
Everything shares the processors of this machine, the attackers too. So latencies are told twice:
as they were, and without the time for which the broker or the client was ready to run and had no
processor (`/proc/PID/schedstat`), which is what the goal is about.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import ssl
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.brokers import Launch, StrandlineBroker
from bench.environment import describe
from bench.hostile_attacks import PASSWORD, THREADS, USER, Attack, run
from bench.raw_connection import RawConnection, frame_of
from bench.readiness import free_port
from bench.secure import Security
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from strandline.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from strandline.protocol.messages.sasl_handshake import SaslHandshakeRequest
from strandline.records.builder import build_batch
from strandline.records.record import Record

TOPIC: Final = "honest"
EVERY_S: Final = 0.01
COMES_ANEW_AFTER: Final = 100
WARM_S: Final = 3.0
SETTLE_S: Final = 2.0
KINDS: Final = ("silent", "before", "after", "handshakes", "half", "stalled")
SILENT_RESERVE: Final = 500
"""Handles that an attacker and the broker need besides."""
MEMORY_MB_MAX: Final = 300
"""How much the broker may grow: 10,000 connections at 20 KB, and what frames may hold on to."""
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class SecuredBroker(StrandlineBroker):
    """With a second listener that asks for a name, and a third one that does so over TLS."""

    sasl_port = 0

    def _settings(self) -> list[str]:
        words_before = super()._settings()
        self.sasl_port = free_port()
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},SASL://127.0.0.1:{self.sasl_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": (
                f'{_PLAIN} user_{USER}="{PASSWORD}" user_honest="honest-secret";'
            ),
        }
        if self._launch.security is not None:
            settings = self._launch.security.added_to(settings, self.secure_port)
        words = [word for each in settings.items() for word in ("--set", "=".join(each))]
        return [*words_before, *words]

    def log_text(self) -> str:
        """All that it has said."""
        return (self.directory / "broker.log").read_text(errors="replace")


@dataclass(slots=True)
class Measured:
    """One time of one client."""

    latencies_ms: list[float] = field(default_factory=list)
    own_ms: list[float] = field(default_factory=list)
    """The same without waiting for a processor."""
    logins_ms: list[float] = field(default_factory=list)
    memory_mb: float = 0.0
    """The most that the broker had."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0


class Honest:
    """The client that is to be served all the while."""

    def __init__(self, broker: SecuredBroker, security: Security | None = None) -> None:
        """With that, it comes by TLS."""
        self._broker = broker
        self._security = security
        self._context = (
            None if security is None else ssl.create_default_context(cafile=str(security.authority))
        )
        batch = build_batch([Record(timestamp=int(time.time() * 1000), value=b"x" * 1024)])
        partition = PartitionProduceData(index=0, records=memoryview(batch))
        topic = TopicProduceData(name=TOPIC, partition_data=[partition])
        self._request = frame_of(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic]), 9)
        self._connection: RawConnection | None = None

    def work(self, until: Callable[[float], bool]) -> Measured:
        """Write until that says so, of the seconds that have passed."""
        measured = Measured()
        broker = self._broker
        began, cpu = time.monotonic(), broker.cpu_seconds()
        due, number = began, 0
        while not until(time.monotonic() - began):
            if number % COMES_ANEW_AFTER == 0:
                before = time.monotonic()
                self._come_anew()
                measured.logins_ms.append((time.monotonic() - before) * 1000)
                resident = broker.resident_bytes() / (1 << 20)
                measured.memory_mb = max(measured.memory_mb, resident)
                due = time.monotonic()  # logging in is counted by itself
            time.sleep(max(0.0, due - time.monotonic()))
            late, waited = time.monotonic() - due, _waited_s(broker.pid)
            before = time.monotonic()
            code = self._ask(self._request)
            took = time.monotonic() - before
            waited = _waited_s(broker.pid) - waited
            measured.latencies_ms.append((late + took) * 1000)
            measured.own_ms.append(max(0.0, took - waited) * 1000)
            if code:
                raise SystemExit(f"The honest client was refused with the code {code}.")
            due += EVERY_S
            number += 1
        measured.seconds = time.monotonic() - began
        measured.cpu_seconds = broker.cpu_seconds() - cpu
        return measured

    def _come_anew(self) -> None:
        if self._connection is not None:
            self._connection.close()
        broker = self._broker
        port = broker.sasl_port if self._context is None else broker.secure_port
        connection = self._connection = RawConnection(port, self._context)
        connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        password = b"\0honest\0honest-secret" if self._security is None else self._security.login
        connection.ask(SaslAuthenticateRequest(auth_bytes=password), 2)

    def _ask(self, request: bytes) -> int:
        """The error code of a produce answer: version 9, one topic, one partition."""
        if self._connection is None:
            raise SystemExit("The honest client is not connected.")
        answer = self._connection.exchange(request)
        at = 4 + 1 + 1 + 1 + len(TOPIC) + 1 + 4
        return int(struct.unpack_from(">h", answer, at)[0])


@dataclass(frozen=True, slots=True)
class Round:
    """An attack, and the calm before it."""

    kind: str
    calm: Measured
    beside: Measured
    done: int
    lost: int

    @property
    def ratio(self) -> float:
        """Of the p99s without waiting for a processor."""
        return percentile(self.beside.own_ms, 99) / percentile(self.calm.own_ms, 99)


def attack(honest: Honest, what: Attack, seconds: float) -> Round:
    """Measure a calm, then beside the attack: at least so long, and until it has done all."""
    calm = honest.work(lambda passed: passed >= seconds)
    context = multiprocessing.get_context("spawn")
    done, lost, stop = context.Value("q", 0), context.Value("q", 0), context.Event()

    def has_done_all() -> bool:
        return done.value + lost.value >= what.count or not child.is_alive()

    child = context.Process(target=run, args=(what, done, lost, stop))
    child.start()
    try:
        while not done.value and child.is_alive():
            time.sleep(0.01)
        beside = honest.work(lambda passed: passed >= seconds and has_done_all())
    finally:
        stop.set()
        child.join()
    return Round(what.kind, calm, beside, done.value, lost.value)


def report(rounds: Sequence[Round]) -> str:
    """The table."""
    lines = [
        "| attack | done | lost | s | p50, ms | p99, ms | p50 without waiting | "
        "p99 without waiting | login p50, ms | broker's memory, MB | its CPU |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in rounds:
        calm, beside = each.calm, each.beside

        def both(percent: float, of: Callable[[Measured], Sequence[float]], each: Round) -> str:
            """Of the calm, and beside the attack."""
            values = (percentile(of(one), percent) for one in (each.calm, each.beside))
            return " → ".join(f"{value:.2f}" for value in values)

        cells = [
            each.kind,
            f"{each.done:,}",
            f"{each.lost:,}",
            f"{beside.seconds:.0f}",
            both(50, lambda one: one.latencies_ms, each),
            both(99, lambda one: one.latencies_ms, each),
            both(50, lambda one: one.own_ms, each),
            f"{both(99, lambda one: one.own_ms, each)} ({each.ratio:.1f} x)",
            both(50, lambda one: one.logins_ms, each),
            f"{calm.memory_mb:.0f} → {beside.memory_mb:.0f}",
            f"{beside.cpu_seconds / beside.seconds:.0%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def problems(rounds: Sequence[Round], log: str) -> list[str]:
    """The goals that were missed."""
    found = [f"p99 beside {each.kind}: {each.ratio:.1f} x" for each in rounds if each.ratio > 2]
    found += [
        f"memory beside {each.kind}: {grown:.0f} MB more"
        for each in rounds
        if (grown := each.beside.memory_mb - rounds[0].calm.memory_mb) > MEMORY_MB_MAX
    ]
    found += ["the broker logged a failure of its own"] if "Traceback" in log else []
    found += ["a secret is in the log"] if PASSWORD in log or "honest-secret" in log else []
    return found


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which so many per cent lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def _waited_s(pid: int) -> float:
    """For how long this thread and the main one of a process were ready, and had no processor."""
    texts = (Path(f"/proc/{each}/schedstat").read_text() for each in ("thread-self", pid))
    return sum(int(text.split()[1]) for text in texts) / 1e9


def most_handles() -> int:
    """Raise the limit of open files as far as it goes; children inherit it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def main() -> int:
    """Run, print, and tell by the exit status whether the goals are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000, help="that say nothing")
    parser.add_argument("--frames", type=int, default=100_000, help="before, and after, at least")
    parser.add_argument("--seconds", type=float, default=20, help="of each part at least")
    parser.add_argument("--handshakes", type=int, default=10_000, help="of each kind, at least")
    parser.add_argument("--attacks", default=",".join(KINDS), help="which of them")
    parser.add_argument("--rate", type=float, default=0, help="of each second; 0: all there are")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data-dir", type=Path, default=Path("/dev/shm"))
    options = parser.parse_args()
    connections = max(1, min(options.connections, most_handles() - SILENT_RESERVE))
    command = [sys.executable, "-m", "strandline.cli.main", "serve"]
    with tempfile.TemporaryDirectory(dir=options.data_dir, prefix="hostile-") as directory:
        security = Security.made_in(Path(directory))
        launch = Launch(command, None, Path(), security=security)
        broker = SecuredBroker("strandline", Path(directory) / "broker", launch)
        broker.prepare()
        try:
            broker.start()
            broker.create_topic(TOPIC, 1)
            print(describe(Path(directory), kafka_jars=None, java="java").line())
            plain, secured = Honest(broker), Honest(broker, security)
            for each in (plain, secured):
                each.work(lambda passed: passed >= WARM_S)
            rounds = []
            for kind, honest, port, count in (
                ("silent", plain, broker.port, connections),
                ("before", plain, broker.sasl_port, options.frames),
                ("after", plain, broker.sasl_port, options.frames),
                *(
                    (kind, secured, broker.secure_port, options.handshakes)
                    for kind in ("handshakes", "half", "stalled")
                ),
            ):
                if kind not in options.attacks.split(","):
                    continue
                rate = options.rate / THREADS
                what = Attack(kind, port, count, rate, options.seed)
                rounds.append(attack(honest, what, options.seconds))
                time.sleep(SETTLE_S)
            missed = problems(rounds, broker.log_text())
        finally:
            broker.stop()
    print(f"load average after: {os.getloadavg()[0]:.2f}\n\n{report(rounds)}\n")
    print("\n".join(f"missed: {each}" for each in missed) or "All goals are met.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
