"""Holding clients to their quotas: what they used, and for how long they are not heard.

A request is served and answered at once, whatever it used; the answer says for how long the client
has to wait (`throttle_time_ms`), and for so long nothing more is read from its connection, as in
Kafka (KIP-219). Followers have no quotas of clients. What was used is remembered per entity that
shares a limit, and forgotten when its window is over.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from math import inf
from typing import Any, Final, Protocol, TypeVar

from strandline.cluster.controller import stored_quotas
from strandline.cluster.image import ClusterImage, ImageDelta
from strandline.cluster.znodes import ResourceKind
from strandline.node.connection import Connection
from strandline.node.mutation_quota import Mutations
from strandline.node.open_connections import OpenConnections
from strandline.node.outbox import Outbox
from strandline.node.request import Request
from strandline.node.request_time import RequestTime, is_timed
from strandline.node.settings import Settings
from strandline.node.timers import Timers
from strandline.quotas.bucket import Bucket
from strandline.quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Entity,
    Limit,
    Limits,
    limit_of,
    limit_of_address,
)
from strandline.quotas.rate import Rate
from strandline.quotas.waits import LONGEST_WAIT_MS
from strandline.types import Instant

REMEMBERED_MAX: Final = 10_000
"""Entities whose use is remembered. Clients choose their ids: when there are more, those that are
idle are forgotten, or else the one that is known longest."""
_ID_LENGTH_MAX: Final = 100
"""Longer ids are remembered by their digests."""
_KINDS: Final = frozenset(
    {ResourceKind.USER, ResourceKind.CLIENT, ResourceKind.USER_CLIENT, ResourceKind.IP}
)


class Use(Protocol):
    """What was used lately."""

    def is_idle(self, now_ms: int) -> bool:
        """Whether it can be forgotten."""


UseT = TypeVar("UseT", bound=Use)


class ClientQuotas:
    """See the module."""

    def __init__(
        self, settings: Settings, timers: Timers, outbox: Outbox, connections: OpenConnections
    ) -> None:
        self._settings = settings
        self._timers = timers
        self._outbox = outbox
        self._limits: Limits = {}
        self._uses: dict[tuple[str, object], Use] = {}
        self._swept_ms = 0
        self._connections = connections
        self._names: frozenset[str] = frozenset()
        self.is_limited = False
        """Whether there is any quota of bytes or of request time."""
        self.stopwatch: Callable[[], int] | None = None
        """Monotonic nanoseconds, on the scale of `Instant.monotonic_ms`. Without it, as in the
        simulator, the time of requests has no quota."""

    def start(self, image: ClusterImage) -> None:
        """Take up what is stored."""
        self._limits = dict(stored_quotas(image))
        self._names = frozenset(name for each in self._limits.values() for name in each)
        self.is_limited = not self._names.isdisjoint(
            (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
        )

    def follow(self, image: ClusterImage, delta: ImageDelta) -> None:
        """The metadata has changed; what took a fast path is looked at again."""
        if any(resource.kind in _KINDS for resource in delta.configs_changed):
            self.start(image)
            self._connections.forget_fast_paths()

    # -- bytes -------------------------------------------------------------------------------

    def limits_producing(self, request: Request[Any]) -> bool:
        """Whether what the client produces is counted, or the time that it takes."""
        return self.is_limited and (
            request.time is not None or self._find(request, PRODUCER_BYTE_RATE) is not None
        )

    def produced(self, request: Request[Any], size: int, now: Instant) -> None:
        """A produce request of so many bytes has come, and is about to be handled."""
        self._use(request, PRODUCER_BYTE_RATE, size, now.monotonic_ms)

    def fetch_bytes_max(self, request: Request[Any]) -> float:
        """The most bytes of one answer to a consumer, unless its first batch is larger: what the
        quota allows in all windows but the newest. More would make the client wait in any case."""
        found = self._find(request, CONSUMER_BYTE_RATE) if self.is_limited else None
        if found is None:
            return inf
        broker = self._settings.broker
        return found.rate * (broker.quota_window_num - 1) * broker.quota_window_size_seconds

    def fetched(self, request: Request[Any], size: int, now: Instant) -> None:
        """A consumer is about to be answered with so many bytes."""
        self._use(request, CONSUMER_BYTE_RATE, size, now.monotonic_ms)
        if request.time is not None:
            request.time.answered(request)

    # -- time --------------------------------------------------------------------------------

    def begin(self, request: Request[Any]) -> RequestTime | None:
        """A request is about to be handled: start the clock if its client's time is limited."""
        stopwatch = self.stopwatch
        if (
            stopwatch is None
            or REQUEST_PERCENTAGE not in self._names
            or not is_timed(request.api_key)
            or self._find(request, REQUEST_PERCENTAGE) is None
        ):
            return None
        request.time = RequestTime(stopwatch, self._spent)
        return request.time

    def _spent(self, request: Request[Any], percent: float, now_ms: int) -> None:
        # Of time, no wait is longer than a window (`ClientRequestQuotaManager`).
        longest_ms = self._settings.broker.quota_window_size_seconds * 1000
        self._use(request, REQUEST_PERCENTAGE, percent, now_ms, longest_ms)

    # -- partitions --------------------------------------------------------------------------

    def mutations(self, request: Request[Any], *, strict: bool, now: Instant) -> Mutations | None:
        """What asks whether partitions may be created and deleted now; None: they may.

        `strict`: the client knows the refusal (KIP-599); others are let and told to wait.
        """
        if CONTROLLER_MUTATION_RATE not in self._names:
            return None
        found = self._find(request, CONTROLLER_MUTATION_RATE)
        if found is None:
            return None
        broker = self._settings.broker
        burst_s = broker.controller_quota_window_num * broker.controller_quota_window_size_seconds
        key = (CONTROLLER_MUTATION_RATE, _remembered_as(found.shared_by))
        bucket = self._remember(key, lambda: Bucket(burst_s), Bucket, now.monotonic_ms)

        def wait(wait_ms: int) -> None:
            self._throttle(request, wait_ms, now.monotonic_ms)

        return Mutations(bucket, found.rate, now.monotonic_ms, wait, strict=strict)

    # -- connections -------------------------------------------------------------------------

    def connection_wait_ms(self, host: str, now_ms: int) -> int:
        """A client has connected from this address: how long it is kept waiting before it is sent
        away, since too many came; 0: it is let in."""
        limit = limit_of_address(self._limits, host)
        if limit is None:
            return 0
        rate = self._rate(("ip", host), now_ms)
        wait_ms = rate.throttle_ms(limit, now_ms, 1)
        if not wait_ms:
            rate.note(1, now_ms)
        return wait_ms

    # -- what they have in common ------------------------------------------------------------

    def _find(self, request: Request[Any], name: str) -> Limit | None:
        return limit_of(
            self._limits, request.connection.principal.name, request.client_id or "", name
        )

    def _use(
        self,
        request: Request[Any],
        name: str,
        amount: float,
        now_ms: int,
        longest_ms: int = LONGEST_WAIT_MS,
    ) -> None:
        found = self._find(request, name)
        if found is None:
            return
        rate = self._rate((name, _remembered_as(found.shared_by)), now_ms)
        rate.note(amount, now_ms)
        self._throttle(request, min(rate.throttle_ms(found.rate, now_ms), longest_ms), now_ms)

    def _rate(self, key: tuple[str, object], now_ms: int) -> Rate:
        broker = self._settings.broker
        num, window_ms = broker.quota_window_num, broker.quota_window_size_seconds * 1000
        return self._remember(key, lambda: Rate(num, window_ms), Rate, now_ms)

    def _remember(
        self, key: tuple[str, object], make: Callable[[], UseT], kind: type[UseT], now_ms: int
    ) -> UseT:
        known = self._uses.get(key)
        if isinstance(known, kind):
            return known
        if len(self._uses) >= REMEMBERED_MAX:
            if now_ms - self._swept_ms >= self._settings.broker.quota_window_size_seconds * 1000:
                self._swept_ms = now_ms
                for each in [k for k, use in self._uses.items() if use.is_idle(now_ms)]:
                    del self._uses[each]
            if len(self._uses) >= REMEMBERED_MAX:
                del self._uses[next(iter(self._uses))]
        made = self._uses[key] = make()
        return made

    def _throttle(self, request: Request[Any], wait_ms: int, now_ms: int) -> None:
        if wait_ms <= 0:
            return
        request.throttle_ms = max(wait_ms, request.throttle_ms)
        connection, until_ms = request.connection, now_ms + wait_ms
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


def _remembered_as(entity: Entity) -> Entity:
    client_id = entity.client_id
    if client_id is None or len(client_id) <= _ID_LENGTH_MAX:
        return entity
    return entity._replace(client_id=sha256(client_id.encode()).hexdigest())
