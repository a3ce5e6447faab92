"""How a client behaves towards a cluster: names, limits and patience. Knows no socket."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final, NamedTuple

from strandline.client.backoff import RETRY_BACKOFF_MAX_MS, RETRY_BACKOFF_MS
from strandline.client.security.settings import PLAINTEXT, Security
from strandline.errors import InvalidSetting
from strandline.numerals import whole_number

DEFAULT_PORT: Final = 9092
_HIGHEST_PORT: Final = 65535


class Address(NamedTuple):
    """Where a broker listens. `host` is without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Times in milliseconds, sizes in bytes."""

    client_id: str = "strandline"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    """How long one answer may take; the connection is given up afterwards."""
    operation_timeout_ms: int = 60_000
    """How long an operation may take with all of its retries."""
    retry_backoff_ms: int = RETRY_BACKOFF_MS
    """Wait before the first retry; doubled for each further one up to `retry_backoff_max_ms`."""
    retry_backoff_max_ms: int = RETRY_BACKOFF_MAX_MS
    reconnect_backoff_ms: int = 50
    """For how long a broker is left alone after a failed connection, where another one will do;
    doubled for each further failure up to `reconnect_backoff_max_ms`."""
    reconnect_backoff_max_ms: int = 1000
    metadata_age_max_ms: int = 300_000
    topic_wait_ms: int = 3000
    """How long to wait for a topic that a request for metadata may just have created."""
    response_bytes_max: int = 256 * 1024 * 1024
    """A response that announces more is taken for garbage."""
    security: Security = PLAINTEXT


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Read `host:port,host:port`; a missing port is 9092. Raises `InvalidSetting`."""
    addresses = tuple(_parse(item.strip()) for item in text.split(",") if item.strip())
    if not addresses:
        raise InvalidSetting("bootstrap", "The list of bootstrap addresses is empty.")
    return addresses


def join_addresses(addresses: Iterable[Address]) -> str:
    """The addresses as a sentence names them."""
    return ", ".join(map(str, addresses))


def _is_ipv6(text: str) -> bool:
    try:
        return IPv6Address(text).version == 6
    except ValueError:
        return False


def _parse(item: str) -> Address:
    if item.startswith("["):
        host, bracket, rest = item[1:].partition("]")
        colon, port = rest[:1], rest[1:]
        well_formed = bool(bracket) and (colon == ":" or not rest)
    elif item.count(":") > 1:
        host, colon, port, well_formed = item, "", "", _is_ipv6(item)
    else:
        host, colon, port = item.partition(":")
        well_formed = True
    if not colon:
        port = str(DEFAULT_PORT)
    number = whole_number(port, _HIGHEST_PORT) or 0
    if not well_formed or not host.isprintable() or not host or not number:
        raise InvalidSetting(
            "bootstrap", f"'{item}' is not an address of the form host or host:port."
        )
    return Address(host, number)
