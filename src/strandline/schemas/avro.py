"""Avro: a schema from its text, and values from their bytes, through fastavro and within limits.

Theory: fastavro trusts what it is given. Here neither schemas nor values are trusted: a schema's
text is measured before it is parsed, and each value is walked (see `walk.py`) before it is read.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from strandline.errors import InvalidSetting
from strandline.schemas.errors import BadSchema, Unreadable
from strandline.schemas.walk import Limits, compile_walk, walk

try:
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType
except ModuleNotFoundError as missing:
    raise InvalidSetting(
        "value_format", "Avro values need the package fastavro: install strandline[avro]."
    ) from missing

_JSON_DEPTH_MAX: Final = 200
_MARKS: Final = frozenset({"__fastavro_parsed", "__named_schemas"})
"""With these fastavro marks a schema that it need not check again."""
_SAID_MAX: Final = 200
"""Characters of what fastavro says, which may quote a whole schema."""

_UNUSABLE: Final = (SchemaParseException, UnknownType, LookupError, ValueError, TypeError,
                    AttributeError, ArithmeticError)  # fmt: skip
"""What fastavro raises for a JSON document that is no schema."""
_UNREADABLE: Final = (EOFError, LookupError, ValueError, TypeError, ArithmeticError, struct.error,
                      fastavro.read.SchemaResolutionError)  # fmt: skip
"""What fastavro raises for a text that is not UTF-8, a date that no calendar has, two schemas that
do not go together."""


class AvroSchema:
    """A schema, ready to read values with.

    `document` is its JSON with all names in full, where a type that was told before stands as its
    name; `named` has the types by their names, also those of other schemas.
    """

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        """Parse the schema's JSON; raises `BadSchema`.

        `references` are schemas whose types it uses, those that others of them need first.
        """
        named: dict[str, Any] = {}
        document = _document(text)
        try:
            others = [fastavro.parse_schema(_document(each), named) for each in references]
            self.document: Any = fastavro.parse_schema(document, named)
        except _UNUSABLE as error:
            raise BadSchema(f"The Avro schema cannot be read: {_said(error)}.") from None
        self.named: Mapping[str, Any] = named
        self._walk = compile_walk(self.document, named, others)

    def read(self, payload: bytes, limits: Limits, into: AvroSchema | None = None) -> object:
        """The value, resolved to the schema `into` if that is another; raises `Unreadable`.

        Records and maps become dicts, arrays lists, logical types what Python has for them, but for
        a `uuid`, which stays the text that was sent.
        """
        walk(payload, self._walk, limits)
        reader = None if into is None or into is self else into.document
        try:
            value: object = fastavro.schemaless_reader(io.BytesIO(payload), self.document, reader)
        except _UNREADABLE as error:
            raise Unreadable(
                f"The value does not follow its Avro schema: {_said(error)}."
            ) from None
        return value


def _document(text: str) -> Any:
    """The JSON of a schema, when nothing in it is too deep or meant for fastavro only.

    It has no logical type `uuid`: fastavro would refuse texts that are none, and write others anew.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadSchema(f"The Avro schema cannot be read: {_said(error)}.") from None
    level = [document]
    for _ in range(_JSON_DEPTH_MAX):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                if not _MARKS.isdisjoint(each):
                    raise BadSchema("The Avro schema claims to be checked already.")
                if each.get("logicalType") == "uuid":
                    del each["logicalType"]
                below += each.values()
            elif isinstance(each, list):
                below += each
        if not below:
            return document
        level = below
    raise BadSchema(f"The Avro schema is nested over {_JSON_DEPTH_MAX} levels deep.")


def _said(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return (text if len(text) <= _SAID_MAX else f"{text[:_SAID_MAX]}...").rstrip(".")
