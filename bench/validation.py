"""`python -m bench.validation`: what it costs a broker to look into a produced batch.

One thread, no broker: a batch as a producer sends it is judged by its header and checksum, and by
everything. Processor time of the thread, the median of several rounds in turns.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from functools import partial

from strandline.records.batch import parse_header, verify_crc
from strandline.records.builder import build_batch
from strandline.records.codec import Codec
from strandline.records.record import Record
from strandline.records.rules import AppendRules
from strandline.records.validation import validate_client_batch

ROUNDS = 40
BATCH_BYTES = 1_000_000
NOW_MS = 1_700_000_000_000
RULES = AppendRules(max_message_bytes=2 * BATCH_BYTES)


def main() -> None:
    """Print a line for each size of records and each codec."""
    for record_bytes in (100, 1024):
        records = _records(record_bytes)
        for codec in Codec:
            batch = bytearray(build_batch(records, codec=codec))
            header, whole = _in_turns(partial(_by_header, batch), partial(_by_records, batch))
            print(
                f"{record_bytes:>5} B {codec.name.lower():<7} {len(batch):>9,} bytes "
                f"{len(records):>6,} records: header and checksum {header * 1e6:8.1f} us, "
                f"records too {whole * 1e6:8.1f} us, "
                f"{(whole - header) / len(records) * 1e9:6.1f} ns per record"
            )


def _records(record_bytes: int) -> list[Record]:
    """Words of a small vocabulary in random order, as `rdperf` sends them."""
    source = random.Random(1)
    words = [b"%x" % source.getrandbits(40) for _ in range(16)]
    pool = b" ".join(source.choice(words) + b"%x" % source.getrandbits(12) for _ in range(100_000))
    return [
        Record(timestamp=NOW_MS + n // 100, value=pool[at : at + record_bytes])
        for n in range(BATCH_BYTES // record_bytes)
        for at in [source.randrange(len(pool) - record_bytes)]
    ]


def _by_header(batch: bytearray) -> None:
    assert verify_crc(batch, 0, parse_header(batch).size_bytes)


def _by_records(batch: bytearray) -> None:
    validate_client_batch(batch, RULES, NOW_MS)


def _in_turns(*works: Callable[[], object]) -> list[float]:
    """The median processor time of each, in seconds."""
    spent: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for work, times in zip(works, spent, strict=True):
            began = time.thread_time()
            work()
            times.append(time.thread_time() - began)
    return [statistics.median(times) for times in spent]


if __name__ == "__main__":
    main()
