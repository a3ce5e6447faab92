"""Who may look at the page, and who may change anything, where others than this machine reach it.

There are two roles, each with a token: `look` sees everything, `change` may do what changes the
cluster as well, as far as the page does it at all. A browser shows the token once, in the address
(`/?token=...`) or in a form, and gets a session: a cookie that scripts cannot read and other sites
cannot send. Programs send `Authorization: Bearer TOKEN` with every request. Nothing is served
without either but the form.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from enum import Enum
from time import monotonic
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from strandline.config.properties import parse_properties
from strandline.errors import InvalidSetting
from strandline.ui.guard import LOGIN

TOKEN_CHARACTERS_MIN: Final = 16
_COOKIE: Final = "strandline-session"
_FILE_CHARACTERS_MAX: Final = 1 << 16
_SESSIONS_MAX: Final = 1000
_SESSION_S: Final = 12 * 3600.0
_WRONG_S: Final = 0.2
"""An answer to a wrong token takes so long."""
_SAFE_METHODS: Final = ("GET", "HEAD")
_QUESTIONS: Final = frozenset({"/api/scenarios"})
"""Where a POST changes nothing. Any other needs the role for it."""
_FORM: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Strandline</title>
<h1>Strandline</h1>
<p>{sentence}</p>
<form method="post" action="/login"><label>Token
<input type="password" name="token" autocomplete="current-password" autofocus required></label>
<button>Log in</button></form></html>
"""


class Role(Enum):
    """What a token allows."""

    LOOK = "look"
    CHANGE = "change"


class Tokens:
    """The tokens of the roles. Raises `InvalidSetting` for those that could be guessed."""

    def __init__(self, tokens: Mapping[Role, str]) -> None:
        for role, token in tokens.items():
            if len(token) < TOKEN_CHARACTERS_MIN or not token.isascii() or not token.isprintable():
                raise InvalidSetting(
                    role.value,
                    f"The token of {role.value!r} has at least {TOKEN_CHARACTERS_MIN} characters, "
                    "all of them printable ASCII.",
                )
        if not tokens or len(set(tokens.values())) < len(tokens):
            raise InvalidSetting("look", "Each role has a token, and another than the other's.")
        self._tokens = {role: token.encode() for role, token in tokens.items()}

    @classmethod
    def read(cls, path: str) -> Tokens:
        """Those of a file, `look=TOKEN` and `change=TOKEN`; others than its owner cannot read it.

        Raises `InvalidSetting`.
        """
        try:
            with open(path, encoding="utf-8") as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & (stat.S_IROTH | stat.S_IWOTH):
                    raise InvalidSetting(
                        "tokens", f"Others can read {path}: take that from them (chmod 600)."
                    )
                found = parse_properties(file.read(_FILE_CHARACTERS_MAX))
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
            raise InvalidSetting("tokens", f"The file {path} cannot be read: {why}.") from error
        if not found or not found.keys() <= {role.value for role in Role}:
            raise InvalidSetting(
                "tokens", f"The file {path} has the lines look=TOKEN and change=TOKEN, or one."
            )
        return cls({Role(name): token for name, token in found.items()})

    @classmethod
    def made_up(cls) -> tuple[Tokens, dict[Role, str]]:
        """New ones, and what they are."""
        tokens = {role: secrets.token_urlsafe(32) for role in Role}
        return cls(tokens), tokens

    def role_of(self, token: str) -> Role | None:
        """What it allows; None: nothing."""
        found = None
        for role, known in self._tokens.items():
            if hmac.compare_digest(token.encode(errors="surrogateescape"), known):
                found = role
        return found

    def __repr__(self) -> str:
        return f"<tokens of {', '.join(role.value for role in self._tokens)}>"


class Access:
    """ASGI middleware; see the module."""

    def __init__(self, app: ASGIApp, tokens: Tokens, *, is_secure: bool) -> None:
        """`is_secure`: it is served over TLS, and the cookie is sent over nothing else."""
        self._app = app
        self._tokens = tokens
        self._is_secure = is_secure
        self._sessions: dict[str, tuple[Role, float]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what the asker may ask."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        response = await self._instead(request)
        if response is None:
            await self._app(scope, receive, send)
        else:
            await response(scope, receive, send)

    async def _instead(self, request: Request) -> Response | None:
        """What is answered instead; None: it may be asked."""
        if request.url.path == LOGIN and request.method == "POST":
            body = await request.body()
            return await self._log_in(_field(body.decode("utf-8", "replace")))
        if request.url.path == "/" and "token" in request.query_params:
            return await self._log_in(request.query_params["token"])
        role = self._role(request)
        if role is None:
            if "authorization" in request.headers:
                await asyncio.sleep(_WRONG_S)
            return self._ask(request)
        if request.method in _SAFE_METHODS or request.url.path in _QUESTIONS:
            return None
        if role is not Role.CHANGE:
            return PlainTextResponse("This token may look, and change nothing.", 403)
        return None

    def _role(self, request: Request) -> Role | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._tokens.role_of(token.strip())
        # Read as browsers write them: those of other servers on this host come along, whatever is
        # in them.
        session = request.cookies.get(_COOKIE, "")
        role, since = self._sessions.get(session, (None, 0.0))
        return role if monotonic() - since < _SESSION_S else None

    async def _log_in(self, token: str) -> Response:
        role = self._tokens.role_of(token)
        if role is None:
            await asyncio.sleep(_WRONG_S)
            return HTMLResponse(_FORM.format(sentence="That is no token of this page."), 401)
        if len(self._sessions) >= _SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        session = secrets.token_urlsafe(32)
        self._sessions[session] = (role, monotonic())
        # The address no longer has the token, so that no history or bookmark keeps it.
        response = RedirectResponse("/", 303, headers={"cache-control": "no-store"})
        response.set_cookie(
            _COOKIE,
            session,
            max_age=int(_SESSION_S),
            secure=self._is_secure,
            httponly=True,
            samesite="strict",
        )
        return response

    def _ask(self, request: Request) -> Response:
        headers = {"www-authenticate": "Bearer", "cache-control": "no-store"}
        if request.url.path == "/":
            return HTMLResponse(_FORM.format(sentence="The page asks for a token."), 401, headers)
        return PlainTextResponse("This needs a token.", 401, headers)


def _field(body: str) -> str:
    try:
        return parse_qs(body, max_num_fields=4).get("token", [""])[0]
    except ValueError:
        return ""
