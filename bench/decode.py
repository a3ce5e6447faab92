"""`python -m bench.decode`: record batches into Arrow batches, records per second of one core.

Every reader goes over the same bytes in turns, and must give as many records. Rates are of CPU
time: the median of the rounds. The compiled decoder and its twin make Arrow batches with Spark's
columns; kafka-python and aiokafka make an object per record, and stand there for scale.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.environment import processor_name
from bench.goals import Goal
from strandline.lakehouse.decode.decoder import Decoder
from strandline.records.builder import build_batch
from strandline.records.codec import Codec
from strandline.records.columns import BuilderLimits
from strandline.records.record import Record
from strandline.types import LeaderEpoch, Offset, TopicPartition

GOALS: Final = (
    Goal("records/s of one core at 100 B", "decode", "compiled 100 B", at_least=5_000_000),
)

_AT: Final = TopicPartition("bench", 0)
_BATCH_BYTES: Final = 16_384


@dataclass(frozen=True, slots=True)
class Case:
    """What is decoded."""

    name: str
    value_bytes: int
    codec: Codec = Codec.NONE
    with_headers: bool = False


CASES: Final = (
    Case("100 B", 100),
    Case("100 B with headers", 100, with_headers=True),
    Case("100 B zstd", 100, Codec.ZSTD),
    Case("1 KiB", 1024),
)


@dataclass(frozen=True, slots=True)
class Rate:
    """The median of one reader in one case."""

    reader: str
    case: str
    records_per_second: float
    megabytes_per_second: float


def stored(case: Case, size_bytes: int) -> tuple[bytes, int]:
    """About so many bytes of records before compression, in batches as a producer makes them."""
    random = Random(1)
    # Half of each value repeats, so that codecs have something to do.
    values = [
        random.randbytes(case.value_bytes // 2) + b"v" * (case.value_bytes - case.value_bytes // 2)
        for _ in range(64)
    ]
    headers = (("trace", b"0123456789abcdef"),) if case.with_headers else ()
    per_batch = max(1, _BATCH_BYTES // (case.value_bytes + 10))
    batches = []
    count = 0
    while count * case.value_bytes < size_bytes:
        records = [
            Record(
                timestamp=1_700_000_000_000 + n,
                key=b"%08d" % (count + n),
                value=values[(count + n) % len(values)],
                headers=headers,
            )
            for n in range(per_batch)
        ]
        batches.append(
            build_batch(
                records,
                base_offset=Offset(count),
                leader_epoch=LeaderEpoch(1),
                codec=case.codec,
            )
        )
        count += per_batch
    return b"".join(batches), count


def into_arrow(data: bytes, case: Case) -> int:
    """Decode with whichever builder is to be used; the rows."""
    decoder = Decoder(_AT, BuilderLimits(with_headers=case.with_headers))
    rows = sum(int(batch.num_rows) for batch in decoder.feed(data))
    return rows + sum(int(batch.num_rows) for batch in decoder.finish())


def with_twin(data: bytes, case: Case) -> int:
    """Decode without the kernel."""
    os.environ["STRANDLINE_PURE_PYTHON"] = "1"
    try:
        return into_arrow(data, case)
    finally:
        del os.environ["STRANDLINE_PURE_PYTHON"]


def with_aiokafka(data: bytes, case: Case) -> int:
    """Records as objects, in compiled code."""
    from aiokafka.record.memory_records import MemoryRecords

    del case
    return _count_batches(MemoryRecords(data))


def with_kafka_python(data: bytes, case: Case) -> int:
    """Records as objects, in Python."""
    from kafka.record.memory_records import MemoryRecords

    del case
    return _count_batches(MemoryRecords(data))


def _count_batches(records: Any) -> int:
    count = 0
    while records.has_next():
        batch = records.next_batch()
        batch.validate_crc()
        count += sum(1 for _ in batch)
    return count


READERS: Final[dict[str, Callable[[bytes, Case], int]]] = {
    "compiled": into_arrow,
    "twin": with_twin,
    "aiokafka": with_aiokafka,
    "kafka-python": with_kafka_python,
}
_SLOW: Final = frozenset({"twin", "kafka-python"})
_SLOW_SHARE: Final = 8
"""Readers that take long get so much less to read."""


def measure(cases: Sequence[Case], size_bytes: int, rounds: int) -> list[Rate]:
    """All readers in turns, round by round."""
    rates = []
    for case in cases:
        inputs = {
            name: stored(case, size_bytes // (_SLOW_SHARE if name in _SLOW else 1))
            for name in READERS
        }
        seconds: dict[str, list[float]] = {name: [] for name in READERS}
        for _ in range(rounds + 1):
            for name, read in READERS.items():
                data, count = inputs[name]
                started = time.process_time()
                found = read(data, case)
                seconds[name].append(time.process_time() - started)
                if found != count:
                    raise SystemExit(f"{name} found {found} of {count} records in {case.name}")
        for name, taken in seconds.items():
            data, count = inputs[name]
            median = statistics.median(taken[1:])  # the first round imports
            rates.append(Rate(name, case.name, count / median, len(data) / median / 1e6))
    return rates


def print_rates(rates: Sequence[Rate]) -> None:
    """A line for each case, a pair of figures for each reader."""
    print(f"{'':20}" + "".join(f"{name:>24}" for name in READERS))
    for case in dict.fromkeys(rate.case for rate in rates):
        cells = [
            f"{rate.records_per_second / 1e6:.2f} M/s {rate.megabytes_per_second:.0f} MB/s"
            for rate in rates
            if rate.case == case
        ]
        print(f"{case:20}" + "".join(f"{cell:>24}" for cell in cells))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and end with 1 if the goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.decode", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=64, help="of records for a fast reader")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the rates to this file")
    options = parser.parse_args(arguments)
    print(f"{os.cpu_count()} x {processor_name(Path('/proc/cpuinfo').read_text())}, ", end="")
    print(f"Python {sys.version.split()[0]}, load average before: {os.getloadavg()[0]:.2f}")
    rates = measure(CASES, options.megabytes * 1_000_000, options.rounds)
    print_rates(rates)
    if options.json:
        options.json.write_text(json.dumps([asdict(rate) for rate in rates], indent=2))
    (goal,) = GOALS
    reached = next(r.records_per_second for r in rates if f"{r.reader} {r.case}" == goal.metric)
    is_met = goal.is_met_by(reached)
    print(f"{goal.title}: {reached:,.0f}, goal {goal.bound}: {'met' if is_met else 'missed'}")
    sys.exit(0 if is_met else 1)


if __name__ == "__main__":
    main()
