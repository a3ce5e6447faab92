"""How many requests of each API were answered, and how long they took inside the broker.

Time is that of turns: a request that is answered in the turn in which it came counts as 0 ms. What
is waited for (other replicas, data to fetch, the metadata store) is what these times show.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from strandline.node.outbox import AnsweredRequest, Outbox
from strandline.protocol.apis import ApiKey
from strandline.types import Instant

BUCKETS_MS: Final = (1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000)
"""Upper bounds, inclusive; whatever took longer is in one bucket behind the last."""

FOLLOWER_FETCH: Final = "FETCH_FOLLOWER"
"""Fetches of other brokers that took the fast path, whose time is not measured: they wait by
design, and there are many."""


class ApiMeter:
    """Answers of one API: their number, the sum of their times, and a histogram of them."""

    __slots__ = ("buckets", "count", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0
        self.buckets = [0] * (len(BUCKETS_MS) + 1)

    def add(self, milliseconds: int, count: int = 1) -> None:
        """Count answers that took so long."""
        self.count += count
        self.total_ms += milliseconds * count
        self.buckets[bisect_left(BUCKETS_MS, milliseconds)] += count


class Meters:
    """See the module."""

    def __init__(self) -> None:
        self.apis: dict[str, ApiMeter] = {}

    def take(self, answered: list[tuple[AnsweredRequest, object]], now: Instant) -> None:
        """Count the answers of a turn."""
        for request, _ in answered:
            self._of(request.api_key.name).add(max(0, now.monotonic_ms - request.received_ms))

    def take_fast_paths(self, outbox: Outbox) -> None:
        """Count what took a fast path."""
        if outbox.produced_at_once:
            self._of(ApiKey.PRODUCE.name).add(0, outbox.produced_at_once)
            outbox.produced_at_once = 0
        if outbox.produced_after_ms:
            meter = self._of(ApiKey.PRODUCE.name)
            for milliseconds in outbox.produced_after_ms:
                meter.add(milliseconds)
            outbox.produced_after_ms.clear()
        if outbox.fetched_at_once:
            self._of(ApiKey.FETCH.name).add(0, outbox.fetched_at_once)
            outbox.fetched_at_once = 0
        if outbox.fetched_by_followers:
            self._of(FOLLOWER_FETCH).count += outbox.fetched_by_followers
            outbox.fetched_by_followers = 0

    def _of(self, api: str) -> ApiMeter:
        meter = self.apis.get(api)
        if meter is None:
            meter = self.apis[api] = ApiMeter()
        return meter
