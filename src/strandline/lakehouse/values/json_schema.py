"""A JSON Schema as columns: types, nesting and what is required.

Only what decides about columns is read: `type`, `properties`, `items`, `required`, `format`
(`date-time`, `date`) and, at the top, `additionalProperties`. Limits on values (`minimum`,
`pattern`, ...) are not checked. A schema without one type per field (`oneOf`, `$ref`, two types
besides null) is refused, since no column could hold it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from strandline.errors import InvalidSetting
from strandline.lakehouse.tables.names import TIMESTAMP
from strandline.lakehouse.tables.types import list_of, name_fault

_SCALARS: Final[Mapping[str, pa.DataType]] = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}
_FORMATS: Final[Mapping[str, pa.DataType]] = {"date-time": TIMESTAMP, "date": pa.date32()}


class GivenColumns(NamedTuple):
    """What a schema asks for: the columns, and those that must not be null."""

    columns: pa.Schema
    required: frozenset[str]


def read_json_schema(text: str) -> GivenColumns:
    """Read a schema of an object; raises InvalidSetting."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidSetting("schema", f"The JSON Schema is not JSON: {error}.") from None
    if not isinstance(document, dict) or not isinstance(document.get("properties"), dict):
        raise InvalidSetting("schema", "The JSON Schema must be one of an object with properties.")
    fields = _fields("", document)
    required = document.get("required", [])
    names = {field.name for field in fields}
    if not isinstance(required, list) or not names.issuperset(required):
        raise InvalidSetting("schema", "The JSON Schema requires a field that it does not have.")
    return GivenColumns(pa.schema(fields), frozenset(required))


def _fields(path: str, document: Mapping[str, object]) -> list[pa.Field]:
    properties = document.get("properties")
    if not isinstance(properties, dict) or not properties:
        raise InvalidSetting("schema", f"The object {path or 'at the top'} has no properties.")
    for name in properties:
        if (fault := name_fault(name, properties)) is not None:
            raise InvalidSetting("schema", fault)
    return [
        pa.field(name, _type(f"{path}.{name}".lstrip("."), part))
        for name, part in properties.items()
    ]


def _type(path: str, document: object) -> pa.DataType:
    if not isinstance(document, dict):
        raise InvalidSetting("schema", f"The JSON Schema of {path} is no object.")
    kinds = document.get("type")
    names = [kinds] if isinstance(kinds, str) else list(kinds or ())
    names = [name for name in names if name != "null"]
    if len(names) != 1:
        raise InvalidSetting("schema", f"The JSON Schema of {path} does not give one type.")
    if names[0] == "object":
        return pa.struct(_fields(path, document))
    if names[0] == "array":
        return list_of(_type(f"{path}[]", document.get("items")))
    if names[0] == "string" and (special := _FORMATS.get(str(document.get("format")))):
        return special
    if names[0] not in _SCALARS:
        raise InvalidSetting("schema", f"The JSON Schema of {path} has type {names[0]!r}.")
    return _SCALARS[names[0]]
