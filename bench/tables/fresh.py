"""How long a record takes from its acknowledgement to the table."""

from __future__ import annotations

import statistics
import threading
import time

from bench.tables.world import Bench
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.lakehouse.pipeline.batches import RunContext
from strandline.lakehouse.pipeline.events import Committed, Event
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.pipeline.runner import Runner
from strandline.lakehouse.tables.store import open_store
from strandline.testing import Cluster


class Feeder(threading.Thread):
    """A record every tenth of a second, and when each was acknowledged."""

    def __init__(
        self, producer: Producer, topic: str, acknowledged: list[float], seconds: float
    ) -> None:
        super().__init__(daemon=True)
        self._producer = producer
        self._topic = topic
        self._acknowledged = acknowledged
        self._until = time.monotonic() + seconds

    def run(self) -> None:
        while time.monotonic() < self._until:
            self._producer.send(self._topic, b'{"id": 1}', partition=0)
            self._producer.flush().raise_failure()
            self._acknowledged.append(time.monotonic())
            time.sleep(0.1)


def freshness(bench: Bench, cluster: Cluster, seconds: float, interval_s: float) -> str:
    """From acknowledged to committed, a record every tenth of a second."""
    topic = f"fresh-{interval_s:g}"
    cluster.create_topic(topic, 1, 1)
    spec = bench.spec(topic)
    ages: list[float] = []
    acknowledged: list[float] = []
    until = time.monotonic() + seconds

    class UntilThen:
        @property
        def is_set(self) -> bool:
            return time.monotonic() > until

    def tell(event: Event) -> None:
        if isinstance(event, Committed):
            now = time.monotonic()
            for each in event.ranges:
                ages.extend(now - acknowledged[offset] for offset in range(each.start, each.end))

    with ClusterClient(bench.bootstrap) as client:
        feeder = Feeder(Producer(client), topic, acknowledged, seconds)
        feeder.start()
        options = RunOptions(bootstrap=bench.bootstrap, interval_ms=int(interval_s * 1000))
        store = open_store(spec, create=True)
        Runner(RunContext(bench.spark, spec, store, options), tell).run(UntilThen())
        feeder.join()
    if not ages:
        return "\nfreshness: nothing was committed"
    ages.sort()
    return (
        f"\nfreshness at an interval of {interval_s:g} s, {len(ages)} records: median "
        f"{statistics.median(ages):.1f} s, 99 % within {ages[int(len(ages) * 0.99)]:.1f} s"
    )
