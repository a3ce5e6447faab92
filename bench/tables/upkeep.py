"""Upkeep in Spark's tasks beside the same in the driver: compaction and merges by key.

Each measurement is a process of its own, so that the peak of its memory is that of one work. Tables
are made by linking one file under many names: what is measured depends on the number of files and
their bytes, not on what is in them.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from bench.processes import parse_resident_bytes
from bench.tables.commits import TOPIC, prepared, records
from bench.tables.world import spread
from strandline.lakehouse.pipeline.parts_in_spark import carrier_of
from strandline.lakehouse.session import session
from strandline.lakehouse.tables.backend import Change
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.store import open_store
from strandline.lakehouse.tables.writing import BatchWriter

FILES: Final = (100, 1_000, 10_000)
ROWS_PER_FILE: Final = 10_000
BUCKETS: Final = 8
KEYS: Final = 2_000_000
CHANGED: Final = 200_000
DRIVER: Final = "driver"
SPARK: Final = "Spark"


class Work(NamedTuple):
    """What a process measures of its own work."""

    seconds: float
    before_mb: int
    peak_mb: int
    """Of the driver's Python, resident."""


def upkeep(home: Path, rounds: int, cores: int) -> str:
    """Two tables: seconds and memory of compaction, and seconds of a merge."""
    lines = [
        "",
        "| compaction of | by | s | driver's memory before | at its peak |",
        "|---|---|---|---|---|",
    ]
    for files in FILES:
        for by in (DRIVER, SPARK):
            done = [_apart(compaction, home, by, cores, files) for _ in range(rounds)]
            lines.append(
                f"| {files:,} files, {files * ROWS_PER_FILE:,} rows | {by} | {_seconds(done)} "
                f"| {_middle(each.before_mb for each in done)} MB "
                f"| {_middle(each.peak_mb for each in done)} MB |"
            )
            print(lines[-1], flush=True)
    lines += ["", "| merge of | by | s | driver's memory at its peak |", "|---|---|---|---|"]
    for by in (DRIVER, SPARK):
        done = [_apart(merge, home, by, cores) for _ in range(rounds)]
        lines.append(
            f"| {CHANGED:,} changes into {KEYS:,} keys, {BUCKETS} buckets | {by} "
            f"| {_seconds(done)} | {_middle(each.peak_mb for each in done)} MB |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines)


def compaction(home: Path, by: str, cores: int, files: int) -> Work:
    """Join so many small files."""
    spec = _spec(home)
    store = open_store(spec, create=True)
    writer = BatchWriter(spec, store.state(), "0")
    writer.write(records(0, ROWS_PER_FILE))
    (one,) = writer.finish().files
    names = [f"{number:05}-{one.path}" for number in range(files)]
    for name in names:
        os.link(spec.directory().local / one.path, spec.directory().local / name)
    store.backend.commit(
        store.backend.load(), Change(adds=[replace(one, path=name) for name in names])
    )
    store.checkpoint()

    def work() -> None:
        live = open_store(spec)
        if by == SPARK:
            live.carry_out_by(carrier_of(_session(cores)))
        done = live.compact()
        if done.files_before != files:
            raise RuntimeError(f"{done} is not {files} files.")

    return _measured(by, cores, work)


def merge(home: Path, by: str, cores: int) -> Work:
    """Merge changes of a tenth of the keys, in all buckets."""
    spec = replace(_spec(home), mode="upsert", buckets=BUCKETS)
    store = open_store(spec, create=True)

    prepared(spec, store, 0, 0, KEYS, keys=KEYS)()
    change = prepared(spec, store, 1, KEYS, KEYS + CHANGED, keys=KEYS)
    if by == SPARK:
        store.carry_out_by(carrier_of(_session(cores)))
    return _measured(by, cores, change)


def _measured(by: str, cores: int, work: Callable[[], object]) -> Work:
    if by == SPARK:  # what starts once in a run, and the first task's Python, are no part of it
        spark = _session(cores)
        spark.sparkContext.parallelize(range(cores), cores).map(_imported).collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _resident_mb()
    began = time.monotonic()
    work()
    return Work(time.monotonic() - began, before, _resident_mb(peak=True))


def _imported(_: int) -> int:
    import strandline.lakehouse.tables.maintenance  # noqa: F401

    return 0


def _session(cores: int) -> SparkSession:
    return session("bench", master=f"local[{cores}]")


def _resident_mb(*, peak: bool = False) -> int:
    """Of this process."""
    return parse_resident_bytes(Path("/proc/self/status").read_text(), peak=peak) // 1_000_000


def _spec(home: Path) -> TableSpec:
    return TableSpec(name="t", topics=(TOPIC,), location=str(home / "t"), columns={"n": "long"})


def _apart(work: Callable[..., Work], home: Path, *arguments: object) -> Work:
    """In a process, and a directory, of its own."""
    place = Path(tempfile.mkdtemp(dir=home))
    here, there = multiprocessing.get_context("spawn").Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=_in_process, args=(there, work, place, arguments)
    )
    process.start()
    there.close()
    try:
        return Work(*here.recv())
    finally:
        process.join()
        shutil.rmtree(place)


def _in_process(
    pipe: Connection, work: Callable[..., Work], place: Path, arguments: tuple[object, ...]
) -> None:
    pipe.send(tuple(work(place, *arguments)))


def _seconds(done: list[Work]) -> str:
    return spread([each.seconds for each in done])


def _middle(values: Iterable[int]) -> int:
    return int(statistics.median(values))
