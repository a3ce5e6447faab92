"""The effects of the turn in progress, in order, and the connections that have answers to send.

It also carries what was answered in this turn to the part that keeps the record of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from strandline.errors import ErrorCode
from strandline.node.connection import Connection
from strandline.node.effects import Close, Effect, Send
from strandline.protocol.apis import ApiKey


class AnsweredRequest(Protocol):
    """What the record of answers needs of a request."""

    connection: Connection
    api_key: ApiKey
    client_id: str | None
    received_ms: int

    @property
    def body(self) -> Any: ...


class Origin(NamedTuple):
    """Who asked."""

    client_id: str | None
    connection: Connection


class Refused(NamedTuple):
    """A refusal that no response message shows. `about`: topic, partition and group, or None."""

    code: ErrorCode
    api: str
    about: tuple[str | None, int | None, str | None]
    origin: Origin
    message: str | None


class Outbox:
    """Collects what the driver has to do: at most one `Send` per connection and turn."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._to_flush: dict[Connection, None] = {}
        self.has_records = False
        """Whether `take_answered` and `take_refused` have anything."""
        self._answered: list[tuple[AnsweredRequest, object]] = []
        self._refused: list[Refused] = []
        self.produced_at_once = 0
        self.produced_after_ms: list[int] = []
        self.fetched_at_once = 0
        self.fetched_by_followers = 0
        """What took a fast path, counted only, until `Meters.take_fast_paths` takes it."""

    def add(self, effect: Effect) -> None:
        """Queue an effect behind those already queued."""
        self._effects.append(effect)

    def flush_later(self, connection: Connection) -> None:
        """Note that the connection may have answers to send or is to be closed."""
        self._to_flush[connection] = None

    def go_on(self, connection: Connection) -> None:
        """Have the driver read again from a connection of which it had stopped to."""
        self._effects.append(Send(connection.id, connection.take_outgoing()))

    def answers(self, request: AnsweredRequest, response: object) -> None:
        """Note an answer. `response` is None where it was encoded by hand."""
        self._answered.append((request, response))
        self.has_records = True

    def refuses(self, refused: Refused) -> None:
        """Note a refusal that `answers` does not show."""
        self._refused.append(refused)
        self.has_records = True

    def take_answered(self) -> list[tuple[AnsweredRequest, object]]:
        """The requests that were answered since the last call."""
        answered, self._answered = self._answered, []
        return answered

    def take_refused(self) -> list[Refused]:
        """What was refused since the last call."""
        refused, self._refused = self._refused, []
        return refused

    def take(self) -> list[Effect]:
        """Hand over what was collected since the last call: stores and disks first, then sends."""
        effects, self._effects = self._effects, []
        for connection in self._to_flush:
            if connection.outgoing:
                effects.append(Send(connection.id, connection.take_outgoing()))
            if connection.closing is not None:
                effects.append(Close(connection.id, connection.closing))
        self._to_flush.clear()
        return effects
