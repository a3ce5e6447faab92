"""The life of real logs in a real process: retention, its kill -9, compaction in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from strandline.records.batch import iterate_headers
from strandline.records.record import read_records
from tests.broker.harness import BrokerProcess, Wire
from tests.node.messages import batch, fetch, fetched, produce, produced

OFTEN = ("log.initial.task.delay.ms=0", "log.retention.check.interval.ms=50")
DAY_MS = 86_400_000
_PATIENCE_S = 120.0


Start = Callable[..., BrokerProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts brokers that do not outlive the test."""
    with ExitStack() as stack:
        yield lambda *given: stack.enter_context(BrokerProcess(*given))


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that takes a while."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"In vain: {what}"
        time.sleep(0.02)


def configure(wire: Wire, **settings: str) -> None:
    """Change settings of the topic."""
    changes = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=changes)
    (answer,) = wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer.error_message


def write(wire: Wire, count: int, *, age_ms: int = 0, keys: int = 0) -> None:
    """So many records of that age, each in a segment of its own (`segment.ms=1`)."""
    begun_ms = time.time_ns() // 1_000_000 - age_ms
    for number in range(count):
        key = b"%d" % (number % keys) if keys else None
        data = batch(b"x" * 10, key=key, timestamp=begun_ms + 2 * number)
        assert produced(wire.ask(produce(data, "t"), 9)).error_code == 0


def ends(wire: Wire) -> tuple[int, int]:
    """Where the log starts and ends."""
    found = []
    for timestamp in (-2, -1):
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsTopic(name="t", partitions=[partition])
        answer = wire.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)
        found.append(answer.topics[0].partitions[0].offset)
    return found[0], found[1]


def begins_at(wire: Wire, offset: int) -> bool:
    return ends(wire)[0] == offset


def read(wire: Wire) -> list[int]:
    """The offsets of all records from the log's start on."""
    start, end = ends(wire)
    found: list[int] = []
    while start < end:
        partition = fetched(wire.ask(fetch(("t", 0, start)), 11))["t", 0]
        data = bytes(partition.records or b"")
        assert (partition.error_code, bool(data)) == (0, True)
        for position, header in iterate_headers(data):
            found += [record.offset for record in read_records(data, position)]
            start = header.next_offset
    return found


def files(directory: Path, suffix: str) -> list[str]:
    """Names in the partition's directory that end so."""
    return sorted(each.name for each in (directory / "t-0").iterdir() if each.name.endswith(suffix))


def test_retention_by_age_and_by_size_follows_settings_that_change(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with BrokerProcess(directory, *OFTEN) as process, Wire(process.port) as wire:
        wire.create_topic("t")
        configure(wire, segment_ms="1", retention_ms="-1", file_delete_delay_ms="0")
        write(wire, 20, age_ms=2 * DAY_MS)
        write(wire, 20)
        assert ends(wire) == (0, 40)
        configure(wire, retention_ms=str(DAY_MS))
        until(lambda: ends(wire)[0] == 20, "what is older than a day goes")
        size = len(batch(b"x" * 10))
        configure(wire, retention_ms="-1", retention_bytes=str(5 * size))
        until(lambda: ends(wire)[0] == 35, "what is more than five records goes")
        assert read(wire) == list(range(35, 40))
        answer = fetched(wire.ask(fetch(("t", 0, 34)), 11))["t", 0]
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        until(lambda: len(files(directory, ".log")) == 5, "their files are dropped")
        until(lambda: not files(directory, ".deleted"), "and go in the end")
        assert process.stop()


def test_kill_9_while_segments_are_deleted(tmp_path: Path, start: Start) -> None:
    """What a setting keeps is there after any crash, what was said to be gone stays gone."""
    rng = Random(5)
    directory = tmp_path / "data"
    process = start(directory, *OFTEN)
    with Wire(process.port) as wire:
        wire.create_topic("t")
        configure(wire, segment_ms="1", retention_ms="-1", file_delete_delay_ms="0")
    for days in (10, 7, 4):  # each round is younger than the one before
        with Wire(process.port) as wire:
            write(wire, 25, age_ms=days * DAY_MS)
            write(wire, 5, age_ms=(days - 2) * DAY_MS)
            _, end = ends(wire)
            configure(wire, retention_ms=str((days - 1) * DAY_MS))
            said = 0
            for _ in range(rng.randrange(1, 8)):
                said = max(said, ends(wire)[0])
        process.kill()
        process = start(directory, *OFTEN)
        with Wire(process.port) as wire:
            first, now_end = ends(wire)
            assert now_end == end
            assert said <= first <= end - 5
            until(partial(begins_at, wire, end - 5), "retention goes on")
            assert read(wire) == list(range(end - 5, end))
            configure(wire, retention_ms="-1")
    assert process.stop()


def test_compaction_runs_beside_clients_and_survives_a_kill(tmp_path: Path, start: Start) -> None:
    directory = tmp_path / "data"
    settings = ("log.cleaner.backoff.ms=100", "log.cleaner.dedupe.buffer.size=2097152")
    process = start(directory, *settings)
    with Wire(process.port) as wire:
        wire.create_topic("t")
        configure(
            wire,
            segment_ms="1",
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="0.1",
            file_delete_delay_ms="0",
        )
        write(wire, 60, keys=3)
        until(lambda: len(read(wire)) < 20, "equal keys are merged")
        assert ends(wire) == (0, 60)
        assert read(wire)[-3:] == [57, 58, 59]
        write(wire, 30, keys=3)
    process.kill()
    process = start(directory, *settings)
    with Wire(process.port) as wire:
        until(lambda: len(read(wire)) < 20, "and again after the restart")
        assert read(wire)[-3:] == [87, 88, 89]
        # A round may be at work just now; what the killed process left does not go by itself.
        until(lambda: not files(directory, ".cleaned"), "no unfinished segments are left")
        assert process.stop()
