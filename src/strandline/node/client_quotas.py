"""Holding clients to their quotas: what they used, and for how long they are not heard.

A request is served and answered at once, whatever it used; the answer says for how long the client
has to wait (`throttle_time_ms`), and for so long nothing more is read from its connection, as in
Kafka (KIP-219). Followers have no quotas of clients. What was used is remembered per entity that
shares a limit, and forgotten when its window is over.
"""

from __future__ import annotations

from typing import Any, Final

from strandline.cluster.controller import stored_quotas
from strandline.cluster.image import ClusterImage, ImageDelta
from strandline.cluster.znodes import ResourceKind
from strandline.node.connection import Connection
from strandline.node.open_connections import OpenConnections
from strandline.node.outbox import Outbox
from strandline.node.request import Request
from strandline.node.settings import Settings
from strandline.node.timers import Timers
from strandline.quotas.entities import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    Entity,
    Limits,
    limit_of,
)
from strandline.quotas.rate import Rate
from strandline.types import Instant

REMEMBERED_MAX: Final = 10_000
"""Entities whose use is remembered. Clients choose their ids: when there are more, those that are
idle are forgotten, or else the one that is known longest."""
_WAIT_MS_MAX: Final = 2**31 - 1


class ClientQuotas:
    """See the module."""

    def __init__(
        self, settings: Settings, timers: Timers, outbox: Outbox, connections: OpenConnections
    ) -> None:
        self._settings = settings
        self._timers = timers
        self._outbox = outbox
        self._limits: Limits = {}
        self._rates: dict[tuple[str, Entity], Rate] = {}
        self._swept_ms = 0
        self._connections = connections
        self.is_limited = False
        """Whether there is any quota."""

    def start(self, image: ClusterImage) -> None:
        """Take up what is stored."""
        self._limits = dict(stored_quotas(image))
        self.is_limited = bool(self._limits)

    def follow(self, image: ClusterImage, delta: ImageDelta) -> None:
        """The metadata has changed; what took a fast path is looked at again."""
        kinds = (ResourceKind.USER, ResourceKind.CLIENT)
        if any(resource.kind in kinds for resource in delta.configs_changed):
            self.start(image)
            self._connections.forget_fast_paths()

    def limits_producing(self, request: Request[Any]) -> bool:
        """Whether what the client produces is counted."""
        return self.is_limited and self._find(request, PRODUCER_BYTE_RATE) is not None

    def produced(self, request: Request[Any], size: int, now: Instant) -> None:
        """A produce request of so many bytes has come, and is about to be handled."""
        self._use(request, PRODUCER_BYTE_RATE, size, now)

    def fetched(self, request: Request[Any], size: int, now: Instant) -> None:
        """A consumer is about to be answered with so many bytes."""
        self._use(request, CONSUMER_BYTE_RATE, size, now)

    def _find(self, request: Request[Any], name: str) -> tuple[float, Entity] | None:
        return limit_of(
            self._limits, request.connection.principal.name, request.client_id or "", name
        )

    def _use(self, request: Request[Any], name: str, size: int, now: Instant) -> None:
        found = self._find(request, name)
        if found is None:
            return
        limit, shared_by = found
        rate = self._rates.get((name, shared_by))
        if rate is None:
            rate = self._remember((name, shared_by), now)
        rate.note(size, now.monotonic_ms)
        wait_ms = min(rate.throttle_ms(limit, now.monotonic_ms), _WAIT_MS_MAX)
        if wait_ms > 0:
            request.throttle_ms = wait_ms
            self._mute(request.connection, now.monotonic_ms + wait_ms)

    def _remember(self, key: tuple[str, Entity], now: Instant) -> Rate:
        broker = self._settings.broker
        window_ms = broker.quota_window_size_seconds * 1000
        if len(self._rates) >= REMEMBERED_MAX:
            if now.monotonic_ms - self._swept_ms >= window_ms:
                self._swept_ms = now.monotonic_ms
                for each in [k for k, r in self._rates.items() if r.is_idle(now.monotonic_ms)]:
                    del self._rates[each]
            if len(self._rates) >= REMEMBERED_MAX:
                del self._rates[next(iter(self._rates))]
        rate = Rate(broker.quota_window_num, window_ms)
        self._rates[key] = rate
        return rate

    def _mute(self, connection: Connection, until_ms: int) -> None:
        if connection.muted_until_ms is None:
            self._timers.schedule(until_ms, lambda now: self._unmute(connection, now))
        connection.muted_until_ms = max(until_ms, connection.muted_until_ms or 0)

    def _unmute(self, connection: Connection, now: Instant) -> None:
        until_ms = connection.muted_until_ms
        if until_ms is None or connection not in self._connections:
            return
        if until_ms > now.monotonic_ms:
            self._timers.schedule(until_ms, lambda at: self._unmute(connection, at))
            return
        connection.muted_until_ms = None
        self._outbox.go_on(connection)
