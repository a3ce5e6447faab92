"""Logs of very many small segments, made without syncs: what the measured brokers then open.

The files are those that a broker would have written and closed cleanly, so that Strandline adopts
the directory at its first start and Kafka opens the segments, too.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

from strandline.cluster.identifiers import random_uuid, uuid_text
from strandline.config.topic import TopicConfig
from strandline.records.builder import build_batch
from strandline.records.record import Record
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory
from strandline.storage.real_files import RealFiles
from strandline.types import NO_OFFSET, BrokerId, LeaderEpoch, Offset, TopicPartition

VALUE_BYTES: Final = 100


class Unsynced(RealFiles):
    """Real files that are not made durable: a preparation is not what is measured."""

    def sync_directory(self, path: str) -> None:
        """Nothing."""


def fill(log: Log, segments: int, now_ms: int) -> None:
    """One record in each of so many closed segments, all of them committed."""
    for _ in range(segments):
        batch = build_batch([Record(NO_OFFSET, now_ms, b"key", b"v" * VALUE_BYTES)])
        log.appender.append_as_leader(bytearray(batch), leader_epoch=LeaderEpoch(0), now_ms=now_ms)
        log.roller.roll(now_ms)
    log.advance_high_watermark_to(log.log_end_offset)


def write_directory(path: Path, topic: str, segments: int, now_ms: int) -> None:
    """A log directory with one partition of so many segments, as a broker leaves it."""
    files = Unsynced()
    directory: LogDirectory[Log] = LogDirectory(files, str(path))
    directory.open(BrokerId(1), uuid_text(random_uuid(Random(1))))
    directory.load_logs(_nothing_there)
    partition = TopicPartition(topic, 0)
    log = Log.create(
        files, f"{path}/{partition}", partition, TopicConfig(), now_ms=now_ms, random=Random(1)
    )
    directory.add(log)
    fill(log, segments, now_ms)
    log.offsets.recovery_point = Offset(log.log_end_offset)
    directory.close_clean(-1)


def _nothing_there(found: object) -> Log:
    raise AssertionError(f"The directory of a benchmark is not empty: {found}")
