"""Incremental fetch sessions (KIP-227): what each consumer has asked for and been told.

A session remembers, per partition, the parameters of the last request and the offsets of the last
answer, so that both sides only send what changed. A session is named by (id, epoch): epoch 0
creates, -1 closes or declines, n continues and must be exactly the next one. The cache holds a
bounded number of sessions; a full cache refuses newcomers (they fetch without a session) unless an
idle session, or one that the newcomer outweighs, can be evicted. A follower outweighs all
consumers: every broker has one, and it has the most partitions.

This file knows the bookkeeping of sessions. It must not know logs, watermarks or bytes.
Source: `org.apache.kafka.server.FetchSession` (behaviour), KIP-227, KAFKA-9338.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from strandline.errors import ErrorCode, ProtocolError
from strandline.types import NO_OFFSET, NO_TOPIC_ID, Instant

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
EVICTION_AFTER_MS: Final = 120_000
_EPOCH_MAX: Final = 2**31 - 1


class FetchKey(NamedTuple):
    """One partition as the client named it: by topic id (version 13 and later) or by name."""

    topic: str | None
    topic_id: UUID
    partition: int


@dataclass(slots=True)
class Fetched:
    """What a client wants of one partition, and what it was last told about it."""

    key: FetchKey
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    told_high_watermark: int = NO_OFFSET
    told_log_start_offset: int = NO_OFFSET
    told_error: bool = False


class Session:
    """One client's remembered fetch."""

    __slots__ = (
        "created_ms",
        "epoch",
        "id",
        "is_follower",
        "last_used_ms",
        "partitions",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, now: Instant, *, uses_topic_ids: bool, is_follower: bool
    ) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.is_follower = is_follower
        self.partitions: dict[FetchKey, Fetched] = {}
        self.created_ms = now.monotonic_ms
        self.last_used_ms = now.monotonic_ms

    def merge(self, changed: Iterable[Fetched], forgotten: Iterable[FetchKey]) -> None:
        """Take over what an incremental request adds, changes and drops."""
        for wanted in changed:
            known = self.partitions.get(wanted.key)
            if known is None:
                self.partitions[wanted.key] = wanted
            else:
                known.fetch_offset = wanted.fetch_offset
                known.max_bytes = wanted.max_bytes
                known.current_leader_epoch = wanted.current_leader_epoch
                known.last_fetched_epoch = wanted.last_fetched_epoch
                known.log_start_offset = wanted.log_start_offset
        for key in forgotten:
            self.partitions.pop(key, None)

    def advance(self) -> None:
        """Expect the next epoch; 1 follows the largest."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1


class FetchContext:
    """How one fetch request is to be answered.

    `partitions` are what to read, in order. `incremental` says that unchanged partitions stay out
    of the answer. `session_id` goes into the answer.
    """

    __slots__ = ("_session", "incremental", "partitions", "session_id")

    def __init__(
        self, partitions: list[Fetched], *, session: Session | None, incremental: bool
    ) -> None:
        self.partitions = partitions
        self.incremental = incremental
        self._session = session
        self.session_id = session.id if session else NO_SESSION

    def must_tell(
        self,
        fetched: Fetched,
        *,
        high_watermark: int,
        log_start_offset: int,
        has_records: bool,
        has_error: bool,
    ) -> bool:
        """Whether the partition belongs into the answer, remembering what it is told."""
        if self._session is None:
            return True
        changed = (
            has_records
            or has_error
            or fetched.told_error
            or fetched.told_high_watermark != high_watermark
            or fetched.told_log_start_offset != log_start_offset
        )
        if self.incremental and not changed:
            return False
        fetched.told_high_watermark = high_watermark
        fetched.told_log_start_offset = log_start_offset
        fetched.told_error = has_error
        if self.incremental and has_records:
            # Partitions that returned data go to the end of the order, so that a small budget
            # reaches every partition in time.
            partitions = self._session.partitions
            if partitions.pop(fetched.key, None) is not None:
                partitions[fetched.key] = fetched
        return True


class FetchSessions:
    """The bounded cache of sessions of one node."""

    def __init__(self, capacity: int, random: Random) -> None:
        self._capacity = capacity
        self._random = random
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(
        self,
        *,
        session_id: int,
        epoch: int,
        wanted: list[Fetched],
        forgotten: Iterable[FetchKey],
        uses_topic_ids: bool,
        is_follower: bool = False,
        now: Instant,
    ) -> FetchContext:
        """Turn a request's session fields into what to read and how to answer.

        Raises `ProtocolError` with FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
        FETCH_SESSION_TOPIC_ID_ERROR, which are answered for the request as a whole.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            session = None
            if epoch == INITIAL_EPOCH:
                session = self._maybe_create(
                    wanted, now, uses_topic_ids=uses_topic_ids, is_follower=is_follower
                )
            return FetchContext(wanted, session=session, incremental=False)
        session = self._sessions.get(session_id)
        if session is None:
            raise ProtocolError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != session.epoch:
            raise ProtocolError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise ProtocolError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.merge(wanted, forgotten)
        session.last_used_ms = now.monotonic_ms
        if not session.partitions:
            del self._sessions[session.id]
            return FetchContext([], session=None, incremental=True)
        session.advance()
        # The most recently used stands last, so that eviction looks at the front only.
        self._sessions[session.id] = self._sessions.pop(session.id)
        return FetchContext(list(session.partitions.values()), session=session, incremental=True)

    def _maybe_create(
        self, wanted: list[Fetched], now: Instant, *, uses_topic_ids: bool, is_follower: bool
    ) -> Session | None:
        if not wanted or not self._make_room(len(wanted), now, is_follower=is_follower):
            return None
        session = Session(
            self._new_id(), now, uses_topic_ids=uses_topic_ids, is_follower=is_follower
        )
        session.partitions = {fetched.key: fetched for fetched in wanted}
        self._sessions[session.id] = session
        return session

    def _make_room(self, size: int, now: Instant, *, is_follower: bool) -> bool:
        if len(self._sessions) < self._capacity:
            return True
        if not self._sessions:
            return False
        evicted = next(iter(self._sessions.values()))
        if now.monotonic_ms - evicted.last_used_ms <= EVICTION_AFTER_MS:
            evictable = [
                session
                for session in self._sessions.values()
                if now.monotonic_ms - session.created_ms > EVICTION_AFTER_MS
                or (is_follower and not session.is_follower)
            ]
            if not evictable:
                return False
            evicted = min(evictable, key=_weight)
            if (is_follower, size) <= _weight(evicted):
                return False
        del self._sessions[evicted.id]
        return True

    def _new_id(self) -> int:
        while True:
            candidate = self._random.randrange(1, _EPOCH_MAX)
            if candidate not in self._sessions:
                return candidate


def _weight(session: Session) -> tuple[bool, int]:
    """What a session is worth: a newcomer must be worth more."""
    return session.is_follower, len(session.partitions)


def key_of(topic: str, topic_id: UUID, partition: int, *, by_id: bool) -> FetchKey:
    """The key under which a request names a partition: by id, or by name where it has no ids."""
    return FetchKey(None, topic_id, partition) if by_id else FetchKey(topic, NO_TOPIC_ID, partition)
