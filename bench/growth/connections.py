"""What connections cost that say nothing, and what they cost that do."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from bench.brokers import SocketBroker
from bench.growth.curve import Curve, Point
from bench.growth.served import World, busy_share, from_on, steps
from bench.readiness import api_versions_request
from bench.workloads import FULL, RawProduce

MOST: Final = 10_000
PARTITIONS: Final = 16
IDLE_S: Final = 5.0
SETTLE_S: Final = 3.0
KIB: Final = 1024
_ANSWER_BYTES: Final = 1 << 16


def curves(world: World, most: int) -> Iterator[Curve]:
    """Connections that were served once, then rest; then as many that write, one record each."""
    memory, idle, busy = [], [], []
    for count in steps(min(most, MOST)):
        with world.serving({"max.connections": str(2 * MOST)}) as broker:
            time.sleep(SETTLE_S)
            empty = broker.resident_bytes()
            opened = [_served_once(broker) for _ in range(count)]
            time.sleep(SETTLE_S)
            memory.append(Point(count, (broker.resident_bytes() - empty) / KIB / count))
            idle.append(Point(count, 100 * busy_share(broker, IDLE_S)))
            for each in opened:
                each.close()
        with world.serving({"max.connections": str(2 * MOST)}) as broker:
            workload = RawProduce(
                name="busy",
                title="",
                connections=count,
                partitions=min(count, PARTITIONS),
                inflight=1,
                record_bytes=100,
                records_per_batch=1,
            )
            # The first request of each is decoded, and so costs more: they are to be few.
            effort = replace(FULL, milliseconds=FULL.milliseconds + count)
            measured = workload.run(broker, "busy", replace(world.setup, effort=effort))
            busy.append(Point(count, measured["cpu_us_per_request"]))
        world.tell(f"{count:,} connections")
    work = "connections"
    yield Curve(
        title="memory of a connection",
        unit="KiB",
        work=work,
        points=from_on(memory, 100),
        goal=10,
        goal_at=MOST,
        grows=False,
    )
    yield Curve(title="processor, idle", unit="% of a core", work=work, points=idle)
    yield Curve(
        title="a request of one record",
        unit="us of a core",
        work=work,
        points=busy,
        grows=False,
    )


def _served_once(broker: SocketBroker) -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", broker.port), 30)
    opened.sendall(api_versions_request())
    if not opened.recv(_ANSWER_BYTES):
        raise SystemExit("The broker has closed a connection that says nothing wrong.")
    return opened
