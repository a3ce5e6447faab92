"""Writing the end of a transaction into a partition that is led here (WriteTxnMarkers).

One way for markers of every origin: another broker's request and this node's own coordinator. A
marker counts once it is committed. Offsets of groups end with it, too: where the partition is one
of `__consumer_offsets`, the group coordinator writes it.
"""

from __future__ import annotations

import logging
from typing import Final

from strandline.cluster.topic_names import CONSUMER_OFFSETS
from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.coordinator_topic import MarkerWritten, marker_batch
from strandline.node.group_access import GroupAccess
from strandline.node.replicas import Replicas
from strandline.protocol.messages.write_txn_markers import WritableTxnMarker
from strandline.types import Instant, TopicPartition

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 30_000
"""How long a marker may take to be committed; its coordinator asks again."""


class MarkerWriter:
    """Writes markers into the partitions that this node leads."""

    def __init__(self, replicas: Replicas, groups: GroupAccess) -> None:
        self._replicas = replicas
        self._groups = groups

    def write(
        self, at: TopicPartition, marker: WritableTxnMarker, done: MarkerWritten, now: Instant
    ) -> None:
        """Write one marker into one partition."""
        try:
            replica = self._replicas.hosted(*at)
            leading = replica.check_leading()
            if at.topic == CONSUMER_OFFSETS:
                self._groups.host.write_marker(at.partition, marker, done, now)
                return
            required = leading.append_own(
                marker_batch(marker, now),
                now,
                transaction_version=marker.transaction_version,
            )
        except ProtocolError as error:
            done(error.code, now)
            return
        except StorageError as error:
            log.error("A marker could not be written to %s: %s", at, error)
            done(ErrorCode.KAFKA_STORAGE_ERROR, now)
            return
        outcome = replica.commit_outcome(required)
        if outcome is not None:
            done(outcome, now)
        else:
            replica.await_commit(required, done, deadline_ms=now.monotonic_ms + TIMEOUT_MS)
