"""`python -m bench.compaction`: a round of compaction beside Kafka's own cleaner, on one log.

A log of `--records` records with `--keys` different keys is written once; then each cleaner gets a
copy of it and compacts everything, in a process of its own, in turns. Kafka's is the class that its
broker runs (`tests/java/CleanLog.java`), with the same memory for keys and buffers. Both read files
that the page cache holds and sync what they write. The rate is the log's size over the seconds of
the round; memory is the largest resident set of the whole process.

Another process compacts in a thread while its event loop ticks every millisecond: how much later
than due the ticks come is what a broker's clients would feel. The same without a round is printed
beside it, since the machine itself is late sometimes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.environment import processor_name
from bench.kafka_jars import kafka_jars
from strandline.config.topic import TopicConfig
from strandline.records._kernels import compiled
from strandline.records.batch import HEADER_BYTES, parse_header
from strandline.records.builder import build_batch, join_batch
from strandline.records.codec import Codec
from strandline.records.compression import compress
from strandline.records.record import Record
from strandline.storage.compaction.bounds import cleanable_range
from strandline.storage.compaction.cleaning import carry_out
from strandline.storage.compaction.plan import CleanerSettings, CleaningPlan
from strandline.storage.compaction.planner import plan_cleaning
from strandline.storage.log import Log
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.real_files import RealFiles
from strandline.types import LeaderEpoch, Offset, TopicPartition

NOW_MS: Final = 1_700_000_000_000
PARTITION: Final = TopicPartition("orders", 0)
SEGMENT_BYTES: Final = 128 << 20
RECORDS_PER_BATCH: Final = 150
VALUE_BYTES: Final = 80
KEY_DIGITS: Final = 16
SETTINGS: Final = CleanerSettings()
CONFIG: Final = TopicConfig(
    cleanup_policies=frozenset({"compact"}), segment_bytes=SEGMENT_BYTES, file_delete_delay_ms=0
)
JAVA_SOURCE: Final = Path(__file__).parent.parent / "tests" / "java" / "CleanLog.java"
TICK_SECONDS: Final = 0.001


@dataclass(frozen=True, slots=True)
class Round:
    """What one round took."""

    seconds: float
    cpu_seconds: float
    """Of the whole process, its start and the log's loading included."""
    resident_bytes: int
    bytes_after: int


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _parser().parse_args(arguments)
    if options.child is not None:
        print(json.dumps(_loop(options.child) if options.loop else _ours(options.child)))
        return 0
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        _compare(Path(place), options)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.compaction", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, help="default: a tenth of the records")
    parser.add_argument("--codec", default="uncompressed", choices=[c.setting for c in Codec])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where the logs are written")
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "strandline")
    parser.add_argument("--loop", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    return parser


def _compare(place: Path, options: argparse.Namespace) -> None:
    keys = options.keys or max(1, options.records // 10)
    codec = next(codec for codec in Codec if codec.setting == options.codec)
    started = time.perf_counter()
    size = write_log(place / "made", options.records, keys, codec)
    print(
        f"{options.records} records, {keys} keys, {options.codec}: {size / 1e6:.0f} MB, "
        f"written in {time.perf_counter() - started:.0f} s; "
        f"{os.cpu_count()} x {processor_name(Path('/proc/cpuinfo').read_text())}, "
        f"load {os.getloadavg()[0]:.1f}, kernel {'compiled' if compiled('compact') else 'twin'}"
    )
    cleaners = {"strandline": [sys.executable, "-m", "bench.compaction", "--child"]}
    if not options.without_kafka:
        cleaners["kafka"] = _kafka_command(place, options.cache)
    found: dict[str, list[Round]] = {name: [] for name in cleaners}
    for _ in range(options.rounds):
        for name, command in cleaners.items():
            with _copied(place) as copy:
                took = _run(command, copy, is_kafka=name == "kafka")
            found[name].append(took)
            print(f"  {name:10} {_line(took, size)}")
    medians = {n: statistics.median(r.seconds for r in rounds) for n, rounds in found.items()}
    for name, seconds in medians.items():
        memory = max(r.resident_bytes for r in found[name]) / (1 << 20)
        print(f"{name:10} median {size / seconds / 1e6:.0f} MB/s, at most {memory:.0f} MiB")
    if "kafka" in medians:
        print(f"strandline / kafka: {medians['kafka'] / medians['strandline']:.2f}")
    with _copied(place) as copy:
        command = [*cleaners["strandline"], str(copy), "--loop"]
        late = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    for name, figures in late.items():
        print(
            f"loop {name}: {figures['ticks']} ticks, late by {figures['p50']:.1f} ms (p50), "
            f"{figures['p999']:.1f} ms (p99.9), {figures['max']:.1f} ms (longest)"
        )


def _line(took: Round, size: int) -> str:
    return (
        f"{took.seconds:6.2f} s {size / took.seconds / 1e6:6.0f} MB/s "
        f"{took.cpu_seconds:6.2f} s of CPU {took.resident_bytes / (1 << 20):5.0f} MiB, "
        f"{took.bytes_after / 1e6:.0f} MB left"
    )


# -- The log -------------------------------------------------------------------------------------


def write_log(directory: Path, records: int, keys: int, codec: Codec) -> int:
    """A log with so many records, all but the active segment closed; its size in bytes."""
    log = Log.create(
        RealFiles(), str(directory), PARTITION, CONFIG, now_ms=NOW_MS, random=Random(1)
    )
    for batch in _batches(records, keys, codec):
        log.appender.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    log.roller.roll(NOW_MS)
    size = log.size_bytes
    log.close_clean()
    return size


def _batches(records: int, keys: int, codec: Codec) -> Iterator[bytearray]:
    """Batches that differ in their keys only: those are put into one that was built once."""
    random = Random(2)
    marks = [b"%0*d" % (KEY_DIGITS, 10**15 + index) for index in range(RECORDS_PER_BATCH)]
    model = bytearray(
        build_batch(
            [Record(timestamp=NOW_MS, key=m, value=random.randbytes(VALUE_BYTES)) for m in marks]
        )
    )
    header, payload = parse_header(model), model[HEADER_BYTES:]
    header = header._replace(attributes=header.attributes | codec)
    places = [payload.index(mark) for mark in marks]
    for _ in range(-(-records // RECORDS_PER_BATCH)):
        for place in places:
            payload[place : place + KEY_DIGITS] = b"%0*d" % (KEY_DIGITS, random.randrange(keys))
        yield join_batch(header, compress(codec, payload))


@contextmanager
def _copied(place: Path) -> Iterator[Path]:
    copy = place / "copy" / str(PARTITION)
    shutil.copytree(place / "made", copy)
    os.sync()
    try:
        yield copy
    finally:
        shutil.rmtree(copy.parent)


# -- The cleaners --------------------------------------------------------------------------------


def _run(command: Sequence[str], copy: Path, *, is_kafka: bool) -> Round:
    arguments = [str(copy)]
    if is_kafka:
        arguments += ["0", str(NOW_MS), str(SETTINGS.dedupe_buffer_bytes)]
        arguments += [str(SETTINGS.io_buffer_bytes), f"segment.bytes={SEGMENT_BYTES}"]
        arguments += ["file.delete.delay.ms=0"]
    child = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE)
    assert child.stdout is not None
    said = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{command[0]} failed with {child.returncode}.")
    left = sum(path.stat().st_size for path in copy.glob("*.log"))
    return Round(
        seconds=json.loads(said)["seconds"],
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        resident_bytes=usage.ru_maxrss * 1024,
        bytes_after=left,
    )


def _kafka_command(place: Path, cache: Path) -> list[str]:
    jars = kafka_jars(cache)
    classes = place / "classes"
    compiler = ["javac", "-proc:none", "-cp", f"{jars}/*", "-d", str(classes), str(JAVA_SOURCE)]
    subprocess.run(compiler, check=True)
    # A broker's heap, as its start script sets it.
    flags = ["-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-Dorg.apache.logging.log4j.level=OFF"]
    return ["java", *flags, "-cp", os.pathsep.join([str(classes), f"{jars}/*"]), "CleanLog"]


def _opened(directory: Path) -> tuple[Log, CleaningPlan]:
    zero = Offset(0)
    found = LogToLoad(PARTITION, str(directory), zero, zero, zero, needs_recovery=False)
    log = Log.load(RealFiles(), found, CONFIG, now_ms=NOW_MS, random=Random(3))
    log.advance_high_watermark_to(log.log_end_offset)
    plan = plan_cleaning(log, cleanable_range(log, None, NOW_MS), SETTINGS, NOW_MS)
    assert plan is not None
    return log, plan


def _ours(directory: Path) -> dict[str, Any]:
    log, plan = _opened(directory)
    start = time.perf_counter()
    for result in carry_out(plan, RealFiles(64)):
        log.swap.finish_cleaning(result, NOW_MS)
    seconds = time.perf_counter() - start
    log.retention.remove_due_files(NOW_MS)
    log.close_clean()
    return {"seconds": seconds}


# -- The event loop beside it --------------------------------------------------------------------


def _loop(directory: Path) -> dict[str, Any]:
    return asyncio.run(_watch_loop(directory))


async def _watch_loop(directory: Path) -> dict[str, Any]:
    log, plan = _opened(directory)
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def work() -> None:
        for result in carry_out(plan, RealFiles(64)):
            loop.call_soon_threadsafe(log.swap.finish_cleaning, result, NOW_MS)
        loop.call_soon_threadsafe(done.set)

    start = time.perf_counter()
    thread = threading.Thread(target=work)
    thread.start()
    beside = await _ticks(done)
    thread.join()
    idle = asyncio.Event()
    loop.call_later(time.perf_counter() - start, idle.set)
    return {"beside a round": beside, "idle": await _ticks(idle)}


async def _ticks(until: asyncio.Event) -> dict[str, float]:
    """How late ticks come, in milliseconds."""
    late: list[float] = []
    sleep = partial(asyncio.sleep, TICK_SECONDS)
    while not until.is_set():
        due = time.perf_counter() + TICK_SECONDS
        await sleep()
        late.append((time.perf_counter() - due) * 1000)
    late.sort()
    return {
        "ticks": len(late),
        "p50": late[len(late) // 2],
        "p999": late[int(len(late) * 0.999)],
        "max": late[-1],
    }


if __name__ == "__main__":
    sys.exit(main())
