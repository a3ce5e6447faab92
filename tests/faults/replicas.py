"""What lies on the disk of one broker for one partition, read without the broker's own code.

Only the fixed head of each batch is looked at; its CRC stands for its contents (the CRC covers
everything after itself, so offset and epoch are compared beside it). A file is read as it is at
that moment, while the broker may be appending to it: a batch that is not whole yet is not there.

    ┌──────────┬────────┬───────┬───────┬─────┬────────────┬───────────────────┬─┈
    │ base  8  │ size 4 │ ep. 4 │ mag.1 │ crc4│ attribut. 2│ last off. delta 4 │
    └──────────┴────────┴───────┴───────┴─────┴────────────┴───────────────────┴─┈
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

_HEAD: Final = struct.Struct(">qiibIhi")
_SIZE_FROM: Final = 12
"""The size counts what comes after base offset and size."""


class Batch(NamedTuple):
    """The identity of one batch: equal on two replicas, or one of them is wrong."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a partition. `high_watermark`: as last checkpointed, -1 if never."""

    batches: tuple[Batch, ...]
    high_watermark: int
    epochs: tuple[tuple[int, int], ...]
    """(leader epoch, first offset of it), as the log's own cache says."""

    @property
    def log_end_offset(self) -> int:
        """Offset that the next record gets."""
        return self.batches[-1].next_offset if self.batches else 0

    def __str__(self) -> str:
        start = self.batches[0].base_offset if self.batches else 0
        return (
            f"log {start} to {self.log_end_offset}, high watermark on disk {self.high_watermark}, "
            f"epochs {list(self.epochs)}"
        )


def read(log_directory: Path, topic: str, partition: int) -> Replica:
    """Of a broker whose log directory this is. Nothing there: an empty replica."""
    directory = log_directory / f"{topic}-{partition}"
    batches = tuple(
        batch for segment in sorted(directory.glob("*.log")) for batch in _batches(segment)
    )
    checkpoint = _table(log_directory / "replication-offset-checkpoint")
    high_watermark = next(
        (int(row[2]) for row in checkpoint if row[:2] == [topic, str(partition)]), -1
    )
    epochs = _table(directory / "leader-epoch-checkpoint")
    return Replica(batches, high_watermark, tuple((int(row[0]), int(row[1])) for row in epochs))


def differences(replicas: Mapping[int, Replica]) -> list[str]:
    """Where the copies of one partition differ, as sentences; copies may start differently."""
    found: list[str] = []
    for (one, first), (other, second) in pairwise(replicas.items()):
        start = max(
            (each.batches[0].base_offset for each in (first, second) if each.batches), default=0
        )
        ours, theirs = (
            [batch for batch in each.batches if batch.base_offset >= start]
            for each in (first, second)
        )
        for mine, its in zip(ours, theirs, strict=False):
            if mine != its:
                found.append(f"broker {one} holds {mine}, broker {other} {its}")
                break
        else:
            if len(ours) != len(theirs):
                ends = first.log_end_offset, second.log_end_offset
                found.append(f"broker {one} ends at {ends[0]}, broker {other} at {ends[1]}")
    return found


def _batches(segment: Path) -> Iterator[Batch]:
    try:
        data = segment.read_bytes()
    except FileNotFoundError:
        return  # deleted since the directory was listed
    position = 0
    while position + _HEAD.size <= len(data):
        base, size, epoch, _magic, crc, _attributes, delta = _HEAD.unpack_from(data, position)
        position += _SIZE_FROM + size
        if position > len(data):
            return
        yield Batch(base, base + delta + 1, epoch, crc)


def _table(path: Path) -> list[list[str]]:
    """The rows of one of Kafka's checkpoint files: after the version and the count."""
    if not path.exists():
        return []
    return [line.split() for line in path.read_text().splitlines()[2:]]
