"""Fetch: hand out ranges of log files, or wait until there is enough to hand out.

Reading never touches records: an answer is a head per partition and a file range behind it. A
request that finds less than its minimum is parked and read again when one of its partitions has
grown or its time is up. Sizes follow KIP-74, sessions KIP-227, fencing KIP-320, diverging epochs
KIP-595 (replication specification, 1.4, 3.3 and 3.4).
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import islice
from typing import Any, Final

from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.fetch_answer import (
    FetchAnswer,
    PartitionAnswer,
    encode_fetch_answer,
)
from strandline.node.fetch_fast_path import VERSION as FAST_PATH_VERSION
from strandline.node.fetch_fast_path import FetchFastPath
from strandline.node.fetch_reading import ConsumerReader, FollowerReader, Reader
from strandline.node.fetch_sessions import (
    FetchContext,
    Fetched,
    FetchKey,
    FetchSessions,
    Session,
    key_of,
)
from strandline.node.follower_sessions import (
    Followed,
    FollowerContext,
    FollowerIdentity,
    FollowerSession,
)
from strandline.node.leader_hints import MISDIRECTED, LeaderHints
from strandline.node.leader_throttle import LeaderThrottle
from strandline.node.outbox import Origin, Refused
from strandline.node.purgatory import TOLD_MAX, Purgatory, Wait, Watched
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.node.settings import Settings
from strandline.protocol.messages.fetch import FetchRequest
from strandline.replication.progress import NO_BROKER_EPOCH
from strandline.types import BrokerId, Instant, TopicPartition

log = logging.getLogger(__name__)

_SESSIONS_SINCE: Final = 7
_RACKS_SINCE: Final = 11
_TOPIC_IDS_SINCE: Final = 13
_HINTS_SINCE: Final = 16
_CONSUMER: Final = -1

_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

_Read = tuple[Fetched, Replica | None, PartitionAnswer]
"""What was wanted of a partition, the replica that was read, what it answers."""


class FetchHandler:
    """Answers Fetch, versions 4 to 18."""

    def __init__(
        self,
        replicas: Replicas,
        sessions: FetchSessions,
        purgatory: Purgatory,
        settings: Settings,
    ) -> None:
        self.sessions = sessions
        self.purgatory = purgatory
        self._replicas = replicas
        self._settings = settings
        self._throttle = LeaderThrottle(settings)

    def handle(self, request: Request[FetchRequest], now: Instant) -> None:
        """Read what there is; answer if that is enough, else park."""
        body, connection = request.body, request.connection
        follower = _follower(body)
        if follower is not None and connection.parked:
            # A follower that has more to ask does not wait for what it asked before; answers go
            # out in order, and its session goes on from what it was told there.
            self.purgatory.answer_now(connection, now)
        try:
            context = self._resolve(request, follower, now)
        except ProtocolError as error:
            origin = Origin(request.client_id, connection)
            request.outbox.refuses(
                Refused(error.code, request.api_key.name, (None, None, None), origin, error.message)
            )
            answer = FetchAnswer(error_code=error.code)
            request.reply_chunks(encode_fetch_answer(request, answer))
            return
        reader: Reader
        if follower is not None:
            reader = self.reader_of(follower)
            if request.version == FAST_PATH_VERSION and connection.fast_path is None:
                connection.fast_path = FetchFastPath(
                    connection, request.outbox, self, request.client_id
                )
        else:
            reader = ConsumerReader(
                self._replicas.host,
                body.isolation_level,
                rack=body.rack_id,
                may_follow=request.version >= _RACKS_SINCE,
            )
        self.go_on(
            request,
            context,
            reader,
            max_wait_ms=body.max_wait_ms,
            min_bytes=body.min_bytes,
            max_bytes=body.max_bytes,
            now=now,
        )

    def reader_of(self, follower: FollowerIdentity) -> FollowerReader:
        """Reads for another broker."""
        return FollowerReader(self._replicas.host, self._throttle, follower)

    def is_as_before(self, session: FollowerSession, broker_id: int, broker_epoch: int) -> bool:
        """Whether it is the same broker as ever that fetches, under its present registration."""
        follower = session.identity
        return follower == (broker_id, broker_epoch) and not self._replicas.host.is_stale(*follower)

    def go_on(
        self,
        request: Request[Any],
        context: FetchContext,
        reader: Reader,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        now: Instant,
    ) -> None:
        """Read what the context asks for; answer if that is enough, else park."""
        bytes_max = max(0, min(max_bytes, self._settings.broker.fetch_max_bytes))
        fetch = _Fetch(
            request, context, self._replicas, reader, bytes_max, min(min_bytes, bytes_max)
        )
        watched = fetch.watched()
        if max_wait_ms <= 0 or not watched:
            fetch.expire(now)
            return
        self.purgatory.complete_or_park(
            fetch, watched, deadline_ms=now.monotonic_ms + max_wait_ms, now=now
        )

    def _resolve(
        self, request: Request[FetchRequest], follower: FollowerIdentity | None, now: Instant
    ) -> FetchContext:
        body = request.body
        by_id = request.version >= _TOPIC_IDS_SINCE
        make = Fetched if follower is None else Followed
        wanted: list[Fetched] = [
            make(
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
        if request.version < _SESSIONS_SINCE:
            return FetchContext(wanted, session=None, incremental=False)
        forgotten = [
            key_of(topic.topic, topic.topic_id, partition, by_id=by_id)
            for topic in body.forgotten_topics_data
            for partition in topic.partitions
        ]
        context = self.sessions.resolve(
            session_id=body.session_id,
            epoch=body.session_epoch,
            wanted=wanted,
            forgotten=forgotten,
            uses_topic_ids=by_id,
            newcomer=partial(_session, follower, now, by_id),
            now=now,
        )
        if follower is not None and isinstance(context, FollowerContext):
            context.followers.identify(follower, is_stale=self._replicas.host.is_stale(*follower))
        return context


def _session(
    follower: FollowerIdentity | None, now: Instant, uses_topic_ids: bool, session_id: int
) -> Session:
    if follower is None:
        return Session(session_id, now, uses_topic_ids=uses_topic_ids)
    return FollowerSession(session_id, now, uses_topic_ids=uses_topic_ids, identity=follower)


def _follower(body: FetchRequest) -> FollowerIdentity | None:
    """Which broker fetches; None for a consumer."""
    state = body.replica_state
    replica_id = body.replica_id if state is None else state.replica_id
    if replica_id <= _CONSUMER:
        return None
    return FollowerIdentity(
        BrokerId(replica_id), NO_BROKER_EPOCH if state is None else state.replica_epoch
    )


class _Fetch:
    """One fetch that reads until it has enough or its time is up."""

    __slots__ = (
        "_bytes_max",
        "_bytes_min",
        "_context",
        "_missing",
        "_reader",
        "_replicas",
        "_request",
        "connection",
    )

    def __init__(
        self,
        request: Request[Any],
        context: FetchContext,
        replicas: Replicas,
        reader: Reader,
        bytes_max: int,
        bytes_min: int,
    ) -> None:
        self.connection = request.connection
        self._request = request
        self._context = context
        self._replicas = replicas
        self._reader = reader
        self._bytes_max = bytes_max
        self._bytes_min = bytes_min
        self._missing: frozenset[FetchKey] = frozenset()
        """What was unknown from the beginning: it is told, and does not keep the others from
        being waited for (a client that goes on asking for a deleted topic would ask in a loop).
        When it is there after all the wait is over: nothing else watches what is written to it."""

    def watched(self) -> list[Watched]:
        """What may complete this fetch when it changes."""
        watch = self._context.watch
        if watch is not None:
            return [watch]
        found = [(fetched.key, self._find(fetched)) for fetched in self._context.partitions]
        self._missing = frozenset(key for key, item in found if item in _UNKNOWN)
        watched = [self._reader.watched(item) for _, item in found if isinstance(item, Replica)]
        if watched and self._missing:
            watched.append(self._replicas.host.arrivals)
        return watched

    def try_complete(self, now: Instant) -> bool:
        """Answer if there is an error to tell or at least the minimum of bytes to send."""
        answers, total, is_urgent = self._read(now)
        if total < self._bytes_min and not is_urgent:
            return False
        self._answer(answers, now)
        return True

    def expire(self, now: Instant) -> None:
        """Answer with what there is."""
        self._answer(self._read(now)[0], now)

    def wait(self) -> Wait:
        """For people."""
        image = self._replicas.host.metadata.image
        names = tuple(
            f"{each.key.topic or image.topic_names.get(each.key.topic_id)}-{each.key.partition}"
            f" from {each.fetch_offset}"
            for each in islice(self._context.partitions, TOLD_MAX)
        )
        return Wait(self._request, names, f"{self._bytes_min} bytes to read")

    def _find(self, fetched: Fetched) -> Replica | ErrorCode:
        if isinstance(fetched, Followed):
            replica = fetched.replica
            if replica is not None and not replica.is_retired:
                return replica
        key = fetched.key
        try:
            if key.topic is not None:
                return self._replicas.hosted(key.topic, key.partition)
            replica = self._replicas.hosted_by_id(key.topic_id, key.partition)
        except ProtocolError as error:
            return self._why_missing(fetched, error.code)
        if fetched.known_as is None:
            fetched.known_as = replica.topic_partition.topic
        return replica

    def _why_missing(self, fetched: Fetched, code: ErrorCode) -> ErrorCode:
        """The code for a partition that is not here, by what its topic was called before."""
        if isinstance(fetched, Followed) or fetched.key.topic is not None:
            return code
        image = self._replicas.host.metadata.image
        if code is not ErrorCode.UNKNOWN_TOPIC_ID:
            fetched.known_as = image.topic_names.get(fetched.key.topic_id)
            return code
        if fetched.known_as is None:
            return code
        if fetched.known_as in image.topics:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _read(self, now: Instant) -> tuple[list[_Read], int, bool]:
        """Read every partition: the answers, their bytes, whether they must not wait."""
        answers: list[_Read] = []
        read = self._reader.read
        budget = self._bytes_max
        total = 0
        is_urgent = False
        for fetched in self._context.partitions:
            answer = PartitionAnswer(fetched.key.partition)
            found = self._find(fetched)
            replica: Replica | None = None
            may_wait = False
            if isinstance(found, Replica):
                replica = found
                is_urgent = is_urgent or fetched.key in self._missing
                try:
                    read(found, fetched, answer, budget, is_first=total == 0, now=now)
                except ProtocolError as error:
                    answer.refuse(error.code)
                except StorageError as error:
                    log.error("Reading %s failed: %s", found.topic_partition, error)
                    found.failed_to_read(error)
                    answer.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
            else:
                answer.refuse(found)
                may_wait = found in _UNKNOWN and fetched.key in self._missing
            if answer.records is not None:
                total += answer.length
                budget = max(0, budget - answer.length)
            is_urgent = is_urgent or (answer.is_urgent and not may_wait)
            answers.append((fetched, replica, answer))
        return answers, total, is_urgent

    def _answer(self, answers: list[_Read], now: Instant) -> None:
        context = self._context
        by_id = self._request.version >= _TOPIC_IDS_SINCE
        answer = FetchAnswer(session_id=context.session_id)
        misdirected: list[tuple[FetchKey, PartitionAnswer]] = []
        for fetched, replica, partition in answers:
            if partition.error_code is not ErrorCode.NONE:
                self._note_refusal(fetched.key, partition.error_code)
            has_records = partition.records is not None
            if context.must_tell(
                fetched,
                high_watermark=partition.high_watermark,
                log_start_offset=partition.log_start_offset,
                has_records=has_records,
                has_error=partition.is_news,
            ):
                key = fetched.key
                topic = key.topic_id if by_id else (key.topic or "")
                answer.add(topic, partition)
                if has_records and replica is not None:
                    self._reader.answered(replica, partition.length, now)
                elif partition.error_code in MISDIRECTED:
                    misdirected.append((key, partition))
        if misdirected and self._request.version >= _HINTS_SINCE:
            self._add_hints(answer, misdirected)
        self._request.reply_chunks(encode_fetch_answer(self._request, answer))

    def _note_refusal(self, key: FetchKey, code: ErrorCode) -> None:
        topic = key.topic
        if topic is None:
            names = self._replicas.host.metadata.image.topic_names
            topic = names.get(key.topic_id, str(key.topic_id))
        request = self._request
        request.outbox.refuses(
            Refused(
                code,
                request.api_key.name,
                (topic, key.partition, None),
                Origin(request.client_id, request.connection),
                None,
            )
        )

    def _add_hints(
        self, answer: FetchAnswer, misdirected: list[tuple[FetchKey, PartitionAnswer]]
    ) -> None:
        """Tell clients that asked the wrong broker whom to ask (KIP-951)."""
        image = self._replicas.host.metadata.image
        hints = LeaderHints(image, self.connection.listener)
        for key, partition in misdirected:
            name = image.topic_names.get(key.topic_id, "") if key.topic is None else key.topic
            partition.current_leader = hints.of(TopicPartition(name, key.partition))
        answer.leaders = hints.endpoints.values()
