"""The heartbeats of a member: when the next one is due, and what the coordinator says to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from strandline.client.coordinator_client import CoordinatorClient
from strandline.client.group_requests import Membership, heartbeat_request
from strandline.client.group_settings import GroupSettings
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey

Beaten: TypeAlias = Callable[[Membership, ErrorCode], None]
"""Told as whom the member beat, and what the coordinator said."""


class Heartbeat:
    """See the module."""

    def __init__(
        self, settings: GroupSettings, coordinator: CoordinatorClient, then: Beaten
    ) -> None:
        self._settings = settings
        self._coordinator = coordinator
        self._then = then
        self._due_ms = 0
        self._heard_ms = 0
        """When the coordinator counted on the member last."""
        self._is_under_way = False

    @property
    def wake_ms(self) -> int | None:
        """When the next one is due; None if one is under way."""
        return None if self._is_under_way else self._due_ms

    def heard(self) -> None:
        """The coordinator has answered as to a member."""
        self._heard_ms = self._coordinator.now_ms

    def begin(self) -> None:
        """A generation has been entered."""
        self.heard()
        self._due_ms = self._coordinator.now_ms + self._settings.heartbeat_interval_ms

    def step(self, who: Membership) -> None:
        """Send one if it is due. The coordinator must be known."""
        now_ms = self._coordinator.now_ms
        if self._is_under_way or now_ms < self._due_ms:
            return
        self._is_under_way = True
        session_left_ms = self._heard_ms + self._settings.session_timeout_ms - now_ms
        self._coordinator.ask(
            ApiKey.HEARTBEAT,
            lambda version: heartbeat_request(who, version),
            partial(self._told, who),
            # A coordinator that does not answer for a whole session counts as gone.
            timeout_ms=max(
                self._settings.heartbeat_interval_ms,
                min(self._settings.request_timeout_ms, session_left_ms),
            ),
        )

    def _told(self, who: Membership, code: ErrorCode, answer: Any) -> None:
        del answer
        self._is_under_way = False
        settings = self._settings
        is_heard = code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        if is_heard:
            self.heard()
        wait_ms = settings.heartbeat_interval_ms if is_heard else settings.retry_backoff_ms
        self._due_ms = self._coordinator.now_ms + wait_ms
        self._then(who, code)
