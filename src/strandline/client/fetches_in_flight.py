"""The fetches that a blocking consumer has sent and that are not answered: one for each broker."""

from __future__ import annotations

import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from strandline.client.connection import Connection
from strandline.client.fetch_session import FetchSession
from strandline.client.fetching import FetchFrom
from strandline.client.pending import Pending
from strandline.errors import ProtocolError
from strandline.types import BrokerId, TopicPartition

_LATE_MS: Final = 100
"""A broker may take a little longer than it was told to wait."""
_SILENCE_MS: Final = 3000
"""So much later than it was to come an answer is missed."""


@dataclass(frozen=True, slots=True, eq=False)
class FetchInFlight:
    """A fetch, and what it asked for."""

    broker: BrokerId
    connection: Connection
    pending: Pending
    session: FetchSession
    asked: dict[TopicPartition, FetchFrom]
    wait_ms: int
    """How long the broker may wait for records."""


class FetchesInFlight:
    """See the module. `now_ms` is the time of a clock that never goes back."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._fetches: list[FetchInFlight] = []

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._fetches)

    def add(self, fetch: FetchInFlight) -> None:
        """It was sent."""
        self._fetches.append(fetch)

    def partitions(self) -> set[TopicPartition]:
        """What they ask for."""
        return {partition for each in self._fetches for partition in each.asked}

    def uses(self, connection: Connection) -> bool:
        """Whether one of them went there."""
        return any(each.connection is connection for each in self._fetches)

    def take_answered(
        self, timeout_ms: int, silent: Callable[[ProtocolError], None]
    ) -> list[FetchInFlight]:
        """Those that are answered, or overdue; waits for the first one. `silent` hears of brokers
        whose answers are missed."""
        poller = select.poll()
        for each in self._fetches:
            if not each.connection.closed:
                poller.register(each.connection, select.POLLIN)
        if self._fetches and not any(each.pending.is_done for each in self._fetches):
            poller.poll(timeout_ms + _LATE_MS)
        done: list[FetchInFlight] = []
        now_ms = self._now_ms()
        for each in list(self._fetches):
            if not each.pending.is_done:
                each.connection.take_arrived()
            if each.pending.is_done or now_ms > each.pending.deadline:
                self._fetches.remove(each)
                done.append(each)
            elif now_ms - each.pending.sent_ms > each.wait_ms + _SILENCE_MS:
                silent(each.connection.silence(each.pending))
        return done

    def give_up(self) -> None:
        """Answers still to come are about old positions: their connections are closed."""
        for each in self._fetches:
            each.connection.close()
            each.session.failed()
        self._fetches = []
