"""One request in work: who asked, in which version, and where its answer goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from strandline.node.connection import Connection, Slot
from strandline.node.outbox import Outbox
from strandline.node.request_time import RequestTime
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import response_frame
from strandline.types import Instant, Principal

Body = TypeVar("Body")

NOT_TIMED: Final = -1


class Request(Generic[Body]):
    """A decoded request with its place in the connection's order of answers.

    A handler answers exactly once: with `reply` (a response message), `reply_chunks` (ready bytes)
    or `no_reply` (produce with acks=0). It may do so later; then it keeps the request, never the
    frame, whose bytes belong to the driver again as soon as the handler returns.
    """

    __slots__ = (
        "amend",
        "api_key",
        "body",
        "client_id",
        "connection",
        "correlation_id",
        "outbox",
        "received_ms",
        "slot",
        "throttle_ms",
        "time",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        outbox: Outbox,
        api_key: ApiKey,
        version: int,
        correlation_id: int,
        client_id: str | None,
        body: Body,
        received_ms: int = NOT_TIMED,
    ) -> None:
        """`received_ms` is monotonic time; `NOT_TIMED` keeps the request out of all records."""
        self.connection = connection
        self.outbox = outbox
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        self.received_ms = received_ms
        self.slot: Slot = connection.open_slot()
        self.throttle_ms = 0
        """How long the client has to wait, being beyond a quota."""
        self.time: RequestTime | None = None
        """How long it is worked for, if the client has a quota of that."""
        self.amend: Callable[[Any], None] | None = None
        """Has the last word on the response: adds what was refused, hides what may not be seen."""

    @property
    def principal(self) -> Principal:
        """Who asks. `connection.client_host` says from where, `connection.listener` by what."""
        return self.connection.principal

    def reply(self, response: Any) -> None:
        """Answer with a response message of this API."""
        if self.amend is not None:
            self.amend(response)
        if self.time is not None:
            self.time.answered(self)
        if self.throttle_ms:
            response.throttle_time_ms = self.throttle_ms
        api = KNOWN[self.api_key]
        chunks: list[Any] = response_frame(api, self.version, self.correlation_id, response)
        self.connection.fill(self.slot, chunks)
        self.outbox.flush_later(self.connection)
        if self.received_ms != NOT_TIMED:
            self.outbox.answers(self, response)

    def reply_chunks(self, chunks: list[Any]) -> None:
        """Answer with a whole frame in pieces."""
        self.connection.fill(self.slot, chunks)
        self.outbox.flush_later(self.connection)
        if self.received_ms != NOT_TIMED:
            self.outbox.answers(self, None)

    def no_reply(self) -> None:
        """Leave the request without an answer, as its client expects."""
        self.reply_chunks([])

    def close(self, reason: str) -> None:
        """Close the connection instead of answering; answers before this one still go out."""
        self.connection.fill(self.slot, [])
        self.abandon(reason)

    def abandon(self, reason: str) -> None:
        """Close the connection, whether or not this request was answered."""
        self.connection.closing = reason
        self.outbox.flush_later(self.connection)


Handler: TypeAlias = Callable[[Request[Any], Instant], None]
"""Answers one API. Raises nothing for bad input: answers it."""
