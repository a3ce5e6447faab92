"""Health and metrics over HTTP: on which loopback, and clients that do not wait for an answer."""

from __future__ import annotations

import json
import logging
import socket
import struct
import threading
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from strandline.config.loopback import IPV6
from strandline.lakehouse.service import serving
from strandline.lakehouse.service.live import TableFacts
from strandline.lakehouse.service.serving import StatusServer
from tests.broker.test_addresses import needs_ipv6

_PATIENCE_S = 120
_RESET = struct.pack("ii", 1, 0)


class _NoTables:
    lost: list[str] = []  # noqa: RUF012 - of a protocol

    def facts(self) -> list[TableFacts]:
        return []


@needs_ipv6
def test_on_a_machine_that_has_only_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "loopback", lambda: IPV6)
    with StatusServer(_NoTables(), 0) as server:
        assert server.url.startswith("http://[::1]:")
        with urlopen(f"{server.url}/readyz", timeout=30) as response:
            assert json.load(response) == {"ready": True, "tables": {}}


def test_a_client_that_goes_away_is_a_line_of_the_log(
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, "strandline.lakehouse.service.serving")
    is_told = threading.Event()
    tell = serving._Server.handle_error

    def told(*request: Any) -> None:
        tell(*request)
        is_told.set()

    monkeypatch.setattr(serving._Server, "handle_error", told)
    with StatusServer(_NoTables(), 0) as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        assert is_told.wait(_PATIENCE_S)
    [line] = caplog.messages
    assert line.startswith("A request for the state was not answered: ")
    assert "Traceback" not in capsys.readouterr().err
