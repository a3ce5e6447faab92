"""How ranges are read: where the cluster is, what a reader gets to see, and limits.

This file knows values only; they are pickled into Spark's tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.client.fetching import Isolation
from strandline.client.security.settings import PLAINTEXT, Security
from strandline.client.settings import ClientSettings
from strandline.types import TopicId, TopicPartition

_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """Times in milliseconds, sizes in bytes."""

    bootstrap: str
    """`host:port,host:port`"""
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    with_headers: bool = False
    batch_bytes: int = 16 * _MEBIBYTE
    """About the size of an Arrow batch; one record batch more at most."""
    fetch_bytes: int = 8 * _MEBIBYTE
    """What one fetch asks for; two are in memory at a time."""
    patience_ms: int = 60_000
    """How long a range may stand still: while there is no leader, no broker, or no record."""
    checks_crc: bool = True
    client_id: str = "strandline-spark"
    security: Security = PLAINTEXT

    @property
    def client(self) -> ClientSettings:
        """What the client underneath is told."""
        return ClientSettings(
            client_id=self.client_id,
            operation_timeout_ms=self.patience_ms,
            security=self.security,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The records of one partition with offsets in `[start, end)`, as planned at some moment.

    All of them were committed then: `end` was at most the high watermark, or the last stable offset
    for a reader of committed records. `topic_id` and `leader_epoch` say what the log was at that
    moment, so that a reader notices that it is another one now; None and -1 check nothing.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: TopicId | None = None
    leader_epoch: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)
