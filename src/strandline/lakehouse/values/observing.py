"""What the values of one record say about the columns they need.

Theory: a parsed value is compared with the column's type. A column that the table has already keeps
its type, except that structs (also those in lists) may get further fields; a column that is new
takes the widest type seen so far. Types may have holes: null, `{}` and `[]` say nothing yet, and
are kept as Arrow's null type until a value fills them. This file knows Python values, not their
bytes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Final

import pyarrow as pa

from strandline.lakehouse.tables.held_times import is_held_ms
from strandline.lakehouse.tables.types import (
    NoCommonType,
    list_of,
    merge_types,
    name_fault,
)
from strandline.lakehouse.values.decoding import UNKNOWN_FIELD, WRONG_TYPE, Unfit
from strandline.lakehouse.values.json_forms import DOUBLE, JsonForms

COLUMNS_MAX: Final = 2_000
"""Fields of all levels that one table may have; a topic whose keys are data would make more."""

_AS_IT_IS: Final = JsonForms()
_LONG_MIN: Final = -(1 << 63)
_LONG_MAX: Final = (1 << 63) - 1
_SHOWN: Final = 80


class Observer:
    """The columns of one table as values show them. `settled` are those that the table has.

    `reserved` are names that no further column may have; fields of structs may. `forms` says which
    types numbers get.
    """

    def __init__(
        self,
        settled: pa.Schema,
        *,
        evolve: bool,
        reserved: Collection[str] = frozenset(),
        forms: JsonForms = _AS_IT_IS,
    ) -> None:
        self._forms = forms
        self._types: dict[str, pa.DataType] = {field.name: field.type for field in settled}
        self._settled = frozenset(self._types)
        self._evolve = evolve
        self._reserved = reserved

    @property
    def fields(self) -> Mapping[str, pa.DataType]:
        """Every column seen so far, those with holes too."""
        return self._types

    def observe(self, record: Mapping[str, object]) -> None:
        """Take a record in; raises Unfit, and is then as it was before."""
        wanted: dict[str, pa.DataType] = {}
        for name, value in record.items():
            known = self._types.get(name)
            if known is None:
                self._allow(name, self._types, self._reserved)
            kind = self._needed(name, value, known, fixed=name in self._settled)
            if known is None or not kind.equals(known):
                wanted[name] = kind
        if wanted and sum(map(_fields_in, wanted.values())) + self._size() > COLUMNS_MAX:
            raise Unfit(
                UNKNOWN_FIELD, f"The record would give the table over {COLUMNS_MAX} columns."
            )
        self._types.update(wanted)

    def _size(self) -> int:
        return sum(map(_fields_in, self._types.values()))

    def _allow(
        self, name: str, siblings: Mapping[str, object], reserved: Collection[str] = frozenset()
    ) -> None:
        if not self._evolve:
            raise Unfit(UNKNOWN_FIELD, f"The table has no column for the field {name!r}.")
        if (fault := name_fault(name, siblings, reserved)) is not None:
            raise Unfit(UNKNOWN_FIELD, fault)

    def _needed(
        self, path: str, value: object, known: pa.DataType | None, *, fixed: bool
    ) -> pa.DataType:
        """The type that holds the value and everything that `known` does."""
        if value is None:
            return pa.null() if known is None else known
        if known is None:
            known = pa.null()
        if isinstance(value, dict):
            return self._needed_struct(path, value, known, fixed=fixed)
        if isinstance(value, list):
            return self._needed_list(path, value, known, fixed=fixed)
        found = self._forms.scalar(scalar_type(path, value))
        if pa.types.is_null(known):
            return found
        if _holds(known, value):
            return known
        # A column that is there is widened by itself: its files are written again before the batch.
        is_wider = self._forms.numbers == DOUBLE and pa.types.is_integer(known)
        if not fixed or (is_wider and isinstance(value, float) and "." not in path):
            try:
                return merge_types(path, known, found)
            except NoCommonType:
                pass  # told below in the words of the value
        raise _wrong(path, value, known)

    def _needed_struct(
        self, path: str, value: dict[str, object], known: pa.DataType, *, fixed: bool
    ) -> pa.DataType:
        if not (pa.types.is_null(known) or pa.types.is_struct(known)):
            raise _wrong(path, value, known)
        kinds = {} if pa.types.is_null(known) else {field.name: field.type for field in known}
        for name, item in value.items():
            if name not in kinds:
                self._allow(name, kinds)
            kinds[name] = self._needed(f"{path}.{name}", item, kinds.get(name), fixed=fixed)
        return pa.struct([pa.field(name, kind) for name, kind in kinds.items()])

    def _needed_list(
        self, path: str, value: list[object], known: pa.DataType, *, fixed: bool
    ) -> pa.DataType:
        if not (pa.types.is_null(known) or pa.types.is_list(known)):
            raise _wrong(path, value, known)
        element = pa.null() if pa.types.is_null(known) else known.value_type
        for item in value:
            element = self._needed(f"{path}[]", item, element, fixed=fixed)
        return list_of(element)


def scalar_type(path: str, value: object) -> pa.DataType:
    """The type of a value that is no object, list or null; raises Unfit for an integer too long."""
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        if not _LONG_MIN <= value <= _LONG_MAX:
            raise Unfit(
                WRONG_TYPE, f"The integer {show(value)} in field {path} needs more than 64 bits."
            )
        return pa.int64()
    return pa.float64() if isinstance(value, float) else pa.string()


def filled(kind: pa.DataType) -> pa.DataType | None:
    """A type without its holes; None if nothing remains."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_struct(kind):
        parts = [(field.name, filled(field.type)) for field in kind]
        known = [pa.field(name, part) for name, part in parts if part is not None]
        return pa.struct(known) if known else None
    if pa.types.is_list(kind):
        element = filled(kind.value_type)
        return None if element is None else list_of(element)
    return kind


def show(value: object) -> str:
    """A value for a sentence, cut to what a person reads."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _holds(kind: pa.DataType, value: object) -> bool:
    if isinstance(value, bool):
        return bool(pa.types.is_boolean(kind))
    if pa.types.is_decimal(kind):
        return isinstance(value, int | float) or (isinstance(value, str) and _casts(value, kind))
    if isinstance(value, int):
        return (
            pa.types.is_floating(kind)
            or (pa.types.is_integer(kind) and _LONG_MIN <= value <= _LONG_MAX)
            or (pa.types.is_timestamp(kind) and is_held_ms(value))
        )
    if isinstance(value, float):
        return bool(pa.types.is_floating(kind))
    if pa.types.is_timestamp(kind):
        return isinstance(value, str) and _is_moment(value)
    if pa.types.is_date32(kind):
        return isinstance(value, str) and _casts(value, kind)
    return bool(pa.types.is_string(kind)) and isinstance(value, str)


def _is_moment(text: str) -> bool:
    return _casts(text, pa.timestamp("us", "UTC")) or _casts(text, pa.timestamp("us"))


def _casts(text: str, kind: pa.DataType) -> bool:
    try:
        pa.scalar(text).cast(kind)
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return False
    return True


def _fields_in(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return 1 + sum(_fields_in(field.type) for field in kind)
    return _fields_in(kind.value_type) if pa.types.is_list(kind) else 1


def _wrong(path: str, value: object, kind: pa.DataType) -> Unfit:
    if pa.types.is_null(kind):
        return Unfit(WRONG_TYPE, f"The field {path} cannot hold {show(value)}.")
    return Unfit(WRONG_TYPE, f"The field {path} is {word_of(kind)} and cannot hold {show(value)}.")


def word_of(kind: pa.DataType) -> str:
    """A type as a person calls it."""
    if pa.types.is_struct(kind):
        return "an object"
    if pa.types.is_list(kind):
        return "a list"
    return f"{kind}"
