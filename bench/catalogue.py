"""Which workloads there are, and the goals that are read off them.

Sizes: "1 MB" is 1 000 000 bytes, librdkafka's default batch size and the largest round number below
the brokers' default `message.max.bytes`; KB are 1024 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench import replication, transactions
from bench.goals import Goal
from bench.workloads import ClientConsume, ClientProduce, RawFetch, RawProduce, Startup, Workload

KIB = 1024
MIB = 1 << 20
BATCH_1MB = 1_000_000
BATCH_SIZES = {"1mb": BATCH_1MB, "16kb": 16 * KIB}
RECORD_SIZES = {"100b": 100, "1kb": KIB}

MB_S = "megabytes_per_second"

GOALS: Sequence[Goal] = (
    Goal("one-record requests", "tiny-16x5", "requests_per_second", "kafka", at_least=2),
    Goal("CPU per one-record request", "tiny-16x5", "cpu_us_per_request", "kafka", at_most=0.2),
    Goal("64 KB batches", "raw-64kb", "megabytes_per_second", "kafka", at_least=1.2),
    Goal("1 MB batches", "raw-1mb", "megabytes_per_second", "kafka", at_least=1.2),
    Goal(
        "librdkafka producer, 100 B, 1 MB batches",
        "produce-100b-1mb-none",
        "records_per_second",
        "mock",
        at_least=0.85,
    ),
    Goal(
        "librdkafka producer, 1 KB, 1 MB batches",
        "produce-1kb-1mb-none",
        "records_per_second",
        "mock",
        at_least=0.85,
    ),
    Goal("1 MB fetches", "fetch-1mb", "megabytes_per_second", "kafka", at_least=0.8),
    Goal("p50 of a produce request", "latency-2k", "p50_us", "kafka", at_most=0.8),
    Goal("start-up", "startup", "startup_seconds", "kafka", at_most=0.1),
    Goal("resident memory, idle", "startup", "idle_rss_mib", "kafka", at_most=0.1),
    Goal("resident memory, loaded", "memory", "loaded_rss_mib", "kafka", at_most=0.1),
    *(
        Goal(
            f"{verb} over SASL_SSL, 1 KB records", f"tls-{verb}-1kb-1mb", MB_S, "kafka", at_least=1
        )
        for verb in ("produce", "consume")
    ),
    *replication.GOALS,
    *transactions.GOALS,
)


def workloads() -> tuple[Workload, ...]:
    """All of them, in the order in which they are run."""
    return (*_raw(), *_client(), *_secure(), *replication.workloads(), *transactions.workloads())


def quick_workloads() -> tuple[Workload, ...]:
    """Those that a goal is read off."""
    wanted = {name for goal in GOALS for name in (goal.workload, goal.baseline)}
    return tuple(workload for workload in workloads() if workload.name in wanted)


def _raw() -> Iterator[Workload]:
    yield Startup(name="startup", title="Start on an empty directory; idle memory")
    for connections, inflight in ((16, 5), (100, 1), (1, 5)):
        yield RawProduce(
            name=f"tiny-{connections}x{inflight}",
            title=f"One 100 B record per request, connections x in flight: "
            f"{connections} x {inflight}",
            connections=connections,
            inflight=inflight,
            record_bytes=100,
            records_per_batch=1,
        )
    for label, batch_bytes in {"16kb": 16 * KIB, "64kb": 64 * KIB, "1mb": BATCH_1MB}.items():
        yield RawProduce(
            name=f"raw-{label}",
            title=f"Batches of {_size(label)} (1 KB records), 4 connections x 4 in flight",
            connections=4,
            inflight=4,
            record_bytes=KIB,
            batch_bytes=batch_bytes,
        )
    yield RawProduce(
        name="latency-2k",
        title="10 x 100 B per request at a fixed 2,000 requests/s over 8 connections",
        connections=8,
        inflight=256,
        record_bytes=100,
        records_per_batch=10,
        rate=2000,
    )
    fetches = {"1mb": (MIB, BATCH_1MB), "64kb": (64 * KIB, 16 * KIB), "1kb": (KIB, KIB)}
    for label, (fetch_bytes, batch_bytes) in fetches.items():
        yield RawFetch(
            name=f"fetch-{label}",
            title=f"Fetches of {_size(label)}, 4 connections x 1 in flight, from the page cache",
            connections=4,
            fetch_bytes=fetch_bytes,
            record_bytes=KIB if batch_bytes > KIB else 900,
            batch_bytes=batch_bytes,
        )


def _client() -> Iterator[Workload]:
    for kind, verb in ((ClientProduce, "produce"), (ClientConsume, "consume")):
        for record, record_bytes in RECORD_SIZES.items():
            for batch, batch_bytes in BATCH_SIZES.items():
                for codec in ("none", "lz4"):
                    yield kind(
                        name=f"{verb}-{record}-{batch}-{codec}",
                        title=f"librdkafka {verb}: {_size(record)} records, "
                        f"{_size(batch)} batches, {codec}",
                        record_bytes=record_bytes,
                        batch_bytes=batch_bytes,
                        codec=codec,
                    )


def _secure() -> Iterator[Workload]:
    for kind, verb in ((ClientProduce, "produce"), (ClientConsume, "consume")):
        for batch, batch_bytes in BATCH_SIZES.items():
            yield kind(
                name=f"tls-{verb}-1kb-{batch}",
                title=f"librdkafka {verb} over SASL_SSL: 1 KB records, {_size(batch)} batches",
                record_bytes=KIB,
                batch_bytes=batch_bytes,
                codec="none",
                mock=False,
                secure=True,
            )


def _size(label: str) -> str:
    """'16kb' as '16 KB'."""
    digits = label.rstrip("bkm")
    return f"{digits} {label.removeprefix(digits).upper()}"
