"""Walking over an Avro value without making anything of it: is it whole, and is it small enough?

Theory: Avro lets a few bytes ask for any amount of work. A block of 2^60 nulls takes ten bytes; a
record that holds itself takes none; and fastavro, which is compiled, follows both until the process
has no memory or no stack left. So every value is walked first, by functions made once from
its parsed schema, which build nothing, count what would be built, and stop at the limits. They also
refuse what fastavro lets pass: negative positions, integers that are too long, decimals
with more digits than their precision, which it would round.

This file knows parsed schemas as fastavro leaves them (full names, references by name), not JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from strandline.schemas.errors import BadSchema, Unreadable

NAME_MAX: Final = 512
"""Characters of a field's name or a symbol, which are repeated wherever they are shown."""
PRECISION_MAX: Final = 1_000

_INT_MIN: Final = -(2**31)
_INT_MAX: Final = 2**31 - 1
_LONG_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a value may become: values in it, counted at every level, and levels."""

    items: int
    depth: int = 64


class Cursor:
    """Where the walk stands in `data`, and how many more values (`left`) it may meet."""

    __slots__ = ("at", "data", "left", "limits")

    def __init__(self, data: bytes, limits: Limits) -> None:
        self.data = data
        self.at = 0
        self.limits = limits
        self.left = limits.items

    def number(self) -> int:
        """A zigzag varint of at most 64 bits."""
        data, at = self.data, self.at
        byte = data[at]
        at += 1
        if byte < 0x80:  # most lengths, positions and counts
            self.at = at
            return (byte >> 1) ^ -(byte & 1)
        found = byte & 0x7F
        shift = 7
        while byte & 0x80:
            if shift >= _LONG_BITS:
                raise Unreadable("A number has more than 64 bits.")
            byte = data[at]
            at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
        if found >> _LONG_BITS:
            raise Unreadable("A number has more than 64 bits.")
        self.at = at
        return (found >> 1) ^ -(found & 1)

    def skip(self, count: int) -> None:
        """Pass over bytes."""
        if count < 0:
            raise Unreadable(f"A length is negative: {count}.")
        self.at += count
        if self.at > len(self.data):
            raise IndexError

    def count(self, values: int) -> None:
        """Take values into account before they are met."""
        self.left -= values
        if self.left < 0:
            raise Unreadable(f"It holds over {self.limits.items} single values.")


Walk: TypeAlias = Callable[[Cursor, int], None]
"""Passes over one value; the number is how many levels are above it."""


def walk(value: bytes, over: Walk, limits: Limits) -> None:
    """Check that `value` is exactly one value of a schema; raises `Unreadable`."""
    cursor = Cursor(value, limits)
    try:
        over(cursor, 0)
    except IndexError:
        raise Unreadable("The bytes end before the value does.") from None
    if cursor.at != len(value):
        raise Unreadable(f"After the Avro value, {len(value) - cursor.at} bytes are left.")


def compile_walk(schema: Any, named: Mapping[str, Any], others: Sequence[Any] = ()) -> Walk:
    """The walk over values of a parsed schema; `named` are its types by their full names.

    `others` are parsed schemas whose types it uses. Raises `BadSchema` for names and numbers beyond
    the limits.
    """
    compiler = _Compiler(named)
    for each in others:
        compiler.of(each)
    return compiler.of(schema)


class _Compiler:
    """Makes each named type's walk once; the walks of references look it up when they run."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._walks: dict[str, Walk] = {}

    def of(self, schema: Any) -> Walk:
        match schema:
            case list():
                return _union([self.of(each) for each in schema])
            case str():
                return _PRIMITIVES.get(schema) or self._reference(schema)
            case {"type": "record" | "error", "fields": fields}:
                made = _record([self.of(_checked(each)["type"]) for each in fields])
            case {"type": "enum", "symbols": symbols}:
                made = _enum([_name(each) for each in symbols])
            case {"type": "fixed", "size": int(size)} if size >= 0:
                made = _fixed(size, _precision(schema))
            case {"type": "array", "items": items}:
                return _blocks(self.of(items), has_keys=False)
            case {"type": "map", "values": values}:
                return _blocks(self.of(values), has_keys=True)
            case {"type": "bytes"} if (precision := _precision(schema)) is not None:
                return _decimal(precision)
            case {"type": str(inner)} if inner in _PRIMITIVES:
                return _PRIMITIVES[inner]
            case _:
                raise BadSchema("The Avro schema has a type that is none of Avro's.")
        self._walks[schema["name"]] = made
        return made

    def _reference(self, name: str) -> Walk:
        if name not in self._named:
            raise BadSchema(f"The Avro schema names a type that it does not have: {name[:80]!r}.")
        walks = self._walks

        def over(cursor: Cursor, depth: int) -> None:
            walks[name](cursor, depth)

        return over


# -- Single values -----------------------------------------------------------------------------


def _null(cursor: Cursor, depth: int) -> None:
    del cursor, depth


def _boolean(cursor: Cursor, depth: int) -> None:
    del depth
    if cursor.data[cursor.at] > 1:
        raise Unreadable("A boolean is neither 0 nor 1.")
    cursor.at += 1


def _int(cursor: Cursor, depth: int) -> None:
    del depth
    if not _INT_MIN <= cursor.number() <= _INT_MAX:
        raise Unreadable("An int has more than 32 bits.")


def _long(cursor: Cursor, depth: int) -> None:
    del depth
    cursor.number()


def _text(cursor: Cursor, depth: int) -> None:
    del depth
    cursor.skip(cursor.number())


def _fixed(size: int, precision: int | None = None) -> Walk:
    def over(cursor: Cursor, depth: int) -> None:
        del depth
        begun = cursor.at
        cursor.skip(size)
        if precision is not None:
            _check_digits(cursor.data[begun : cursor.at], precision)

    return over


def _decimal(precision: int) -> Walk:
    def over(cursor: Cursor, depth: int) -> None:
        del depth
        size = cursor.number()
        begun = cursor.at
        cursor.skip(size)
        _check_digits(cursor.data[begun : cursor.at], precision)

    return over


def _check_digits(data: bytes, precision: int) -> None:
    # Three decimal digits fit into ten bits: what is far too long is never made a number.
    is_too_long = len(data) > precision // 2 + 2
    if is_too_long or abs(int.from_bytes(data, "big", signed=True)) >= 10**precision:
        raise Unreadable(f"A decimal has more than its {precision} digits.")


def _precision(schema: Mapping[str, Any]) -> int | None:
    """Of a decimal; None of what is none."""
    if schema.get("logicalType") != "decimal":
        return None
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not 0 < precision <= PRECISION_MAX:
        raise BadSchema(f"A decimal has from 1 to {PRECISION_MAX} digits.")
    if not isinstance(scale, int) or not 0 <= scale <= precision:
        raise BadSchema("A decimal's scale is from 0 to its precision.")
    return precision


def _enum(symbols: list[str]) -> Walk:
    def over(cursor: Cursor, depth: int) -> None:
        del depth
        if not 0 <= cursor.number() < len(symbols):
            raise Unreadable("An enum has a position beyond its symbols.")

    return over


def _name(found: object) -> str:
    if not isinstance(found, str) or len(found) > NAME_MAX:
        raise BadSchema(f"A name in the Avro schema is no text of at most {NAME_MAX} characters.")
    return found


_PRIMITIVES: Final[Mapping[str, Walk]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _fixed(4),
    "double": _fixed(8),
    "bytes": _text,
    "string": _text,
}


# -- Values of several -------------------------------------------------------------------------


def _record(fields: list[Walk]) -> Walk:
    def over(cursor: Cursor, depth: int) -> None:
        _check_depth(cursor, depth)
        cursor.count(len(fields))
        for field in fields:
            field(cursor, depth + 1)

    return over


def _union(branches: list[Walk]) -> Walk:
    def over(cursor: Cursor, depth: int) -> None:
        # fastavro goes a level deeper here, and so does this.
        _check_depth(cursor, depth)
        position = cursor.number()
        if not 0 <= position < len(branches):
            raise Unreadable("A union has a position beyond its types.")
        branches[position](cursor, depth + 1)

    return over


def _blocks(item: Walk, *, has_keys: bool) -> Walk:
    """Of an array or a map: blocks of a count and as many items, to a block of none.

    The count is negative where the size of the block in bytes follows.
    """

    def over(cursor: Cursor, depth: int) -> None:
        _check_depth(cursor, depth)
        while (count := cursor.number()) != 0:
            if count < 0:
                count = -count
                cursor.number()
            cursor.count(count)
            for _ in range(count):
                if has_keys:
                    cursor.skip(cursor.number())
                item(cursor, depth + 1)

    return over


def _check_depth(cursor: Cursor, depth: int) -> None:
    if depth >= cursor.limits.depth:
        raise Unreadable(f"It is nested over {cursor.limits.depth} levels deep.")


def _checked(field: Mapping[str, Any]) -> Mapping[str, Any]:
    _name(field["name"])
    return field
