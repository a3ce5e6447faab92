"""The rounds: which run comes after which, and what is kept of it.

In each round every workload runs on every broker, one at a time, and the order of the brokers turns
by one per round, so that none of them always runs first. A run that fails is kept as a sentence;
the rounds go on.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from bench.brokers import Broker, BrokerError
from bench.results import METRICS, Result, Results
from bench.workloads import MIB, ClientError, Metrics, Setup, Workload

FREE_BYTES_MIN = 4 << 30
RUN_ERRORS = (ClientError, BrokerError, KafkaException, subprocess.TimeoutExpired)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run, and how often."""

    workloads: Sequence[Workload]
    rounds: int
    warmup_rounds: int
    data_directory: Path


class Progress:
    """One line per run on standard error, with the time that is left if it goes on like this."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._done = 0
        self._started = time.monotonic()

    def finished(self, what: str, outcome: str) -> None:
        """Count one run."""
        self._done += 1
        elapsed = time.monotonic() - self._started
        left = elapsed / self._done * (self._runs - self._done)
        print(
            f"[{self._done:4d}/{self._runs}] {what:44s} {outcome}  (about {left:.0f} s left)",
            file=sys.stderr,
            flush=True,
        )


class Runner:
    """The brokers of one session and what was measured on them."""

    def __init__(self, plan: Plan, brokers: Mapping[str, Broker], setup: Setup) -> None:
        self._plan = plan
        self._brokers = brokers
        self._setup = setup
        self._topics = 0
        self.results = Results()
        self.failures: list[str] = []

    def run(self) -> None:
        """All rounds. Rounds below 1 warm up and are not kept."""
        rounds = range(1 - self._plan.warmup_rounds, self._plan.rounds + 1)
        progress = Progress(len(rounds) * len(self._pairs(0)))
        for round_ in rounds:
            loaded: dict[str, float] = {}
            for workload, broker in self._pairs(round_):
                metrics = self._run_one(workload, broker, round_, progress)
                if metrics is None:
                    continue
                resident = metrics.pop("loaded_rss_mib")
                loaded[broker.label] = max(loaded.get(broker.label, 0.0), resident)
                if round_ > 0:
                    self.results.add(Result(workload.name, broker.label, round_, metrics))
            for label, resident in loaded.items() if round_ > 0 else ():
                metrics = {"loaded_rss_mib": resident}
                self.results.add(Result("memory", label, round_, metrics))

    def _pairs(self, round_: int) -> list[tuple[Workload, Broker]]:
        """A round's runs in order."""
        brokers = list(self._brokers.values())
        turn = round_ % len(brokers)
        return [
            (workload, broker)
            for workload in self._plan.workloads
            for broker in brokers[turn:] + brokers[:turn]
            if workload.suits(broker)
        ]

    def _run_one(
        self, workload: Workload, broker: Broker, round_: int, progress: Progress
    ) -> Metrics | None:
        what = f"round {round_} {workload.name} {broker.label}"
        self._topics += 1
        try:
            self._check_space()
            metrics = workload.run(broker, self._topic(workload, broker), self._setup)
            metrics["loaded_rss_mib"] = broker.resident_bytes() / MIB
        except RUN_ERRORS as error:
            self.failures.append(f"{what}: {error}")
            progress.finished(what, f"FAILED: {error}")
            return None
        progress.finished(what, _headline(metrics))
        return metrics

    def _check_space(self) -> None:
        free = shutil.disk_usage(self._plan.data_directory).free
        if free < FREE_BYTES_MIN:
            raise BrokerError(f"only {free >> 20} MiB are free in {self._plan.data_directory}")

    def _topic(self, workload: Workload, broker: Broker) -> str:
        """A new topic per run, but for the mock, which would keep every one in memory."""
        return workload.name if broker.kind == "mock" else f"{workload.name}-{self._topics}"


def _headline(metrics: Metrics) -> str:
    """The first two figures of a run."""
    shown = [(METRICS[name], metrics[name]) for name in METRICS if name in metrics][:2]
    return ", ".join(f"{value:,.{about.digits}f} {about.unit}" for about, value in shown)
