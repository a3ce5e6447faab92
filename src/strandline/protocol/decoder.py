"""Generates, per message class and version, the function that reads it from a frame.

Source text is generated and executed (as `dataclasses` does for `__init__`), because the
alternative, a closure per field, costs a call per field: two to three times the time in all.

Why the generated code may read without looking at the end of the frame first: fixed-size reads
past the end raise (`struct.error`, `IndexError`), and a slice past the end is merely short. The
position only ever grows, so one that went past the end is met by the next read, or by the caller's
comparison of the final position with the frame's end. What must be checked on the spot is whatever
allocates or loops by a number from the frame: an array's count is compared with the smallest size
its elements could have. An element of two bytes becomes an object of hundreds, so all elements of
all arrays, and tagged fields, count against a number that the caller allows.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import unpack_from
from typing import Any, Final, TypeAlias

from strandline.errors import InvariantViolated
from strandline.protocol import wire
from strandline.protocol.declare import (
    BYTES,
    RECORDS,
    STRING,
    UUID_,
    Field,
    Scalar,
    shape_of,
)
from strandline.protocol.source import Source, fields_of, smallest_element

Decoder: TypeAlias = Callable[[memoryview, int, int, int], tuple[Any, int]]
"""(buffer, position, end of the buffer, elements allowed) to (message, position behind it)."""

HEAD: Final = "def decode(buffer, position, limit, elements):"

_HELPERS: Final[dict[str, Any]] = {
    "unpack_from": unpack_from,
    "read_long_varint": wire.read_long_varint,
    "skip_tagged_fields": wire.skip_tagged_fields,
    "uuid_of": wire.uuid_of,
    "refuse_null": wire.refuse_null,
    "refuse_length": wire.refuse_length,
    "refuse_count": wire.refuse_count,
    "refuse_elements": wire.refuse_elements,
    "refuse_tag": wire.refuse_tag,
    "STRING_SIZE_MAX": wire.STRING_BYTES_MAX,
}


def build_decoder(declared: type, version: int, flexible: bool) -> Decoder:
    """Generate the decoder of one class in one version."""
    writer = _DecoderWriter(version, flexible)
    source = writer.write(declared)
    name = shape_of(declared).name
    decoder: Decoder = source.compile(HEAD, "decode", f"decoder of {name} version {version}")
    return decoder


def decoder_source(declared: type, version: int, flexible: bool) -> str:
    """The text of a generated decoder, for people."""
    return _DecoderWriter(version, flexible).write(declared).text(HEAD)


class _DecoderWriter:
    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._source = Source(_HELPERS)
        self._run: list[tuple[str, str]] = []  # (variable, struct letter), not read yet

    def write(self, declared: type) -> Source:
        result = self._structure(declared)
        self._flush()
        self._source.line(f"return {result}, position")
        return self._source

    # --- Structures and tagged fields ---

    def _structure(self, declared: Any) -> str:
        """Read one structure; returns the expression that builds it."""
        shape = shape_of(declared)
        plain, tagged, _ = fields_of(shape, self._version, self._flexible)
        values = {each.name: self._field(each) for each in plain}
        if self._flexible:
            values |= self._tagged_fields(tagged)
        arguments = [values.get(each.name) or self._default(each) for each in shape.fields]
        self._flush()
        return f"{self._source.constant(declared, shape.name)}({', '.join(arguments)})"

    def _default(self, each: Field) -> str:
        if isinstance(each.default, list):
            return "[]"
        if isinstance(each.default, type):
            return f"{self._source.constant(each.default, each.name)}()"
        if each.default is None or isinstance(each.default, (bool, int, str, bytes)):
            return repr(each.default)
        return self._source.constant(each.default, f"default_{each.name}")

    def _tagged_fields(self, tagged: list[Field]) -> dict[str, str]:
        source = self._source
        count = self._read_fixed("tags", "B")
        self._flush()
        if not tagged:
            skip = f"skip_tagged_fields(buffer, position, limit, {count}, elements)"
            source.line(f"if {count}:")
            source.line(f"    position, elements = {skip}")
            return {}
        values = {each.name: source.fresh(each.name) for each in tagged}
        for each in tagged:
            source.line(f"{values[each.name]} = {self._default(each)}")
        source.line(f"if {count}:")
        source.indent()
        source.line(f"if {count} > 127:")
        source.line(f"    {count}, position = read_long_varint(buffer, position - 1)")
        self._count(count)
        tag, size, end = source.fresh("tag"), source.fresh("size"), source.fresh("end")
        source.line(f"for _ in range({count}):")
        source.indent()
        source.line(f"{tag}, position = read_long_varint(buffer, position)")
        source.line(f"{size}, position = read_long_varint(buffer, position)")
        source.line(f"{end} = position + {size}")
        source.line(f"if {end} > limit: refuse_tag({tag})")
        for index, each in enumerate(tagged):
            source.line(f"{'if' if index == 0 else 'elif'} {tag} == {each.tag}:")
            source.indent()
            value = self._field(each)
            self._flush()
            source.line(f"{values[each.name]} = {value}")
            source.line(f"if position != {end}: refuse_tag({each.name!r})")
            source.indent(-1)
        source.line("else:")
        source.line(f"    position = {end}")
        source.indent(-2)
        return values

    # --- Fields ---

    def _field(self, each: Field) -> str:
        """Read one field; returns the expression of its value."""
        nullable = each.nullable.covers(self._version)
        if each.is_array:
            return self._array(each, nullable)
        if isinstance(each.element, Scalar):
            return self._scalar(each.element, each.name, nullable)
        if not nullable:
            return self._structure(each.element)
        there = self._read_fixed(f"has_{each.name}", "b")
        self._flush()
        value = self._source.fresh(each.name)
        self._source.line(f"if {there} < 0:" if each.tag is None else f"if {there} == 0:")
        self._source.line(f"    {value} = None")
        self._source.line("else:")
        self._source.indent()
        self._source.line(f"{value} = {self._structure(each.element)}")
        self._source.indent(-1)
        return value

    def _scalar(self, element: Scalar[Any], name: str, nullable: bool) -> str:
        if element is UUID_:
            return f"uuid_of({self._read_fixed(name, element.code)})"
        if element.code:
            return self._read_fixed(name, element.code)
        return self._sized(element, name, nullable)

    def _sized(self, element: Scalar[Any], name: str, nullable: bool) -> str:
        """Read a string, bytes or records: a length and that many bytes."""
        source = self._source
        size = self._length(name, "h" if element is STRING else "i")
        value, end = source.fresh(name), source.fresh("end")
        if nullable:
            source.line(f"if {size} == -1:")
            source.line(f"    {value} = None")
            source.line("else:")
            source.indent()
        if element is STRING and self._flexible:
            source.line(f"if not 0 <= {size} <= STRING_SIZE_MAX: refuse_length({name!r})")
        else:
            source.line(f"if {size} < 0: refuse_null({name!r})")
        source.line(f"{end} = position + {size}")
        taken = {STRING: "str({}, 'utf-8')", BYTES: "bytes({})", RECORDS: "{}"}[element]
        source.line(f"{value} = {taken.format(f'buffer[position:{end}]')}")
        source.line(f"position = {end}")
        if nullable:
            source.indent(-1)
        return value

    def _array(self, each: Field, nullable: bool) -> str:
        source = self._source
        count = self._length(each.name, "i")
        items = source.fresh(each.name)
        least = smallest_element(each.element, self._version, self._flexible)
        if least == 0:
            raise InvariantViolated(f"Elements of {each.name} are empty: their count has no bound.")
        if nullable:
            source.line(f"if {count} == -1:")
            source.line(f"    {items} = None")
            source.line("else:")
            source.indent()
        room = "limit - position" if least == 1 else f"(limit - position) // {least}"
        source.line(f"if not 0 <= {count} <= {room}: refuse_count({each.name!r})")
        self._count(count)
        self._elements(each, items, count)
        if nullable:
            source.indent(-1)
        return items

    def _count(self, count: str) -> None:
        self._source.line(f"elements -= {count}")
        self._source.line("if elements < 0: refuse_elements()")

    def _elements(self, each: Field, items: str, count: str) -> None:
        source = self._source
        element = each.element
        if isinstance(element, Scalar) and element.code and element is not UUID_:
            layout = f"f'>{{{count}}}{element.code}'"
            source.line(f"{items} = list(unpack_from({layout}, buffer, position))")
            source.line(
                f"position += {count} * {element.size}"
                if element.size > 1
                else f"position += {count}"
            )
            return
        source.line(f"{items} = []")
        source.line(f"for _ in range({count}):")
        source.indent()
        if isinstance(element, Scalar):
            value = self._scalar(element, each.name, nullable=False)
            self._flush()
        else:
            value = self._structure(element)
        source.line(f"{items}.append({value})")
        source.indent(-1)

    # --- Numbers ---

    def _length(self, name: str, letter: str) -> str:
        """Read a length or count into a variable; -1 means null in both encodings."""
        source = self._source
        if not self._flexible:
            size = self._read_fixed(f"size_{name}", letter)
            self._flush()
            return size
        size = self._read_fixed(f"size_{name}", "B")
        self._flush()
        source.line(f"if {size} > 127:")
        source.line(f"    {size}, position = read_long_varint(buffer, position - 1)")
        source.line(f"{size} -= 1")
        return size

    def _read_fixed(self, name: str, letter: str) -> str:
        variable = self._source.fresh(name)
        self._run.append((variable, letter))
        return variable

    def _flush(self) -> None:
        """Read the collected fixed-size values with one call."""
        if not self._run:
            return
        source = self._source
        layout = "".join(letter for _, letter in self._run)
        size = sum(_SIZES[letter] for _, letter in self._run)
        if layout == "B":
            source.line(f"{self._run[0][0]} = buffer[position]")
        else:
            targets = "".join(f"{variable}, " for variable, _ in self._run).rstrip()
            source.line(f"{targets} = {source.struct(layout, 'unpack_from')}(buffer, position)")
        source.line(f"position += {size}")
        self._run.clear()


_SIZES: Final = {"b": 1, "B": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}
