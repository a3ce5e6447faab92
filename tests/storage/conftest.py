"""Three kinds of disk for the storage tests: real files, memory, and memory after power loss."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from strandline.config.topic import TopicConfig
from strandline.records.batch import iterate_headers
from strandline.records.builder import build_batch
from strandline.records.codec import Codec
from strandline.records.record import Record, read_records
from strandline.storage.files import Files, parent_of
from strandline.storage.log import Log
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.real_files import RealFiles
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicPartition
from tests.descriptors import targets

PARTITION = TopicPartition("orders", 0)
TOPIC_ID = UUID("b7bc6b44-0ef1-48bc-8a8d-b7c5a979e452")
NOW_MS = 1_700_000_000_000
SMALL = TopicConfig(
    segment_bytes=1000,
    index_interval_bytes=150,
    segment_index_bytes=4096,
    file_delete_delay_ms=1000,
)


class World:
    """A disk with one partition's log on it, and short ways to use it."""

    def __init__(self, files: Files, directory: str, kind: str) -> None:
        self.files = files
        self.kind = kind
        self.directory = f"{directory}/orders-0"
        self.config = SMALL
        files.make_directory(directory)
        while directory != "/" and isinstance(files, MemoryFiles):
            files.sync_directory(directory)
            directory = parent_of(directory)
        files.sync_directory(directory)

    def create(self, config: TopicConfig = SMALL) -> Log:
        """A log whose directory is durable already, as after its first flush."""
        self.config = config
        log = Log.create(
            self.files, self.directory, PARTITION, config, now_ms=NOW_MS, random=Random(7)
        )
        log.assign_topic_id(TOPIC_ID)
        log.location.make_durable()
        return log

    def load(
        self,
        *,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        now_ms: int = NOW_MS,
    ) -> Log:
        found = LogToLoad(
            topic_partition=PARTITION,
            directory=self.directory,
            recovery_point=Offset(recovery_point),
            log_start_offset=Offset(log_start_offset),
            high_watermark=Offset(high_watermark),
            needs_recovery=not clean,
        )
        return Log.load(self.files, found, self.config, now_ms=now_ms, random=Random(7))

    def reopen(self, log: Log) -> Log:
        """Shut down cleanly and start again; on the third kind of disk with a power loss between.

        After a clean shutdown a power loss must not take anything.
        """
        log.close_clean()
        if self.kind == "crashed":
            assert isinstance(self.files, MemoryFiles)
            self.files = self.files.crash_clone()
        return self.load(
            clean=True,
            recovery_point=log.recovery_point,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
        )

    def kill(self, log: Log, recovery_point: int = 0) -> Log:
        """End the process without any warning and start again."""
        log.close()
        if isinstance(self.files, MemoryFiles):
            self.files = self.files.kill_clone()
        return self.load(clean=False, recovery_point=recovery_point)


@pytest.fixture(params=["real", "memory", "crashed"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    files: Files = RealFiles() if request.param == "real" else MemoryFiles()
    yield World(files, f"{tmp_path}/data", request.param)
    if request.param == "real":
        _close_all_below(tmp_path)


def _close_all_below(directory: Path) -> None:
    """Logs that a test leaves open, some on purpose, would use up the process's descriptors."""
    for descriptor, target in targets().items():
        if target.startswith(f"{directory}/"):
            os.close(descriptor)


class Kit:
    """What tests of logs need to say, as functions."""

    partition = PARTITION
    now_ms = NOW_MS
    small = SMALL
    world = World

    @staticmethod
    def batch(
        *values: bytes,
        timestamp: int = NOW_MS,
        codec: Codec = Codec.NONE,
        producer_id: int = -1,
        epoch: int = -1,
        sequence: int = -1,
        transactional: bool = False,
        base_offset: int = 0,
        leader_epoch: int = -1,
    ) -> bytearray:
        return bytearray(
            build_batch(
                [Record(timestamp=timestamp + i, value=value) for i, value in enumerate(values)],
                codec=codec,
                producer_id=ProducerId(producer_id),
                producer_epoch=ProducerEpoch(epoch),
                base_sequence=sequence,
                is_transactional=transactional,
                base_offset=Offset(base_offset),
                leader_epoch=LeaderEpoch(leader_epoch),
            )
        )

    @staticmethod
    def append(
        log: Log, *values: bytes, epoch: int = 0, now_ms: int = NOW_MS, timestamp: int = NOW_MS
    ) -> int:
        """Append one batch as leader; its base offset."""
        batch = Kit.batch(*values, timestamp=timestamp)
        return log.appender.append_as_leader(
            batch, leader_epoch=LeaderEpoch(epoch), now_ms=now_ms
        ).base_offset

    @staticmethod
    def fill(log: Log, count: int, *, size: int = 100) -> None:
        """Append `count` batches of one record with distinct values."""
        for _ in range(count):
            Kit.append(log, b"%08d" % log.log_end_offset + b"." * size)

    @staticmethod
    def bytes_from(log: Log, offset: int, max_bytes: int = 1 << 20) -> bytes:
        """Everything that reads from `offset` give, up to the log's end."""
        found = b""
        while True:
            part = log.reader.read(
                Offset(offset), max_bytes, end_offset=log.log_end_offset, at_least_one_batch=True
            )
            if part is None:
                return found
            data = part.file.read_at(part.position, part.length)
            assert len(data) == part.length
            found += data
            *_, (_, last) = iterate_headers(data)
            assert last.next_offset <= part.upper_offset
            offset = last.next_offset

    @staticmethod
    def records(log: Log, offset: int | None = None) -> list[tuple[int, bytes | None]]:
        """(offset, value) of every record from `offset`, by default the log start, on."""
        start = log.log_start_offset if offset is None else offset
        data = Kit.bytes_from(log, start)
        return [
            (record.offset, record.value)
            for position, header in iterate_headers(data)
            for record in read_records(data[position : position + header.size_bytes])
            if record.offset >= start
        ]

    @staticmethod
    def names(world: World, *endings: str) -> list[str]:
        """Names in the partition's directory that end with one of `endings`."""
        return [n for n in world.files.list_directory(world.directory) if n.endswith(endings)]

    @staticmethod
    def values(records: Iterable[tuple[int, bytes | None]]) -> list[bytes | None]:
        return [value for _, value in records]


@pytest.fixture
def kit() -> type[Kit]:
    return Kit
