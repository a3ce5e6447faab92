"""How many connections a broker takes, of which listener and address, and how fast they may come.

Kafka's rules (KIP-308, KIP-402, KIP-612): where a listener or the broker is full, or connections
come too fast, clients wait in the kernel's queue. An address that has too many is sent away, and
one that comes too fast is sent away after a while. The listener that brokers use among themselves
is spared the broker's own limits if there are others: for its clients others have to go.

Source: `kafka.network.ConnectionQuotas`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from strandline.config.listener_settings import ListenerSettings
from strandline.node.client_quotas import ClientQuotas
from strandline.node.settings import Settings
from strandline.quotas.rate import Rate

_UNLIMITED: Final = 2**31 - 1


class _OfListener(NamedTuple):
    connections_max: int | None
    rate_max: int | None


class ConnectionLimits:
    """Counts, and the settings that they are held to; these may change at any time."""

    def __init__(self, settings: Settings, quotas: ClientQuotas, listeners: Iterable[str]) -> None:
        self._settings = settings
        self._quotas = quotas
        self._names = set(listeners)
        self._own: dict[str, _OfListener] = {}
        self.follow()
        self._count = 0
        self._listeners: Counter[str] = Counter()
        self._addresses: Counter[str] = Counter()
        self._rates: dict[str | None, Rate] = {}
        """How fast they came, by listener, and of all (None)."""

    def follow(self) -> None:
        """Settings may have changed."""
        broker = self._settings.broker
        self._own = {name: _own_limits(ListenerSettings.now(broker, name)) for name in self._names}

    def open(self, listener: str) -> None:
        """Clients may come by that listener."""
        self._names.add(listener)
        self.follow()

    def close(self, listener: str) -> None:
        """No more clients come by that listener; those that are here have still to leave."""
        self._names.discard(listener)
        self.follow()

    def is_spared(self, listener: str) -> bool:
        """Whether the limits of the broker as a whole do not stop clients of that listener."""
        return len(self._own) > 1 and listener == self._settings.broker.inter_broker_listener.name

    def full(self, listener: str) -> str | None:
        """The setting because of which no more come in by that listener now, or None."""
        own = self._own[listener].connections_max
        if own is not None and self._listeners[listener] >= own:
            return f"listener.name.{listener.lower()}.max.connections"
        if self._is_broker_full and not self.is_spared(listener):
            return "max.connections"
        return None

    @property
    def must_make_way(self) -> bool:
        """Whether there are more than may be: another has to go."""
        return self._count > self._settings.broker.max_connections

    def wait_ms(self, listener: str, now_ms: int) -> int:
        """How long nothing is accepted, since too many came lately; 0: one may."""
        limits = self._rate_limits(listener)
        # A rate of 0 would let no client in again: Kafka waits forever, this lets one in a second.
        return max(
            (rate.throttle_ms(max(limit, 1), now_ms, 1) for rate, limit in limits), default=0
        )

    def accepted(self, listener: str, now_ms: int) -> None:
        """One was accepted, whatever becomes of it."""
        for rate, _ in self._rate_limits(listener):
            rate.note(1, now_ms)

    def has_too_many(self, host: str) -> bool:
        """Whether `max.connections.per.ip` keeps more from coming from that address."""
        broker = self._settings.broker
        limits = broker.max_connections_per_ip_overrides
        return self._addresses[host] >= limits.get(host, broker.max_connections_per_ip)

    def address_wait_ms(self, host: str, now_ms: int) -> int:
        """How long a client is kept before it is sent away, as its address comes too fast; 0: it
        may come in."""
        return self._quotas.connection_wait_ms(host, now_ms)

    def came(self, listener: str, host: str) -> None:
        """A connection was accepted."""
        self._count += 1
        self._listeners[listener] += 1
        self._addresses[host] += 1

    def left(self, listener: str, host: str) -> None:
        """One has ended."""
        self._count -= 1
        self._listeners[listener] -= 1
        self._addresses[host] -= 1
        if not self._addresses[host]:
            del self._addresses[host]

    def forget(self) -> int:
        """The broker has ended; how many had not left before."""
        count, self._count = self._count, 0
        self._listeners.clear()
        self._addresses.clear()
        return count

    @property
    def _is_broker_full(self) -> bool:
        return self._count >= self._settings.broker.max_connections

    def _rate_limits(self, listener: str) -> list[tuple[Rate, int]]:
        limits: list[tuple[Rate, int]] = []
        own = self._own[listener].rate_max
        if own is not None:
            limits.append((self._rate(listener), own))
        limit = self._settings.broker.max_connection_creation_rate
        if limit < _UNLIMITED and not self.is_spared(listener):
            limits.append((self._rate(None), limit))
        return limits

    def _rate(self, listener: str | None) -> Rate:
        rate = self._rates.get(listener)
        if rate is None:
            broker = self._settings.broker
            rate = Rate(broker.quota_window_num, broker.quota_window_size_seconds * 1000)
            self._rates[listener] = rate
        return rate


def _own_limits(settings: ListenerSettings) -> _OfListener:
    def own(name: str) -> int | None:
        return settings.number(name) if settings.name(name) != name else None

    return _OfListener(own("max.connections"), own("max.connection.creation.rate"))
