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
        self._backoff = backoff
        self._refused = refused
        self._retry_at_ms = 0
        self._is_asking = False

    def may_ask(self, now_ms: int) -> bool:
        """Whether the next request may be made."""
        return not self._is_asking and now_ms >= self._retry_at_ms

    @property
    def wake_ms(self) -> int | None:
        """When the next request may be made; None if that is not known by time."""
        if self._is_asking:
            return None
        is_known = self._coordinator.broker is not None
        looks_ms = self._retry_at_ms if is_known else self._coordinator.wake_ms
        return None if looks_ms is None else max(looks_ms, self._retry_at_ms)

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
        self._is_asking = True
        then = partial(self._told, done, key)
        self._coordinator.ask(key, request, then, highest=highest, code_of=code_of)

    def _told(self, done: Callable[[Any], None], key: ApiKey, code: ErrorCode, answer: Any) -> None:
        self._is_asking = False
        if self.is_over:
            return
        if code is ErrorCode.NONE:
            self._backoff.reset()
            done(answer)
            return
        # A producer that asks for an id has none that could be renewed.
        renews = self.may_renew and key is not ApiKey.INIT_PRODUCER_ID
        found = verdict(code, may_renew=renews)
        if found is not Verdict.FAIL:
            wait_ms = self._backoff.next_ms()
            if code is ErrorCode.CONCURRENT_TRANSACTIONS and key in _JOINING:
                wait_ms = min(wait_ms, _BEHIND_AN_END_MS)
            self._retry_at_ms = self._coordinator.now_ms + wait_ms
        if found is not Verdict.RETRY:
            self._refused(key, code, found)
