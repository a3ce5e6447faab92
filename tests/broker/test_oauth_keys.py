"""Where the keys of an identity provider are read: documents that are none, and moved ones."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from strandline.broker.oauth_keys import OauthKeys
from strandline.config.listener_settings import ListenerSettings
from strandline.types import Instant
from tests.broker.harness import PATIENCE_S
from tests.broker.test_oauth import RSA_KEY, jwks, token

NOW = Instant(0, 0)


def keys_at(url: str) -> OauthKeys:
    static = {"sasl.oauthbearer.jwks.endpoint.url": url}
    return OauthKeys(ListenerSettings(static, "SASL"))


@pytest.mark.parametrize(
    "document",
    ["[]", "3", '{"keys": 3}', '{"keys": [3]}', "[" * 100_000, "{", "{}"],
    ids=["list", "number", "no list", "no keys", "deep", "cut", "empty"],
)
def test_a_document_that_has_no_keys_is_told_and_read_again_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, document: str
) -> None:
    path = tmp_path / "keys.json"
    path.write_text(document)
    keys = keys_at(f"file:{path}")
    keys.load()
    assert f"The keys at {path} cannot be read" in caplog.text
    path.write_text(jwks(first=RSA_KEY))
    keys.load()
    assert keys.check(token(), NOW).name == "alice"


@contextmanager
def server(answers: dict[str, str]) -> Iterator[int]:
    """Answers with the keys, or, by the path, with a redirect; gives its port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place = answers.get(self.path)
            self.send_response(200 if place is None else 302)
            if place is not None:
                self.send_header("location", place)
            self.end_headers()
            if place is None:
                self.wfile.write(jwks(first=RSA_KEY).encode())

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name
            del format, arguments

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as running:
        thread = Thread(target=running.serve_forever)
        thread.start()
        try:
            yield running.server_port
        finally:
            running.shutdown()
            thread.join()


def test_keys_are_read_where_they_have_moved_to_unless_that_is_unsafe(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = {"/moved": "/keys"}
    with server(answers) as port:
        answers["/unsafe"] = unsafe = f"http://0.0.0.0:{port}/keys"  # reached, yet not by its name
        moved = keys_at(f"http://127.0.0.1:{port}/moved")
        moved.load()
        assert moved.check(token(), NOW).name == "alice"
        assert not caplog.records
        keys_at(f"http://127.0.0.1:{port}/unsafe").load()
    assert f"it redirects to {unsafe}, which is not https" in caplog.text


def test_a_server_that_speaks_another_protocol_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_S)

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-other\r\n")

        thread = Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/keys"
        keys_at(url).load()
        thread.join()
    assert f"The keys at {url} cannot be read" in caplog.text


def test_known_keys_serve_when_there_is_no_thread_to_ask_for_newer_ones(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with server({}) as port:
        url = f"http://127.0.0.1:{port}/keys"
        refreshing = {"sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}
        static = {"sasl.oauthbearer.jwks.endpoint.url": url, **refreshing}
        keys = OauthKeys(ListenerSettings(static, "SASL"))
        keys.load()
        with monkeypatch.context() as without_threads:
            without_threads.setattr(threading.Thread, "start", refuse)
            assert keys.check(token(), NOW).name == "alice"
    assert f"The keys at {url} cannot be read: can't start new thread" in caplog.text
