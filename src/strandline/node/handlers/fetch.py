"""Fetch: hand out ranges of log files, or wait until there is enough to hand out.

Reading never touches records: an answer is a head per partition and a file range behind it. A
request that finds less than its minimum is parked and read again when one of its partitions has
grown or its time is up. Sizes follow KIP-74, sessions KIP-227, fencing KIP-320, diverging epochs
KIP-595 (replication specification, 1.4, 3.3 and 3.4).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from strandline.authorization.acls import Operation
from strandline.errors import ProtocolError
from strandline.node.client_quotas import ClientQuotas
from strandline.node.consumer_fast_path import SINCE as CONSUMER_FAST_PATH_SINCE
from strandline.node.consumer_fast_path import ConsumerFastPath
from strandline.node.fetch_answer import (
    FetchAnswer,
    encode_fetch_answer,
)
from strandline.node.fetch_fast_path import VERSION as FAST_PATH_VERSION
from strandline.node.fetch_fast_path import FetchFastPath
from strandline.node.fetch_reading import ConsumerReader, FollowerReader, Reader
from strandline.node.fetch_sessions import (
    FINAL_EPOCH,
    NO_SESSION,
    FetchContext,
    Fetched,
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
from strandline.node.leader_throttle import LeaderThrottle
from strandline.node.outbox import Origin, Refused
from strandline.node.purgatory import Purgatory
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.node.settings import Settings
from strandline.node.waiting_fetch import Permits, WaitingFetch
from strandline.protocol.messages.fetch import FetchRequest
from strandline.replication.progress import NO_BROKER_EPOCH
from strandline.types import NO_EPOCH, BrokerId, Instant

if TYPE_CHECKING:
    from strandline.node.authorization.authority import Authority

log = logging.getLogger(__name__)

_SESSIONS_SINCE: Final = 7
_RACKS_SINCE: Final = 11
_TOPIC_IDS_SINCE: Final = 13
_CONSUMER: Final = -1


class FetchHandler:
    """Answers Fetch, versions 4 to 18."""

    def __init__(
        self,
        replicas: Replicas,
        sessions: FetchSessions,
        purgatory: Purgatory,
        settings: Settings,
        quotas: ClientQuotas | None = None,
        authority: Authority | None = None,
    ) -> None:
        """With an authority consumers read what they may; brokers passed it before."""
        self.sessions = sessions
        self.purgatory = purgatory
        self._replicas = replicas
        self._settings = settings
        self._throttle = LeaderThrottle(settings)
        self._authority = authority
        self._quotas = quotas

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
        permits = None
        if follower is not None:
            reader = self.reader_of(follower)
            if request.version == FAST_PATH_VERSION and connection.fast_path is None:
                connection.fast_path = FetchFastPath(
                    connection, request.outbox, self, request.client_id
                )
        else:
            reader = self._consumer_reader(request)
            if self._authority is not None:
                permits = self._authority.access(request, now).topics(Operation.READ)
        self.go_on(
            request,
            context,
            reader,
            max_wait_ms=body.max_wait_ms,
            min_bytes=body.min_bytes,
            max_bytes=body.max_bytes,
            now=now,
            permits=permits,
        )

    def learn(self, request: Request[FetchRequest], frame: memoryview, now: Instant) -> None:
        """Give further fetches like this one, which has just been handled, the fast path."""
        body, connection = request.body, request.connection
        path = connection.fast_path
        if (
            request.version < CONSUMER_FAST_PATH_SINCE
            or (body.session_id, body.session_epoch) != (NO_SESSION, FINAL_EPOCH)
            or body.forgotten_topics_data
            or _follower(body) is not None
            or not (path is None or isinstance(path, ConsumerFastPath))
            or connection.closing is not None
            or self._is_watched
            or not (path is None or path.wants(frame))
        ):
            return
        reader = self._consumer_reader(request)
        wanted = self._plain(request, reader, now)
        if wanted is None:
            return
        if path is None:
            path = ConsumerFastPath(request, self, may_go_on=self._authority is None)
            connection.fast_path = path
        path.learn(frame, request, wanted, reader)

    @property
    def _is_watched(self) -> bool:
        """Whether each fetch counts by itself: against a quota, or for the audit log."""
        is_limited = self._quotas is not None and self._quotas.is_limited
        return is_limited or (self._authority is not None and self._authority.audit.tells_allowed)

    def _plain(
        self, request: Request[FetchRequest], reader: ConsumerReader, now: Instant
    ) -> list[tuple[Fetched, Replica]] | None:
        """The partitions of a request, if the client may read all of them and this broker leads
        all; None for another one."""
        if reader.may_redirect:
            return None
        permits = None
        if self._authority is not None:
            permits = self._authority.access(request, now).topics(Operation.READ, is_noted=False)
        found = []
        for fetched in _wanted(request, Fetched):
            key = fetched.key
            try:
                if key.topic is None:
                    replica = self._replicas.leader_by_id(key.topic_id, key.partition)
                else:
                    replica = self._replicas.leader(key.topic, key.partition)
            except ProtocolError:
                return None
            may_read = permits is None or permits(replica.topic_partition.topic)
            if not may_read or fetched.last_fetched_epoch != NO_EPOCH:
                return None
            found.append((fetched, replica))
        return found

    @property
    def bytes_max(self) -> int:
        """What one answer may have at most, whatever a client asks for."""
        return self._settings.broker.fetch_max_bytes

    def _consumer_reader(self, request: Request[FetchRequest]) -> ConsumerReader:
        return ConsumerReader(
            self._replicas.host,
            request.body.isolation_level,
            rack=request.body.rack_id,
            may_follow=request.version >= _RACKS_SINCE,
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
        permits: Permits | None = None,
    ) -> None:
        """Read what the context asks for; answer if that is enough, else park. `permits` says
        which topics the client may read; None: all."""
        quotas = self._quotas if isinstance(reader, ConsumerReader) else None
        bytes_max = max(0, min(max_bytes, self.bytes_max))
        if quotas is not None:
            bytes_max = int(min(bytes_max, quotas.fetch_bytes_max(request)))
        fetch = WaitingFetch(
            request,
            context,
            self._replicas,
            reader,
            bytes_max,
            min(min_bytes, bytes_max),
            permits,
            quotas,
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
        wanted = _wanted(request, Fetched if follower is None else Followed)
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


def _wanted(request: Request[FetchRequest], make: type[Fetched]) -> list[Fetched]:
    by_id = request.version >= _TOPIC_IDS_SINCE
    return [
        make(
            key_of(topic.topic, topic.topic_id, partition.partition, by_id=by_id),
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
            partition.log_start_offset,
        )
        for topic in request.body.topics
        for partition in topic.partitions
    ]


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
