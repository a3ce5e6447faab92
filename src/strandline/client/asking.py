"""Carries the requests of a sans-I/O core (`Ask`) by blocking connections.

This file knows who is asked, and when an answer is overdue. It must not know what is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from strandline.client.channel import RequestFailed
from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.coordinator_client import Ask, Outcome, not_sent
from strandline.client.pending import Pending
from strandline.errors import MalformedFrame, ProtocolError
from strandline.protocol.apis import api_of


@dataclass(frozen=True, slots=True, eq=False)
class InFlight:
    """A request on its way."""

    ask: Ask
    connection: Connection
    pending: Pending


class Asking:
    """See the module. `answered` gets the outcome of each request once."""

    def __init__(
        self,
        cluster: ClusterClient,
        answered: Callable[[Ask, Outcome], None],
        waiting: ClusterClient | None = None,
    ) -> None:
        """`waiting` has the connections for what a broker may keep waiting (`Ask.may_wait`)."""
        self._cluster = cluster
        self._waiting = waiting or cluster
        self._answered = answered
        self.in_flight: list[InFlight] = []

    def send(self, ask: Ask) -> None:
        """Send a request; if that is not possible, its outcome comes at once."""
        try:
            cluster = self._waiting if ask.may_wait else self._cluster
            if ask.to is None:
                connection = cluster.any_connection()
            else:
                connection = cluster.connection_to(ask.to)
            pending = connection.send(
                ask.key, ask.request, highest=ask.highest, timeout_ms=ask.timeout_ms
            )
        except ProtocolError as error:
            self._answered(ask, not_sent(error))
            return
        self.in_flight.append(InFlight(ask, connection, pending))

    def take_arrived(self, now_ms: int) -> None:
        """Hand over what came, and what will not come any more."""
        for each in list(self.in_flight):
            if not each.pending.is_done:
                each.connection.take_arrived()
            if each.pending.is_done or now_ms >= each.pending.deadline:
                self.in_flight.remove(each)
                self._answered(each.ask, _outcome(each))


def _outcome(request: InFlight) -> Outcome:
    expected: type[Any] = api_of(request.ask.key).response_class
    try:
        return request.connection.result(request.pending, expected)
    except (ProtocolError, MalformedFrame) as error:
        return RequestFailed(getattr(error, "message", None) or str(error), was_sent=True)
