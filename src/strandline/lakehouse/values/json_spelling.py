"""Arrow's parser, told what fields are called in the text, and its columns put back together.

Theory: Arrow refuses each field that it was not told of. Where a column may be spelled in several
ways (`http.status` fills `http_status`), it is told every spelling that was seen, and gives a
column for each; of one record, at most one of them has a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from strandline.lakehouse.tables.names import TIMESTAMP
from strandline.lakehouse.values.decoding import Unfit
from strandline.lakehouse.values.json_forms import UNDERSCORES, JsonForms, is_numeric, moment
from strandline.lakehouse.values.json_text import parse_object


class Spellings:
    """The names that columns, and fields of structs, were seen to have in texts."""

    def __init__(self, forms: JsonForms) -> None:
        self._forms = forms
        self._others: dict[str, list[str]] = {}

    def note(self, value: bytes) -> None:
        """Take in the names of a record that could be read."""
        if self._forms.names != UNDERSCORES:
            return
        for name in set(_names(parse_object(value))):
            column = self._forms.column_of(name)
            if column != name and name not in self._others.setdefault(column, []):
                self._others[column].append(name)

    def as_read(self, kind: pa.DataType) -> pa.DataType:
        """The type that the parser is told: with all spellings, and days as text."""
        if pa.types.is_date32(kind):
            return pa.string()
        if pa.types.is_struct(kind):
            return pa.struct(
                [
                    pa.field(name, self.as_read(field.type))
                    for field in kind
                    for name in (field.name, *self._others.get(field.name, ()))
                ]
            )
        if pa.types.is_list(kind):
            return pa.list_(kind.value_field.with_type(self.as_read(kind.value_type)))
        return kind

    def joined(self, found: pa.Array) -> pa.Array:
        """The columns by their own names; raises ArrowInvalid for a record with two spellings."""
        if not self._others:
            return found
        if pa.types.is_list(found.type):
            inner = self.joined(found.values)
            kind = pa.list_(pa.field(found.type.value_field.name, inner.type))
            return pa.ListArray.from_arrays(found.offsets, inner, kind, mask=found.is_null())
        if not pa.types.is_struct(found.type):
            return found
        columns: dict[str, pa.Array] = {}
        for number, field in enumerate(found.type):
            column = self._forms.column_of(field.name)
            part = self.joined(found.field(number))
            before = columns.get(column)
            if before is not None:
                if pc.any(pc.and_(pc.is_valid(before), pc.is_valid(part))).as_py():
                    raise pa.ArrowInvalid(f"Two fields are of the column {column}.")
                part = _either(before, part)
            columns[column] = part
        fields = [pa.field(name, part.type) for name, part in columns.items()]
        return pa.StructArray.from_arrays(
            list(columns.values()), fields=fields, mask=found.is_null()
        )


def format_type(text: str) -> pa.DataType:
    """What the parser is told of a column with a format of times."""
    if not is_numeric(text):
        return pa.string()
    return pa.float64() if text == "seconds" else pa.int64()


def with_moments(found: pa.Array, formats: Mapping[str, str]) -> pa.Array:
    """Rows whose columns with a format hold times; raises ArrowInvalid for what is none."""
    names = [name for name in formats if found.type.get_field_index(name) >= 0]
    if not names:
        return found
    parts = {field.name: found.field(number) for number, field in enumerate(found.type)}
    for name in names:
        parts[name] = pa.array(_moments(name, parts[name], formats[name]), TIMESTAMP)
    fields = [pa.field(name, part.type) for name, part in parts.items()]
    return pa.StructArray.from_arrays(list(parts.values()), fields=fields, mask=found.is_null())


def _moments(name: str, column: pa.Array, text: str) -> Iterator[datetime | None]:
    for value in column.to_pylist():
        try:
            yield None if value is None else moment(name, value, text)
        except Unfit as unfit:
            raise pa.ArrowInvalid(unfit.sentence) from None


def _either(left: pa.Array, right: pa.Array) -> pa.Array:
    """The values of two columns of one type, of which one is null in each row."""
    both = pa.concat_arrays([left, right])
    at = pa.array(range(len(left)), pa.int64())
    return both.take(pc.if_else(pc.is_valid(left), at, pc.add(at, len(left))))


def _names(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _names(inner)
    elif isinstance(value, list):
        for each in value:
            yield from _names(each)
