"""One request of a transaction to its coordinator at a time, and when the next one may go.

This file knows waits and what a refusal means for them. It must not know states of transactions,
nor which request comes next. It has no socket, thread or clock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from strandline.client.backoff import ExponentialBackoff
from strandline.client.coordinator_client import CoordinatorClient, error_code
from strandline.client.transaction_errors import Verdict, verdict
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey

_BEHIND_AN_END_MS: Final = 20
"""Markers of the transaction before are being written: that takes a moment, not a backoff."""
_JOINING: Final = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN)

Refused = Callable[[ApiKey, ErrorCode, Verdict], None]


class RequestPace:
    """Whether a request is on its way, and when the next one may go."""

    def __init__(self, backoff: ExponentialBackoff) -> None:
        self._backoff = backoff
        self._retry_at_ms = 0
        self._is_asking = False

    def may_ask(self, now_ms: int) -> bool:
        """Whether the next request may be made."""
        return not self._is_asking and now_ms >= self._retry_at_ms

    def wake_ms(self, coordinator: CoordinatorClient) -> int | None:
        """When the next request may be made; None if that is not known by time."""
        if self._is_asking:
            return None
        looks_ms = self._retry_at_ms if coordinator.broker is not None else coordinator.wake_ms
        return None if looks_ms is None else max(looks_ms, self._retry_at_ms)

    def asked(self) -> None:
        """A request is on its way."""
        self._is_asking = True

    def answered(self) -> None:
        """It has an outcome."""
        self._is_asking = False

    def went_well(self) -> None:
        """The next wait is a short one again."""
        self._backoff.reset()

    def wait(self, now_ms: int, at_most_ms: int | None = None) -> None:
        """Ask again after a while."""
        wait_ms = self._backoff.next_ms()
        self._retry_at_ms = now_ms + (wait_ms if at_most_ms is None else min(wait_ms, at_most_ms))


class TransactionRequester:
    """See the module. `refused` is told of what is not simply asked again."""

    def __init__(
        self, coordinator: CoordinatorClient, backoff: ExponentialBackoff, refused: Refused
    ) -> None:
        self.may_renew = False
        """Whether the coordinator grants further ids and epochs."""
        self.is_over = False
        """Whether the producer has failed: what comes then means nothing any more."""
        self._coordinator = coordinator
        self._pace = RequestPace(backoff)
        self._refused = refused
        self.may_ask = self._pace.may_ask

    @property
    def wake_ms(self) -> int | None:
        """When the next request may be made; None if that is not known by time."""
        return self._pace.wake_ms(self._coordinator)

    def ask(
        self,
        key: ApiKey,
        request: Callable[[int], object],
        done: Callable[[Any], None],
        *,
        highest: int | None = None,
        code_of: Callable[[Any], int] = error_code,
    ) -> None:
        """Ask the coordinator, which must be known; `done` gets an answer that is no refusal."""
        self._pace.asked()
        then = partial(self._told, done, key)
        self._coordinator.ask(key, request, then, highest=highest, code_of=code_of)

    def _told(self, done: Callable[[Any], None], key: ApiKey, code: ErrorCode, answer: Any) -> None:
        self._pace.answered()
        if self.is_over:
            return
        if code is ErrorCode.NONE:
            self._pace.went_well()
            done(answer)
            return
        # A producer that asks for an id has none that could be renewed.
        renews = self.may_renew and key is not ApiKey.INIT_PRODUCER_ID
        found = verdict(code, may_renew=renews)
        if found is not Verdict.FAIL:
            is_behind_an_end = code is ErrorCode.CONCURRENT_TRANSACTIONS and key in _JOINING
            self._pace.wait(
                self._coordinator.now_ms, _BEHIND_AN_END_MS if is_behind_an_end else None
            )
        if found is not Verdict.RETRY:
            self._refused(key, code, found)
