"""Which listeners are open, and how settings open and close them while the broker runs.

    settings ──> check: could it be opened?  (before they are stored)
             ──> follow: close what is gone, open what is new, and have the cluster told

The listener of the brokers stays as it was opened at the start. What settings allow is known in
`config.listener_changes`; sockets are the acceptor's.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace

from strandline.broker.acceptor import Acceptor, ListenerSocket
from strandline.broker.addresses import bind, bound, endpoints_of
from strandline.broker.connection_limits import ConnectionLimits
from strandline.broker.exposure import exposure_notices
from strandline.broker.server_tls import ServerTls
from strandline.config.broker import BrokerConfig
from strandline.config.listeners import Listener
from strandline.errors import InvalidSetting
from strandline.node.node import Node

log = logging.getLogger(__name__)


class Listening:
    """See the module. `hang_up` closes the connections of the listener of that name."""

    def __init__(
        self,
        node: Node,
        sockets: Iterable[ListenerSocket],
        acceptor: Acceptor,
        limits: ConnectionLimits,
        tls: ServerTls,
        hang_up: Callable[[str], None],
    ) -> None:
        """`sockets` are those of the node's listeners."""
        self._node = node
        self._acceptor = acceptor
        self._limits = limits
        self._tls = tls
        self._hang_up = hang_up
        named = {each.name: each.socket for each in sockets}
        self._open = {each.name: each for each in node.settings.broker.listeners}
        """As settings have them."""
        self._bound = {
            name: bound(each, named[name]) for name, each in self._open.items() if name in named
        }
        """With the ports that they really have."""

    def check(self, config: BrokerConfig) -> None:
        """Raise `InvalidSetting` if these settings cannot be followed."""
        self._tls.check(config)
        known = self._node.settings.broker.listeners
        freed = {self._bound[name].port for name in self._gone(config)}
        # One that is known and not open must not keep other settings from changing.
        for each in (each for each in self._new(config) if each not in known):
            self._tls.read(each, config)
            self._node.authentication.read(each, config)
            # A port that the same change frees is still this broker's: only the address is tried.
            tried = replace(each, port=0) if each.port in freed else each
            self._bind(tried, config).close()

    def follow(self, config: BrokerConfig) -> None:
        """Settings have changed."""
        closed = self._gone(config)
        for name in closed:
            self._close(name)
        opened = self._new(config)
        for each in opened:
            self._begin(each, config)
        if closed or opened:
            own_name = socket.gethostname()
            self._node.membership.advertise(endpoints_of(config, self._bound.values(), own_name))

    def _gone(self, config: BrokerConfig) -> list[str]:
        wanted = {each.name: each for each in config.listeners}
        return [
            name
            for name, each in self._open.items()
            if wanted.get(name) != each and name != config.inter_broker_listener.name
        ]

    def _new(self, config: BrokerConfig) -> list[Listener]:
        return [
            each
            for each in config.listeners
            if self._open.get(each.name) != each and each.name != config.inter_broker_listener.name
        ]

    def _bind(self, listener: Listener, config: BrokerConfig) -> socket.socket:
        sock = bind(listener, config)
        try:
            for notice in exposure_notices(config, [(bound(listener, sock), sock)]):
                log.warning("%s", notice)
        except InvalidSetting:
            sock.close()
            raise
        return sock

    def _begin(self, listener: Listener, config: BrokerConfig) -> None:
        """Open one; what cannot be opened now is tried again with the next change."""
        name = listener.name
        try:
            tls = self._tls.read(listener, config)
            self._node.authentication.open(listener, config)
            sock = self._bind(listener, config)
        except InvalidSetting as error:
            self._node.authentication.close(name)
            log.error("The listener %s is not opened: %s", listener, error)
            return
        if tls is not None:
            self._tls.listeners[name] = tls
        self._limits.open(name)
        self._open[name], self._bound[name] = listener, bound(listener, sock)
        self._acceptor.open(ListenerSocket(name, sock))
        log.info("The listener %s is open", self._bound[name])

    def _close(self, name: str) -> None:
        """Its clients have to go, too."""
        log.info("The listener %s is closed", self._bound[name])
        self._acceptor.shut(name)
        self._tls.listeners.pop(name, None)
        del self._open[name], self._bound[name]
        self._hang_up(name)
        self._node.authentication.close(name)
        self._limits.close(name)
