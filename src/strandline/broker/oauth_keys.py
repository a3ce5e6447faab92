"""Tokens of OAUTHBEARER, checked with the keys of an identity provider (KIP-768).

A token is a JWT that one of the provider's keys has signed. The keys are a JWKS document, in a file
or behind a URL: read at the start, again when the file changes or `...jwks.endpoint.refresh.ms` has
passed, and when a token names a key that is not known, yet not more often than
`...jwks.endpoint.retry.backoff.ms` allows. A URL is asked in a thread; the keys there are stay in
use meanwhile. What a signature means is PyJWT's to say, which is maintained and knows the attacks.
"""

from __future__ import annotations

import http.client
import json
import logging
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import IO, Any, Final

import jwt

from strandline.config.listener_settings import ListenerSettings
from strandline.errors import InvalidSetting
from strandline.node.authentication.mechanisms import Authenticated
from strandline.node.authentication.tokens import BadToken
from strandline.types import Instant

log = logging.getLogger(__name__)

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Of public keys only: with `none` or a shared secret everyone could sign."""
_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
_DOCUMENT_BYTES_MAX: Final = 1024 * 1024
_TOKEN_BYTES_MAX: Final = 64 * 1024
_TIMEOUT_S: Final = 10.0
_FILE_LOOKED_AT_S: Final = 1.0
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


class OauthKeys:
    """See the module. Raises `InvalidSetting`; `load` reads the keys for the first time."""

    def __init__(self, settings: ListenerSettings) -> None:
        self._source = _source(settings)
        self._audience = settings.items("sasl.oauthbearer.expected.audience")
        self._issuer = settings.text("sasl.oauthbearer.expected.issuer")
        self._skew_s = settings.number("sasl.oauthbearer.clock.skew.seconds")
        self._name_claim = settings.text("sasl.oauthbearer.sub.claim.name") or "sub"
        self._refresh_s = settings.number("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000
        self._pause_s = settings.number("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms") / 1000
        self._pause_max_s = (
            settings.number("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms") / 1000
        )
        self._keys: tuple[jwt.PyJWK, ...] = ()
        self._failures = 0
        self._asked_s = 0.0
        self._stamp = 0
        self._reading = threading.Lock()

    def load(self) -> None:
        """Read the keys now. What goes wrong is logged, and tried again later."""
        if not self._reading.acquire(blocking=False):
            return
        try:
            self._asked_s = time.monotonic()
            if isinstance(self._source, Path):
                self._stamp = _stamp(self._source)
            self._keys, self._failures = _keys_in(_read(self._source)), 0
        except (
            *(OSError, http.client.HTTPException),  # what answers there need not speak HTTP
            *(ValueError, RecursionError, jwt.PyJWTError),
        ) as error:
            self._failures += 1
            log.warning("The keys at %s cannot be read: %s", self._source, error)
        finally:
            self._reading.release()

    # -- TokenChecker ------------------------------------------------------------------------

    def check(self, token: str, now: Instant) -> Authenticated:
        """Who the token is for, and until when. Raises `BadToken`."""
        del now  # PyJWT looks at the machine's clock itself
        try:
            claims = self._claims(token)
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            log.info("A token of OAUTHBEARER was refused: %s", error)
            raise BadToken(str(error)) from None
        name = claims.get(self._name_claim)
        if not isinstance(name, str) or not name:
            log.info("A token of OAUTHBEARER was refused: it has no %s", self._name_claim)
            raise BadToken(f"It has no {self._name_claim}.")
        return Authenticated(name, expires_ms=int(claims["exp"]) * 1000)

    def _claims(self, token: str) -> dict[str, Any]:
        if len(token) > _TOKEN_BYTES_MAX:
            raise ValueError("it is too long")
        self._look_again()
        key_id = jwt.get_unverified_header(token).get("kid")
        key = self._find(key_id)
        if key is None:
            self._read_soon(self._pause())
            raise ValueError("it names a key that is not known")
        claims: dict[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=list(ALGORITHMS),
            audience=list(self._audience) or None,
            issuer=self._issuer,
            leeway=self._skew_s,
            options={"require": ["exp", "iat"], "verify_aud": bool(self._audience)},
        )
        return claims

    def _find(self, key_id: object) -> jwt.PyJWK | None:
        if key_id is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((each for each in self._keys if each.key_id == key_id), None)

    # -- Reading again -----------------------------------------------------------------------

    def _look_again(self) -> None:
        if isinstance(self._source, Path):
            if time.monotonic() < self._asked_s + _FILE_LOOKED_AT_S:
                return
            self._asked_s = time.monotonic()
            stamp = _stamp(self._source)
            if stamp != self._stamp:
                self.load()
        else:
            self._read_soon(self._pause() if self._failures else self._refresh_s)

    def _pause(self) -> float:
        doubled: float = self._pause_s * 2 ** min(self._failures, 30)
        return min(doubled, self._pause_max_s)

    def _read_soon(self, after_s: float) -> None:
        """Ask the URL in a thread, unless that was done within this time."""
        if isinstance(self._source, Path) or time.monotonic() < self._asked_s + after_s:
            return
        self._asked_s = time.monotonic()
        try:
            threading.Thread(target=self.load, name="strandline-jwks", daemon=True).start()
        except RuntimeError as error:
            log.warning("The keys at %s cannot be read: %s", self._source, error)


def _source(settings: ListenerSettings) -> Path | str:
    text = settings.text(_URL)
    name = settings.name(_URL)
    if text is None:
        raise InvalidSetting(
            _URL,
            f"The listener {settings.listener} has OAUTHBEARER: set {_URL} to the keys of the "
            "identity provider, an https URL or file:PATH.",
        )
    url = urllib.parse.urlsplit(text)
    if url.scheme == "file":
        return Path(urllib.parse.unquote(url.path)).expanduser()
    if _is_safe(url):
        return text
    raise InvalidSetting(
        name,
        f"{name} takes an https URL or file:PATH, since a person who changes the keys can sign "
        "tokens; http only on this machine.",
    )


def _is_safe(url: urllib.parse.SplitResult) -> bool:
    """Whether only who may change the keys answers there."""
    return url.scheme == "https" or (url.scheme == "http" and url.hostname in _LOCAL)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows where keys have moved, but never from https to what can be changed on the way."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        url = urllib.parse.urlsplit(newurl)
        if not _is_safe(url) or (req.type == "https" and url.scheme != "https"):
            raise urllib.error.URLError(f"it redirects to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER: Final = urllib.request.build_opener(_Redirects)


def _keys_in(document: str) -> tuple[jwt.PyJWK, ...]:
    """The keys of a JWKS document. Raises `ValueError` and `PyJWTError`."""
    found = json.loads(document)
    if not isinstance(found, dict) or not isinstance(found.get("keys"), list):
        raise ValueError('it is no JWKS document, {"keys": [...]}')  # noqa: TRY004 - of any type
    return tuple(jwt.PyJWKSet.from_dict(found).keys)


def _read(source: Path | str) -> str:
    if isinstance(source, Path):
        with source.open("rb") as file:
            content = file.read(_DOCUMENT_BYTES_MAX + 1)
    else:
        with _OPENER.open(source, timeout=_TIMEOUT_S) as response:
            content = response.read(_DOCUMENT_BYTES_MAX + 1)
    if len(content) > _DOCUMENT_BYTES_MAX:
        raise ValueError(f"there are more than {_DOCUMENT_BYTES_MAX} bytes")
    return content.decode()


def _stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
