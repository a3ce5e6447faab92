"""Ports that stay a broker's own while it is down, so that it comes back where clients look for it.

A socket that is bound but does not listen keeps the system from giving the port to another program,
and with SO_REUSEADDR on both sides it does not keep the broker from listening there. Connections
are refused meanwhile, as by a machine whose broker is down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strandline.broker.addresses import bound_socket
from strandline.config.listeners import Listener, host_and_port
from strandline.config.loopback import loopback
from strandline.errors import CannotListen


class ReservedPort:
    """A port of `host` chosen by the system. Raises `OSError` if there is none to be had."""

    def __init__(self, host: str | None = None) -> None:
        """Without a host, of loopback."""
        host = loopback() if host is None else host
        self._socket = bound_socket(host, 0)
        self.number: int = self._socket.getsockname()[1]
        self.address: str = host_and_port(host, self.number)

    def release(self) -> None:
        """Let the system have it."""
        self._socket.close()


def with_ports(listeners: Sequence[Listener], reserved: list[ReservedPort]) -> tuple[Listener, ...]:
    """The listeners, each with a port that stays its own if the system is to choose one.

    Those are added to `reserved`. Raises `CannotListen`.
    """
    return tuple(_with_port(each, reserved) for each in listeners)


def _with_port(listener: Listener, reserved: list[ReservedPort]) -> Listener:
    if listener.port:
        return listener
    try:
        port = ReservedPort(listener.host)
    except OSError as error:
        raise CannotListen(
            "listeners", f"listeners: {listener} cannot be bound: {error.strerror or error}."
        ) from error
    reserved.append(port)
    return replace(listener, port=port.number)
