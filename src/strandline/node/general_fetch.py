"""The general way of a fetch (`handlers.fetch`), as its fast paths see it."""

from __future__ import annotations

from typing import Any, Protocol

from strandline.node.fetch_reading import Reader
from strandline.node.fetch_sessions import FetchContext
from strandline.node.request import Request
from strandline.types import Instant


class GeneralFetch(Protocol):
    """Goes on from the fields of a request, however they were read."""

    def go_on(
        self,
        request: Request[Any],
        context: FetchContext,
        reader: Reader,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        now: Instant,
    ) -> None:
        """Read, and answer or park."""
