"""A member of a share group for a program, driven by a thread: it beats while the program is slow.

This file is the program's side of a `core_thread` that drives a `share_group.core`. Its methods are
the program's, which calls them from one thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from strandline.client.cluster import ClusterClient
from strandline.client.core_thread import CoreThread
from strandline.client.refusal import refusal
from strandline.client.share_group.acknowledgements import (
    Acknowledged,
    Commit,
    ShareRecord,
)
from strandline.client.share_group.core import ShareConsumerCore
from strandline.client.share_group.settings import ShareSettings
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.acknowledge_type import AckType
from strandline.types import TopicPartition

_LATE: Final = "It was not heard in time whether the acknowledgements count."


class ShareThread:
    """See the module."""

    def __init__(self, cluster: ClusterClient, settings: ShareSettings) -> None:
        """The thread takes addresses and settings of `cluster`, but connections of its own."""
        own = ClusterClient(cluster.bootstrap, cluster.settings, clock=cluster.clock)
        self._core = ShareConsumerCore(settings, own.router, own.random)
        self._thread = CoreThread(self._core, own, "strandline-share-group", leave=self._core.close)
        self._thread.start()

    @property
    def trouble(self) -> ProtocolError | None:
        """What is wrong at the moment and is tried again."""
        return self._core.trouble

    @property
    def member_id(self) -> str:
        """As whom it is a member."""
        return self._core.member_id

    @property
    def lock_ms(self) -> int | None:
        """See `ShareConsumerCore.lock_ms`."""
        return self._core.lock_ms

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics, and no others."""
        with self._thread.changed:
            self._thread.raise_failure()
            self._core.subscribe(topics, self._thread.now_ms)
        self._thread.wake()

    def poll(self, timeout_ms: int) -> list[ShareRecord]:
        """What comes first within the time; none if nothing does. Raises what `ShareConsumerCore`
        says."""
        with self._thread.changed:
            self._thread.raise_failure()
            self._core.begin_poll(self._thread.now_ms)
            self._thread.wake()
            try:
                self._thread.wait_for(lambda: self._core.has_news, timeout_ms)
            finally:
                # Also if the program was interrupted: no records are to come for it meanwhile.
                self._core.stop_polling()
            return self._core.end_poll(self._thread.now_ms)

    def acknowledge(self, at: TopicPartition, offset: int, kind: AckType) -> None:
        """See `ShareConsumerCore.acknowledge`."""
        with self._thread.changed:
            self._core.acknowledge(at, offset, kind)

    def commit(self, timeout_ms: int) -> dict[TopicPartition, ProtocolError | None]:
        """Send what was said, and wait for what comes of it; by partition, with its error."""
        with self._thread.changed:
            self._thread.raise_failure()
            commit = self._core.commit(self._thread.now_ms, timeout_ms)
            self._thread.wake()
            self._thread.wait_for(lambda: commit.is_done, timeout_ms)
            return outcomes_of(commit)

    def commit_soon(self) -> None:
        """Send what was said, and do not wait for what comes of it."""
        with self._thread.changed:
            self._thread.raise_failure()
            self._core.commit(self._thread.now_ms)
        self._thread.wake()

    def take_outcomes(self) -> list[Acknowledged]:
        """See `ShareConsumerCore.take_outcomes`."""
        with self._thread.changed:
            return self._core.take_outcomes()

    def close(self, timeout_ms: int) -> None:
        """Send what was said, give back the rest, leave the group, and end the thread."""
        self._thread.close(timeout_ms)

    def abandon(self) -> None:
        """The same for a program that has dropped it: see `CoreThread.abandon`."""
        self._thread.abandon()


def outcomes_of(commit: Commit) -> dict[TopicPartition, ProtocolError | None]:
    """What came of a commit; what has no outcome yet has timed out."""
    commit.give_up()
    return {
        at: refusal(code, _LATE if code is ErrorCode.REQUEST_TIMED_OUT else None, f"partition {at}")
        if code
        else None
        for at, code in sorted(commit.outcomes.items())
    }
