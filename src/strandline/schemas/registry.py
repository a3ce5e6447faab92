"""Schemas from a schema registry: one HTTP request for each id, kept afterwards.

    GET {url}/schemas/ids/7   ->   {"schema": "{\"type\": ...}"}

Theory: an id means one schema for ever, so what was found is kept as long as there is room. What
was not found, and that the registry does not answer, is kept for a short while: records come in
hundreds, and each of them would wait for the same refusal. Redirections are not followed: the
person who named the registry said whom to ask.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from strandline.errors import InvalidSetting
from strandline.schemas.errors import RegistryDown, UnknownSchema
from strandline.schemas.folder import SCHEMA_BYTES_MAX

WHOLE_S: Final = 4.0
"""How long connecting may take, and then the whole answer, however slowly it drips."""
REFUSAL_KEPT_S: Final = 10.0
KEPT_BYTES_MAX: Final = 16 << 20

# The schema is a text inside JSON, where each quotation mark takes another byte.
ANSWER_BYTES_MAX: Final = 2 * SCHEMA_BYTES_MAX
_KEPT_MAX: Final = 1_000
_SAID_MAX: Final = 200


class _Kept(NamedTuple):
    """What is known of an id: the schema's text, or a sentence that counts until `until_s`."""

    text: str
    until_s: float | None = None


class Registry:
    """A registry by its URL. Safe to be asked by several threads, which it serves one by one.

    Name and password in the URL go to the registry and stand in no sentence.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises `InvalidSetting`; nothing is asked yet."""
        self._connection = RegistryConnection(url)
        self.name = self._connection.name
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._kept_bytes = 0
        self._silence: _Kept | None = None

    def text(self, number: int) -> str:
        """The Avro schema with an id; raises `UnknownSchema`."""
        with self._lock:
            kept = self._known(number)
            if kept is None:
                kept = self._ask(number)
            if kept.until_s is not None:
                raise UnknownSchema(kept.text)
            return kept.text

    def _known(self, number: int) -> _Kept | None:
        now = self._clock()
        for kept in (self._kept.get(number), self._silence):
            if kept is not None and (kept.until_s is None or kept.until_s > now):
                return kept
        return None

    def _ask(self, number: int) -> _Kept:
        try:
            status, body = self._connection.get(f"/schemas/ids/{number}")
        except RegistryDown as down:
            self._silence = self._refusal(str(down))
            return self._silence
        kept = self._read(number, status, body)
        self._keep(number, kept)
        return kept

    def _read(self, number: int, status: int, body: bytes) -> _Kept:
        if status == http.client.NOT_FOUND:
            return self._refusal(
                f"Schema {number} is not known to the schema registry at {self.name} (404)."
            )
        where = f"Schema {number}: the schema registry at {self.name}"
        if status != http.client.OK:
            return self._refusal(f"{where} answers with the status {status}.")
        if len(body) > ANSWER_BYTES_MAX:
            return self._refusal(f"{where} answers with over {ANSWER_BYTES_MAX} bytes.")
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            return self._refusal(f"{where} does not answer with JSON.")
        if not isinstance(answer, dict) or not isinstance(text := answer.get("schema"), str):
            return self._refusal(f"{where} answers without a schema.")
        if answer.get("schemaType", "AVRO") != "AVRO":
            kind = str(answer["schemaType"])[:_SAID_MAX]
            return self._refusal(f"Schema {number} is no Avro schema, but one of {kind}.")
        if answer.get("references"):
            return self._refusal(
                f"Schema {number} refers to other schemas, which are not fetched; "
                f"put one with all of its types into {number}.avsc and name it with --schemas DIR."
            )
        return _Kept(text)

    def _refusal(self, sentence: str) -> _Kept:
        return _Kept(sentence, self._clock() + REFUSAL_KEPT_S)

    def _keep(self, number: int, kept: _Kept) -> None:
        before = self._kept.pop(number, None)
        self._kept_bytes += len(kept.text) - (0 if before is None else len(before.text))
        self._kept[number] = kept
        while len(self._kept) > _KEPT_MAX or self._kept_bytes > KEPT_BYTES_MAX:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest.text)


class RegistryConnection:
    """How a registry is asked: one connection per request, with a limit on all that it may take.

    Name and password in the URL, or in `auth` (`name:password`), go to the registry and stand in no
    sentence.
    """

    def __init__(self, url: str, auth: str | None = None) -> None:
        """Raises `InvalidSetting`; nothing is asked yet."""
        parts = _checked(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = "" if parts.port is None else f":{parts.port}"
        self.name = f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"
        self._parts = parts
        if auth is None and parts.username is not None:
            auth = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        self._auth = auth

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body, of which no more is read than is wanted; raises `RegistryDown`."""
        try:
            return self._get(f"{self._parts.path.rstrip('/')}{path}")
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            said = str(error)[:_SAID_MAX] or type(error).__name__
            raise RegistryDown(
                f"The schema registry at {self.name} does not answer: {said}."
            ) from error

    def _get(self, path: str) -> tuple[int, bytes]:
        made = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        connection = made[self._parts.scheme](
            str(self._parts.hostname), self._parts.port, timeout=WHOLE_S
        )
        try:
            connection.connect()
            with _at_most(connection.sock):
                connection.request("GET", path, headers=self._headers())
                response = connection.getresponse()
                body = response.read(ANSWER_BYTES_MAX + 1)
            return response.status, body
        finally:
            connection.close()

    def _headers(self) -> dict[str, str]:
        headers = {
            "Accept": "application/vnd.schemaregistry.v1+json, application/json",
            "Connection": "close",
        }
        if self._auth is not None:
            pair = base64.b64encode(self._auth.encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        return headers


@contextmanager
def _at_most(connected: socket.socket) -> Iterator[None]:
    """End what is read from a connection when its time is up: a socket's own limit is per read."""
    is_over = threading.Event()

    def end() -> None:
        is_over.set()
        with suppress(OSError):  # it ended by itself at the same time
            connected.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(WHOLE_S, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException):
        if not is_over.is_set():
            raise
    finally:
        timer.cancel()
    if is_over.is_set():  # perhaps without an error: then the answer just seemed to end
        raise TimeoutError(f"nothing whole came within {WHOLE_S:g} s")


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or port == 0
        or parts.query
        or parts.fragment
        or any(not "!" <= each <= "~" for each in parts.path + parts.hostname)
    ):
        # The URL may hold a password: it is not repeated.
        raise InvalidSetting(
            "schema-registry", "The schema registry is named by http://HOST:PORT or https://HOST."
        )
    return parts
