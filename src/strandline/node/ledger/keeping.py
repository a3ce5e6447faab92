"""When a replica truncates, what it removes is copied aside first, if that can be done.

A copy that fails must never keep a replica from following its leader: that is logged, and the
truncation goes on. Reasons are said here, in the words of the replication protocol; files and sizes
are the business of `storage.ledger`.
"""

from __future__ import annotations

import logging
from enum import StrEnum

from strandline.errors import CorruptRecords, ErrorCode, ProtocolError, StorageError
from strandline.node.hosted_replica import HostedReplica
from strandline.node.logs import Directory, Logs
from strandline.node.metadata import Metadata
from strandline.node.settings import Settings
from strandline.storage.files import MissingFile
from strandline.storage.ledger import ENTRY_BYTES_MAX, Cause, Entry, Ledger
from strandline.types import Instant, Offset

log = logging.getLogger(__name__)

UNLIMITED = -1


class Reason(StrEnum):
    """Why a follower removes the end of its log, or all of it."""

    DIVERGED = "the leader's log has other records from here on"
    UNCOMPARABLE = "the log has no leader epochs, so only what was committed can be trusted"
    BEYOND_LEADER = "the leader's log ends here"
    BELOW_LEADER = "the leader's log starts behind the end of this one"
    INSIDE_BATCH = "the leader's log starts inside a batch, which comes whole"


class Ledgers:
    """The ledgers of all log directories. Off if `strandline.ledger.retention.bytes` is 0."""

    def __init__(self, logs: Logs, metadata: Metadata, settings: Settings) -> None:
        self._logs = logs
        self._metadata = metadata
        self._settings = settings
        self.copied = 0
        self.failed = 0

    def copy(self, replica: HostedReplica, offset: Offset, reason: Reason, now: Instant) -> None:
        """Keep what a truncation to `offset` is about to remove. Never raises for a bad disk."""
        retention_bytes = self._settings.broker.strandline_ledger_retention_bytes
        directory = self._logs.directory_of(replica.topic_partition)
        if retention_bytes == 0 or directory is None or offset >= replica.log.log_end_offset:
            return
        state = self._metadata.image.partition(replica.topic_partition)
        cause = Cause(
            broker=self._settings.broker.node_id,
            wall_ms=now.wall_ms,
            leader=replica.leader_id,
            leader_epoch=replica.leader_epoch,
            reason=reason.value,
            unclean=state is not None and state.is_recovering,
        )
        bytes_max = ENTRY_BYTES_MAX if retention_bytes == UNLIMITED else retention_bytes
        try:
            entry = self._of(directory).copy(replica.log, offset, cause, bytes_max=bytes_max)
        except (StorageError, CorruptRecords, ProtocolError) as error:
            self.failed += 1
            log.warning("What %s removes is not kept: %s", replica.topic_partition, error)
            return
        if entry is None:
            return
        self.copied += 1
        log.warning(
            "%s removes the offsets %d to %d: %s. They are kept as entry %s of the ledger",
            replica.topic_partition,
            entry.from_offset,
            entry.to_offset - 1,
            reason.value,
            entry.id,
        )
        self._expire(directory, now)

    def expire(self, now: Instant) -> None:
        """Remove what is too old or too much. Periodic work."""
        for directory in self._logs.directories:
            if directory.offline_reason is None:
                self._expire(directory, now)

    def entries(self) -> list[Entry]:
        """What is kept in all directories that can be read, the oldest first."""
        found: list[Entry] = []
        for directory in self._logs.directories:
            if directory.offline_reason is None:
                found += self._of(directory).entries()
        return sorted(found, key=lambda entry: (entry.wall_ms, entry.id))

    def read(self, entry_id: str, position: int, length: int) -> bytes:
        """Bytes of an entry's batches. Raises `ProtocolError` if there is no such entry."""
        for directory in self._logs.directories:
            if directory.offline_reason is not None:
                continue
            try:
                return self._of(directory).read(entry_id, position, length)
            except MissingFile:
                continue
        raise ProtocolError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"There is no entry '{entry_id[:100]}' in the ledger of this broker.",
        )

    def _of(self, directory: Directory) -> Ledger:
        return Ledger(self._logs.files, directory.path)

    def _expire(self, directory: Directory, now: Instant) -> None:
        broker = self._settings.broker
        try:
            self._of(directory).expire(
                now.wall_ms,
                retention_ms=broker.strandline_ledger_retention_ms,
                retention_bytes=broker.strandline_ledger_retention_bytes,
            )
        except StorageError as error:
            log.warning("Old entries of the ledger in %s stay: %s", directory.path, error)
