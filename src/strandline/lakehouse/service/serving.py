"""Health, readiness and metrics over HTTP, on loopback: GET of three paths, and nothing else.

`/healthz` says whether the program works, `/readyz` whether each table is brought further (503 and
the reasons if not), `/metrics` is for Prometheus. A request under a name that is not this machine's
own is refused: a page of another site could have its name resolve to loopback.
"""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol

from strandline.config.listeners import host_and_port
from strandline.config.loopback import loopback
from strandline.lakehouse.service.live import TableFacts
from strandline.lakehouse.service.metrics import metrics_text

log = logging.getLogger(__name__)

_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
_JSON: Final = "application/json"
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
_TIMEOUT_S: Final = 10.0


class Shown(Protocol):
    """What is asked for."""

    @property
    def lost(self) -> list[str]:
        """Tables that nothing looks after any more."""

    def facts(self) -> list[TableFacts]:
        """All tables."""


def answer(path: str, shown: Shown) -> tuple[int, str, bytes]:
    """Status, type and body for a path."""
    if path == "/metrics":
        return HTTPStatus.OK, _PROMETHEUS, metrics_text(shown.facts())
    if path == "/healthz":
        lost = shown.lost
        status = HTTPStatus.SERVICE_UNAVAILABLE if lost else HTTPStatus.OK
        return status, _JSON, _json({"healthy": not lost, "lost": lost})
    if path == "/readyz":
        tables = shown.facts()
        is_ready = all(each.is_ready for each in tables)
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        states = {each.name: {"state": each.state.value, "reason": each.reason} for each in tables}
        return status, _JSON, _json({"ready": is_ready, "tables": states})
    return HTTPStatus.NOT_FOUND, _JSON, _json({"paths": ["/healthz", "/readyz", "/metrics"]})


class _Server(ThreadingHTTPServer):
    """Listens on a host of either family. Raises OSError."""

    daemon_threads = True

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A request was not answered, mostly because its client is gone."""
        del request, client_address
        error = sys.exception()
        if isinstance(error, OSError):
            log.info("A request for the state was not answered: %s", error)
        else:
            log.error("A request for the state could not be answered", exc_info=error)


class StatusServer:
    """A context manager that listens on `port` of loopback; 0 takes any. Raises OSError."""

    def __init__(self, shown: Shown, port: int) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = _TIMEOUT_S

            def do_GET(self) -> None:
                host = self.headers.get("Host", "").rpartition(":")
                name = (
                    host[0] if host[1] and host[2].isdigit() else host[1].join((host[0], host[2]))
                )
                if name.lower() not in _NAMES:
                    self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
                    return
                status, kind, body = answer(self.path.partition("?")[0], shown)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_request(self, code: object = "-", size: object = "-") -> None:
                """Nothing: probes come every few seconds."""

        self._server = _Server(loopback(), port, Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._server.socket.getsockname()[:2]
        return f"http://{host_and_port(host, port)}"

    def __enter__(self) -> StatusServer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _json(document: object) -> bytes:
    return json.dumps(document, indent=2).encode() + b"\n"
