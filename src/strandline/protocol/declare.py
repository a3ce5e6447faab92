"""The vocabulary in which message classes are written down.

    @message("0-4", flexible="4+")
    class HeartbeatRequest:
        group_id: str = string()
        generation_id: int = int32()
        member_id: str = string()
        group_instance_id: str | None = nullable_string("3+", default=None)

A field says its wire type, the versions that carry it, the versions in which it may be null, its
default and, when it is a tagged field, its tag (KIP-482). This file knows nothing of bytes: the
codecs are generated from these declarations by `schema`.

Every field has a default, Kafka's own, so a message is built by naming what differs from it.
Instances are mutable and slotted. They behave like dataclasses but are not made by `dataclasses`:
that takes 0.7 ms per class, and a broker has 250 of them to declare while it starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast, dataclass_transform
from uuid import UUID

from strandline.errors import InvariantViolated
from strandline.protocol.versions import NO_VERSIONS, VersionRange, parse_versions
from strandline.types import NO_TOPIC_ID

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scalar(Generic[T]):
    """A wire type without inner structure. `code` is its `struct` letter if its size is fixed."""

    name: str
    code: str = ""
    size: int = 0


INT8: Final[Scalar[int]] = Scalar("int8", "b", 1)
INT16: Final[Scalar[int]] = Scalar("int16", "h", 2)
UINT16: Final[Scalar[int]] = Scalar("uint16", "H", 2)
INT32: Final[Scalar[int]] = Scalar("int32", "i", 4)
UINT32: Final[Scalar[int]] = Scalar("uint32", "I", 4)
INT64: Final[Scalar[int]] = Scalar("int64", "q", 8)
FLOAT64: Final[Scalar[float]] = Scalar("float64", "d", 8)
BOOL: Final[Scalar[bool]] = Scalar("bool", "?", 1)
UUID_: Final[Scalar[UUID]] = Scalar("uuid", "16s", 16)
STRING: Final[Scalar[str]] = Scalar("string")
BYTES: Final[Scalar[bytes]] = Scalar("bytes")
RECORDS: Final[Scalar[Any]] = Scalar("records")


@dataclass(slots=True)
class Field:
    """One declared field. `name` is filled in by the class decorator.

    `element` is the scalar or the structure class; `is_array` says whether there are many of it.
    A tagged field is tagged in every version that has it, as in all of Kafka's schemas.
    """

    element: Scalar[Any] | type
    versions: VersionRange
    default: Any
    is_array: bool = False
    nullable: VersionRange = NO_VERSIONS
    tag: int | None = None
    ignorable: bool = False
    name: str = ""

    @property
    def shape(self) -> Shape:
        """The inner fields of a structure."""
        return shape_of(self.element)


@dataclass(slots=True)
class Shape:
    """What the codecs must know of a class. Structures inside a message have no own versions."""

    name: str
    fields: tuple[Field, ...]
    versions: VersionRange
    flexible: VersionRange
    top_level: bool
    decoders: dict[int, Any]
    encoders: dict[int, Any]


def shape_of(declared: object) -> Shape:
    """The shape of a declared class or of an instance of one."""
    shape = getattr(declared, "__shape__", None)
    if not isinstance(shape, Shape):
        raise InvariantViolated(f"{declared!r} was not declared with @message or @structure.")
    return shape


# --- Field specifiers -------------------------------------------------------------------------
# Their return types are those of the values that the field holds, so that a declaration reads
# `name: str = string()` to a type checker. At run time each returns a `Field`.


def int8(versions: str = "0+", default: int = 0, **more: Any) -> int:
    """A signed byte."""
    return cast(int, _field(INT8, versions, default, **more))


def int16(versions: str = "0+", default: int = 0, **more: Any) -> int:
    """A signed 16-bit integer."""
    return cast(int, _field(INT16, versions, default, **more))


def uint16(versions: str = "0+", default: int = 0, **more: Any) -> int:
    """An unsigned 16-bit integer."""
    return cast(int, _field(UINT16, versions, default, **more))


def int32(versions: str = "0+", default: int = 0, **more: Any) -> int:
    """A signed 32-bit integer."""
    return cast(int, _field(INT32, versions, default, **more))


def uint32(versions: str = "0+", default: int = 0, **more: Any) -> int:
    """An unsigned 32-bit integer."""
    return cast(int, _field(UINT32, versions, default, **more))


def int64(versions: str = "0+", default: int = 0, **more: Any) -> int:
    """A signed 64-bit integer."""
    return cast(int, _field(INT64, versions, default, **more))


def float64(versions: str = "0+", default: float = 0.0, **more: Any) -> float:
    """An IEEE 754 double."""
    return cast(float, _field(FLOAT64, versions, default, **more))


def boolean(versions: str = "0+", default: bool = False, **more: Any) -> bool:
    """One byte; anything but 0 reads as true."""
    return cast(bool, _field(BOOL, versions, default, **more))


def uuid(versions: str = "0+", **more: Any) -> UUID:
    """16 bytes; all zero means "no id"."""
    return cast(UUID, _field(UUID_, versions, NO_TOPIC_ID, **more))


def string(versions: str = "0+", default: str = "", **more: Any) -> str:
    """UTF-8 text of at most 32,767 bytes."""
    return cast(str, _field(STRING, versions, default, **more))


def nullable_string(
    versions: str = "0+", default: str | None = "", nullable: str = "0+", **more: Any
) -> str | None:
    """Text that may be null in the versions `nullable`."""
    return cast("str | None", _field(STRING, versions, default, nullable=nullable, **more))


def binary(versions: str = "0+", **more: Any) -> bytes:
    """Bytes that mean nothing to the protocol. Copied out of the frame on decoding."""
    return cast(bytes, _field(BYTES, versions, b"", **more))


def nullable_binary(
    versions: str = "0+", default: bytes | None = b"", nullable: str = "0+", **more: Any
) -> bytes | None:
    """Opaque bytes that may be null."""
    return cast("bytes | None", _field(BYTES, versions, default, nullable=nullable, **more))


def records(versions: str = "0+", nullable: str = "0+", **more: Any) -> Any:
    """Record batches. Decoded to a `memoryview` of the frame, never copied; may be null in the
    versions `nullable`.

    On encoding: bytes-like, a list or tuple of bytes-like, or a `wire.RecordsRange` (see there).
    """
    return _field(RECORDS, versions, None, nullable=nullable, **more)


def array(element: Scalar[T] | type[T], versions: str = "0+", **more: Any) -> list[T]:
    """Any number of scalars or structures."""
    return cast("list[T]", _field(element, versions, [], is_array=True, **more))


def nullable_array(
    element: Scalar[T] | type[T],
    versions: str = "0+",
    nullable: str = "0+",
    *,
    null_by_default: bool = False,
    **more: Any,
) -> list[T] | None:
    """An array that may be null, which usually means "all of them"."""
    value: list[T] | None = None if null_by_default else []
    return cast(
        "list[T] | None",
        _field(element, versions, value, is_array=True, nullable=nullable, **more),
    )


def one(element: type[T], versions: str = "0+", **more: Any) -> T:
    """One structure in place."""
    return cast(T, _field(element, versions, element, **more))


def nullable_one(element: type[T], versions: str = "0+", nullable: str = "0+") -> T | None:
    """One structure in place, preceded by a byte that says whether it is there."""
    return cast("T | None", _field(element, versions, None, nullable=nullable))


def tagged_nullable_one(element: type[T], versions: str = "0+", *, tag: int) -> T | None:
    """One structure in a tagged field, which can say that there is none.

    An absent field is a structure of defaults, as in Kafka; null is written, as a zero byte.
    """
    return cast("T | None", _field(element, versions, element, nullable=versions, tag=tag))


def tagged_one(element: type[T], versions: str, *, tag: int, **more: Any) -> T | None:
    """One structure in a tagged field; None when it is absent.

    Kafka reads an absent one as a structure full of defaults. None says the same without three
    objects per fetched partition, and a structure full of defaults is left out when encoding.
    """
    return cast("T | None", _field(element, versions, None, tag=tag, **more))


def _field(
    element: Scalar[Any] | type,
    versions: str,
    default: Any,
    *,
    nullable: str = "none",
    is_array: bool = False,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    return Field(
        element=element,
        versions=parse_versions(versions),
        default=default,
        is_array=is_array,
        nullable=parse_versions(nullable),
        tag=tag,
        ignorable=ignorable,
    )


# --- Class decorators -------------------------------------------------------------------------


@dataclass_transform(kw_only_default=True)
def message(versions: str, flexible: str = "none") -> Callable[[type[T]], type[T]]:
    """Declare a message: `versions` that are known, `flexible` those with compact encodings."""

    def declare(declared: type[T]) -> type[T]:
        return _build(declared, parse_versions(versions), parse_versions(flexible), True)

    return declare


@dataclass_transform(kw_only_default=True)
def structure(declared: type[T]) -> type[T]:
    """Declare a structure that occurs inside messages and takes its version from them."""
    return _build(declared, parse_versions("0+"), NO_VERSIONS, False)


class _Declared:
    """What all declared classes share: comparison and a readable form, field by field."""

    __slots__ = ()
    __shape__: Shape
    __hash__ = None  # type: ignore[assignment]  # instances are mutable

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(
            getattr(self, each.name) == getattr(other, each.name) for each in self.__shape__.fields
        )

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{each.name}={getattr(self, each.name)!r}" for each in self.__shape__.fields
        )
        return f"{self.__class__.__name__}({shown})"


_NOT_GIVEN: Final = type("NotGiven", (), {"__repr__": lambda _: "<new>", "__slots__": ()})()


def _build(
    declared: type[T], versions: VersionRange, flexible: VersionRange, top_level: bool
) -> type[T]:
    fields: list[Field] = []
    members: dict[str, Any] = {}
    for name, value in declared.__dict__.items():
        if isinstance(value, Field):
            value.name = name
            fields.append(value)
        elif name not in ("__dict__", "__weakref__"):
            members[name] = value
    members["__slots__"] = tuple(each.name for each in fields)
    members["__match_args__"] = members["__slots__"]
    members["__init__"] = _initializer(fields)
    members["__shape__"] = Shape(
        declared.__name__, tuple(fields), versions, flexible, top_level, decoders={}, encoders={}
    )
    return cast("type[T]", type(declared.__name__, (_Declared,), members))


def _initializer(fields: list[Field]) -> Any:
    """`__init__` as source, so that building a message costs one plain Python call.

    Type checkers ask for keywords; positions are for the generated decoders, which are faster so.
    """
    parameters: list[str] = []
    lines: list[str] = []
    names: dict[str, Any] = {"NOT_GIVEN": _NOT_GIVEN}
    for index, each in enumerate(fields):
        made = each.default if isinstance(each.default, type) else None
        if isinstance(each.default, list) or made is not None:
            names[f"new{index}"] = made
            fresh = "[]" if made is None else f"new{index}()"
            parameters.append(f"{each.name}=NOT_GIVEN")
            lines.append(
                f" self.{each.name} = {fresh} if {each.name} is NOT_GIVEN else {each.name}"
            )
        else:
            names[f"default{index}"] = each.default
            parameters.append(f"{each.name}=default{index}")
            lines.append(f" self.{each.name} = {each.name}")
    head = f"def __init__({', '.join(['self', *parameters])}):\n"
    exec(head + ("\n".join(lines) or " pass"), names)  # noqa: S102 - our own declarations only
    return names["__init__"]
