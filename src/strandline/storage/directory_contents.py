"""What lies in a log directory, by the names of its directories.

This file must not know what the files at the top say, nor the inside of a log.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.storage.directory_names import DirectoryKind, parse_directory_name
from strandline.storage.files import Files, join
from strandline.types import TopicPartition


@dataclass(frozen=True, slots=True)
class DirectoryContents:
    """What lies in a log directory, as paths, besides its checkpoints."""

    partitions: tuple[TopicPartition, ...] = ()
    deleted: tuple[str, ...] = ()
    """To be removed after `file.delete.delay.ms`."""
    strays: tuple[str, ...] = ()
    futures: tuple[str, ...] = ()
    """Replicas that were moving here from another log directory."""
    unknown: tuple[str, ...] = ()
    """Directories that are none of ours, such as `lost+found` or KRaft's log. Left alone."""


def scan_directory(files: Files, path: str) -> DirectoryContents:
    """Sort what lies in a log directory by its names. Files at the top are checkpoints."""
    found: dict[DirectoryKind, list[str]] = {kind: [] for kind in DirectoryKind}
    partitions: list[TopicPartition] = []
    for name in files.list_directory(path):
        if not files.is_directory(join(path, name)):
            continue
        kind, topic_partition = parse_directory_name(name)
        found[kind].append(join(path, name))
        if kind is DirectoryKind.PARTITION and topic_partition is not None:
            partitions.append(topic_partition)
    return DirectoryContents(
        partitions=tuple(sorted(partitions)),
        deleted=tuple(found[DirectoryKind.DELETED]),
        strays=tuple(found[DirectoryKind.STRAY]),
        futures=tuple(found[DirectoryKind.FUTURE]),
        unknown=tuple(found[DirectoryKind.UNKNOWN]),
    )
