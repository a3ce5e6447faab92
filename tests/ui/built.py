"""The page without a server, built once for all tests, and a web server for its files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from strandline.ui.lab.building import built
from strandline.ui.lab.serving import serving

PATIENCE_S = 120.0


def page() -> Path:
    """Its directory. What npm fetches is kept with the other things that tests fetch."""
    with pytest.MonkeyPatch.context() as patch:
        if "STRANDLINE_TEST_CACHE" in os.environ:
            patch.setenv("XDG_CACHE_HOME", os.environ["STRANDLINE_TEST_CACHE"])
        return built()


@contextmanager
def files(directory: Path, port: int = 0) -> Iterator[str]:
    """Serve them; the address of the page."""
    with serving(directory, "127.0.0.1", port) as server, _running(server) as address:
        yield address


@contextmanager
def late_files(directory: Path, late: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """Serve them all but the one at this path, whose request waits: the address, and what refuses
    that file at last."""
    decided = threading.Event()

    class Late(SimpleHTTPRequestHandler):
        extensions_map = {  # noqa: RUF012 - as the base class has it
            **SimpleHTTPRequestHandler.extensions_map,
            ".mjs": "text/javascript",
        }

        def do_GET(self) -> None:
            if self.path == late:
                decided.wait(PATIENCE_S)
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                super().do_GET()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            """Requests of the test's browser are no news."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Late, directory=str(directory)))
    with server, _running(server) as address:
        try:
            yield address, decided.set
        finally:
            decided.set()


@contextmanager
def _running(server: ThreadingHTTPServer) -> Iterator[str]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
