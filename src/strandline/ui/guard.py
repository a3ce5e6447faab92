"""Who may ask the page's server: a browser that was pointed at it, and no other site's page.

On loopback the server has no accounts. What a web page of another site could still do from a
browser on this machine is to send requests here, or to have its own name resolve to 127.0.0.1 and
read the answers. Both show in headers that such a page cannot choose: `Host` must be this server's
own name, and what changes anything must carry this server's `Origin`. Elsewhere `access` asks for a
token, which such a page does not have; names are then not looked at, for the server does not know
its own.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_BYTES_MAX: Final = 64 * 1024
LOGIN: Final = "/login"
"""Where the form is sent; see `access`."""

_LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
_SAFE_METHODS: Final = ("GET", "HEAD")
# Nothing is fetched from elsewhere, no script is in the page itself, no page may frame it.
_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    ),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class Guard:
    """ASGI middleware; see the module. `hosts` are the names the server was told to answer to;
    None: it answers to any."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] | None) -> None:
        self._app = app
        self._names = None
        if hosts is not None:
            self._names = frozenset(name.lower() for name in (*_LOCAL_NAMES, *hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may be asked."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refusal(scope["method"], scope["path"], Headers(scope=scope))
        if refused is not None:
            status, sentence = refused
            await PlainTextResponse(sentence, status)(scope, receive, _with_headers(send))
            return
        await self._app(scope, receive, _with_headers(send))

    def _refusal(self, method: str, path: str, headers: Headers) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if self._names is not None and _name_of(host) not in self._names:
            return 421, "This server does not answer to that name."
        if method in _SAFE_METHODS:
            return None
        if headers.get("origin", "") not in (f"http://{host}", f"https://{host}"):
            return 403, "Only the page itself may ask for that."
        kind = headers.get("content-type", "").split(";")[0].strip()
        if kind != ("application/x-www-form-urlencoded" if path == LOGIN else "application/json"):
            return 415, "Requests are JSON."
        if "transfer-encoding" in headers:  # it wins over the length that is looked at here
            return 411, "Requests say how long they are."
        length = headers.get("content-length", "")
        if not length.isdigit():
            return 411, "Requests say how long they are."
        if int(length) > BODY_BYTES_MAX:
            return 413, f"Requests are at most {BODY_BYTES_MAX} bytes long."
        return None


def _name_of(host: str) -> str:
    """The name in a `Host` header, without its port."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message.get("headers") or []
            assert isinstance(headers, list)
            message = {**message, "headers": [*headers, *_HEADERS]}
        await send(message)

    return sending
