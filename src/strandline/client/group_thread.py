"""A thread that is a group's member for a program, so that it beats while the program is slow.

    program ── subscribe, polled, commit, revoked, close ──> member <── answers ── thread
            <── events, results of commits ─────────────────        ── requests ──>

This file drives a `group_member` by blocking connections of its own. The program's side and the
thread share the member under one lock, which is never held while something is waited for. What the
program does with its partitions is the affair of `group_consumer`.
"""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from strandline.client.asking import Asking
from strandline.client.cluster import ClusterClient
from strandline.client.coordinator_client import Ask, Outcome
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
        self._cluster = ClusterClient(cluster.bootstrap, cluster.settings, clock=cluster.clock)
        self._clock = cluster.clock
        self._member = make_member(settings, self._cluster.router, self._cluster.random)
        self._changed = threading.Condition()
        """Guards the member and everything below; notified after each turn of the thread."""
        self._events: deque[GroupEvent] = deque()
        self._failure: BaseException | None = None
        self._closes_at_ms: int | None = None
        self._asking = Asking(self._cluster, self._answered)
        self._sleeper, self._waker = socket.socketpair()
        self._sleeper.setblocking(False)
        self._waker.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="strandline-group", daemon=True)
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
        with self._changed:
            self._member.subscribe(topics, self._now_ms(), pattern)
        self._wake()

    def polled(self) -> None:
        """The program is alive."""
        with self._changed:
            self._raise_failure()
            self._member.polled(self._now_ms())
        self._wake()

    def first_event(self, wait_ms: int = 0) -> GroupEvent | None:
        """What has happened to the membership and is not handled yet; waits until something does,
        or the time is up."""
        with self._changed:
            self._events.extend(self._member.events())
            self._changed.wait_for(lambda: self._events or self._failure, wait_ms / 1000)
            self._raise_failure()
            return as_it_is_now(self._events[0], self._member) if self._events else None

    def event_handled(self) -> None:
        """The program has done what the first event asks for."""
        with self._changed:
            self._events.popleft()

    def revoked(self) -> None:
        """The program has given up what `PartitionsRevoked` named."""
        with self._changed:
            self._member.revoked(self._now_ms())
        self._wake()

    def commit(
        self,
        offsets: Mapping[TopicPartition, Committed],
        timeout_ms: int,
        *,
        is_last: bool = False,
    ) -> CommitResult:
        """Commit and wait for the outcome; it is tried again until the time is up."""
        results: list[CommitResult] = []
        with self._changed:
            self._raise_failure()
            now_ms = self._now_ms()
            until_ms = now_ms + timeout_ms
            self._member.commit(offsets, results.append, now_ms, until_ms, is_last=is_last)
        self._wake()
        with self._changed:
            self._changed.wait_for(lambda: results or self._failure)
            self._raise_failure()
        return results[0]

    def commit_soon(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit once, and do not wait for the outcome."""
        with self._changed:
            self._raise_failure()
            self._member.commit(offsets, _not_awaited, self._now_ms())
        self._wake()

    def close(self) -> None:
        """Leave the group and end the thread."""
        with self._changed:
            now_ms = self._now_ms()
            self._member.leave(now_ms, "the consumer is closed")
            self._closes_at_ms = now_ms + _LEAVE_MS
        self._wake()
        self._thread.join()
        self._cluster.close()
        self._sleeper.close()
        self._waker.close()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        try:
            self._waker.send(b"\0")
        except BlockingIOError:
            return  # it has enough to wake up for

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()

    # -- The thread --------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                self._asking.take_arrived(self._now_ms())
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()
            raise

    def _turn(self) -> bool:
        """Do what is due, then wait for what comes next; False when all is over."""
        while True:
            with self._changed:
                asks = self._member.step(self._now_ms())
                self._events.extend(self._member.events())
                self._changed.notify_all()
                wake_ms, closes_at_ms = self._member.wake_ms, self._closes_at_ms
            if not asks:
                break
            for ask in asks:
                self._asking.send(ask)
        if closes_at_ms is not None and (
            # It has left: what the coordinator says to that is waited for, not for long.
            not self._member.is_leaving or self._now_ms() >= closes_at_ms
        ):
            return False
        self._sleep(wake_ms if closes_at_ms is None else closes_at_ms)
        return True

    def _sleep(self, wake_ms: int | None) -> None:
        times = [each.pending.deadline for each in self._asking.in_flight]
        if wake_ms is not None:
            times.append(wake_ms)
        poller = select.poll()
        poller.register(self._sleeper, select.POLLIN)
        for each in self._asking.in_flight:
            if each.pending.is_done or each.connection.closed:
                return
            poller.register(each.connection, select.POLLIN)
        if poller.poll(None if not times else max(0, min(times) - self._now_ms())):
            try:
                self._sleeper.recv(4096)
            except BlockingIOError:
                return  # an answer came

    def _answered(self, ask: Ask, outcome: Outcome) -> None:
        with self._changed:
            self._member.answered(ask, outcome, self._now_ms())


def _not_awaited(result: CommitResult) -> None:
    """Whatever it is: the next commit stands for this one too."""
