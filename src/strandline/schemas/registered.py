"""What a schema registry says of schemas of any kind, to those who must not take trouble for no.

    GET {url}/schemas/ids/7?format=serialized  ->  {"schema": ..., "schemaType": "PROTOBUF",
                                                    "references": [{"name": "customer.proto",
                                                                    "subject": ..., "version": 1}]}
    GET {url}/subjects/orders-value/versions/3 ->  the same, with "id"
    GET {url}/subjects/orders-value/versions/latest

Theory: a table may only call a record unreadable if the registry says that it does not know its
schema. That it does not answer, or answers 500, is trouble, and another error (`RegistryDown`).
Schemas never change and are kept as long as there is room; a refusal for a short while. One object
serves one process, whose threads it serves one by one.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from strandline.errors import InvalidSetting
from strandline.schemas.errors import RegistryDown, UnknownSchema
from strandline.schemas.registry import ANSWER_BYTES_MAX, REFUSAL_KEPT_S, RegistryConnection

AUTH_VARIABLE: Final = "STRANDLINE_REGISTRY_AUTH"
"""An environment variable with `name:password`, of the command and of Spark's executors."""

_KEPT_MAX: Final = 1_000
_KEPT_BYTES_MAX: Final = 16 << 20
_NOT_FOUND: Final = 404
_OK: Final = 200
_REFUSED: Final = (401, 403)
_AILS: Final = 500
_SERIALIZED: Final = "?format=serialized"


class Reference(NamedTuple):
    """Another schema that one needs: what it is called there, and where it is registered."""

    name: str
    subject: str
    version: int


class Registered(NamedTuple):
    """One schema. `kind` is AVRO, PROTOBUF or JSON; `number` is its id."""

    number: int
    kind: str
    text: str
    references: tuple[Reference, ...] = ()


class _Refusal(NamedTuple):
    """That there is no such schema, which counts until then."""

    sentence: str
    until_s: float


class RegistryClient:
    """A registry by its URL, without a password: that is in `STRANDLINE_REGISTRY_AUTH`."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises `InvalidSetting`; nothing is asked yet."""
        check_url(url)
        self._connection = RegistryConnection(url, os.environ.get(AUTH_VARIABLE))
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Registered | _Refusal] = OrderedDict()
        self._kept_bytes = 0

    @property
    def name(self) -> str:
        """The registry's address, for sentences."""
        return self._connection.name

    def check(self) -> None:
        """Raise `RegistryDown` if the registry is not there, or ails, without a schema in mind."""
        status, _ = self._connection.get("/subjects?limit=1")
        if status >= _AILS or status in _REFUSED:
            raise RegistryDown(f"The schema registry at {self.name} answers with {status}.")

    def by_id(self, number: int, *, serialized: bool = False) -> Registered:
        """The schema with an id; `serialized` asks for a Protobuf file's descriptor in base64.

        Raises `UnknownSchema` if the registry has none, and `RegistryDown`.
        """
        path = f"/schemas/ids/{number}{_SERIALIZED if serialized else ''}"
        return self._asked(path, f"Schema {number}")

    def version(self, subject: str, version: int) -> Registered:
        """One version of a subject; raises as `by_id`."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        return self._asked(path, f"Version {version} of subject {subject}")

    def latest(self, subject: str) -> Registered:
        """The newest version of a subject, asked for anew; raises as `by_id`."""
        with self._lock:
            path = f"/subjects/{quote(subject, safe='')}/versions/latest"
            found = self._ask(path, f"Subject {subject}")
        if isinstance(found, _Refusal):
            raise UnknownSchema(found.sentence)
        return found

    def knows(self, number: int) -> bool:
        """Whether there is a schema with an id by now; raises `RegistryDown`."""
        try:
            self.by_id(number)
        except UnknownSchema:
            return False
        return True

    def _asked(self, path: str, what: str) -> Registered:
        with self._lock:
            kept = self._kept.get(path)
            if isinstance(kept, _Refusal) and kept.until_s <= self._clock():
                kept = None
            if kept is None:
                kept = self._ask(path, what)
                self._keep(path, kept)
        if isinstance(kept, _Refusal):
            raise UnknownSchema(kept.sentence)
        return kept

    def _ask(self, path: str, what: str) -> Registered | _Refusal:
        status, body = self._connection.get(path)
        if status == _NOT_FOUND:
            sentence = f"{what} is not known to the schema registry at {self.name} (404)."
            return _Refusal(sentence, self._clock() + REFUSAL_KEPT_S)
        where = f"{what}: the schema registry at {self.name}"
        if status in _REFUSED:
            raise RegistryDown(
                f"{where} refuses the request ({status}): it is given the name and password in "
                f"{AUTH_VARIABLE}."
            )
        if status != _OK:
            raise RegistryDown(f"{where} answers with the status {status}.")
        if len(body) > ANSWER_BYTES_MAX:
            raise RegistryDown(f"{where} answers with over {ANSWER_BYTES_MAX} bytes.")
        try:
            return _read(path, json.loads(body))
        except (ValueError, RecursionError, KeyError, TypeError):
            raise RegistryDown(f"{where} does not answer with a schema.") from None

    def _keep(self, path: str, kept: Registered | _Refusal) -> None:
        self._kept_bytes += _size(kept)
        self._kept[path] = kept
        while len(self._kept) > _KEPT_MAX or self._kept_bytes > _KEPT_BYTES_MAX:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= _size(oldest)


def check_url(url: str) -> None:
    """Raise `InvalidSetting` for what is no URL of a registry, or one with a password in it."""
    try:
        has_password = "@" in urlsplit(url).netloc
    except ValueError:
        has_password = False
    if has_password:
        raise InvalidSetting(
            "registry",
            "The registry's URL is kept in the table's definition and must hold no password: put "
            f"name:password into {AUTH_VARIABLE}, and leave it out of the URL.",
        )
    RegistryConnection(url)


def _read(path: str, answer: dict[str, Any]) -> Registered:
    """Raises what a wrong document makes Python raise."""
    number = answer["id"] if "id" in answer else int(path.rpartition("/")[2].partition("?")[0])
    text, kind = answer["schema"], answer.get("schemaType", "AVRO")
    if not (isinstance(text, str) and isinstance(kind, str) and isinstance(number, int)):
        raise TypeError
    references = tuple(
        Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
        for each in answer.get("references") or ()
    )
    return Registered(number, kind, text, references)


def _size(kept: Registered | _Refusal) -> int:
    return len(kept.text) if isinstance(kept, Registered) else len(kept.sentence)
