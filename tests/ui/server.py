"""The page's server in a process of its own, as `serve --ui` starts it, and requests to it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True, slots=True)
class Page:
    """A server; `address` is what a browser opens."""

    address: str

    @property
    def host(self) -> str:
        return urlsplit(self.address).netloc

    def get(self, path: str, headers: Mapping[str, str] | None = None, **query: object) -> Answer:
        suffix = f"?{urlencode(query)}" if query else ""
        return self._ask("GET", path + suffix, None, headers or {})

    def post(self, path: str, body: object, **headers: str) -> Answer:
        """As the page does it; headers may be replaced, `_` in their names is `-`."""
        usual = {"Origin": f"http://{self.host}", "Content-Type": "application/json"}
        usual |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self._ask("POST", path, json.dumps(body), usual)

    def _ask(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> Answer:
        connection = http.client.HTTPConnection(self.host, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            text = response.read().decode()
            return Answer(response.status, text, dict(response.getheaders()))
        finally:
            connection.close()


@contextmanager
def page_for(
    bootstrap: str, *more: str, environment: Mapping[str, str] | None = None
) -> Iterator[Page]:
    """A server that ends with the block; `more` are arguments."""
    child = subprocess.Popen(
        [sys.executable, "-m", "strandline.ui", "--bootstrap", bootstrap, *more],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield Page(child.stdout.readline().strip())
        child.stdin.close()
        assert child.wait(PATIENCE_S) == 0
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
