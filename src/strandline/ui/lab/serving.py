"""Serves the built page on loopback: plain files, by the standard library's server.

Nothing is computed here. The server is needed because browsers load no modules and no workers from
`file:` addresses.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from strandline.errors import CannotListen


class _Files(SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012 - as the base class has it
        **SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".js": "text/javascript",
        ".wasm": "application/wasm",
        ".json": "application/json",
    }

    def end_headers(self) -> None:
        # Asked for anew each time, and not sent again if it is the same.
        self.send_header("cache-control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Requests of one person's browser are no news."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes away in the middle of a file is no news either."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def serving(directory: Path, host: str, port: int) -> Iterator[ThreadingHTTPServer]:
    """A server of a directory, which listens; `serve_forever` runs it. Raises `CannotListen`."""
    try:
        server = _Server((host, port), partial(_Files, directory=str(directory)))
    except OSError as error:
        raise CannotListen(
            "port", f"The page cannot be served at {host}:{port}: {error.strerror}."
        ) from error
    with server:
        yield server
