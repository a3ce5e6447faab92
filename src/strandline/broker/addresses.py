"""Listening sockets and addresses: what is bound, and what clients and other brokers are told."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterable, Sequence
from typing import Any, Final

from strandline.cluster.znodes import Endpoint
from strandline.config.broker import BrokerConfig
from strandline.config.listeners import ANY_INTERFACE, Listener
from strandline.errors import CannotListen, InvalidSetting

_IPV4_IN_IPV6: Final = "::ffff:"
_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""No interface has the address, or the system no such family: the next one may do."""


def bind(listener: Listener, config: BrokerConfig) -> socket.socket:
    """A listening socket. Raises `CannotListen` with the address when it cannot be had."""
    buffers = (
        (socket.SO_SNDBUF, config.socket_send_buffer_bytes),
        (socket.SO_RCVBUF, config.receive_buffer_bytes(listener)),
    )
    try:
        sock = bound_socket(listener.host, listener.port, buffers)
        try:
            sock.listen(config.socket_listen_backlog_size)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise CannotListen(
            "listeners", f"listeners: {listener} cannot be bound: {error.strerror or error}."
        ) from error
    return sock


def bound_socket(host: str, port: int, buffers: Sequence[tuple[int, int]] = ()) -> socket.socket:
    """A socket at the first address of a host that this machine has, IPv4 before IPv6, as in Java.

    No host means every interface, of IPv6 and of IPv4 (RFC 3493, 5.3), or of IPv4 alone where there
    is no IPv6. `buffers` are options and sizes in bytes; those below 1 are left to the system.
    Raises `OSError`.
    """
    candidates = _candidates(host, port)
    for family, address in candidates[:-1]:
        try:
            return _bound(family, address, buffers)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
    return _bound(*candidates[-1], buffers)


def _candidates(host: str, port: int) -> list[tuple[socket.AddressFamily, Any]]:
    if host == ANY_INTERFACE:
        return [(socket.AF_INET6, ("::", port)), (socket.AF_INET, ("", port))]
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    return [(family, address) for family, _, _, _, address in found]


def _bound(
    family: socket.AddressFamily, address: Any, buffers: Sequence[tuple[int, int]]
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Only `::` is another address without IPv4. Some systems leave that out by default.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        for option, size in buffers:
            if size > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def plain_peer(address: tuple[Any, ...]) -> tuple[Any, ...]:
    """A peer's address; that of an IPv4 peer at a socket of both families as IPv4 has it."""
    host = str(address[0])
    if host.startswith(_IPV4_IN_IPV6) and "." in host:
        return host.removeprefix(_IPV4_IN_IPV6), address[1]
    return address


def bound(listener: Listener, sock: socket.socket) -> Listener:
    """The listener with the port that the system chose for port 0."""
    return Listener(listener.name, listener.host, sock.getsockname()[1], listener.security_protocol)


async def advertised_endpoints(
    config: BrokerConfig, listening: Sequence[Listener]
) -> tuple[Endpoint, ...]:
    """What the cluster is told: as configured, with bound ports for 0 and a host for "any".

    Raises `InvalidSetting` if that host is this machine's name and is not resolved even here.
    """
    is_asked = any(listener.host == ANY_INTERFACE for listener in config.advertised_listeners)
    own_name = await _own_name() if is_asked else ""
    return endpoints_of(config, listening, own_name)


def endpoints_of(
    config: BrokerConfig, listening: Iterable[Listener], own_name: str
) -> tuple[Endpoint, ...]:
    """As `advertised_endpoints`, with that name for a host that is "any". What is not open is left
    out."""
    ports = {listener.name: listener.port for listener in listening}
    return tuple(
        Endpoint(
            listener.name,
            listener.host or own_name,
            listener.port or ports[listener.name],
            listener.security_protocol,
        )
        for listener in config.advertised_listeners
        if listener.name in ports
    )


async def _own_name() -> str:
    name = socket.gethostname()
    try:
        await asyncio.get_running_loop().getaddrinfo(name, None)
    except OSError as error:
        raise InvalidSetting(
            "advertised.listeners",
            f"Clients would be told this machine's name, '{name}', which it cannot resolve itself "
            f"({error.strerror}); set advertised.listeners to an address that clients can reach.",
        ) from None
    return name
