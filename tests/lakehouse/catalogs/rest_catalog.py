"""Iceberg's own REST catalog, from Maven Central, with a warehouse in an S3 server."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Final, Self
from urllib.error import HTTPError, URLError

import pyspark

from tests.lakehouse.java_server import java_server

_HADOOP: Final = sorted(map(str, Path(pyspark.__file__).parent.glob("jars/hadoop-client-*.jar")))
_MAIN: Final = "org.apache.iceberg.rest.RESTCatalogServer"


@contextmanager
def rest_catalog(
    jars: Path, warehouse: str, environment: Mapping[str, str], log: Path
) -> Iterator[str]:
    """The address of a catalog."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    uri = f"http://127.0.0.1:{port}"
    settings = {
        **environment,
        "CATALOG_REST_PORT": str(port),
        "CATALOG_WAREHOUSE": warehouse,
        "CATALOG_URI": "jdbc:sqlite::memory:",
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_HTTP__CLIENT_TYPE": "urlconnection",
        "CATALOG_S3_ENDPOINT": environment["AWS_ENDPOINT_URL"],
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "CATALOG_CLIENT_REGION": environment["AWS_REGION"],
    }

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{uri}/v1/config", timeout=5):
                return True
        except (URLError, OSError):
            return False

    arguments = ["-cp", ":".join([f"{jars}/*", *_HADOOP]), _MAIN]
    with java_server("an answer of the REST catalog", arguments, log, answers, settings):
        yield uri


class LosingProxy:
    """Passes requests on to a server; a context manager. `lose` of the answers to commits are lost.

    `status` is answered in place of everything, if it is set.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.lose = 0
        self.lost = 0
        self.status: int | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                """Nothing."""

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if proxy.status is not None:
                    self.send_response(proxy.status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                status, headers, answer = proxy.ask(self.command, self.path, body)
                if self.command == "POST" and "/tables/" in self.path and proxy.lose:
                    proxy.lose -= 1
                    proxy.lost += 1
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(status)
                self.send_header("Content-Type", headers.get("Content-Type") or "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer)

        for method in ("GET", "POST", "DELETE", "HEAD"):
            setattr(Handler, f"do_{method}", Handler.pass_on)
        return Handler

    def ask(self, method: str, path: str, body: bytes) -> tuple[int, Any, bytes]:
        """What the server answers."""
        request = urllib.request.Request(
            self.target + path,
            data=body or None,
            method=method,
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.headers, answer.read()
        except HTTPError as error:
            with error:
                return error.code, error.headers, error.read()
