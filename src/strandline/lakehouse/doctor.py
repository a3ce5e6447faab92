"""`table doctor`: whether everything that a run of a table needs is there, before the first batch.

Theory: what is missing on a cluster shows late, and on a machine that its user does not look at. So
each part is tried where a run will use it: the store and the brokers from this process and from
every executor, the conditions of commits and the catalog from here. What one process writes, the
others must see: a directory of the same name on another disk is found out by that. Nothing of the
table is changed.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from strandline.client.cluster import ClusterClient
from strandline.errors import InvalidSetting, ProtocolError, StrandlineError
from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.credentials import public_settings, take_settings
from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.reading.settings import ReadSettings
from strandline.lakehouse.session_remote import default_tasks
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.opening import check_commits, open_backend
from strandline.lakehouse.tables.presence import check_present
from strandline.lakehouse.tables.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE_MS: Final = 10_000
"""For brokers: whether they are there is to be told within seconds."""
PROBES: Final = "_doctor"
"""The directory of the probes, in the table's; it goes at the end."""


class Finding(NamedTuple):
    """One thing that was tried: `part` is what, and `sentence` what came of it."""

    part: str
    is_good: bool
    sentence: str


class _Check(NamedTuple):
    """What an executor is to try; it can be pickled, and holds no key."""

    place: Location
    token: str
    topics: tuple[str, ...]
    reading: ReadSettings
    stores: Mapping[str, str]


def examine_here(spec: TableSpec, reading: ReadSettings) -> Iterator[Finding]:
    """What this process can tell, without Spark."""
    yield _tried("store", lambda: _probe(spec.place))
    yield _tried("commits", lambda: _commits(spec))
    if spec.format == "iceberg":
        yield _tried("catalog", lambda: _catalog(spec))
    yield _tried("table", lambda: _table(spec))
    yield _tried("topics", lambda: _topics(spec.topics, reading))


def examine_executors(
    spark: SparkSession, spec: TableSpec, reading: ReadSettings
) -> Iterator[Finding]:
    """What every executor can tell, and whether it means the same place. Raises PySparkException.

    As many tasks as there are processors run at the same time, so that none is left out.
    """
    token = uuid.uuid4().hex
    probes = spec.place / PROBES
    stores.make_directory(probes)
    stores.replace_text(probes / token, token)
    check = _Check(spec.place, token, spec.topics, reading, public_settings())
    try:
        tasks = default_tasks(spark)
        numbers = spark.range(0, tasks, 1, tasks)
        answers = numbers.mapInArrow(_examining(check), "answer string", barrier=True)
        told: dict[tuple[str, str], dict[str, str]] = {}
        for row in answers.collect():
            answer = json.loads(row.answer)
            told.setdefault((answer["host"], answer["directory"]), answer)
        written = {each.location.name for each in stores.listed(probes)}
        for answer in told.values():
            yield _judged(answer, written, spec.place)
    finally:
        for each in stores.listed(probes):
            stores.remove(each.location)
        if probes.is_local:
            probes.local.rmdir()


def _tried(part: str, attempt: Callable[[], str]) -> Finding:
    try:
        return Finding(part, True, attempt())
    except ProtocolError as error:
        return Finding(part, False, error.sentence)
    except StrandlineError as error:
        return Finding(part, False, str(error))
    except OSError as error:
        return Finding(
            part, False, f"{error.strerror or error}: {error.filename or ''}".strip(": ")
        )


def _probe(place: Location) -> str:
    seconds = stores.probe(place)
    return f"{place} was written to, read, listed and cleared in {seconds:.2f} s"


def _commits(spec: TableSpec) -> str:
    check_commits(spec)
    if spec.format == "iceberg":
        return "the catalog decides between two writers"
    how = "the file system" if spec.place.is_local else "the store"
    return f"{how} refuses the second of two writers"


def _catalog(spec: TableSpec) -> str:
    there = open_backend(spec).exists()
    return f"it answers; the table is {'there' if there else 'not made yet'}"


def _table(spec: TableSpec) -> str:
    store = open_store(spec)
    if not store.exists():
        return "it was defined, and never run"
    commits = store.state().sequence
    files = store.backend.load().files()
    check_present(files)
    return f"it has {commits:,} commits, and all of its {len(files):,} files are there"


def _topics(topics: Iterable[str], reading: ReadSettings) -> str:
    settings = replace(reading, patience_ms=_PATIENCE_MS).client
    with ClusterClient(reading.bootstrap, settings) as client:
        counts = {name: len(client.topic(name).partitions) for name in topics}
    return ", ".join(f"{name} has {count} partitions" for name, count in counts.items())


def _examining(
    check: _Check,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def examine(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        take_settings(check.stores)
        for number in (each for batch in batches for each in batch.column("id").to_pylist()):
            answer = {
                "host": socket.gethostname(),
                "directory": os.getcwd(),
                "python": platform.python_version(),
                "file": f"{check.token}-{number}",
                "fault": "",
            }
            try:
                probes = check.place / PROBES
                stores.make_directory(probes)
                stores.replace_text(probes / answer["file"], check.token)
                answer["sees"] = str(stores.exists(probes / check.token))
                _topics(check.topics, check.reading)
            except ProtocolError as error:
                answer["fault"] = error.sentence
            except (StoreTrouble, InvalidSetting, OSError) as error:
                answer["fault"] = str(error)
            yield pa.RecordBatch.from_pydict({"answer": [json.dumps(answer)]})

    return examine


def _judged(answer: Mapping[str, str], written: set[str], place: Location) -> Finding:
    who = f"on host {answer['host']} in {answer['directory']}"
    if answer["fault"]:
        return Finding("executor", False, f"{who}: {answer['fault']}")
    if answer["sees"] != "True" or answer["file"] not in written:
        return Finding(
            "executor",
            False,
            f"{who}: it does not see what this process writes to {place}, or this process not what "
            "it writes. All must mean the same place: keep tables in a store (--tables "
            "s3://BUCKET/DIR), or on a file system that is mounted at one path on all machines.",
        )
    return Finding("executor", True, f"{who}: Python {answer['python']}, store and topics reached")
