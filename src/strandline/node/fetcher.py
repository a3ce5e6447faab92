"""Fetches the partitions that this broker follows from one other broker, over one link.

There is always one fetch on its way. It waits at the leader until there is something to read
(`replica.fetch.wait.max.ms`), and its answer is handled and followed by the next fetch within one
turn: that next fetch is what tells the leader how far this replica has come, so a produce with
acks=all waits for it. What changes rarely is not repeated (fetch sessions, KIP-227). Partitions
that are new while a fetch waits are asked for by a second one, upon which the leader answers the
first at once: else the first acks=all produce of a new topic would have to wait for its end.

A partition that cannot go on is left out for a while, or until the metadata says something new,
and does not hold up the others. This file knows requests and pauses; what an answer means is
decided in `replication.follower`, and carried out by `fetcher_partition`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Final, assert_never

from strandline.client.channel import RequestFailed
from strandline.errors import ErrorCode
from strandline.node.fetcher_offsets import ask_for_ends
from strandline.node.fetcher_partition import FetchedPartition, Key, LogEnds, Next, Wanted, key_of
from strandline.node.fetcher_request import forgotten_topics, named_topics
from strandline.node.fetcher_throttle import FollowerThrottle
from strandline.node.peers import Peers
from strandline.node.replica import Replica
from strandline.node.settings import Settings
from strandline.node.timers import Timer, Timers
from strandline.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from strandline.replication.fetch_session import FetchSession
from strandline.types import BrokerId, Instant

log = logging.getLogger(__name__)

FETCH_VERSION: Final = 17
IN_FLIGHT_MAX: Final = 2
BACKOFF_MS_MIN: Final = 10
TRUNCATIONS_PER_ANSWER: Final = 8
"""Each waits for the disk about five times. The others diverge in the next answer, too."""


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
        self._changed: dict[FetchedPartition, None] = {}
        """Partitions that the next request names, if what is wanted of them differs then."""
        self._out_of_range: list[FetchedPartition] = []
        self._looked_up: set[FetchedPartition] = set()
        """Partitions of which the leader was asked where they begin and end."""
        self._sent = 0
        self._lost = 0
        """The number of the last request whose answer is not waited for any more."""
        self._in_flight = 0
        self._is_urgent = False
        """Whether there is something new to say before the fetch on its way is answered."""
        self._is_fresh = True
        """Whether the leader has not answered yet, since the beginning or the last failure."""
        self._failures = 0
        """Requests in a row that were not answered, or not well."""
        self._alarm: Timer | None = None

    def __len__(self) -> int:
        return len(self._partitions)

    def has(self, replica: Replica) -> bool:
        """Whether it fetches for this very replica."""
        partition = self._partitions.get(key_of(replica))
        return partition is not None and partition.replica is replica

    # -- Which partitions --------------------------------------------------------------------

    def follow(self, replica: Replica, now: Instant) -> None:
        """Fetch for the replica in its present leader epoch, whatever was before."""
        partition = FetchedPartition(replica)
        former = self._partitions.get(partition.key)
        if former is not None:
            self._leave_out(former)
        self._partitions[partition.key] = partition
        self._go_on(partition, partition.begin(now), now)
        self._hurry(now)

    def forget(self, replica: Replica) -> None:
        """Fetch no longer for the replica."""
        partition = self._partitions.get(key_of(replica))
        if partition is not None and partition.replica is replica:
            self._leave_out(partition)
            self._looked_up.discard(partition)
            del self._partitions[partition.key]

    def start_saved(self, replica: Replica) -> None:
        """Say with the next fetch where the replica's log starts, which is safe only now."""
        partition = self._partitions.get(key_of(replica))
        if (
            partition is not None
            and partition.replica is replica
            and partition.key in self._session.wanted
        ):
            self._want(partition)

    def renew(self, now: Instant) -> None:
        """Say everything again: this broker has another registration than it had so far.

        A leader believes a follower's position only for the registration that told it (KIP-903).
        """
        self._begin_again()
        self.wake(now)

    def wake(self, now: Instant, delay_ms: int = 0) -> None:
        """Send a fetch by then if none is on its way."""
        at_ms = now.monotonic_ms + delay_ms
        if self._alarm is not None:
            if self._alarm.at_ms <= at_ms:
                return
            self._alarm.cancel()
        self._alarm = self._means.timers.schedule(at_ms, self._ring)

    def _hurry(self, now: Instant) -> None:
        """Send a fetch in this turn, after everything else that changes what to fetch."""
        self._is_urgent = True
        self.wake(now)

    def close(self) -> None:
        """Fetch nothing more, and end the link."""
        for partition in self._partitions.values():
            self._leave_out(partition)
        self._partitions.clear()
        if self._alarm is not None:
            self._alarm.cancel()
        self._means.peers.hang_up(self.source, self._channel)

    # -- How partitions go on ----------------------------------------------------------------

    def _go_on(self, partition: FetchedPartition, step: Next, now: Instant) -> None:
        match step:
            case Next.FETCH:
                self._resume(partition, now)
            case Next.ASK_FOR_ENDS:
                self._leave_out(partition)
                self._out_of_range.append(partition)
            case Next.BACK_OFF:
                self._hold(partition, self._backoff_ms(partition), now)
            case Next.GIVE_UP:
                self._leave_out(partition)
            case Next.NOTHING:
                pass
            case _:
                assert_never(step)

    def _backoff_ms(self, partition: FetchedPartition) -> int:
        """`replica.fetch.backoff.ms` after several failures; the first pauses are shorter.

        Mostly the leader has only not heard yet that it leads, and acks=all waits for this replica.
        """
        partition.failures += 1
        return self._growing_ms(partition.failures)

    def _growing_ms(self, failures: int) -> int:
        limit_ms = self._means.settings.broker.replica_fetch_backoff_ms
        return min(limit_ms, BACKOFF_MS_MIN << min(failures - 1, 10))

    def _resume(self, partition: FetchedPartition, now: Instant) -> None:
        """Fetch the partition with the next request, unless it is to be slowed down."""
        delay_ms = self._means.throttle.delay_ms(
            partition.replica, is_in_sync=partition.is_in_sync, now=now
        )
        if delay_ms:
            # Not longer than any other pause: the limit may be raised meanwhile.
            limit_ms = max(BACKOFF_MS_MIN, self._means.settings.broker.replica_fetch_backoff_ms)
            self._hold(partition, min(delay_ms, limit_ms), now)
            return
        self._want(partition)

    def _want(self, partition: FetchedPartition) -> None:
        self._session.want(partition.key, partition.want())
        self._changed[partition] = None

    def _hold(self, partition: FetchedPartition, delay_ms: int, now: Instant) -> None:
        """Leave the partition out of the requests for a while."""

        def resume(at: Instant) -> None:
            partition.pause = None
            self._resume(partition, at)
            if partition.pause is None:
                self._hurry(at)

        self._leave_out(partition)
        partition.pause = self._means.timers.schedule(now.monotonic_ms + delay_ms, resume)

    def _leave_out(self, partition: FetchedPartition) -> None:
        self._session.drop(partition.key)
        self._changed.pop(partition, None)
        if partition.pause is not None:
            partition.pause.cancel()
            partition.pause = None

    # -- Requests ----------------------------------------------------------------------------

    def _ring(self, now: Instant) -> None:
        self._alarm = None
        self._fetch(now)

    def _fetch(self, now: Instant) -> None:
        if not self._session.wanted or not self._means.peers.is_known(self.source):
            return
        if self._in_flight and not self._may_overtake:
            return
        session = self._session.next_request()
        self._sent += 1
        self._in_flight += 1
        self._is_urgent = False
        for key, _ in session.to_send:
            self._partitions[key].note_asked(self._sent)
        self._changed.clear()
        config = self._means.settings.broker
        self._means.peers.ask(
            self.source,
            FetchRequest(
                replica_state=self._means.identity,
                max_wait_ms=self._max_wait_ms(),
                min_bytes=config.replica_fetch_min_bytes,
                max_bytes=config.replica_fetch_response_max_bytes,
                session_id=session.session_id,
                session_epoch=session.session_epoch,
                topics=named_topics(session, config.replica_fetch_max_bytes),
                forgotten_topics_data=forgotten_topics(session.to_forget),
            ),
            FETCH_VERSION,
            partial(self._answered, self._sent, session.is_full),
            now,
            timeout_ms=config.replica_socket_timeout_ms,
            channel=self._channel,
        )

    def _max_wait_ms(self) -> int:
        """How long the leader may wait until there is something to read."""
        if self._is_fresh:
            return 0  # a session can be overtaken once it exists: have the first answer at once
        wait_ms = self._means.settings.broker.replica_fetch_wait_max_ms
        if self._looked_up and not self._session.can_overtake:
            # Where a partition begins may be out of date by the next fetch, again and again.
            return min(BACKOFF_MS_MIN, wait_ms)
        return wait_ms

    @property
    def _may_overtake(self) -> bool:
        return self._is_urgent and self._in_flight < IN_FLIGHT_MAX and self._session.can_overtake

    # -- Answers -----------------------------------------------------------------------------

    def _answered(self, number: int, was_full: bool, answer: object, now: Instant) -> None:
        if number <= self._lost:
            return
        if not isinstance(answer, FetchResponse):
            self._begin_again()
            self._pause(answer.reason if isinstance(answer, RequestFailed) else "no answer", now)
            return
        self._in_flight -= 1
        self._is_fresh = False
        found = [
            ((topic.topic_id, data.partition_index), data)
            for topic in answer.responses
            for data in topic.partitions
        ]
        code = ErrorCode(answer.error_code)
        if self._session.answered(code, answer.session_id, [key for key, _ in found]):
            self._failures = 0
            truncations_left = TRUNCATIONS_PER_ANSWER
            for key, data in found:
                if data.diverging_epoch is not None:
                    if not truncations_left:
                        self._ask_again(key, number, now)
                        continue
                    truncations_left -= 1
                self._take(key, data, number, now)
            self._save_log_starts()
            if self._out_of_range:
                self._ask_for_ends(now)
        else:
            self._forget_requests()
            if was_full:
                # What was just asked from the beginning will not be answered better at once.
                self._pause(f"it answers {code.name}", now)
                return
        self._fetch(now)

    def _save_log_starts(self) -> None:
        """Say where logs start now with the next fetch: a DeleteRecords may wait for it."""
        changed = self._changed
        if changed and next(iter(changed)).replica.host.logs.save_log_starts():
            for partition in changed:
                self._session.want(partition.key, partition.want())

    def _begin_again(self) -> None:
        """Say everything with the next request."""
        self._session.lost()
        self._forget_requests()
        self._is_fresh = True

    def _forget_requests(self) -> None:
        """Take no answer to what was sent so far."""
        self._lost = self._sent
        self._in_flight = 0

    def _take(self, key: Key, data: PartitionData, number: int, now: Instant) -> None:
        partition = self._partitions.get(key)
        if partition is None or partition.pause is not None or not partition.is_asked_by(number):
            return
        if isinstance(data.records, memoryview):
            self._means.throttle.record(partition.replica, len(data.records), now)
        self._go_on(partition, partition.take(data, now), now)

    def _ask_again(self, key: Key, number: int, now: Instant) -> None:
        """Fetch a partition again as if it had not been answered."""
        partition = self._partitions.get(key)
        if partition is not None and partition.pause is None and partition.is_asked_by(number):
            self._resume(partition, now)

    def _pause(self, reason: str, now: Instant) -> None:
        """Let all partitions wait, because none can be fetched."""
        self._failures += 1
        level = logging.WARNING if self._failures == 1 else logging.DEBUG
        log.log(level, "Fetching from broker %d failed: %s", self.source, reason)
        self.wake(now, self._growing_ms(self._failures))

    def _ask_for_ends(self, now: Instant) -> None:
        means = self._means
        partitions, self._out_of_range = self._out_of_range, []
        self._looked_up.update(partitions)
        ask_for_ends(
            means.peers,
            self.source,
            partitions,
            self._ends_found,
            now,
            own_id=BrokerId(means.identity.replica_id),
            timeout_ms=means.settings.broker.replica_socket_timeout_ms,
        )

    def _ends_found(
        self,
        partition: FetchedPartition,
        found: LogEnds | ErrorCode,
        now: Instant,
    ) -> None:
        self._looked_up.discard(partition)
        if self._partitions.get(partition.key) is not partition:
            return
        if isinstance(found, LogEnds):
            step = partition.take_ends(found, now)
        elif found == ErrorCode.FENCED_LEADER_EPOCH:
            step = Next.GIVE_UP
        else:
            step = Next.BACK_OFF
        self._go_on(partition, step, now)
        self._hurry(now)
