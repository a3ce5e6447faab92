"""Listening sockets and addresses: what is bound, and what clients and other brokers are told."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from strandline.cluster.znodes import Endpoint
from strandline.config.broker import BrokerConfig
from strandline.config.listeners import Listener
from strandline.errors import InvalidSetting


def bind(listener: Listener, config: BrokerConfig) -> socket.socket:
    """A listening socket. Raises `InvalidSetting` with the address when it cannot be had."""
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for option, size in (
            (socket.SO_SNDBUF, config.socket_send_buffer_bytes),
            (socket.SO_RCVBUF, config.socket_receive_buffer_bytes),
        ):
            if size > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        sock.bind((listener.host, listener.port))
        sock.listen(config.socket_listen_backlog_size)
    except OSError as error:
        sock.close()
        raise InvalidSetting(
            "listeners", f"listeners: {listener} cannot be bound: {error.strerror or error}."
        ) from error
    return sock


def bound(listener: Listener, sock: socket.socket) -> Listener:
    """The listener with the port that the system chose for port 0."""
    return Listener(listener.name, listener.host, sock.getsockname()[1], listener.security_protocol)


def advertised_endpoints(
    config: BrokerConfig, listening: Sequence[Listener]
) -> tuple[Endpoint, ...]:
    """What the cluster is told: as configured, with bound ports for 0 and a host for "any"."""
    ports = {listener.name: listener.port for listener in listening}
    hostname = socket.gethostname()
    return tuple(
        Endpoint(
            listener.name,
            listener.host or hostname,
            listener.port or ports.get(listener.name, 0),
        )
        for listener in config.advertised_listeners
    )
