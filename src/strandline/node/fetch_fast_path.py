"""The fast path of a follower's fetch that names one partition.

A follower that keeps up with a busy partition sends the same request again and again: the next
epoch of its session, and one partition with a new offset. The general way decodes any message; this
one reads that shape at fixed places, and declines whatever is not exactly it, before anything has
happened. What follows from the request is the same code for both (`FetchHandler.go_on`), and a
differential test sends the same bytes both ways.

    api key 1 │ version 17 │ correlation id │ client id │ tags │ waits, limits, session │
      topics 1 │ id │ partitions 1 │ <one partition> │ nothing forgotten, no rack │ replica state
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Protocol
from uuid import UUID

from strandline.node.connection import Connection
from strandline.node.fetch_reading import FollowerReader
from strandline.node.fetch_sessions import FetchKey, FetchSessions
from strandline.node.follower_sessions import Followed, FollowerIdentity, FollowerSession
from strandline.node.general_fetch import GeneralFetch
from strandline.node.outbox import Outbox
from strandline.node.purgatory import Purgatory
from strandline.node.request import Request
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import FetchRequest
from strandline.types import BrokerId, Instant

VERSION: Final = 17
"""The version that brokers of this cluster speak among themselves."""

_HEAD: Final = Struct(">hhi")
_BODY: Final = Struct(">iiibiiB16sBiiqiqi7siqB")
_ONE: Final = 2
"""The length of an array of one, in its compact form."""
# No tags behind the partition and the topic, nothing forgotten, no rack; then one tag, the replica
# state, which has number 1 and 13 bytes.
_BETWEEN: Final = bytes((0, 0, 1, 1, 1, 1, 13))
_KNOWN_MAX: Final = 10_000


class FetchService(GeneralFetch, Protocol):
    """What the general way does for a follower's fetch."""

    sessions: FetchSessions
    purgatory: Purgatory

    def is_as_before(self, session: FollowerSession, broker_id: int, broker_epoch: int) -> bool:
        """Whether it is the same broker as ever that fetches, under its present registration."""

    def reader_of(self, follower: FollowerIdentity) -> FollowerReader:
        """Reads for another broker."""


class FetchFastPath:
    """The fast path on one connection of a follower."""

    __slots__ = (
        "_body_at",
        "_client",
        "_client_id",
        "_connection",
        "_handler",
        "_known",
        "_outbox",
        "_size",
    )

    def __init__(
        self, connection: Connection, outbox: Outbox, handler: FetchService, client_id: str | None
    ) -> None:
        self._connection = connection
        self._outbox = outbox
        self._handler = handler
        self._client_id = client_id
        name = (client_id or "").encode()
        length = -1 if client_id is None else len(name)
        self._client = length.to_bytes(2, "big", signed=True) + name + bytes(1)
        self._body_at = _HEAD.size + len(self._client)
        self._size = self._body_at + _BODY.size
        self._known: dict[tuple[bytes, int], Followed] = {}

    def maybe_handle(self, frame: memoryview, now: Instant) -> bool:
        """Handle the request if it is of that shape."""
        if len(frame) != self._size:
            return False
        key, version, correlation_id = _HEAD.unpack_from(frame)
        if key != ApiKey.FETCH or version != VERSION:
            return False
        if frame[_HEAD.size : self._body_at] != self._client:
            return False
        (
            max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, epoch, topics, topic_id,
            partitions, number, leader_epoch, offset, last_epoch, log_start, partition_max_bytes,
            between, broker_id, broker_epoch, end,
        ) = _BODY.unpack_from(frame, self._body_at)  # fmt: skip
        if not topics == partitions == _ONE or between != _BETWEEN or end:
            return False
        session = self._handler.sessions.find(session_id, epoch)
        if not isinstance(session, FollowerSession) or isolation_level != 0:
            return False
        fetched = self._partition(session, topic_id, number)
        if fetched is None or not self._handler.is_as_before(session, broker_id, broker_epoch):
            return False
        if self._connection.parked:
            self._handler.purgatory.answer_now(self._connection, now)
        fetched.ask(offset, partition_max_bytes, leader_epoch, last_epoch, log_start)
        session.name_again(fetched)
        context = self._handler.sessions.go_on(session, now)
        request: Request[FetchRequest | None] = Request(
            self._connection,
            self._outbox,
            ApiKey.FETCH,
            VERSION,
            correlation_id,
            self._client_id,
            None,
        )
        self._outbox.fetched_by_followers += 1
        self._handler.go_on(
            request,
            context,
            self._handler.reader_of(FollowerIdentity(BrokerId(broker_id), broker_epoch)),
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            now=now,
        )
        return True

    def _partition(self, session: FollowerSession, topic_id: bytes, number: int) -> Followed | None:
        """The partition as the session has it; found by its bytes, which is quicker than by id."""
        known = self._known.get((topic_id, number))
        if known is None or known.session is not session:
            found = session.partitions.get(FetchKey(None, UUID(bytes=topic_id), number))
            if not isinstance(found, Followed):
                return None
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            known = self._known[topic_id, number] = found
        return known
