"""What leaders of partitions, and group coordinators, ask a share coordinator (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strandline.node.request import Request
from strandline.node.sharing.coordinator_host import ShareCoordinatorHost
from strandline.types import Instant


class ShareStateHandler:
    """Answers the five requests about the states of share partitions: Initialize, Read, Write,
    Delete and ReadSummary."""

    def __init__(self, host: Callable[[], ShareCoordinatorHost]) -> None:
        self._host = host

    def handle(self, request: Request[Any], now: Instant) -> None:
        """Answered when all of it is durable."""
        self._host().ask(request.body, lambda response, _: request.reply(response), now)
