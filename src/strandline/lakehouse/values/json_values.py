"""JSON values into typed columns, at the speed of Arrow's reader.

Theory: the values of a batch are joined into one text, a line per record, and parsed at once
against an explicit schema; Arrow's parser refuses an unknown field, a repeated key and every value
that is not of its column's type, so what it accepts needs no second look. Only where it refuses are
records parsed one by one in Python (`observing` says what they need); the good ones then go through
Arrow again with the schema they showed. Each line carries the record's number around the value, so
that a value that is not exactly one object cannot shift its neighbours.

This file must not know where values come from or go to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from strandline.errors import InvalidSetting
from strandline.lakehouse.tables.held_times import are_held
from strandline.lakehouse.tables.names import TIMESTAMP
from strandline.lakehouse.values.decoding import (
    MISSING_FIELD,
    WRONG_TYPE,
    Decoded,
    Fault,
    Unfit,
    empty_columns,
)
from strandline.lakehouse.values.json_forms import JsonForms, moment
from strandline.lakehouse.values.json_spelling import Spellings, format_type, with_moments
from strandline.lakehouse.values.json_text import parse_object
from strandline.lakehouse.values.observing import Observer, filled

_ROWS_AT_ONCE: Final = 65_536
_BYTES_AT_ONCE: Final = 32 << 20
_ROWS_WHEN_BAD: Final = 2_048
_NUMBER: Final = "i"
_VALUE: Final = "v"
_AS_IT_IS: Final = JsonForms()
_MILLISECONDS: Final = pa.timestamp("ms", "UTC")


class JsonDecoder:
    """Reads JSON objects. `required` fields must be there and not null.

    `reserved` are names, in lower case, that a field which is no column yet cannot have; `forms`
    says how names, numbers and times may differ from those of columns.
    """

    name = "json"

    def __init__(
        self,
        columns: pa.Schema,
        *,
        evolve: bool = True,
        required: frozenset[str] = frozenset(),
        reserved: frozenset[str] = frozenset(),
        forms: JsonForms = _AS_IT_IS,
    ) -> None:
        for field in columns:
            if pa.types.is_binary(field.type):
                raise InvalidSetting("columns", f"JSON cannot hold binary column {field.name}.")
        self._observer = Observer(columns, evolve=evolve, reserved=reserved, forms=forms)
        self._forms = forms
        self._spellings = Spellings(forms)
        self._moments = [
            field.name
            for field in columns
            if pa.types.is_timestamp(field.type) and field.name not in forms.time_formats
        ]
        self._required = required

    def decode(self, values: pa.Array) -> Decoded:
        """As `Decoder.decode`; times are ISO 8601 (UTC where no zone is given) or milliseconds."""
        faults: list[Fault] = []
        parts: list[tuple[pa.Array, pa.Array]] = []
        present = pc.indices_nonzero(pc.is_valid(values)).cast(pa.int64())
        for rows in _portions(present, values):
            parts += self._read_portion(values, rows, faults)
        faults.sort()
        return self._assemble(values, parts, faults)

    def _read_portion(
        self, values: pa.Array, rows: pa.Array, faults: list[Fault]
    ) -> Iterator[tuple[pa.Array, pa.Array]]:
        found = self._parse(values.take(rows))
        if found is not None:
            yield rows, found
            return
        for start in range(0, len(rows), _ROWS_WHEN_BAD):
            some = rows.slice(start, _ROWS_WHEN_BAD)
            found = self._parse(values.take(some)) if len(rows) > _ROWS_WHEN_BAD else None
            if found is not None:
                yield some, found
            else:
                yield from self._read_singly(values, some, faults)

    def _read_singly(
        self, values: pa.Array, rows: pa.Array, faults: list[Fault]
    ) -> Iterator[tuple[pa.Array, pa.Array]]:
        groups: dict[tuple[str, ...], list[int]] = {}
        for row in rows.to_pylist():
            try:
                record = self._forms.renamed(parse_object(values[row].as_py()))
                self._check_required(record)
                self._observer.observe(self._with_moments(record))
            except Unfit as unfit:
                faults.append(Fault(row, unfit.kind, unfit.sentence))
                continue
            as_numbers = tuple(name for name in self._moments if type(record.get(name)) is int)
            self._spellings.note(values[row].as_py())
            groups.setdefault(as_numbers, []).append(row)
        for as_numbers, good in groups.items():
            yield from self._halve(values, good, as_numbers, faults)

    def _halve(
        self, values: pa.Array, rows: list[int], as_numbers: tuple[str, ...], faults: list[Fault]
    ) -> Iterator[tuple[pa.Array, pa.Array]]:
        """What Python accepts and Arrow does not (a lone surrogate) is found here."""
        wanted = pa.array(rows, pa.int64())
        try:
            yield wanted, self._parse_as(values.take(wanted), as_numbers)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            if len(rows) == 1:
                faults.append(Fault(rows[0], WRONG_TYPE, f"The value cannot be held: {error}."))
                return
            middle = len(rows) // 2
            yield from self._halve(values, rows[:middle], as_numbers, faults)
            yield from self._halve(values, rows[middle:], as_numbers, faults)

    def _with_moments(self, record: dict[str, object]) -> dict[str, object]:
        """The record with its times in ISO 8601; raises Unfit."""
        for name, text in self._forms.time_formats.items():
            value = record.get(name)
            if value is not None:
                record[name] = moment(name, value, text).isoformat()
        return record

    def _check_required(self, record: dict[str, object]) -> None:
        for name in self._required:
            if record.get(name) is None:
                raise Unfit(MISSING_FIELD, f"The required field {name} is missing or null.")

    def _parse(self, values: pa.Array) -> pa.Array | None:
        """All values at once, or None if one of them needs a closer look."""
        if not self._observer.fields:
            return None  # nothing is known yet: the first records say what there is
        for as_numbers in ((), tuple(self._moments)):
            try:
                return self._parse_as(values, as_numbers)
            except (pa.ArrowInvalid, UnicodeDecodeError):
                if not self._moments:
                    break
        return None

    def _parse_as(self, values: pa.Array, as_numbers: tuple[str, ...]) -> pa.Array:
        """Parse with some of the time columns as milliseconds; raises ArrowInvalid."""
        kinds = {
            name: pa.int64() if name in as_numbers else kind
            for name, kind in self._observer.fields.items()
        }
        text = _lines(values)
        for name, form in self._forms.time_formats.items():
            if name in kinds:
                kinds[name] = format_type(form)
        read = self._spellings.as_read(pa.struct(list(kinds.items())))
        schema = pa.schema([(_NUMBER, pa.int64()), (_VALUE, read)])
        table = pyarrow.json.read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="error"
            ),
        )
        found = table.column(_VALUE).combine_chunks()
        numbers = table.column(_NUMBER)
        if table.num_rows != len(values) or not np.array_equal(
            numbers.to_numpy(zero_copy_only=False), np.arange(len(values))
        ):
            raise pa.ArrowInvalid("A value is not exactly one JSON object.")
        if found.null_count:
            raise pa.ArrowInvalid("A value is null.")
        found.validate(full=True)
        found = fit(self._spellings.joined(found), pa.struct(list(kinds.items())))
        found = with_moments(found, self._forms.time_formats)
        for number, field in enumerate(found.type):
            column = found.field(number)
            is_number = field.name in as_numbers
            _check_times(field.name, column.cast(_MILLISECONDS) if is_number else column)
        for name in self._required:
            if name not in kinds or pc.struct_field(found, name).null_count:
                raise pa.ArrowInvalid("A required field is missing.")
        return found

    def _assemble(
        self, values: pa.Array, parts: Sequence[tuple[pa.Array, pa.Array]], faults: list[Fault]
    ) -> Decoded:
        """One batch of all parts, in the types that are known at the end, nulls for null values."""
        kinds = {
            name: kind
            for name, hollow in self._observer.fields.items()
            if (kind := filled(hollow)) is not None
        }
        nulls = pc.indices_nonzero(pc.is_null(values)).cast(pa.int64())
        rows = pa.concat_arrays([part for part, _ in parts] + [nulls])
        columns = [
            pa.concat_arrays(
                [_fitted(found, name, kind) for _, found in parts] + [pa.nulls(len(nulls), kind)]
            )
            for name, kind in kinds.items()
        ]
        batch = pa.RecordBatch.from_arrays(columns, names=list(kinds)) if kinds else None
        if batch is None:
            return Decoded(empty_columns(len(rows)), rows.take(pc.sort_indices(rows)), faults)
        if len(parts) > 1 or len(nulls):
            order = pc.sort_indices(rows)
            return Decoded(batch.take(order), rows.take(order), faults)
        return Decoded(batch, rows, faults)


def _check_times(path: str, column: pa.Array) -> None:
    """Raise ArrowInvalid for a time or a day that no table holds, on any level."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        if not are_held(column):
            raise pa.ArrowInvalid(f"{path} has a time that is not within the years 1 to 9999")
    elif pa.types.is_struct(kind):
        for number, field in enumerate(kind):
            _check_times(f"{path}.{field.name}", column.field(number))
    elif pa.types.is_list(kind):
        _check_times(f"{path}[]", column.values)


def _lines(values: pa.Array) -> pa.Buffer:
    """`{"i":0,"v":<value>}` and a line feed for each value; raises ArrowInvalid."""
    numbers = pa.array(np.arange(len(values))).cast(pa.string()).cast(pa.binary())
    lines = pc.binary_join_element_wise(
        pa.scalar(b'{"i":', pa.binary()),
        numbers,
        pa.scalar(b',"v":', pa.binary()),
        values.cast(pa.binary()),
        pa.scalar(b"}\n", pa.binary()),
        pa.scalar(b"", pa.binary()),
    )
    text = lines.buffers()[2]
    plain = memoryview(text).tobytes()
    # Arrow's parser takes these two words for numbers; JSON does not know them.
    if b"NaN" in plain or b"Infinity" in plain:
        raise pa.ArrowInvalid("NaN or Infinity.")
    return text


def _fitted(found: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """One column of a parsed part, in the type that is known now."""
    position = found.type.get_field_index(name)
    if position < 0:
        return pa.nulls(len(found), kind)
    return fit(found.field(position), kind)


def fit(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in a type that only adds to its own; integers become times by milliseconds.

    Text becomes days; raises ArrowInvalid for what is none.
    """
    if column.type.equals(kind):
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    if kind.equals(TIMESTAMP) and pa.types.is_integer(column.type):
        return column.cast(_MILLISECONDS).cast(kind)
    if pa.types.is_struct(kind):
        parts = []
        for field in kind:
            position = column.type.get_field_index(field.name)
            parts.append(
                pa.nulls(len(column), field.type)
                if position < 0
                else fit(column.field(position), field.type)
            )
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind):
        # Offsets and not `flatten`, since a null list may still own elements.
        return pa.ListArray.from_arrays(
            column.offsets, fit(column.values, kind.value_type), kind, mask=column.is_null()
        )
    return column.cast(kind)


def _portions(rows: pa.Array, values: pa.Array) -> Iterator[pa.Array]:
    """Consecutive parts of `rows` that are small enough to be joined into one text."""
    if not len(rows):
        return
    sizes = np.cumsum(pc.binary_length(values.take(rows)).to_numpy(zero_copy_only=False))
    start = 0
    while start < len(rows):
        before = int(sizes[start - 1]) if start else 0
        end = int(np.searchsorted(sizes, before + _BYTES_AT_ONCE, side="right"))
        end = max(start + 1, min(end, start + _ROWS_AT_ONCE, len(rows)))
        yield rows.slice(start, end - start)
        start = end
