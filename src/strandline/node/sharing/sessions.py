"""Share sessions: what each member fetches from, and in which order its requests come.

A session belongs to one member of one group on one connection, and ends with it. Each request says
its epoch: 0 opens a session, -1 ends it, any other must be the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.node.connection import Connection
from strandline.types import TopicId

OPENING_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1

Place = tuple[TopicId, int]
"""A partition, by its topic's id."""


class ShareSession:
    """The session of one member."""

    __slots__ = ("_sessions", "connection", "epoch", "group_id", "member_id", "partitions")

    def __init__(
        self, sessions: ShareSessions, group_id: str, member_id: str, connection: Connection
    ) -> None:
        self._sessions = sessions
        self.group_id = group_id
        self.member_id = member_id
        self.connection = connection
        self.epoch = 1
        """That of the next request."""
        self.partitions: dict[Place, None] = {}

    @property
    def is_current(self) -> bool:
        """Whether it has neither ended nor been replaced."""
        return self._sessions.is_current(self)

    def update(self, wanted: Iterable[Place], forgotten: Iterable[Place]) -> None:
        """Fetch from other partitions from now on."""
        self.partitions.update(dict.fromkeys(wanted))
        for place in forgotten:
            self.partitions.pop(place, None)

    def forget(self) -> None:
        """The connection is gone (see `Connection.parked`)."""
        self._sessions.disconnected(self)


class ShareSessions:
    """All share sessions of a node."""

    def __init__(self, sessions_max: int, ended: Callable[[ShareSession], None]) -> None:
        """`ended` is told of a session that ended with its connection."""
        self._sessions_max = sessions_max
        self._ended = ended
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_group: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group_id: str, member_id: str, connection: Connection) -> ShareSession:
        """Begin a session, in place of one that the member may have had. Raises `ProtocolError`."""
        known = self._sessions.get((group_id, member_id))
        if known is not None:
            self.close(known)
        elif len(self._sessions) >= self._sessions_max:
            raise ProtocolError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"This broker has {self._sessions_max} share sessions "
                "(group.share.max.share.sessions).",
            )
        session = ShareSession(self, group_id, member_id, connection)
        self._sessions[group_id, member_id] = session
        self._by_group[group_id] = self._by_group.get(group_id, 0) + 1
        connection.parked[session] = None
        return session

    def has(self, group_id: str, member_id: str) -> bool:
        """Whether the member has a session."""
        return (group_id, member_id) in self._sessions

    def has_group(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return group_id in self._by_group

    def is_current(self, session: ShareSession) -> bool:
        """Whether the session has neither ended nor been replaced."""
        return self._sessions.get((session.group_id, session.member_id)) is session

    def find(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session of a request; from then on the next epoch is expected. Raises
        `ProtocolError`."""
        if epoch == OPENING_EPOCH:
            raise ProtocolError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise ProtocolError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            raise ProtocolError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"The session expects epoch {session.epoch}, not {epoch}.",
            )
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def close(self, session: ShareSession) -> None:
        """End a session. Idempotent."""
        if not self.is_current(session):
            return
        del self._sessions[session.group_id, session.member_id]
        session.connection.parked.pop(session, None)
        self._by_group[session.group_id] -= 1
        if not self._by_group[session.group_id]:
            del self._by_group[session.group_id]

    def disconnected(self, session: ShareSession) -> None:
        """The connection of a session is gone, and its member's records are for others."""
        session.connection.parked.pop(session, None)
        if self.is_current(session):
            self.close(session)
            self._ended(session)
