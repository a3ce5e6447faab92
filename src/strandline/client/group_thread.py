"""A thread that is a group's member for a program, so that it beats while the program is slow.

    program ── subscribe, polled, commit, revoked, close ──> member <── answers ── thread
            <── events, results of commits ─────────────────        ── requests ──>

This file is the program's side of a `core_thread` that drives a `group_member` by connections of
its own. What the program does with its partitions is the affair of `group_consumer`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from strandline.client.cluster import ClusterClient
from strandline.client.core_thread import CoreThread
from strandline.client.group_events import GroupEvent
from strandline.client.group_members import as_it_is_now, make_member
from strandline.client.group_offsets import CommitResult
from strandline.client.group_requests import Committed
from strandline.client.group_settings import GroupSettings
from strandline.errors import ProtocolError
from strandline.types import TopicPartition

_LEAVE_MS: Final = 3_000
"""How long a member that goes waits for its coordinator to hear of it."""


class GroupThread:
    """See the module. Its methods are the program's, which calls them from one thread."""

    def __init__(self, cluster: ClusterClient, settings: GroupSettings) -> None:
        """The thread takes addresses and settings of `cluster`, but connections of its own."""
        own = ClusterClient(cluster.bootstrap, cluster.settings, clock=cluster.clock)
        self._member = make_member(settings, own.router, own.random)
        self._events: deque[GroupEvent] = deque()
        self._thread = CoreThread(
            self._member,
            own,
            "strandline-group",
            leave=lambda now_ms: self._member.leave(now_ms, "the consumer is closed"),
            turned=self._take_events,
        )
        self._thread.start()

    # -- The program -------------------------------------------------------------------------

    @property
    def is_member(self) -> bool:
        """Whether the coordinator has let it into a generation, and it is not known to be out."""
        return self._member.is_in_generation

    @property
    def trouble(self) -> ProtocolError | None:
        """Why the coordinator does not answer; it is asked again and again."""
        return self._member.trouble

    def subscribe(self, topics: Iterable[str], pattern: str | None = None) -> None:
        """Read these topics, and those that match the pattern."""
        with self._thread.changed:
            self._member.subscribe(topics, self._thread.now_ms, pattern)
        self._thread.wake()

    def polled(self) -> None:
        """The program is alive."""
        with self._thread.changed:
            self._thread.raise_failure()
            self._member.polled(self._thread.now_ms)
        self._thread.wake()

    def first_event(self, wait_ms: int = 0) -> GroupEvent | None:
        """What has happened to the membership and is not handled yet; waits until something does,
        or the time is up."""
        with self._thread.changed:
            self._take_events()
            self._thread.wait_for(lambda: self._events, wait_ms)
            return as_it_is_now(self._events[0], self._member) if self._events else None

    def event_handled(self) -> None:
        """The program has done what the first event asks for."""
        with self._thread.changed:
            self._events.popleft()

    def revoked(self) -> None:
        """The program has given up what `PartitionsRevoked` named."""
        with self._thread.changed:
            self._member.revoked(self._thread.now_ms)
        self._thread.wake()

    def commit(
        self,
        offsets: Mapping[TopicPartition, Committed],
        timeout_ms: int,
        *,
        is_last: bool = False,
    ) -> CommitResult:
        """Commit and wait for the outcome; it is tried again until the time is up, or the wait is
        interrupted: what the program commits then must not be undone by another attempt."""
        results: list[CommitResult] = []
        with self._thread.changed:
            self._thread.raise_failure()
            now_ms = self._thread.now_ms
            until_ms = now_ms + timeout_ms
            pending = self._member.commit(
                offsets, results.append, now_ms, until_ms, is_last=is_last
            )
        self._thread.wake()
        with self._thread.changed:
            try:
                self._thread.wait_for(lambda: results)
            except BaseException:
                pending.withdraw()
                raise
        return results[0]

    def commit_soon(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit once, and do not wait for the outcome."""
        with self._thread.changed:
            self._thread.raise_failure()
            self._member.commit(offsets, _not_awaited, self._thread.now_ms)
        self._thread.wake()

    def close(self) -> None:
        """Leave the group and end the thread."""
        self._thread.close(_LEAVE_MS)

    def abandon(self) -> None:
        """Leave the group and end the thread, without waiting: see `CoreThread.abandon`."""
        self._thread.abandon()

    def _take_events(self) -> None:
        self._events.extend(self._member.events())


def _not_awaited(result: CommitResult) -> None:
    """Whatever it is: the next commit stands for this one too."""
