"""The client's side of incremental fetch sessions (KIP-227): what to say, what to leave out.

    (0, 0)      full request, please open a session      (id, n)   what has changed, n = 1, 2...
    (0, -1)     full request, no session                 (id, 0)   end that one, full, open another

A broker answers an incremental request with the partitions that have something new only. What the
broker believes of the session must be what the client believes; after an error or a lost answer
that is unknown, and the client begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.client.fetching import FetchFrom, FetchSettings, fetch_request
from strandline.errors import ErrorCode
from strandline.protocol.messages.fetch import FetchRequest
from strandline.types import TopicPartition

SESSION_LOST: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""With one of these as the code of a whole answer the broker has no such session any more."""
SESSIONS_SINCE: Final = 7
_NONE: Final = 0
_FIRST: Final = 0
_NO_SESSION: Final = -1
_EPOCH_MAX: Final = 0x7FFF_FFFF


class FetchSession:
    """A client's session with one broker."""

    def __init__(self, *, wants_session: bool) -> None:
        self._wants_session = wants_session
        self._session_id = _NONE
        self._epoch = _FIRST
        self._sent: dict[TopicPartition, FetchFrom] = {}
        """What the broker believes, if it took the last request."""

    @property
    def is_open(self) -> bool:
        """Whether the broker keeps a session for this client."""
        return self._session_id != _NONE

    def request(
        self,
        wanted: Mapping[TopicPartition, FetchFrom],
        settings: FetchSettings,
        max_wait_ms: int,
        version: int,
    ) -> FetchRequest:
        """The next request, for all of `wanted`."""
        is_full = not self._wants_session or version < SESSIONS_SINCE or self._epoch == _FIRST
        asked = list(wanted.values())
        forgotten: list[FetchFrom] = []
        if not is_full:
            asked = [each for at, each in wanted.items() if self._sent.get(at) != each]
            for at, before in self._sent.items():
                now = wanted.get(at)
                if now is None or now.topic_id != before.topic_id:
                    forgotten.append(before)
        self._sent = dict(wanted)
        epoch = self._epoch if self._wants_session else _NO_SESSION
        return fetch_request(
            asked, settings, max_wait_ms, session=(self._session_id, epoch), forgotten=forgotten
        )

    def answered(self, session_id: int) -> None:
        """A good answer came."""
        if not self._wants_session:
            return
        if session_id == _NONE:
            self._session_id, self._epoch = _NONE, _FIRST
        elif self._session_id != session_id:
            self._session_id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def failed(self, code: ErrorCode | None = None) -> None:
        """No answer came, or one with an error: begin anew, and end the old session unless the
        broker does not have it any more."""
        if code in SESSION_LOST:
            self._session_id = _NONE
        self._epoch = _FIRST
