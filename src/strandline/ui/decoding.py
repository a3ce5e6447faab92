"""Bytes as people read them: JSON, text, Avro or hexadecimal, as the reader chose or as they look.

What cannot be what was asked for is shown in hexadecimal, with the reason. Everything is bounded:
what a record holds comes from others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

from strandline.schemas.errors import Unreadable
from strandline.schemas.framing import is_framed
from strandline.schemas.reading import AvroReader, AvroValue
from strandline.schemas.shown import json_text
from strandline.schemas.sources import Part, Schemas
from strandline.schemas.walk import Limits

Json = dict[str, Any]

SHOWN_MAX: Final = 16_384
"""Bytes, and characters, that are shown of one key or value."""
AVRO_BYTES_MAX: Final = 1 << 20
AVRO_LIMITS: Final = Limits(items=20_000)


class Form(StrEnum):
    """How bytes are to be read."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"
    BYTES = "bytes"
    AVRO = "avro"


class Decoder:
    """Reads the keys, or the values, of one topic for one answer."""

    def __init__(self, form: Form, schemas: Schemas, topic: str, part: Part) -> None:
        self._form = form
        self._avro = AvroReader(schemas, topic, part, AVRO_LIMITS)

    def shown(self, data: bytes | None) -> Json | None:
        """`as` is json, text, avro or hex; `reason` says why it is not what it was to be.

        Long ones are cut, with their `size` in bytes. `schema` names what Avro was read with.
        """
        if data is None:
            return None
        match self._form:
            case Form.AUTO:
                return self._as_it_looks(data)
            case Form.AVRO:
                return self._as_avro(data)
            case Form.JSON:
                return _as_json(data)
            case Form.TEXT:
                return _as_text(data)
            case Form.BYTES:
                return _as_hex(data)

    def finder(self, wanted: str) -> Callable[[bytes | None], bool]:
        """Whether bytes are what was typed: text, hexadecimal, or the value of Avro.

        Of Avro, a string goes without quotation marks, and anything else is written as JSON.
        """
        try:
            document = json.loads(wanted)
        except (ValueError, RecursionError):
            document = wanted

        def is_it(data: bytes | None) -> bool:
            if data is None:
                return False
            if data.decode("utf-8", "replace") == wanted:
                return True
            if len(wanted) == 3 * len(data) - 1 and data.hex(" ") == wanted:
                return True
            if not self._may_be_avro(data):
                return False
            try:
                value = json.loads(json_text(self._avro_value(data).value))
            except Unreadable:
                return False  # what cannot be read is not what is looked for
            return bool(value in (wanted, document))

        return is_it

    def _as_it_looks(self, data: bytes) -> Json:
        if not self._may_be_avro(data):
            return _as_found(data)
        found = self._as_avro(data)
        if found["as"] == "avro" or is_framed(data):
            return found
        return {**_as_found(data), "reason": found["reason"]}

    def _as_avro(self, data: bytes) -> Json:
        try:
            found = self._avro_value(data)
        except Unreadable as error:
            return {**_as_hex(data), "reason": str(error)}
        text = json_text(found.value, indent=2)
        return {"as": "avro", "schema": found.schema, **_cut(text, data)}

    def _may_be_avro(self, data: bytes) -> bool:
        """Text never begins with a zero byte; and a file named for the topic says what is in it."""
        if self._form is Form.AUTO:
            return is_framed(data) or self._avro.has_own_schema
        return self._form is Form.AVRO

    def _avro_value(self, data: bytes) -> AvroValue:
        if len(data) > AVRO_BYTES_MAX:
            raise Unreadable(f"It has {len(data)} bytes; up to {AVRO_BYTES_MAX} are decoded here.")
        return self._avro.read(data)


def decoded(data: bytes | None) -> Json | None:
    """Bytes as what they look like without a schema: JSON, text or hexadecimal."""
    return None if data is None else _as_found(data)


def _as_found(data: bytes) -> Json:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _as_hex(data)
    if text[:1] in ("{", "["):
        found = _as_json(data)
        if found["as"] == "json":
            return found
    return {"as": "text", **_cut(text, data)}


def _as_json(data: bytes) -> Json:
    """Only short documents are laid out: with a little in many brackets they become long."""
    try:
        text = data.decode()
        if len(data) > SHOWN_MAX:
            reason = f"JSON of over {SHOWN_MAX} bytes is shown as text."
            return {"as": "text", **_cut(text, data), "reason": reason}
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except RecursionError:
        return {**_as_hex(data), "reason": "It is not JSON: it is nested too deeply."}
    except ValueError as error:
        return {**_as_hex(data), "reason": f"It is not JSON: {error}."}
    return {"as": "json", "text": text}


def _as_text(data: bytes) -> Json:
    try:
        return {"as": "text", **_cut(data.decode(), data)}
    except UnicodeDecodeError as error:
        reason = f"It is not UTF-8: {error.reason} at byte {error.start}."
        return {**_as_hex(data), "reason": reason}


def _as_hex(data: bytes) -> Json:
    cut = {"size": len(data)} if len(data) > SHOWN_MAX else {}
    return {"as": "hex", "text": data[:SHOWN_MAX].hex(" "), **cut}


def _cut(text: str, data: bytes) -> Json:
    if len(text) <= SHOWN_MAX:
        return {"text": text}
    return {"text": text[:SHOWN_MAX], "size": len(data)}
