"""Avro values that a real writer made, and a registry that is one as far as this project asks."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "sum",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "PAID"]}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
    ],
}


def avro(schema: Any, value: object) -> bytes:
    """As fastavro writes it."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return stream.getvalue()


def framed(number: int, payload: bytes) -> bytes:
    """In Confluent's framing."""
    return b"\x00" + number.to_bytes(4, "big") + payload


class LittleRegistry:
    """What is registered, what was asked, and with which headers."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.asked: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.drip: Callable[[Any], None] | None = None

    def register(self, number: int, schema: object, **more: object) -> None:
        """Give a schema its id."""
        self.register_text(f"/schemas/ids/{number}", json.dumps(schema), **more)

    def register_version(
        self, subject: str, version: int | str, number: int, schema: object
    ) -> None:
        """Give a schema its id, and a version of a subject."""
        self.register(number, schema)
        self.register_text(f"/subjects/{subject}/versions/{version}", json.dumps(schema), id=number)

    def register_text(self, path: str, text: str, **more: object) -> None:
        """What is answered at a path: a schema's text, and what else belongs to it."""
        self.answers[path] = (200, json.dumps({"schema": text, **more}).encode())


@contextmanager
def little_registry() -> Iterator[LittleRegistry]:
    """On loopback, as long as the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            registry.headers.append(dict(self.headers))
            if registry.drip is not None:
                registry.drip(self.wfile)
                return
            missing = (404, b'{"error_code": 40403, "message": "Schema not found"}')
            status, body = registry.answers.get(self.path, missing)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", body.decode())
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry = LittleRegistry(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
