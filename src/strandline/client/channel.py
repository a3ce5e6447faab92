"""The requests of one connection: frames out, frames in, one outcome for each request.

    ask ──> queued ── next_frame ──> in flight ── received ──> its answer
              │                         │
              └───── end, overdue ──────┴────> RequestFailed(was_sent)

This file knows correlation ids, the order of answers and deadlines. It has no socket, no thread and
no clock: a driver carries the frames, says what time it is and hands the outcomes over. Drivers are
`client.connection` (blocking), `node.peer_link` (the broker's event loop) and
`sim.clients.connection` (the simulator). It must not know what requests mean.

Theory: a broker answers the requests of a connection in their order, so what is in flight is a
queue. An answer that is not that to the oldest request, that cannot be read, or that does not come
in time makes the whole connection worthless, because nothing that follows could be told apart: the
driver ends it, and everything that was asked on it fails. Every request is asked with a
deadline and gets exactly one outcome.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from strandline.errors import ErrorCode, MalformedFrame, ProtocolError
from strandline.protocol.apis import Api, ApiKey
from strandline.protocol.framing import parse_response_header, request_frame
from strandline.protocol.schema import decode

_API_VERSIONS: Final = ApiKey.API_VERSIONS
_CORRELATION_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """There is no answer to a request, and never will be. `reason` is a sentence's end."""

    reason: str
    was_sent: bool
    """Whether the broker may have carried the request out. If not, it certainly has not."""


class Request:
    """A request that waits for its turn or for its answer; drivers add whom to tell.

    `deadline` is a point in the driver's monotonic time; its unit is the driver's too.
    """

    __slots__ = ("api", "correlation_id", "deadline", "is_answered", "message", "version")

    def __init__(
        self, api: Api, version: int, message: object, deadline: int, *, is_answered: bool = True
    ) -> None:
        self.api = api
        self.version = version
        self.message = message
        self.deadline = deadline
        self.is_answered = is_answered
        """False for a produce with acks 0: it is done with once it is sent."""
        self.correlation_id = -1


class Unsendable(ProtocolError):
    """A message says what its version has no place for (UNSUPPORTED_VERSION). The request is not
    sent, and waits no more; the others do."""

    def __init__(self, request: Request, error: ProtocolError) -> None:
        super().__init__(error.code, error.message)
        self.request = request


R = TypeVar("R", bound=Request)


class Channel(Generic[R]):
    """See the module. It may be opened again once it has ended."""

    __slots__ = ("_client_id", "_correlation_id", "_in_flight", "_in_flight_max", "_queued")

    def __init__(self, client_id: str, in_flight_max: int) -> None:
        self._client_id = client_id
        self._in_flight_max = in_flight_max
        self._correlation_id = 0
        self._queued: deque[R] = deque()
        self._in_flight: deque[R] = deque()

    # -- Requests ----------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """Requests that are not sent yet; the driver limits them."""
        return len(self._queued)

    @property
    def in_flight(self) -> int:
        """Requests that are sent and not answered, at most `in_flight_max`."""
        return len(self._in_flight)

    def ask(self, request: R) -> None:
        """Queue a request. It goes out with `next_frame`."""
        self._queued.append(request)

    def ask_first(self, request: R) -> None:
        """As `ask`, in front of what is queued: an authentication, for which the others wait."""
        self._queued.appendleft(request)

    def next_frame(self) -> list[Any] | None:
        """The chunks of the next request to write, or None if none may be sent now.

        To be called while the connection is open, until it says None: a frame that it gives counts
        as sent. Raises `Unsendable`; then it may be called for the next one.
        """
        if not self._queued or len(self._in_flight) >= self._in_flight_max:
            return None
        request = self._queued.popleft()
        self._correlation_id = correlation_id = (self._correlation_id + 1) & _CORRELATION_MAX
        request.correlation_id = correlation_id
        try:
            frame = request_frame(
                request.api, request.version, correlation_id, self._client_id, request.message
            )
        except ProtocolError as error:
            raise Unsendable(request, error) from error
        if request.is_answered:
            self._in_flight.append(request)
        return frame

    # -- Answers -----------------------------------------------------------------------------

    def received(self, frame: memoryview) -> tuple[R, object]:
        """The oldest request and its answer, from a whole frame without its size.

        Records in an answer are views of the frame. Raises `MalformedFrame` for anything else;
        then the driver must `end` the connection.
        """
        if not self._in_flight:
            raise MalformedFrame("An answer came to no request.")
        request = self._in_flight[0]
        api, version = request.api, request.version
        correlation_id, position = parse_response_header(frame, api, version)
        if correlation_id != request.correlation_id:
            raise MalformedFrame(
                f"Request {correlation_id} was answered where {request.correlation_id} was next."
            )
        if api.key is _API_VERSIONS:
            version = _version_of_versions(frame, position, version)
        answer: object = decode(api.response_class, version, frame, position)
        self._in_flight.popleft()
        return request, answer

    # -- Ends --------------------------------------------------------------------------------

    def end(self, reason: str) -> list[tuple[R, RequestFailed]]:
        """The connection is over, or was never made: the outcomes of all requests, oldest first."""
        sent = RequestFailed(reason, was_sent=True)
        unsent = RequestFailed(reason, was_sent=False)
        failed = [(request, sent) for request in self._in_flight]
        failed += [(request, unsent) for request in self._queued]
        self._in_flight.clear()
        self._queued.clear()
        return failed

    def first_due(self) -> R | None:
        """The request with the earliest deadline, sent or not; None if nothing waits."""
        return min(chain(self._in_flight, self._queued), key=_deadline, default=None)

    def overdue(self, now: int) -> R | None:
        """The sent request whose deadline passed first. Then the driver must `end` everything:
        nothing could tell a late answer from the one that is expected next."""
        first = min(self._in_flight, key=_deadline, default=None)
        return first if first is not None and first.deadline <= now else None

    def withdraw_overdue(self, now: int) -> list[R]:
        """Take back the requests that could not be sent by their deadlines; the others wait on."""
        late = [request for request in self._queued if request.deadline <= now]
        if late:
            self._queued = deque(request for request in self._queued if request.deadline > now)
        return late


def _deadline(request: Request) -> int:
    return request.deadline


def _version_of_versions(frame: memoryview, position: int, asked: int) -> int:
    """A broker that does not know the version of an ApiVersions request answers in 0 (KIP-511)."""
    code = int.from_bytes(frame[position : position + 2], "big", signed=True)
    return 0 if code == ErrorCode.UNSUPPORTED_VERSION else asked
