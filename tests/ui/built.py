"""The page without a server, built once for all tests, and a web server for its files."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline.ui.lab.building import built
from strandline.ui.lab.serving import serving


def page() -> Path:
    """Its directory. What npm fetches is kept with the other things that tests fetch."""
    with pytest.MonkeyPatch.context() as patch:
        if "STRANDLINE_TEST_CACHE" in os.environ:
            patch.setenv("XDG_CACHE_HOME", os.environ["STRANDLINE_TEST_CACHE"])
        return built()


@contextmanager
def files(directory: Path, port: int = 0) -> Iterator[str]:
    """Serve them; the address of the page."""
    with serving(directory, "127.0.0.1", port) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
