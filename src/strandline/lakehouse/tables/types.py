"""Column types by their words, and what an evolving schema may become.

Theory: integers are 64 bits wide and floating-point numbers are doubles from the start, as in
Spark's own JSON reader, because neither Delta nor Iceberg can widen a long to a double, or Delta
(without a table feature that few readers know) anything at all. So that almost nothing is left to
widen: columns and fields of structs are added, and a column that is new in one batch takes the
widest type that the batch shows (long and double make double). Everything else that does not fit is
a dead letter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

import pyarrow as pa

from strandline.errors import InvalidSetting
from strandline.lakehouse.tables.names import TIMESTAMP

WORDS: Final[dict[str, pa.DataType]] = {
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": TIMESTAMP,
    "date": pa.date32(),
    "binary": pa.binary(),
}

_UNFIT: Final = re.compile(r"[ ,;{}()\n\t=./\\]|[\x00-\x1f\ud800-\udfff]")
"""What Delta (without column mapping), Spark's parquet reader, a path or UTF-8 cannot have in a
name."""


class NoCommonType(Exception):
    """Two schemas give one column types that no column can hold both of."""

    def __init__(self, column: str, left: pa.DataType, right: pa.DataType) -> None:
        super().__init__(f"Column {column} is {left} and {right}.")
        self.column = column


def parse_type(column: str, word: str) -> pa.DataType:
    """The type that a word means; raises InvalidSetting."""
    found = WORDS.get(word.strip().lower())
    if found is None:
        raise InvalidSetting(
            "columns", f"Column {column} cannot be {word!r}: expected one of {', '.join(WORDS)}."
        )
    return found


def word_of(kind: pa.DataType) -> str:
    """What a definition calls a type; Arrow's text for one that it cannot name."""
    return next((word for word, found in WORDS.items() if found.equals(kind)), str(kind))


def name_fault(
    name: str, others: Iterable[str], reserved: Collection[str] = frozenset()
) -> str | None:
    """Why a field cannot become a column beside `others`, in a sentence; None if it can.

    `reserved` are the names, in lower case, that a table's value columns cannot have.
    """
    if not name or _UNFIT.search(name):
        return f"The field name {name!r} has characters that a table's columns cannot have."
    if name.lower() in reserved:
        return (
            f"The field name {name!r} is one of the table's own columns, or one that engines which "
            "read tables keep for themselves."
        )
    if (other := differing_in_case(name, others)) is not None:
        return f"The field name {name!r} differs from column {other!r} in case only."
    return None


def differing_in_case(name: str, others: Iterable[str]) -> str | None:
    """The one of `others` that Spark could not tell from `name`."""
    lowered = name.lower()
    return next((item for item in others if item != name and item.lower() == lowered), None)


def merge_schemas(left: pa.Schema, right: pa.Schema) -> pa.Schema:
    """`left` with what `right` adds, in the order of appearance; raises NoCommonType."""
    fields = {field.name: field for field in left}
    for field in right:
        known = fields.get(field.name)
        kind = field.type if known is None else merge_types(field.name, known.type, field.type)
        fields[field.name] = pa.field(field.name, kind)
    return pa.schema(list(fields.values()))


def merge_types(name: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The narrowest type that holds both: as declared above; raises NoCommonType."""
    if left.equals(right) or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if pa.types.is_integer(left) and pa.types.is_floating(right):
        return right
    if pa.types.is_floating(left) and pa.types.is_integer(right):
        return left
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        fields = {field.name: field.type for field in left}
        for field in right:
            if differing_in_case(field.name, fields) is not None:
                raise NoCommonType(name, left, right)
            known = fields.get(field.name, pa.null())
            fields[field.name] = merge_types(f"{name}.{field.name}", known, field.type)
        return pa.struct([pa.field(field, kind) for field, kind in fields.items()])
    if pa.types.is_list(left) and pa.types.is_list(right):
        return list_of(merge_types(f"{name}[]", left.value_type, right.value_type))
    raise NoCommonType(name, left, right)


def held_type(name: str, held: pa.DataType, found: pa.DataType) -> pa.DataType:
    """The type of a column that is there, when a schema gives it another: its own, and a struct's
    with the further fields. Raises NoCommonType for fields that differ in case only.
    """
    if pa.types.is_struct(held) and pa.types.is_struct(found):
        fields = {field.name: field.type for field in held}
        for field in found:
            if differing_in_case(field.name, fields) is not None:
                raise NoCommonType(name, held, found)
            known = fields.get(field.name, field.type)
            fields[field.name] = held_type(f"{name}.{field.name}", known, field.type)
        return pa.struct([pa.field(field, kind) for field, kind in fields.items()])
    if pa.types.is_list(held) and pa.types.is_list(found):
        return list_of(held_type(f"{name}[]", held.value_type, found.value_type))
    return held


def list_of(kind: pa.DataType) -> pa.DataType:
    """A list as Spark and both formats name its element."""
    return pa.list_(pa.field("element", kind))


def as_doubles(schema: pa.Schema, column: str) -> pa.Schema:
    """A schema whose column holds doubles."""
    return schema.set(schema.get_field_index(column), pa.field(column, pa.float64()))


def as_stored(schema: pa.Schema) -> pa.Schema:
    """A schema that a table format gave, in the types that this package writes."""
    return pa.schema([pa.field(field.name, _as_stored(field.type)) for field in schema])


def _as_stored(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _as_stored(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return list_of(_as_stored(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_as_stored(kind.key_type), _as_stored(kind.item_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return TIMESTAMP if pa.types.is_timestamp(kind) else kind


def type_only_adds(present: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether `wanted` differs from `present` by new fields of structs only."""
    if pa.types.is_struct(present) and pa.types.is_struct(wanted):
        kinds = {field.name: field.type for field in wanted}
        return all(
            field.name in kinds and type_only_adds(field.type, kinds[field.name])
            for field in present
        )
    if pa.types.is_list(present) and pa.types.is_list(wanted):
        return type_only_adds(present.value_type, wanted.value_type)
    return bool(present.equals(wanted))
