"""Listener addresses: the text form `NAME://host:port` and what makes a set of them valid.

Theory: a listener has a name, and a map from names to security protocols says how bytes travel on
it. Listeners whose names are in `controller.listener.names` belong to Kafka's KRaft controller,
which Strandline does not have; they are left out, so that a combined-mode `server.properties` of
Kafka can be used as it is. This file knows no socket and resolves no host name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from strandline.errors import InvalidSetting

ANY_INTERFACE: Final = ""
"""The host of a listener that binds every interface; advertised, it means "my own host name"."""

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_ADDRESS: Final = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]{1,10})")
_IPV4: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}")
_HIGHEST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class Listener:
    """One address. `name` is upper case; `host` without brackets; port 0 lets the system choose."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    @property
    def has_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def __str__(self) -> str:
        return f"{self.name}://{host_and_port(self.host, self.port)}"


def host_and_port(host: str, port: int) -> str:
    """An address as text: an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_protocol_map(setting: str, text: str) -> dict[str, str]:
    """Read `NAME:PROTOCOL,NAME:PROTOCOL` into a map with upper-case names."""
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = item.rpartition(":")
        if not colon or protocol.strip() not in SECURITY_PROTOCOLS:
            raise InvalidSetting(
                setting,
                f"{setting} has the entry '{item}'; each entry must be NAME:PROTOCOL with one of "
                f"the protocols {', '.join(SECURITY_PROTOCOLS)}.",
            )
        protocols[name.strip().upper()] = protocol.strip()
    return protocols


def parse_listeners(
    setting: str, addresses: Iterable[str], protocols: Mapping[str, str]
) -> tuple[Listener, ...]:
    """Read listener addresses; names must be distinct and have a security protocol."""
    listeners: list[Listener] = []
    for address in addresses:
        listener = _parse_listener(setting, address, protocols)
        if any(listener.name == earlier.name for earlier in listeners):
            raise InvalidSetting(
                setting, f"{setting} names the listener {listener.name} twice; names are distinct."
            )
        listeners.append(listener)
    return tuple(listeners)


def _parse_listener(setting: str, address: str, protocols: Mapping[str, str]) -> Listener:
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise InvalidSetting(
            setting,
            f"{setting} has '{address}', which is not an address of the form NAME://host:port.",
        )
    name, host, port = match[1].upper(), match[2], int(match[3])
    protocol = protocols.get(name)
    if protocol is None:
        raise InvalidSetting(
            setting,
            f"{setting} has the listener {name}, for which listener.security.protocol.map "
            "says no security protocol.",
        )
    if not 0 <= port <= _HIGHEST_PORT:
        raise InvalidSetting(
            setting, f"{setting} has the port {port}; ports are from 0 to {_HIGHEST_PORT}."
        )
    return Listener(name, host, port, protocol)


def check_distinct_ports(setting: str, listeners: Iterable[Listener]) -> None:
    """Two listeners may share a port only as a pair of one IPv4 and one IPv6 address."""
    by_port: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port != 0:
            by_port.setdefault(listener.port, []).append(listener)
    for port, sharing in by_port.items():
        families = sorted(_family(listener.host) for listener in sharing)
        if len(sharing) > 1 and families != ["IPv4", "IPv6"]:
            names = ", ".join(listener.name for listener in sharing)
            raise InvalidSetting(
                setting,
                f"{setting} uses port {port} for {names}; only one IPv4 and one IPv6 address "
                "may share a port.",
            )


def _family(host: str) -> str:
    if ":" in host:
        return "IPv6"
    return "IPv4" if _IPV4.fullmatch(host) else "name"
