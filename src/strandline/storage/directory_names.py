"""How partition directories are called inside a log directory, and what each name says.

This file knows names only:

    topic-3                    a partition's log
    topic-3.<32 hex>-delete    deleted, its files go after a delay
    topic-3.<32 hex>-stray     not ours any more by the metadata; kept for a person to look at
    topic-3.<32 hex>-future    a replica that is moving here from another log directory

A topic's name may itself contain `-` and `.`, so names are read from their end.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from strandline.types import TopicPartition

NAME_BYTES_MAX: Final = 255
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""KRaft's own log, which lies among the others in a directory that Kafka has written."""

_PARTITION: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})", re.ASCII)
_SUFFIXED: Final = re.compile(r"\S+-\S+\.\S+-(delete|stray|future)")
_FUTURE: Final = re.compile(r"(.+)\.[0-9a-f]{32}-future", re.ASCII)
_PARTITION_MAX: Final = 2**31 - 1


class DirectoryKind(Enum):
    """What a directory inside a log directory is."""

    PARTITION = "partition"
    DELETED = "delete"
    STRAY = "stray"
    FUTURE = "future"
    UNKNOWN = "unknown"


class DirectoryName(NamedTuple):
    """What a directory's name says."""

    kind: DirectoryKind
    topic_partition: TopicPartition | None
    """Set for PARTITION and FUTURE: in the other names the topic may be cut short."""


def parse_directory_name(name: str) -> DirectoryName:
    """What the name says. KRaft's own log is UNKNOWN: it is none of ours."""
    suffixed = _SUFFIXED.fullmatch(name)
    if suffixed:
        kind = DirectoryKind(suffixed[1])
        future = _FUTURE.fullmatch(name) if kind is DirectoryKind.FUTURE else None
        return DirectoryName(kind, None if future is None else _partition_named(future[1]))
    found = _partition_named(name)
    return DirectoryName(DirectoryKind.UNKNOWN if found is None else DirectoryKind.PARTITION, found)


def _partition_named(name: str) -> TopicPartition | None:
    named = _PARTITION.fullmatch(name)
    if named is None or int(named[2]) > _PARTITION_MAX or named[1] == CLUSTER_METADATA_TOPIC:
        return None
    return TopicPartition(named[1], int(named[2]))


def partition_directory_name(topic_partition: TopicPartition) -> str:
    """The name of a partition's directory."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def future_directory_name(topic_partition: TopicPartition, unique_hex: str) -> str:
    """The name under which a partition is copied from another log directory. It must be read back,
    so the topic is not cut: what is longer than `NAME_BYTES_MAX` cannot be moved."""
    return f"{topic_partition}.{unique_hex}-{DirectoryKind.FUTURE.value}"


def retired_directory_name(
    topic_partition: TopicPartition, kind: DirectoryKind, unique_hex: str
) -> str:
    """The name under which a DELETED or STRAY partition lies aside.

    `unique_hex` (32 hex digits, from outside) keeps several of one partition apart. The topic is
    cut as far as file systems need it.
    """
    suffix = f"-{topic_partition.partition}.{unique_hex}-{kind.value}"
    room = NAME_BYTES_MAX - len(suffix)
    return topic_partition.topic[:room] + suffix
