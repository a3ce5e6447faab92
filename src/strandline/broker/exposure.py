"""Listeners that let everyone in: on loopback as ever, elsewhere only if that is meant.

A listener authenticates with SASL, or with client certificates that TLS demands. What a socket is
bound to decides, not what the setting looks like: a name may be any address.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from strandline.config.broker import BrokerConfig
from strandline.config.listener_settings import ListenerSettings
from strandline.config.listeners import Listener
from strandline.errors import InvalidSetting

ALLOWED = "strandline.allow.insecure.listeners"


def exposure_notices(
    config: BrokerConfig, bound: Iterable[tuple[Listener, socket.socket]]
) -> list[str]:
    """Sentences about listeners by which everyone may come in, and passwords in the clear.

    Raises `InvalidSetting` about the first of them that is not allowed.
    """
    notices = []
    for listener, sock in bound:
        if _is_loopback(sock):
            continue
        if not _authenticates(config, listener):
            if not config.strandline_allow_insecure_listeners:
                raise InvalidSetting(
                    "listeners",
                    f"The listener {listener} can be reached from other machines and has no "
                    "authentication: all who reach it could read and write everything. Secure it "
                    "(docs/security.md), or listen on 127.0.0.1 only; if the network is trusted, "
                    f"say --insecure or {ALLOWED}=true.",
                )
            notices.append(
                f"The listener {listener} has no authentication: all who reach it can read and "
                "write everything."
            )
        elif not listener.has_tls:
            notices.append(
                f"The listener {listener} does not encrypt: records and, with PLAIN, passwords can "
                "be read on the way."
            )
    return notices


def _authenticates(config: BrokerConfig, listener: Listener) -> bool:
    if listener.has_sasl:
        return True
    settings = ListenerSettings.now(config, listener.name)
    return listener.has_tls and str(settings.value("ssl.client.auth")).lower() == "required"


def _is_loopback(sock: socket.socket) -> bool:
    host = str(sock.getsockname()[0]).partition("%")[0]
    return ipaddress.ip_address(host).is_loopback
