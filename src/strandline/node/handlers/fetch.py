"""Fetch: hand out ranges of log files, or wait until there is enough to hand out.

Reading never touches records: an answer is a head per partition and a file range behind it. A
request that finds less than its minimum is parked and read again when one of its partitions has
grown or its time is up. Sizes follow KIP-74, sessions KIP-227, fencing KIP-320, diverging epochs
KIP-595 (replication specification, 1.4, 3.3 and 3.4).
"""

from __future__ import annotations

import logging
from typing import Final

from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.fetch_answer import (
    FetchAnswer,
    PartitionAnswer,
    encode_fetch_answer,
)
from strandline.node.fetch_sessions import (
    FetchContext,
    Fetched,
    FetchSessions,
    key_of,
)
from strandline.node.purgatory import Purgatory
from strandline.node.replica import READ_COMMITTED, Replica
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.protocol.messages.fetch import FetchRequest
from strandline.types import NO_EPOCH, Instant, LeaderEpoch, Offset

log = logging.getLogger(__name__)

_TOPIC_IDS_SINCE: Final = 13
_CONSUMER: Final = -1


class FetchHandler:
    """Answers Fetch, versions 4 to 18."""

    def __init__(
        self,
        replicas: Replicas,
        sessions: FetchSessions,
        purgatory: Purgatory,
        *,
        answer_bytes_max: int,
    ) -> None:
        self._replicas = replicas
        self._sessions = sessions
        self._purgatory = purgatory
        self._answer_bytes_max = answer_bytes_max

    def handle(self, request: Request[FetchRequest], now: Instant) -> None:
        """Read what there is; answer if that is enough, else park."""
        body = request.body
        try:
            context = self._resolve(request, now)
        except ProtocolError as error:
            answer = FetchAnswer(error_code=error.code)
            request.reply_chunks(encode_fetch_answer(request, answer))
            return
        replica_id = body.replica_id
        if body.replica_state is not None:
            replica_id = body.replica_state.replica_id
        fetch = _Fetch(
            request,
            context,
            self._replicas,
            bytes_max=max(0, min(body.max_bytes, self._answer_bytes_max)),
            is_consumer=replica_id <= _CONSUMER,
        )
        replicas = fetch.replicas()
        if body.max_wait_ms <= 0 or not replicas:
            fetch.expire(now)
            return
        self._purgatory.complete_or_park(
            fetch, replicas, deadline_ms=now.monotonic_ms + body.max_wait_ms, now=now
        )

    def _resolve(self, request: Request[FetchRequest], now: Instant) -> FetchContext:
        body = request.body
        by_id = request.version >= _TOPIC_IDS_SINCE
        wanted = [
            Fetched(
                key_of(topic.topic, topic.topic_id, partition.partition, by_id=by_id),
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
                partition.log_start_offset,
            )
            for topic in body.topics
            for partition in topic.partitions
        ]
        if request.version < 7:
            return FetchContext(wanted, session=None, incremental=False)
        forgotten = [
            key_of(topic.topic, topic.topic_id, partition, by_id=by_id)
            for topic in body.forgotten_topics_data
            for partition in topic.partitions
        ]
        return self._sessions.resolve(
            session_id=body.session_id,
            epoch=body.session_epoch,
            wanted=wanted,
            forgotten=forgotten,
            uses_topic_ids=by_id,
            now=now,
        )


class _Fetch:
    """One fetch that reads until it has enough or its time is up."""

    __slots__ = (
        "_bytes_max",
        "_bytes_min",
        "_context",
        "_is_consumer",
        "_replicas",
        "_request",
        "connection",
    )

    def __init__(
        self,
        request: Request[FetchRequest],
        context: FetchContext,
        replicas: Replicas,
        *,
        bytes_max: int,
        is_consumer: bool,
    ) -> None:
        self.connection = request.connection
        self._request = request
        self._context = context
        self._replicas = replicas
        self._bytes_max = bytes_max
        self._bytes_min = min(request.body.min_bytes, bytes_max)
        self._is_consumer = is_consumer

    def replicas(self) -> list[Replica]:
        """The partitions whose growth may complete this fetch."""
        found = (self._find(fetched) for fetched in self._context.partitions)
        return [replica for replica in found if isinstance(replica, Replica)]

    def try_complete(self, now: Instant) -> bool:
        """Answer if there is an error to tell or at least the minimum of bytes to send."""
        del now
        answers, total, is_urgent = self._read()
        if total < self._bytes_min and not is_urgent:
            return False
        self._answer(answers)
        return True

    def expire(self, now: Instant) -> None:
        """Answer with what there is."""
        del now
        self._answer(self._read()[0])

    def _find(self, fetched: Fetched) -> Replica | ErrorCode:
        key = fetched.key
        try:
            if key.topic is None:
                return self._replicas.leader_by_id(key.topic_id, key.partition)
            return self._replicas.leader(key.topic, key.partition)
        except ProtocolError as error:
            return error.code

    def _read(self) -> tuple[list[tuple[Fetched, PartitionAnswer]], int, bool]:
        """Read every partition: the answers, their bytes, whether they must not wait."""
        answers: list[tuple[Fetched, PartitionAnswer]] = []
        budget = self._bytes_max
        total = 0
        is_urgent = False
        for fetched in self._context.partitions:
            answer = PartitionAnswer(fetched.key.partition)
            found = self._find(fetched)
            if isinstance(found, Replica):
                try:
                    self._read_partition(found, fetched, answer, budget, is_first=total == 0)
                except ProtocolError as error:
                    answer.refuse(error.code)
                except StorageError as error:
                    log.error("Reading %s failed: %s", found.topic_partition, error)
                    answer.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
            else:
                answer.refuse(found)
            total += answer.length
            budget = max(0, budget - answer.length)
            is_urgent = is_urgent or answer.is_urgent
            answers.append((fetched, answer))
        return answers, total, is_urgent

    def _read_partition(
        self,
        replica: Replica,
        fetched: Fetched,
        answer: PartitionAnswer,
        budget: int,
        *,
        is_first: bool,
    ) -> None:
        replica.check_epoch(fetched.current_leader_epoch)
        if not self._is_consumer:
            # Nobody else is assigned to a partition of a single broker.
            has_epoch = fetched.current_leader_epoch != NO_EPOCH
            raise ProtocolError(
                ErrorCode.UNKNOWN_LEADER_EPOCH if has_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        log_ = replica.log
        answer.high_watermark = log_.high_watermark
        answer.last_stable_offset = log_.last_stable_offset
        answer.log_start_offset = log_.log_start_offset
        isolation_level = self._request.body.isolation_level
        if isolation_level == READ_COMMITTED:
            answer.aborted_transactions = []
        if fetched.last_fetched_epoch != NO_EPOCH:
            epoch, end = log_.end_offset_for_epoch(LeaderEpoch(fetched.last_fetched_epoch))
            if epoch == NO_EPOCH or fetched.fetch_offset < log_.log_start_offset:
                raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE)
            if epoch < fetched.last_fetched_epoch or end < fetched.fetch_offset:
                answer.diverging = (epoch, end)
                return
        answer.records = log_.read(
            Offset(fetched.fetch_offset),
            min(max(0, fetched.max_bytes), budget),
            end_offset=replica.readable_end(isolation_level),
            at_least_one_batch=is_first,
        )
        if answer.records is not None and isolation_level == READ_COMMITTED:
            answer.aborted_transactions = log_.aborted_transactions(
                Offset(fetched.fetch_offset), answer.records.upper_offset
            )

    def _answer(self, answers: list[tuple[Fetched, PartitionAnswer]]) -> None:
        context = self._context
        by_id = self._request.version >= _TOPIC_IDS_SINCE
        answer = FetchAnswer(session_id=context.session_id)
        for fetched, partition in answers:
            if context.must_tell(
                fetched,
                high_watermark=partition.high_watermark,
                log_start_offset=partition.log_start_offset,
                has_records=partition.length > 0,
                has_error=partition.is_urgent,
            ):
                key = fetched.key
                topic = key.topic_id if by_id else (key.topic or "")
                answer.add(topic, partition)
        self._request.reply_chunks(encode_fetch_answer(self._request, answer))
