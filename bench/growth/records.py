"""What a record costs by its size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench.growth.curve import Curve, Point
from bench.growth.served import World, steps
from bench.workloads import RawProduce

MOST: Final = 10_000_000
LEAST: Final = 10
BATCH_BYTES: Final = 64 * 1024
ROOM_BYTES: Final = 1 << 20


def curves(world: World, most: int) -> Iterator[Curve]:
    """In batches of 64 KiB, larger ones alone."""
    per_record, per_gigabyte = [], []
    most = max(LEAST, min(most, MOST))
    with world.serving({"message.max.bytes": str(most + ROOM_BYTES)}) as broker:
        for size in (each for each in steps(most) if each >= LEAST):
            workload = RawProduce(
                name=f"records-{size}",
                title="",
                connections=4,
                inflight=4 if size < ROOM_BYTES else 1,
                record_bytes=size,
                batch_bytes=max(BATCH_BYTES, size),
            )
            # Memory that the machine gives out for the first time can cost more than all else.
            for again in (False, True):
                name = f"{workload.name}-{again}"
                cost = workload.run(broker, name, world.setup)["cpu_seconds_per_gigabyte"]
            per_gigabyte.append(Point(size, cost))
            per_record.append(Point(size, cost * size / 1000))
            world.tell(f"records of {size:,} bytes")
    work = "bytes of a record"
    yield Curve(title="a record", unit="us of a core", work=work, points=per_record)
    yield Curve(
        title="a gigabyte of records",
        unit="s of a core",
        work=work,
        points=per_gigabyte,
        grows=False,
    )
