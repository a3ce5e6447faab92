"""A topic under load and the table that follows it, run by the command in a process of its own."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.errors import ProtocolError
from strandline.lakehouse.tables.spec import TableSpec, save_spec
from strandline.testing import Cluster
from tests.faults.pipelines import descent
from tests.faults.processes import until

TABLE: Final = "orders"
PARTITIONS: Final = 3
PATIENCE_S: Final = 240.0
_BATCH: Final = 50
_PAUSE_S: Final = 0.1
_KEYS: Final = 500


class Load(threading.Thread):
    """Produces until it is told to end: good records, and now and then one that is none."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(name="load", daemon=True)
        self._addresses = bootstrap
        self._chance = random.Random(seed)
        self._is_over = threading.Event()
        self.acknowledged = 0
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            with ClusterClient(self._addresses) as client:
                producer = Producer(client)
                while not self._is_over.wait(_PAUSE_S):
                    self._send(producer)
        except ProtocolError as error:
            self.failure = error

    def end(self) -> None:
        """Stop, and say what went wrong if anything did."""
        self._is_over.set()
        self.join()
        assert self.failure is None, self.failure

    def _send(self, producer: Producer) -> None:
        for number in range(_BATCH):
            key = self._chance.randrange(_KEYS)
            value = json.dumps({"key": key, "number": self.acknowledged + number})
            if self._chance.random() < 0.01:
                value = "{" + value
            producer.send(TABLE, value.encode(), key=str(key).encode())
        result = producer.flush()
        result.raise_failure()
        self.acknowledged += result.delivered


class Pipeline:
    """`strandline table run` in a process that may be killed at any moment, and started again."""

    def __init__(self, home: Path, bootstrap: str, **spec: Any) -> None:
        self.home = home
        self.spec = TableSpec(
            name=TABLE, topics=(TABLE,), location=str(home / "tables" / TABLE), **spec
        )
        save_spec(self.spec)
        self._bootstrap = bootstrap
        self._log = home / "run.log"
        self._began = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def ensure_running(self) -> None:
        """Start it, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        with self._log.open("ab") as log:
            self._began = log.tell()
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "strandline.cli", "table", "run", TABLE, "--json"),
                    *("--tables", str(self.home / "tables"), "-b", self._bootstrap),
                    *("--interval", "200 ms", "--memory", "512m", "--master", "local[2,4]"),
                    *("--compact-every", "10"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    def wait_for_commits(self, more: int) -> None:
        """Until so many batches more than now were committed, started again if need be."""
        goal = self.commits() + more

        def reached() -> bool:
            self.ensure_running()
            return self.commits() >= goal

        until(reached, f"{more} commits", seconds=PATIENCE_S, complaint=self.complaint)

    def _has_started(self) -> bool:
        return b'"event": "started"' in self._log.read_bytes()[self._began :]

    def commits(self) -> int:
        """What all runs together told."""
        return self._log.read_bytes().count(b'"event": "committed"') if self._log.exists() else 0

    def stop(self) -> None:
        """SIGTERM once it runs; it must end well, with everything that is there."""
        self.ensure_running()
        until(self._has_started, "the start of a run", seconds=PATIENCE_S, complaint=self.complaint)
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(PATIENCE_S)
        assert status == 0, f"{status}: {self.complaint()}"

    def kill(self) -> None:
        """The driver, and with it everything below it, which ends by itself; wait for that."""
        if self._process is None:
            return
        below = descent.descendants(self.pid)
        self._process.kill()
        self._process.wait(PATIENCE_S)
        until(
            lambda: not any(Path(f"/proc/{each}").exists() for each in below),
            "the end of Spark",
            seconds=PATIENCE_S,
        )

    def complaint(self) -> str:
        """The end of its log."""
        return self._log.read_bytes()[-3000:].decode(errors="replace")


class UnderLoad:
    """A cluster with load on a topic, and its pipeline. A context manager that ends all of them."""

    def __init__(self, home: Path, seed: int, **spec: Any) -> None:
        self.chance = random.Random(seed)
        self.cluster = Cluster(brokers=3)
        self._home = home
        self._seed = seed
        self._spec = spec

    def __enter__(self) -> Self:
        self.cluster.open()
        self.cluster.create_topic(TABLE, PARTITIONS, 3, min_insync_replicas=2)
        self.load = Load(self.cluster.bootstrap_servers, self._seed)
        self.pipeline = Pipeline(self._home, self.cluster.bootstrap_servers, **self._spec)
        self.load.start()
        self.pipeline.ensure_running()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            self.pipeline.kill()
            if kind is None:
                self.load.end()
        finally:
            self.cluster.close()

    @property
    def faults(self) -> dict[str, Callable[[], None]]:
        """What can be killed."""
        return {
            "driver": self._kill_driver,
            "jvm": self._kill_jvm,
            "worker": self._kill_worker,
            "broker": self._kill_broker,
        }

    def at_a_random_moment(self, fault: str) -> None:
        """Let it happen somewhere in a batch, not always at its beginning."""
        time.sleep(self.chance.uniform(0.0, 1.5))
        self.faults[fault]()

    def _kill_driver(self) -> None:
        self.pipeline.kill()

    def _kill_jvm(self) -> None:
        for each in descent.java_below(self.pipeline.pid):
            descent.kill(each)

    def _kill_worker(self) -> None:
        workers = descent.workers_below(self.pipeline.pid)
        if workers:
            descent.kill(self.chance.choice(workers))

    def _kill_broker(self) -> None:
        broker = self.chance.choice([1, 2, 3])
        self.cluster.kill(broker)
        time.sleep(self.chance.uniform(0.0, 2.0))
        self.cluster.start(broker)
        self.cluster.wait_until_in_sync(TABLE, timeout_s=PATIENCE_S)
