"""Fetches the partitions that this broker follows from one other broker, over one link.

There is always at most one fetch on its way. It waits at the leader until there is something to
read (`replica.fetch.wait.max.ms`), and its answer is handled and followed by the next fetch within
one turn: that next fetch is what tells the leader how far this replica has come, so whoever waits
for acks=all waits for it. What changes rarely is not repeated (fetch sessions, KIP-227).

A partition that cannot go on is left out for a while, or until the metadata says something new,
and does not hold up the others. This file knows requests and pauses; what an answer means is
decided in `replication.follower`, and carried out by `fetcher_partition`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from strandline.errors import CorruptRecords, DiskFull, ErrorCode, StorageError
from strandline.node.fetcher_offsets import Found, LogEnds, ask_for_ends
from strandline.node.fetcher_partition import FetchedPartition, Key, Wanted
from strandline.node.fetcher_throttle import FollowerThrottle
from strandline.node.peers import PeerFailed, Peers
from strandline.node.replica import Replica
from strandline.node.settings import Settings
from strandline.node.timers import Timer, Timers
from strandline.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from strandline.replication.fetch_session import FetchSession, SessionRequest
from strandline.replication.follower import (
    Action,
    Append,
    AskOffsets,
    Asked,
    BackOff,
    Continue,
    Ignore,
    Truncate,
    TruncateFully,
    Wait,
    out_of_range_step,
)
from strandline.replication.truncation import first_truncation
from strandline.types import BrokerId, Instant, LeaderEpoch, TopicId

log = logging.getLogger(__name__)

FETCH_VERSION: Final = 17


@dataclass(slots=True)
class FetcherMeans:
    """What all fetchers of a node work with. `identity` is sent along with every fetch."""

    identity: ReplicaState
    settings: Settings
    peers: Peers
    timers: Timers
    throttle: FollowerThrottle


class Fetcher:
    """The partitions fetched from `source` over one channel."""

    def __init__(self, source: BrokerId, channel: str, means: FetcherMeans) -> None:
        self.source = source
        self._channel = channel
        self._means = means
        self._session: FetchSession[Key, Wanted] = FetchSession()
        self._partitions: dict[Key, FetchedPartition] = {}
        self._changed: list[FetchedPartition] = []
        """Partitions whose `asked` changes with the next request."""
        self._out_of_range: list[FetchedPartition] = []
        self._in_flight = False
        self._is_full = False
        """Whether the last request named every partition."""
        self._is_failing = False
        self._alarm: Timer | None = None

    def __len__(self) -> int:
        return len(self._partitions)

    # -- Which partitions --------------------------------------------------------------------

    def follow(self, replica: Replica, now: Instant) -> None:
        """Fetch for the replica in its present leader epoch, whatever was before."""
        partition = FetchedPartition(replica)
        self._release(self._partitions.get(partition.key))
        self._partitions[partition.key] = partition
        self._guarded(partition, self._begin, now)

    def forget(self, replica: Replica) -> None:
        """Fetch no longer for the replica."""
        key: Key = (replica.topic_id, replica.topic_partition.partition)
        partition = self._partitions.get(key)
        if partition is not None and partition.replica is replica:
            self._release(partition)
            del self._partitions[key]
        if not self._partitions:
            self._means.peers.hang_up(self.source, self._channel)

    def wake(self, now: Instant, delay_ms: int = 0) -> None:
        """Send a fetch by then if none is on its way.

        Not at once: in a turn that changes many partitions the fetch comes after all of them.
        """
        at_ms = now.monotonic_ms + delay_ms
        if self._alarm is not None:
            if self._alarm.at_ms <= at_ms:
                return
            self._alarm.cancel()
        self._alarm = self._means.timers.schedule(at_ms, self._ring)

    def _begin(self, partition: FetchedPartition, now: Instant) -> None:
        replica = partition.replica
        target = first_truncation(
            replica.log.leader_epochs.latest,
            high_watermark=replica.log.high_watermark,
            log_end_offset=replica.log.log_end_offset,
        )
        if target is not None:
            replica.truncate_to(target.offset, now)
        self._resume(partition, now)

    def _release(self, partition: FetchedPartition | None) -> None:
        if partition is not None:
            self._session.drop(partition.key)
            if partition.held is not None:
                partition.held.cancel()

    # -- Pauses ------------------------------------------------------------------------------

    def _resume(self, partition: FetchedPartition, now: Instant) -> None:
        """Fetch the partition with the next request, unless it is to be slowed down."""
        delay_ms = self._means.throttle.delay_ms(
            partition.replica, is_in_sync=partition.is_in_sync, now=now
        )
        if delay_ms:
            self._hold(partition, delay_ms, now)
            return
        self._session.want(partition.key, partition.wanted())
        self._changed.append(partition)
        if not self._in_flight:
            self.wake(now)

    def _hold(self, partition: FetchedPartition, delay_ms: int, now: Instant) -> None:
        """Leave the partition out of the requests for a while."""

        def release(at: Instant) -> None:
            partition.held = None
            self._resume(partition, at)

        self._session.drop(partition.key)
        if partition.held is not None:
            partition.held.cancel()
        partition.held = self._means.timers.schedule(now.monotonic_ms + delay_ms, release)

    def _back_off(self, partition: FetchedPartition, now: Instant) -> None:
        self._hold(partition, self._means.settings.broker.replica_fetch_backoff_ms, now)

    def _give_up(self, partition: FetchedPartition) -> None:
        """Leave the partition out until the metadata tells of another leader epoch."""
        self._session.drop(partition.key)
        partition.is_stuck = True

    # -- Requests ----------------------------------------------------------------------------

    def _ring(self, now: Instant) -> None:
        self._alarm = None
        self._fetch(now)

    def _fetch(self, now: Instant) -> None:
        peers = self._means.peers
        if self._in_flight or not self._session.wanted or not peers.is_known(self.source):
            return
        config = self._means.settings.broker
        session = self._session.next_request()
        for partition in self._changed:
            partition.note_asked()
        self._changed.clear()
        self._is_full = session.is_full
        self._in_flight = True
        request = FetchRequest(
            replica_state=self._means.identity,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=session.session_id,
            session_epoch=session.session_epoch,
            topics=_topics(session, config.replica_fetch_max_bytes),
            forgotten_topics_data=_forgotten(session.to_forget),
        )
        peers.ask(
            self.source,
            request,
            FETCH_VERSION,
            self._answered,
            now,
            timeout_ms=config.replica_socket_timeout_ms,
            channel=self._channel,
        )

    # -- Answers -----------------------------------------------------------------------------

    def _answered(self, answer: object, now: Instant) -> None:
        self._in_flight = False
        if not isinstance(answer, FetchResponse):
            self._session.lost()
            self._pause(str(answer.reason if isinstance(answer, PeerFailed) else answer), now)
            return
        self._is_failing = False
        found = [
            ((topic.topic_id, data.partition_index), data)
            for topic in answer.responses
            for data in topic.partitions
        ]
        code = ErrorCode(answer.error_code)
        if self._session.answered(code, answer.session_id, [key for key, _ in found]):
            for key, data in found:
                partition = self._partitions.get(key)
                if partition is not None and partition.is_fetched:
                    self._handle(partition, data, now)
            if self._out_of_range:
                self._ask_for_ends(now)
        elif self._is_full:
            self._pause(f"it refused a fetch session ({code.name})", now)
            return
        self._fetch(now)

    def _pause(self, reason: str, now: Instant) -> None:
        """Let all partitions wait, because none can be fetched."""
        level = logging.DEBUG if self._is_failing else logging.WARNING
        self._is_failing = True
        log.log(level, "Fetching from broker %d failed: %s", self.source, reason)
        self.wake(now, self._means.settings.broker.replica_fetch_backoff_ms)
