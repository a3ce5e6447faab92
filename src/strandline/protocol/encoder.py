"""Generates, per message class and version, the function that appends it to a buffer.

The twin of `decoder`; see there for why source is generated. The generated function gets the
message, the buffer to append to and the list of finished chunks, and returns the buffer that it
ended in: another one than it was given if records were left to be sent from where they are.

A field that the version does not have is dropped if it is declared `ignorable` or holds its
default; otherwise the caller asked for something that the receiver would not understand, and gets
UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import Any, Final, TypeAlias

from strandline.errors import InvariantViolated
from strandline.protocol import wire
from strandline.protocol.declare import RECORDS, STRING, UUID_, Field, Scalar, Shape, shape_of
from strandline.protocol.source import Source, fields_of

Encoder: TypeAlias = Callable[[Any, bytearray, list[wire.Chunk]], bytearray]
"""(message, buffer to append to, chunks finished before it) to the buffer it ended in."""

HEAD: Final = "def encode(message, out, chunks):"

_HELPERS: Final[dict[str, Any]] = {
    "pack": pack,
    "varint": wire.varint,
    "long_string_length": wire.long_string_length,
    "put_records": wire.put_records,
    "records_size": wire.records_size,
    "cannot_send": wire.cannot_send,
    "cannot_send_null": wire.cannot_send_null,
}


def build_encoder(declared: type, version: int, flexible: bool) -> Encoder:
    """Generate the encoder of one class in one version."""
    source = _EncoderWriter(shape_of(declared), version, flexible).write()
    name = shape_of(declared).name
    encoder: Encoder = source.compile(HEAD, "encode", f"encoder of {name} version {version}")
    return encoder


def encoder_source(declared: type, version: int, flexible: bool) -> str:
    """The text of a generated encoder, for people."""
    return _EncoderWriter(shape_of(declared), version, flexible).write().text(HEAD)


class _EncoderWriter:
    def __init__(self, shape: Shape, version: int, flexible: bool) -> None:
        self._root = shape
        self._version = version
        self._flexible = flexible
        self._source = Source(_HELPERS)
        self._out = "out"
        self._run: list[tuple[str, str]] = []  # (expression, struct letter), not written yet

    def write(self) -> Source:
        self._structure(self._root, "message")
        self._flush()
        self._source.line("return out")
        return self._source

    # --- Structures and tagged fields ---

    def _structure(self, shape: Shape, owner: str) -> None:
        plain, tagged, absent = fields_of(shape, self._version, self._flexible)
        for each in absent:
            self._refuse_unless_droppable(each, owner)
        for each in plain:
            self._field(each, f"{owner}.{each.name}")
        if not self._flexible:
            return
        if tagged:
            self._tagged_fields(tagged, owner)
        else:
            self._run.append(("", "x"))  # no tagged fields: a zero byte, which is struct's padding

    def _refuse_unless_droppable(self, each: Field, owner: str) -> None:
        if each.ignorable:
            return
        self._flush()
        self._source.line(f"if {self._differs(each, f'{owner}.{each.name}')}:")
        self._source.line(f"    cannot_send({self._root.name!r}, {each.name!r}, {self._version})")

    def _differs(self, each: Field, value: str) -> str:
        """The condition under which a field holds something else than its default."""
        if each.default is None:
            if isinstance(each.element, Scalar) or each.is_array or each.tag is None:
                return f"{value} is not None"
            empty = self._source.constant(each.element(), f"empty_{each.name}")
            return f"{value} is not None and {value} != {empty}"
        if isinstance(each.default, type):
            return f"{value} != {self._source.constant(each.default(), f'empty_{each.name}')}"
        if isinstance(each.default, bool):
            return f"not {value}" if each.default else value
        if isinstance(each.default, (int, str, bytes, list)):
            return f"{value} != {each.default!r}"
        return f"{value} != {self._source.constant(each.default, f'default_{each.name}')}"

    def _tagged_fields(self, tagged: list[Field], owner: str) -> None:
        self._flush()
        source, out = self._source, self._out
        flags: list[str] = []
        for each in tagged:
            flags.append(source.fresh(f"send_{each.name}"))
            source.line(f"{flags[-1]} = {self._differs(each, f'{owner}.{each.name}')}")
        source.line(f"if not ({' or '.join(flags)}):")
        source.line(f"    {out}.append(0)")
        source.line("else:")
        source.indent()
        source.line(f"{out}.append({' + '.join(f'bool({flag})' for flag in flags)})")
        for each, flag in zip(tagged, flags, strict=True):
            source.line(f"if {flag}:")
            source.indent()
            content = source.fresh("content")
            source.line(f"{content} = bytearray()")
            self._out = content
            self._field(each, f"{owner}.{each.name}")
            self._flush()
            self._out = out
            source.line(f"{out} += varint({each.tag})")
            source.line(f"{out} += varint(len({content}))")
            source.line(f"{out} += {content}")
            source.indent(-1)
        source.indent(-1)

    # --- Fields ---

    def _field(self, each: Field, value: str) -> None:
        source = self._source
        nullable = each.nullable.covers(self._version)
        if not nullable and not each.nullable.empty:
            self._flush()
            source.line(f"if {value} is None:")
            source.line(
                f"    cannot_send_null({self._root.name!r}, {each.name!r}, {self._version})"
            )
        if not each.is_array and isinstance(each.element, Scalar) and each.element.code:
            self._number(each.element, value)
            return
        if not nullable:
            self._present(each, value)
            return
        self._flush()
        local = source.fresh(each.name)
        source.line(f"{local} = {value}")
        source.line(f"if {local} is None:")
        source.line(f"    {self._out} += {self._null(each)!r}")
        source.line("else:")
        source.indent()
        if not each.is_array and not isinstance(each.element, Scalar):
            self._run.append(("1", "b"))
        self._present(each, local)
        self._flush()
        source.indent(-1)

    def _null(self, each: Field) -> bytes:
        if not each.is_array and not isinstance(each.element, Scalar):
            return b"\xff" if each.tag is None else b"\x00"
        if self._flexible:
            return b"\x00"
        short = each.element is STRING and not each.is_array
        return b"\xff\xff" if short else b"\xff\xff\xff\xff"

    def _present(self, each: Field, value: str) -> None:
        """Write a value of variable size that is not null."""
        if each.is_array:
            self._array(each, value)
        elif isinstance(each.element, Scalar):
            self._sized(each.element, each.name, value)
        else:
            self._structure(shape_of(each.element), value)

    def _number(self, element: Scalar[Any], value: str) -> None:
        self._run.append((f"{value}.bytes" if element is UUID_ else value, element.code))

    def _sized(self, element: Scalar[Any], name: str, value: str) -> None:
        source = self._source
        if element is RECORDS:
            if self._out != "out":
                raise InvariantViolated("Records inside a tagged field have no place in Kafka.")
            self._length("i", f"records_size({value})", name)
            self._flush()
            source.line(f"out = put_records({value}, out, chunks)")
            return
        content = value
        if element is STRING:
            content = source.fresh(name)
            source.line(f"{content} = {value}.encode()")
        self._length("h" if element is STRING else "i", f"len({content})", name)
        self._flush()
        source.line(f"{self._out} += {content}")

    def _array(self, each: Field, value: str) -> None:
        source = self._source
        items = source.fresh(each.name)
        source.line(f"{items} = {value}")
        self._length("i", f"len({items})", each.name)
        self._flush()
        element = each.element
        if isinstance(element, Scalar) and element.code and element is not UUID_:
            source.line(f"{self._out} += pack(f'>{{len({items})}}{element.code}', *{items})")
            return
        item = source.fresh("item")
        source.line(f"for {item} in {items}:")
        source.indent()
        if not isinstance(element, Scalar):
            self._structure(shape_of(element), item)
        elif element.code:
            self._number(element, item)
        else:
            self._sized(element, each.name, item)
        self._flush()
        source.indent(-1)

    # --- Numbers ---

    def _length(self, letter: str, size: str, name: str) -> None:
        if not self._flexible:
            self._run.append((size, letter))
            return
        source = self._source
        self._flush()
        compact = source.fresh(f"size_{name}")
        long = "long_string_length" if letter == "h" else "varint"
        source.line(f"{compact} = {size} + 1")
        source.line(f"if {compact} < 128:")
        source.line(f"    {self._out}.append({compact})")
        source.line("else:")
        source.line(f"    {self._out} += {long}({compact})")

    def _flush(self) -> None:
        """Write the collected fixed-size values with one call."""
        if not self._run:
            return
        source = self._source
        layout = "".join(letter for _, letter in self._run)
        values = [expression for expression, letter in self._run if letter != "x"]
        if values:
            packed = f"{source.struct(layout, 'pack')}({', '.join(values)})"
            source.line(f"{self._out} += {packed}")
        else:
            source.line(f"{self._out} += {bytes(len(layout))!r}")
        self._run.clear()
