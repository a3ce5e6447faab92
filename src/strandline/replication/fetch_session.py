"""The follower's side of incremental fetch sessions (KIP-227): say only what changed.

This file knows what the leader's session holds, and so what the next request must tell it. It must
not know requests' bytes or what the values mean. The broker's side of the same protocol is
`node.fetch_sessions`. A session is named by (id, epoch): epoch 0 asks for a new one with all
partitions, n continues and must be exactly the next one, -1 ends it. Whenever an answer is lost or
does not fit, what the leader remembers is unknown, and a full request starts again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from strandline.errors import ErrorCode, InvariantViolated

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1

Key = TypeVar("Key", bound=Hashable)
"""Names a partition, with its topic id: a topic created anew is another key."""

Wanted = TypeVar("Wanted")
"""What is asked of a partition; compared with `==` to what was asked before."""


class SessionRequest(NamedTuple, Generic[Key, Wanted]):
    """What the next fetch request must carry."""

    session_id: int
    session_epoch: int
    to_send: list[tuple[Key, Wanted]]
    to_forget: list[Key]

    @property
    def is_full(self) -> bool:
        """Whether it names every partition, and so makes a new session."""
        return self.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)


class _Sent(NamedTuple, Generic[Key]):
    """A request that is not answered yet."""

    all_partitions: frozenset[Key] | None
    """Those of a full request."""
    forgotten: Collection[Key]


class FetchSession(Generic[Key, Wanted]):
    """One follower's fetches from one leader, over one connection.

    Requests are answered in their order. Usually each waits for the answer to the one before; while
    `can_overtake`, another may be sent at once, so that a request that the leader has parked does
    not delay a partition that is to be fetched from now on.
    """

    __slots__ = ("_changed", "_dropped", "_epoch", "_id", "_in_flight", "_known", "_wanted")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._wanted: dict[Key, Wanted] = {}
        self._known: dict[Key, Wanted] = {}
        """What the leader's session holds once all requests so far have arrived."""
        self._changed: dict[Key, None] = {}
        self._dropped: set[Key] = set()
        """What was dropped since the last request. If it is wanted again it is named, whatever the
        parameters: answers that came meanwhile were not taken, and the leader does not know."""
        self._in_flight: deque[_Sent[Key]] = deque()

    def want(self, key: Key, wanted: Wanted) -> None:
        """Fetch this partition from the next request on, with these parameters."""
        self._wanted[key] = wanted
        self._changed[key] = None

    def drop(self, key: Key) -> None:
        """Do not fetch this partition from the next request on."""
        if self._wanted.pop(key, None) is not None:
            self._changed[key] = None
            self._dropped.add(key)

    @property
    def wanted(self) -> Collection[Key]:
        """The partitions that the next request asks for, said or implied."""
        return self._wanted.keys()

    @property
    def can_overtake(self) -> bool:
        """Whether a request may be sent while one is unanswered: the leader has a session."""
        return self._epoch != INITIAL_EPOCH

    def next_request(self) -> SessionRequest[Key, Wanted]:
        """The request to send now; its answer, or its loss, must be reported."""
        if self._epoch == INITIAL_EPOCH:
            if self._in_flight:
                raise InvariantViolated(
                    "A fetch session is being made: its answer must come first."
                )
            self._known = dict(self._wanted)
            self._forget_changes()
            self._in_flight.append(_Sent(frozenset(self._wanted), ()))
            return SessionRequest(self._id, self._epoch, list(self._wanted.items()), [])
        to_send: list[tuple[Key, Wanted]] = []
        to_forget: list[Key] = []
        for key in self._changed:
            if key not in self._wanted:
                if self._known.pop(key, None) is not None:
                    to_forget.append(key)
                continue
            wanted = self._wanted[key]
            if key in self._dropped or key not in self._known or self._known[key] != wanted:
                self._known[key] = wanted
                to_send.append((key, wanted))
        self._forget_changes()
        epoch = epoch_after(self._epoch, len(self._in_flight))
        self._in_flight.append(_Sent(None, to_forget))
        return SessionRequest(self._id, epoch, to_send, to_forget)

    def _forget_changes(self) -> None:
        self._changed.clear()
        self._dropped.clear()

    def answered(self, error_code: ErrorCode, session_id: int, partitions: Collection[Key]) -> bool:
        """Take the head of the answer to the oldest request; whether its partitions may be used.

        `partitions` are those in the answer. A full answer must have exactly the requested ones,
        an incremental one none that the session did not have.
        """
        if not self._in_flight:
            return False
        if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.lost()
            self._id = NO_SESSION
            return False
        if error_code != ErrorCode.NONE:
            self.lost()
            return False
        sent = self._in_flight.popleft()
        if sent.all_partitions is not None:
            if frozenset(partitions) != sent.all_partitions:
                self._id = NO_SESSION
                return False
            self._id = session_id
            self._epoch = INITIAL_EPOCH if session_id == NO_SESSION else INITIAL_EPOCH + 1
            return True
        if any(not self._may_contain(key) for key in partitions):
            self.lost()
            return False
        if session_id == NO_SESSION:
            self.lost()
            self._id = NO_SESSION
            return True
        self._epoch = epoch_after(self._epoch, 1)
        return True

    def _may_contain(self, key: Key) -> bool:
        """Whether an answer may: the session has it, or a later request is yet to take it out."""
        return key in self._known or any(key in later.forgotten for later in self._in_flight)

    def lost(self) -> None:
        """No answer came, or none that can be understood: close the session, and begin a new one.

        The same id with epoch 0 asks the leader for both at once, over whichever connection.
        Answers to requests that are still on their way are not to be reported after this.
        """
        self._epoch = INITIAL_EPOCH
        self._in_flight.clear()

    def closing_request(self) -> SessionRequest[Key, Wanted] | None:
        """The request that ends the session once nothing more is fetched; None without one."""
        if self._id == NO_SESSION:
            return None
        return SessionRequest(self._id, FINAL_EPOCH, [], [])


def epoch_after(epoch: int, steps: int) -> int:
    """The session epoch that follows `epoch` by so many requests; after the largest comes 1."""
    return (epoch + steps - 1) % _EPOCH_MAX + 1
