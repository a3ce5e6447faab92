"""Ports that stay a broker's own while it is down, so that it comes back where clients look for it.

A socket that is bound but does not listen keeps the system from giving the port to another program,
and with SO_REUSEADDR on both sides it does not keep the broker from listening there. Connections
are refused meanwhile, as by a machine whose broker is down.
"""

from __future__ import annotations

from strandline.broker.addresses import bound_socket
from strandline.config.listeners import host_and_port
from strandline.config.loopback import loopback


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
