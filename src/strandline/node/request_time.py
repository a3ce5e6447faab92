"""How long the node worked for a request: what a quota of request time counts.

The time until the answer, while the request is handled, and not that in which it waits. It is known
when the answer leaves, which tells the client how long to wait; what is done behind that is not
counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

from strandline.protocol.apis import KNOWN, ApiKey

Spent: TypeAlias = Callable[[Any, float, int], None]
"""Gets the request, its share of a second in percent, and the time in monotonic milliseconds."""

_PERCENT_PER_NS: Final = 100 / 1e9
_EXEMPT: Final = frozenset({ApiKey.ALTER_PARTITION, ApiKey.SASL_HANDSHAKE, ApiKey.INSPECT})


@cache
def is_timed(api_key: ApiKey) -> bool:
    """Whether requests of this API have a quota of time: those of brokers, and those whose answers
    cannot say it, have none. Followers' fetches are told apart later."""
    if api_key in _EXEMPT:
        return False
    return "throttle_time_ms" in KNOWN[api_key].response_class.__annotations__


class RequestTime:
    """The time of one request."""

    __slots__ = ("_is_charged", "_spent", "_started_ns", "_stopwatch", "_worked_ns")

    def __init__(self, stopwatch: Callable[[], int], spent: Spent) -> None:
        self._stopwatch = stopwatch
        self._spent = spent
        self._started_ns: int | None = stopwatch()
        self._worked_ns = 0
        self._is_charged = False

    def answered(self, request: Any) -> None:
        """The answer is about to leave: charge what was done so far."""
        if self._is_charged:
            return
        self._is_charged = True
        self.handled()
        now_ms = self._stopwatch() // 1_000_000
        self._spent(request, self._worked_ns * _PERCENT_PER_NS, now_ms)

    def goes_on(self) -> None:
        """What was parked is worked for again, until `handled`."""
        self._started_ns = self._stopwatch()

    def handled(self) -> None:
        """The handler is done with it, or has parked it."""
        started_ns, self._started_ns = self._started_ns, None
        if started_ns is not None:
            self._worked_ns += self._stopwatch() - started_ns
