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

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from strandline.errors import ErrorCode, ProtocolError
from strandline.node.purgatory import Watched
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


@dataclass(slots=True, eq=False)
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
    known_as: str | None = None
    """The topic's name, once the id that the client gave was known. It outlives the topic: Kafka's
    sessions remember it, and so a deleted topic is unknown by its name then and not by its id."""

    def take_over(self, wanted: Fetched) -> None:
        """Want what the newest request does (KAFKA-9338: the leader epoch, too)."""
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset


class Session:
    """One client's remembered fetch."""

    __slots__ = ("created_ms", "epoch", "id", "last_used_ms", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, now: Instant, *, uses_topic_ids: bool) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.partitions: dict[FetchKey, Fetched] = {}
        self.created_ms = now.monotonic_ms
        self.last_used_ms = now.monotonic_ms

    @property
    def is_follower(self) -> bool:
        """Whether another broker fetches here."""
        return False

    def is_superseded_by(self, newcomer: Session) -> bool:
        """Whether its client will not use it any more, now that it has the other one."""
        del newcomer
        return False

    def begin(self, wanted: Iterable[Fetched]) -> None:
        """Remember the partitions of the request that creates the session."""
        self.partitions = {fetched.key: fetched for fetched in wanted}

    def merge(self, changed: Iterable[Fetched], forgotten: Iterable[FetchKey]) -> None:
        """Take over what an incremental request adds, changes and drops."""
        for wanted in changed:
            known = self.partitions.get(wanted.key)
            if known is None:
                self.partitions[wanted.key] = wanted
            else:
                known.take_over(wanted)
        for key in forgotten:
            self.partitions.pop(key, None)

    def move_back(self, fetched: Fetched) -> None:
        """Read the partition after all others from now on."""
        if self.partitions.pop(fetched.key, None) is not None:
            self.partitions[fetched.key] = fetched

    def context(self, *, incremental: bool) -> FetchContext:
        """How the request that was just taken in is to be answered."""
        return FetchContext(list(self.partitions.values()), session=self, incremental=incremental)

    def close(self) -> None:
        """The session has ended."""

    def check(self) -> None:
        """Raise `InvariantViolated` if the next answer would leave out a change (I-42)."""

    def advance(self) -> None:
        """Expect the next epoch; 1 follows the largest."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1


class FetchContext:
    """How one fetch request is to be answered.

    `incremental` says that unchanged partitions stay out of the answer. `session_id` goes into the
    answer.
    """

    __slots__ = ("_partitions", "_session", "incremental", "session_id")

    def __init__(
        self, partitions: list[Fetched], *, session: Session | None, incremental: bool
    ) -> None:
        self._partitions = partitions
        self.incremental = incremental
        self._session = session
        self.session_id = session.id if session else NO_SESSION

    @property
    def partitions(self) -> list[Fetched]:
        """What to read now, in order."""
        return self._partitions

    @property
    def awaited(self) -> Iterable[Fetched]:
        """What a parked fetch waits for."""
        return self._partitions

    @property
    def watch(self) -> Watched | None:
        """What changes when a parked fetch may be completed; None: the partitions by themselves."""
        return None

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
            self._session.move_back(fetched)
        return True


Newcomer: TypeAlias = Callable[[int], Session]
"""Makes a session of a client's kind, with this id; nothing is remembered in it yet."""


class FetchSessions:
    """The bounded cache of sessions of one node."""

    def __init__(self, capacity: int, random: Random) -> None:
        self._capacity = capacity
        self._random = random
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        """The least recently used first."""
        return iter(self._sessions.values())

    def resolve(
        self,
        *,
        session_id: int,
        epoch: int,
        wanted: list[Fetched],
        forgotten: Iterable[FetchKey],
        uses_topic_ids: bool,
        newcomer: Newcomer,
        now: Instant,
    ) -> FetchContext:
        """Turn a request's session fields into what to read and how to answer.

        `newcomer` makes a session with an id, of the client's kind. Raises `ProtocolError` with
        FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR,
        which are answered for the request as a whole.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._drop(session_id)
            if epoch == INITIAL_EPOCH and wanted:
                session = newcomer(self._new_id())
                if self._make_room(session, len(wanted), now):
                    self._enter(session, wanted)
                    return session.context(incremental=False)
            return FetchContext(wanted, session=None, incremental=False)
        found = self._sessions.get(session_id)
        if found is None:
            raise ProtocolError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != found.epoch:
            raise ProtocolError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if found.uses_topic_ids != uses_topic_ids:
            raise ProtocolError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        found.merge(wanted, forgotten)
        if not found.partitions:
            self._drop(found.id)
            return FetchContext([], session=None, incremental=True)
        return self.go_on(found, now)

    def find(self, session_id: int, epoch: int) -> Session | None:
        """The session with that id, if that is its next epoch."""
        session = self._sessions.get(session_id)
        return None if session is None or session.epoch != epoch else session

    def go_on(self, session: Session, now: Instant) -> FetchContext:
        """An incremental request has told the session what it has to tell."""
        session.last_used_ms = now.monotonic_ms
        session.advance()
        # The most recently used stands last, so that eviction looks at the front only.
        self._sessions[session.id] = self._sessions.pop(session.id)
        return session.context(incremental=True)

    def _enter(self, session: Session, wanted: list[Fetched]) -> None:
        session.begin(wanted)
        for former in list(self._sessions.values()):
            if former.is_superseded_by(session):
                self._drop(former.id)
        self._sessions[session.id] = session

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _make_room(self, newcomer: Session, size: int, now: Instant) -> bool:
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
                or (newcomer.is_follower and not session.is_follower)
            ]
            if not evictable:
                return False
            evicted = min(evictable, key=_weight)
            if (newcomer.is_follower, size) <= _weight(evicted):
                return False
        self._drop(evicted.id)
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
