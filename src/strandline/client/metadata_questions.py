"""Questions for metadata to any broker: one at a time, and a wait that grows between two of them.

This file knows when a question may be asked. It must not know who needs the answer, which goes to
the router.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strandline.client.backoff import ExponentialBackoff
from strandline.client.coordinator_client import CoordinatorClient
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey


class MetadataQuestions:
    """See the module."""

    def __init__(self, coordinator: CoordinatorClient, backoff: ExponentialBackoff) -> None:
        self.is_asking = False
        self.ask_at_ms = 0
        """When the next one may be asked."""
        self._coordinator = coordinator
        self._backoff = backoff

    @property
    def is_due(self) -> bool:
        """Whether one may be asked now."""
        return not self.is_asking and self._coordinator.now_ms >= self.ask_at_ms

    def ask(
        self, request: Callable[[int], object], learnt: Callable[[], None] | None = None
    ) -> None:
        """Ask; `learnt` is called when the router has the answer. After a failure, or a refusal as
        a whole, it is for the caller to ask again when that is due."""
        self.is_asking = True

        def told(code: ErrorCode, answer: Any) -> None:
            self.is_asking = False
            now_ms = self._coordinator.now_ms
            self.ask_at_ms = now_ms + self._backoff.next_ms()
            if code is not ErrorCode.NONE:
                return
            try:
                self._coordinator.router.learn(answer, now_ms)
            except ProtocolError:
                return
            if learnt is not None:
                learnt()

        self._coordinator.ask_any(ApiKey.METADATA, request, told)

    def begin_anew(self) -> None:
        """The waits begin with the shortest again."""
        self._backoff.reset()
