"""Asks the coordinator of a group or transactional id, which it finds first.

This file knows the coordinator's address and what every refusal means that is about the coordinator
itself. It has no socket, thread or clock. It must not know what is asked.

Theory: a broker that does not coordinate it says so, or cannot be reached; in both cases it
is forgotten and looked for again, after a wait. What was asked fails, since whether it was carried
out is unknown, and the caller asks again if it needs to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol, TypeAlias

from strandline.client.backoff import ExponentialBackoff
from strandline.client.channel import RequestFailed
from strandline.client.refusal import refusal
from strandline.client.router import CoordinatorKey, Router
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.types import BrokerId

Outcome: TypeAlias = Any
"""The answer; `RequestFailed`; or the `ProtocolError` because of which nothing could be sent."""
Then: TypeAlias = Callable[[ErrorCode, Any], None]
"""Called with the code of an answer and the answer. Without one the code is NETWORK_EXCEPTION."""

_GONE: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)


@dataclass(eq=False, slots=True)
class Ask:
    """A request for a driver to send. It hands the outcome to `answered` of its creator."""

    key: ApiKey
    request: Callable[[int], object]
    """The message, by version. May raise `ProtocolError` (UNSUPPORTED_VERSION)."""
    to: BrokerId | None
    """The coordinator (of a group: on a connection of its own, since a join may wait long); None:
    any broker."""
    timeout_ms: int
    highest: int | None
    """The newest version to use."""
    then: Callable[[Outcome], None]
    may_wait: bool = False
    """Whether the broker may keep it waiting for records: it goes on a connection of its own, so
    that heartbeats do not wait behind it."""


def error_code(answer: Any) -> int:
    """The code of an answer that has one for all."""
    code: int = answer.error_code
    return code


class Coordination(Protocol):
    """The settings of what has a coordinator."""

    @property
    def coordinator_key(self) -> CoordinatorKey: ...

    @property
    def request_timeout_ms(self) -> int: ...

    def backoff(self, random: Random) -> ExponentialBackoff:
        """Growing waits of something that is tried again."""


class CoordinatorClient:
    """See the module. `now_ms` is set by its user before anything else is called."""

    def __init__(self, settings: Coordination, router: Router, random: Random) -> None:
        self.now_ms = 0
        self.router = router
        self.failed: Callable[[ProtocolError], None] = _ignored
        """Called when no coordinator will ever be found."""
        self.trouble: ProtocolError | None = None
        """Why the coordinator does not answer at the moment."""
        self._key = settings.coordinator_key
        self._request_timeout_ms = settings.request_timeout_ms
        self._backoff = settings.backoff(random)
        self._retry_at_ms = 0
        self._is_looking = False
        self._asks: list[Ask] = []

    @property
    def broker(self) -> BrokerId | None:
        """The coordinator; None while it is not known."""
        return self.router.coordinator(self._key.name, self._key.kind)

    @property
    def wake_ms(self) -> int | None:
        """When `look_up` has something to do; None if not by time."""
        return None if self._is_looking or self.broker is not None else self._retry_at_ms

    def take(self) -> list[Ask]:
        """The requests to send, each once, in this order."""
        asks, self._asks = self._asks, []
        return asks

    def ask(
        self,
        key: ApiKey,
        request: Callable[[int], object],
        then: Then | None = None,
        *,
        timeout_ms: int | None = None,
        highest: int | None = None,
        code_of: Callable[[Any], int] = error_code,
    ) -> None:
        """Ask the coordinator, which must be known. Without `then` no answer is waited for."""
        broker = self.broker

        def told(outcome: Outcome) -> None:
            code = _code(outcome, code_of)
            if code in _GONE and self.broker == broker:
                self.lost()
            self.trouble = _trouble(code, outcome, self._key)
            if then is not None:
                then(code, None if isinstance(outcome, (RequestFailed, ProtocolError)) else outcome)

        self._put(key, request, broker, told, timeout_ms, highest)

    def ask_any(self, key: ApiKey, request: Callable[[int], object], then: Then) -> None:
        """Ask whichever broker can be reached."""

        def told(outcome: Outcome) -> None:
            code = _code(outcome, error_code_or_none)
            then(code, None if isinstance(outcome, (RequestFailed, ProtocolError)) else outcome)

        self._put(key, request, None, told)

    def look_up(self) -> None:
        """Find the coordinator, if it is not known and it is time."""
        if self.broker is not None or self._is_looking or self.now_ms < self._retry_at_ms:
            return
        self._is_looking = True
        request = self.router.coordinator_request(self._key.name, self._key.kind)
        self._put(ApiKey.FIND_COORDINATOR, request, None, self._found)

    def lost(self) -> None:
        """The coordinator is another one now, or cannot be reached."""
        self.router.forget_coordinator(self._key.name, self._key.kind)
        self._retry_at_ms = self.now_ms + self._backoff.next_ms()

    def _put(
        self,
        key: ApiKey,
        request: Callable[[int], object],
        to: BrokerId | None,
        then: Callable[[Outcome], None],
        timeout_ms: int | None = None,
        highest: int | None = None,
    ) -> None:
        if timeout_ms is None:
            timeout_ms = self._request_timeout_ms
        self._asks.append(Ask(key, request, to, timeout_ms, highest, then))

    def _found(self, outcome: Outcome) -> None:
        self._is_looking = False
        error = _failure(outcome)
        if error is None:
            try:
                self.router.learn_coordinator(self._key.name, outcome, self._key.kind)
            except ProtocolError as refused:
                error = refused
        self.trouble = error
        if error is None:
            self._backoff.reset()
            return
        self._retry_at_ms = self.now_ms + self._backoff.next_ms()
        if not error.retriable:
            self.failed(error)


def not_sent(error: ProtocolError) -> Outcome:
    """The outcome of a request that a driver could not send: the broker cannot be reached, or does
    not serve it."""
    if error.code is ErrorCode.UNSUPPORTED_VERSION:
        return error
    return RequestFailed(error.message, was_sent=False)


def error_code_or_none(answer: Any) -> int:
    """The code of an answer that may have none for all."""
    code: int = getattr(answer, "error_code", 0)
    return code


def sentence(code: ErrorCode, group: str) -> ProtocolError:
    """A code as the error that a program gets."""
    return refusal(code, None, f"group '{group}'")


def _code(outcome: Outcome, code_of: Callable[[Any], int]) -> ErrorCode:
    if isinstance(outcome, RequestFailed):
        return ErrorCode.NETWORK_EXCEPTION
    if isinstance(outcome, ProtocolError):
        return outcome.code
    return ErrorCode(code_of(outcome))


def _failure(outcome: Outcome) -> ProtocolError | None:
    """Why there is no answer, if there is none."""
    if isinstance(outcome, RequestFailed):
        return ProtocolError(ErrorCode.NETWORK_EXCEPTION, outcome.reason)
    return outcome if isinstance(outcome, ProtocolError) else None


def _trouble(code: ErrorCode, outcome: Outcome, key: CoordinatorKey) -> ProtocolError | None:
    """What a person is told who waits."""
    if code in _GONE or code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return _failure(outcome) or refusal(code, None, str(key))
    return None


def _ignored(error: ProtocolError) -> None:
    """Until its user says what is to be done."""
    del error
