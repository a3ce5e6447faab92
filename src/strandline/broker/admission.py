"""From an accepted socket to a connection of the node: at once, or after a TLS handshake.

The node hears of a client when it can be spoken with, and is told what its certificate says. A
handshake that fails is logged with the reason and counted: its client sees TLS's own alert.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from strandline.broker.handshakes import Handshakes, reason_of
from strandline.broker.streams import PlainStream, Stream, TlsStream
from strandline.broker.tls_socket import TlsSocket
from strandline.node.authentication.failed_handshakes import HandshakeKind
from strandline.node.sparing_log import SparingLog
from strandline.types import ANONYMOUS, Principal

if TYPE_CHECKING:
    from strandline.broker.tls_listener import TlsListener

log = logging.getLogger(__name__)

Admitted: TypeAlias = Callable[[Stream, str, str, Principal], None]
"""Gets the stream, the client's address, the name of the listener, and who the client is."""


class Admission:
    """See the module. `left` is told of clients that do not come in after all, and why."""

    def __init__(
        self,
        tls: Mapping[str, TlsListener],
        handshakes: Handshakes,
        timeout_s: float,
        admitted: Admitted,
        left: Callable[[HandshakeKind], None],
    ) -> None:
        """`tls` are the listeners with TLS, by their names."""
        self.failed = 0
        """Handshakes of clients that came to nothing."""
        self._tls = tls
        self._handshakes = handshakes
        self._timeout_s = timeout_s
        self._admitted = admitted
        self._left = left
        self._failures = SparingLog(log)

    def arrived(self, accepted: socket.socket, host: str, listener: str) -> None:
        """A client has connected."""
        tls = self._tls.get(listener)
        if tls is None:
            self._admitted(PlainStream(accepted), host, listener, ANONYMOUS)
            return
        try:
            sock = tls.wrap(accepted)
        except OSError as error:
            accepted.close()
            self._refuse(host, listener, error)
            return
        except Exception:  # a bug of ours: it must cost this client alone, and no count of it
            accepted.close()
            log.exception("No TLS could be begun with %s on the listener %s", host, listener)
            self._refuse(host, listener, OSError("it could not be begun"))
            return
        done = partial(self._shaken, sock, host, listener, tls)
        self._handshakes.begin(sock, host, self._timeout_s, done)

    def _shaken(
        self, sock: TlsSocket, host: str, listener: str, tls: TlsListener, error: OSError | None
    ) -> None:
        if error is None and self._tls.get(listener) is not tls:
            sock.close()
            error = OSError("the listener was closed meanwhile")
        if error is None:
            try:
                principal = tls.principal(sock)
            except ValueError as unreadable:
                sock.close()
                error = OSError(str(unreadable))
            else:
                self._admitted(TlsStream(sock), host, listener, principal)
                return
        self._refuse(host, listener, error)

    def _refuse(self, host: str, listener: str, error: OSError) -> None:
        self.failed += 1
        reason = reason_of(error)
        self._left(HandshakeKind(listener, host, reason))
        self._failures.info(
            time.monotonic_ns() // 1_000_000,
            "The TLS handshake with %s on the listener %s failed: %s",
            host,
            listener,
            reason,
        )
