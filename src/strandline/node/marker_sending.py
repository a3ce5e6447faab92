"""Bringing the ends of transactions to their partitions, wherever these are led (WriteTxnMarkers).

A decided transaction ends on every partition that still exists: what is refused for now, or whose
leader moves, is asked again until it is done, or until a newer coordinator has fenced this one. To
each broker one request is under way; what comes meanwhile goes with the next, in one request. Each
request, and each turn of this node, has a bounded number of partitions, so that the end of a huge
transaction keeps no client waiting.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from strandline.client.channel import RequestFailed
from strandline.errors import ErrorCode
from strandline.node.marker_writing import TIMEOUT_MS, MarkerWriter
from strandline.node.metadata import Metadata
from strandline.node.peers import Peers
from strandline.node.timers import Timers
from strandline.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from strandline.transactions.effects import SendMarkers
from strandline.types import BrokerId, Instant, TopicPartition

log = logging.getLogger(__name__)

_VERSION: Final = 2
_RETRY_MS: Final = 100
_NEXT_TURN_MS: Final = 1
_CHANNEL: Final = "markers"
PARTITIONS_AT_ONCE: Final = 200
"""In one request to another broker, or in one turn of this one."""
_DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})


@dataclass(slots=True, eq=False)
class _Job:
    sent: SendMarkers
    left: set[TopicPartition]
    under_way: set[TopicPartition] = field(default_factory=set)
    is_to_go_on: bool = False
    """Whether a timer will ask again."""

    def marker(self, partitions: Iterable[TopicPartition] = ()) -> WritableTxnMarker:
        """The marker, with the partitions that a request names."""
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(partitions):
            topics.setdefault(topic, []).append(partition)
        sent = self.sent
        return WritableTxnMarker(
            producer_id=sent.producer_id,
            producer_epoch=sent.producer_epoch,
            transaction_result=sent.commits,
            topics=[
                WritableTxnMarkerTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in topics.items()
            ],
            coordinator_epoch=sent.coordinator_epoch,
            transaction_version=sent.transaction_version,
        )


@dataclass(slots=True)
class _Queue:
    """What one broker is to be asked; this one, too."""

    waiting: deque[tuple[_Job, TopicPartition]] = field(default_factory=deque)
    is_asking: bool = False
    """Whether a request is under way, or a turn with more of this broker's own to come."""

    def take(
        self, is_wanted: Callable[[_Job], bool], limit: int
    ) -> dict[_Job, set[TopicPartition]]:
        """The next so many partitions, by job, without those that are not wanted any more."""
        taken: dict[_Job, set[TopicPartition]] = {}
        while self.waiting and limit:
            job, at = self.waiting.popleft()
            if is_wanted(job):
                taken.setdefault(job, set()).add(at)
                limit -= 1
        return taken


class MarkerSender:
    """All markers that this node's coordinator has under way."""

    def __init__(
        self,
        metadata: Metadata,
        peers: Peers,
        timers: Timers,
        writer: MarkerWriter,
        broker_id: BrokerId,
    ) -> None:
        self._metadata = metadata
        self._peers = peers
        self._timers = timers
        self._writer = writer
        self._broker_id = broker_id
        self._jobs: dict[int, _Job] = {}
        self._queues: dict[BrokerId, _Queue] = {}
        self.written: Callable[[int, Instant], None] = lambda _send_id, _now: None
        """Told the `send_id` of a transaction that has ended everywhere."""

    def send(self, sent: SendMarkers, now: Instant) -> None:
        """End a transaction on its partitions."""
        job = self._jobs[sent.send_id] = _Job(sent, set(sent.partitions))
        self._go_on(job, now)

    def cancel(self, partition: int) -> None:
        """Give up what the coordinator of this partition of `__transaction_state` had sent."""
        for send_id in [
            each for each, job in self._jobs.items() if job.sent.partition == partition
        ]:
            del self._jobs[send_id]

    def _go_on(self, job: _Job, now: Instant) -> None:
        """Ask the present leaders of all partitions that are not being asked."""
        image = self._metadata.image
        leaders: dict[BrokerId, None] = {}
        waits = False
        for at in sorted(job.left - job.under_way):
            state = image.partition(at)
            if state is None:
                job.left.discard(at)  # deleted, and the transaction's records with it
            elif state.leader == self._broker_id or self._peers.is_known(state.leader):
                job.under_way.add(at)
                self._queues.setdefault(state.leader, _Queue()).waiting.append((job, at))
                leaders[state.leader] = None
            else:
                waits = True
        for leader in leaders:
            if leader == self._broker_id:
                self._write(now)
            else:
                self._ask(leader, now)
        if waits:
            self._later(job, now)
        self._finish_if_done(job, now)

    def _write(self, now: Instant) -> None:
        """Write markers into partitions that are led here. What is committed at once may bring
        further ones, which are written as well; the rest waits for the next turn."""
        queue = self._queues[self._broker_id]
        if queue.is_asking:
            return
        queue.is_asking = True
        left = PARTITIONS_AT_ONCE
        try:
            while left and queue.waiting:
                job, at = queue.waiting.popleft()
                if self._is_wanted(job):
                    left -= 1
                    self._writer.write(at, job.marker(), partial(self._answered, job, at), now)
        finally:
            queue.is_asking = bool(queue.waiting)
            if queue.is_asking:
                self._timers.schedule(now.monotonic_ms + _NEXT_TURN_MS, self._write_more)

    def _write_more(self, now: Instant) -> None:
        self._queues[self._broker_id].is_asking = False
        self._write(now)

    def _ask(self, leader: BrokerId, now: Instant) -> None:
        queue = self._queues[leader]
        if queue.is_asking:
            return
        asked = queue.take(self._is_wanted, PARTITIONS_AT_ONCE)
        if not asked:
            return
        queue.is_asking = True
        markers = [job.marker(partitions) for job, partitions in asked.items()]
        self._peers.ask(
            leader,
            WriteTxnMarkersRequest(markers=markers),
            _VERSION,
            partial(self._told, leader, asked),
            now,
            timeout_ms=TIMEOUT_MS,
            channel=_CHANNEL,
        )

    def _told(
        self,
        leader: BrokerId,
        asked: dict[_Job, set[TopicPartition]],
        answer: object,
        now: Instant,
    ) -> None:
        self._queues[leader].is_asking = False
        outcomes: dict[tuple[int, TopicPartition], ErrorCode] = {}
        if isinstance(answer, WriteTxnMarkersResponse):
            for marker in answer.markers:
                for topic in marker.topics:
                    for item in topic.partitions:
                        at = TopicPartition(topic.name, item.partition_index)
                        outcomes[marker.producer_id, at] = ErrorCode(item.error_code)
        elif isinstance(answer, RequestFailed):
            log.info("Broker %d could not be told how transactions ended: %s", leader, answer)
        for job, partitions in asked.items():
            for at in sorted(partitions):
                missing = ErrorCode.NETWORK_EXCEPTION
                code = outcomes.get((job.sent.producer_id, at), missing)
                self._answered(job, at, code, now)
        self._ask(leader, now)

    def _answered(self, job: _Job, at: TopicPartition, code: ErrorCode, now: Instant) -> None:
        job.under_way.discard(at)
        if not self._is_wanted(job):
            return
        if code in _DONE:
            job.left.discard(at)
            self._finish_if_done(job, now)
        elif code == ErrorCode.INVALID_PRODUCER_EPOCH:
            # The producer has a newer epoch there. A newer coordinator has given it, and this one
            # will hear of that; or the log of coordinators has lost it. Then no other will ever end
            # the transaction, and in this partition there is nothing of this epoch to end. Kafka
            # gives up here, and its producer is told CONCURRENT_TRANSACTIONS for good.
            log.warning("%s knows a newer epoch of producer %d", at, job.sent.producer_id)
            job.left.discard(at)
            self._finish_if_done(job, now)
        elif code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            # A newer coordinator has taken over; it ends the transaction.
            log.warning("The end of a transaction was refused by %s: %s", at, code.name)
            del self._jobs[job.sent.send_id]
        else:
            self._later(job, now)

    def _later(self, job: _Job, now: Instant) -> None:
        if job.is_to_go_on:
            return
        job.is_to_go_on = True

        def again(at: Instant) -> None:
            job.is_to_go_on = False
            if self._is_wanted(job):
                self._go_on(job, at)

        self._timers.schedule(now.monotonic_ms + _RETRY_MS, again)

    def _finish_if_done(self, job: _Job, now: Instant) -> None:
        if not job.left and self._is_wanted(job):
            del self._jobs[job.sent.send_id]
            self.written(job.sent.send_id, now)

    def _is_wanted(self, job: _Job) -> bool:
        return self._jobs.get(job.sent.send_id) is job
