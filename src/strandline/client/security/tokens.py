"""Tokens for OAUTHBEARER: given, in a file, or had from an endpoint by client credentials.

Connections of a process share what an endpoint gave, for as long as it is good. This file asks the
endpoint and waits for it; drivers on an event loop call it in a thread.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from threading import Lock
from typing import IO, Any, Final

from strandline.client.security.settings import Sasl, Tls, TokenEndpoint
from strandline.client.security.tls import context_of
from strandline.errors import AuthenticationFailed, ErrorCode, InvalidSetting, ProtocolError

_RESPONSE_BYTES_MAX: Final = 1024 * 1024
_USED_FOR: Final = 0.8
"""The part of a token's life after which another one is asked for, as Kafka's default."""
_LIFETIME_S: Final = 300
"""Of a token whose endpoint does not say how long it lasts."""


@dataclass(slots=True)
class _Cached:
    token: str = field(repr=False)
    good_until_s: float


_cached: dict[TokenEndpoint, _Cached] = {}
_lock: Final = Lock()


def token_of(sasl: Sasl, tls: Tls | None) -> str:
    """The token to authenticate with. May wait for an endpoint.

    Raises `InvalidSetting`, `AuthenticationFailed` if the endpoint refuses, and `ProtocolError`
    (NETWORK_EXCEPTION) if it cannot be reached or fails, which may be tried again.
    """
    if sasl.token is not None:
        return sasl.token.reveal()
    if sasl.endpoint is None:
        raise InvalidSetting("sasl.mechanism", "OAUTHBEARER has no token and no token endpoint.")
    with _lock:
        cached = _cached.get(sasl.endpoint)
        if cached is None or cached.good_until_s <= time.monotonic():
            cached = _cached[sasl.endpoint] = _fetched(sasl.endpoint, tls)
        return cached.token


def _fetched(endpoint: TokenEndpoint, tls: Tls | None) -> _Cached:
    answer = _asked(endpoint, tls)
    token, lifetime_s = answer.get("access_token"), answer.get("expires_in", _LIFETIME_S)
    if not isinstance(token, str) or not isinstance(lifetime_s, int | float):
        raise ProtocolError(
            ErrorCode.NETWORK_EXCEPTION, f"The token endpoint {endpoint.url} answers no token."
        )
    return _Cached(token, time.monotonic() + lifetime_s * _USED_FOR)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Has a redirect be an answer as any other: the request has the client's secret."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        del req, fp, code, msg, headers, newurl


def _asked(endpoint: TokenEndpoint, tls: Tls | None) -> dict[str, Any]:
    form = {"grant_type": "client_credentials"}
    if endpoint.scope is not None:
        form["scope"] = endpoint.scope
    credentials = f"{endpoint.client_id}:{endpoint.client_secret.reveal()}".encode()
    request = urllib.request.Request(  # noqa: S310 - its scheme is checked with the setting
        endpoint.url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Authorization": "Basic " + base64.b64encode(credentials).decode(),
            "Accept": "application/json",
        },
    )
    context = None
    if endpoint.url.startswith("https:"):
        context = ssl.create_default_context() if tls is None else context_of(tls)
    timeout_s = (endpoint.connect_timeout_ms + endpoint.read_timeout_ms) / 1000
    try:
        https = urllib.request.HTTPSHandler(context=context)
        opener = urllib.request.build_opener(_NoRedirects, https)
        with opener.open(request, timeout=timeout_s) as response:
            content = response.read(_RESPONSE_BYTES_MAX)
        answer = json.loads(content)
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(endpoint, error.code) from error
    except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise ProtocolError(
            ErrorCode.NETWORK_EXCEPTION,
            f"The token endpoint {endpoint.url} gave no token: {reason}.",
        ) from error
    return answer if isinstance(answer, dict) else {}


def _refused(endpoint: TokenEndpoint, status: int) -> ProtocolError:
    sentence = f"The token endpoint {endpoint.url} answered with the status {status}"
    if 300 <= status < 400:
        return AuthenticationFailed(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            f"{sentence}, a redirect, which is not followed, since the secret would go along: set "
            "the address to which it leads.",
        )
    if status >= 500 or status == 429:
        return ProtocolError(ErrorCode.NETWORK_EXCEPTION, f"{sentence}.")
    return AuthenticationFailed(
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        f"{sentence} to the client '{endpoint.client_id}': it does not accept its secret or scope.",
    )
