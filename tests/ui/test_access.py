"""A page that others than this machine reach: tokens, roles, sessions, and TLS."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from strandline.errors import InvalidSetting
from strandline.testing.authority import Authority
from strandline.ui.access import Access, Role, Tokens
from strandline.ui.guard import Guard

LOOK, CHANGE = "l" * 20, "c" * 20
TOKENS = Tokens({Role.LOOK: LOOK, Role.CHANGE: CHANGE})
Headers = dict[str, str]


async def _inner(scope: Any, receive: Any, send: Any) -> None:
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"inside"})


class Site:
    """The middleware around something that answers everything."""

    def __init__(self, *, is_secure: bool = False) -> None:
        self._app = Guard(Access(_inner, TOKENS, is_secure=is_secure), None)

    def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Any:
        """Status, headers and text of the answer."""
        path, _, query = target.partition("?")
        named = {"host": "page.example:9080", "content-length": str(len(body))} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        }
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self._app(scope, receive, send))
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], found, b"".join(m.get("body", b"") for m in sent[1:]).decode()


def post(site: Site, token: str, target: str = "/api/faults") -> int:
    """Asked for as the page does it."""
    status, _, _ = site.ask(
        "POST",
        target,
        b"{}",
        origin="http://page.example:9080",
        content_type="application/json",
        authorization=f"Bearer {token}",
    )
    assert isinstance(status, int)
    return status


def test_nothing_is_served_without_a_token() -> None:
    site = Site()
    for target in ("/api/events", "/metrics", "/static/main.js", "/api/records"):
        status, headers, text = site.ask("GET", target)
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert "inside" not in text
    for wrong in ("Bearer x", "Bearer ", "Basic bDps", f"Bearer {LOOK}x", "Bearer \udcff"[:7]):
        assert site.ask("GET", "/metrics", authorization=wrong)[0] == 401
    assert site.ask("GET", "/metrics", cookie="strandline-session=made-up")[0] == 401
    status, _, text = site.ask("GET", "/")
    assert (status, 'action="/login"' in text) == (401, True)


def test_a_role_may_look_and_another_may_change() -> None:
    site = Site()
    assert site.ask("GET", "/metrics", authorization=f"bearer {LOOK}")[0] == 200
    assert post(site, LOOK) == 403
    assert post(site, LOOK, "/api/topics/orders/records") == 403
    assert post(site, LOOK, "/api/scenarios") == 200
    assert post(site, CHANGE) == post(site, CHANGE, "/api/anything") == 200
    other_site = {"origin": "http://evil.example", "content_type": "application/json"}
    refused = site.ask("POST", "/api/faults", b"{}", authorization=f"Bearer {CHANGE}", **other_site)
    assert refused[0] == 403


@pytest.mark.parametrize("by_form", [True, False])
def test_a_browser_gets_a_session_that_only_it_has(by_form: bool) -> None:
    site = Site(is_secure=True)
    form = {
        "origin": "https://page.example:9080",
        "content_type": "application/x-www-form-urlencoded",
    }
    if by_form:
        assert site.ask("POST", "/login", b"token=wrong", **form)[0] == 401
        assert site.ask("POST", "/login", b"&" * 100, **form)[0] == 401
        strange = form | {"origin": "http://evil.example"}
        assert site.ask("POST", "/login", f"token={LOOK}".encode(), **strange)[0] == 403
        status, headers, _ = site.ask("POST", "/login", f"token={LOOK}".encode(), **form)
    else:
        assert site.ask("GET", "/?token=wrong")[0] == 401
        status, headers, _ = site.ask("GET", f"/?token={LOOK}")
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert LOOK not in cookie
    assert all(word in cookie for word in ("HttpOnly", "Secure", "SameSite=strict"))
    session = cookie.split(";")[0]
    assert site.ask("GET", "/api/events", cookie=session)[2] == "inside"
    beside = f'theirs={{"x": 1}}; {session}; other="a b'
    assert site.ask("GET", "/api/events", cookie=beside)[2] == "inside", "of another port"
    assert Site().ask("GET", "/api/events", cookie=session)[0] == 401


def test_a_body_in_chunks_is_refused_before_it_is_read() -> None:
    """Whatever length it says beside that, and by whom it is sent."""
    site = Site()
    origin = {"origin": "http://page.example:9080", "transfer_encoding": "chunked"}
    form = {"content_type": "application/x-www-form-urlencoded"}
    assert site.ask("POST", "/login", f"token={LOOK}".encode(), **form, **origin)[0] == 411
    token = {"content_type": "application/json", "authorization": f"Bearer {CHANGE}"}
    assert site.ask("POST", "/api/faults", b"{}", **token, **origin)[0] == 411


def test_tokens_that_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "tokens"

    def read(text: str, mode: int = 0o600) -> Tokens:
        path.write_text(text)
        path.chmod(mode)
        return Tokens.read(str(path))

    assert read(f"look={LOOK}\n").role_of(LOOK) is Role.LOOK
    assert LOOK not in repr(read(f"look={LOOK}"))
    for text, sentence in (
        ("look=short", "at least 16 characters"),
        ("", "has the lines"),
        (f"peek={LOOK}", "has the lines"),
        (f"look={LOOK}\nchange={LOOK}", "another than the other's"),
    ):
        with pytest.raises(InvalidSetting, match=sentence) as caught:
            read(text)
        assert LOOK not in str(caught.value)
    with pytest.raises(InvalidSetting, match="Others can read"):
        read(f"look={LOOK}", 0o644)
    with pytest.raises(InvalidSetting, match="cannot be read"):
        Tokens.read(str(tmp_path / "missing"))


def test_a_page_on_all_addresses_makes_up_tokens_and_speaks_tls(tmp_path: Path) -> None:
    authority = Authority()
    pem = tmp_path / "page.pem"
    pem.write_text(authority.issue("page"))
    command = [sys.executable, "-m", "strandline.cli", "ui", "--host", "0.0.0.0", "--port", "0"]
    child = subprocess.Popen(
        [*command, "--certificate", str(pem), "-b", "127.0.0.1:1"],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    try:
        lines = [child.stdout.readline() for _ in Role]
        [(port, token)] = re.findall(r"https://0\.0\.0\.0:(\d+)/\?token=(\S+) +to look", lines[0])
        trusted = ssl.create_default_context(cadata=authority.pem)
        url = f"https://localhost:{port}/api/scenarios"
        with pytest.raises(HTTPError) as refused:
            urllib.request.urlopen(url, context=trusted)
        assert refused.value.code == 401
        refused.value.close()
        asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, context=trusted) as answer:
            assert answer.status == 200
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
