"""What the generators of decoders and encoders share: lines, names, and runs of fixed-size values.

Fields of fixed size that follow one another become one `struct` call. A `Run` collects them until
something of variable size comes; that is where most of the generated code's speed comes from.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from strandline.errors import InvariantViolated
from strandline.protocol.declare import Field, Scalar, Shape, shape_of
from strandline.protocol.versions import VersionRange


class Source:
    """Python source in the making, with the names that it refers to."""

    def __init__(self, helpers: dict[str, Any]) -> None:
        self.names: dict[str, Any] = dict(helpers)
        self._lines: list[str] = []
        self._depth = 1
        self._count = 0

    def line(self, text: str) -> None:
        """Add one line at the current depth."""
        self._lines.append("    " * self._depth + text)

    def indent(self, steps: int = 1) -> None:
        """Go deeper, or with -1 back out."""
        self._depth += steps

    def fresh(self, stem: str) -> str:
        """A local variable's name that is not in use yet."""
        self._count += 1
        return f"{stem}_{self._count}"

    def constant(self, value: Any, stem: str) -> str:
        """A name by which the generated code can refer to `value`."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def struct(self, layout: str, method: str) -> str:
        """The name of a bound `pack` or `unpack_from` for a big-endian layout."""
        name = f"{method}_{layout}".replace("?", "t")
        if name not in self.names:
            self.names[name] = getattr(Struct(">" + layout), method)
        return name

    def text(self, head: str) -> str:
        """The whole function."""
        return "\n".join([head, *self._lines, ""])

    def compile(self, head: str, function: str, title: str) -> Any:
        """Run the source and hand over its one function."""
        code = compile(self.text(head), f"<{title}>", "exec")
        exec(code, self.names)  # noqa: S102 - source made from our own declarations only
        return self.names[function]


def fields_of(
    shape: Shape, version: int, flexible: bool
) -> tuple[list[Field], list[Field], list[Field]]:
    """A shape's fields in a version: plain ones in wire order, tagged ones by tag, absent ones."""
    present = [each for each in shape.fields if each.versions.covers(version)]
    plain = [each for each in present if each.tag is None]
    tagged = sorted(
        (each for each in present if each.tag is not None), key=lambda each: each.tag or 0
    )
    if tagged and not flexible:
        raise InvariantViolated(f"{shape.name} has tagged fields in an inflexible version.")
    absent = [each for each in shape.fields if not each.versions.covers(version)]
    return plain, tagged, absent


def smallest_size(each: Field, version: int, flexible: bool) -> int:
    """The fewest bytes that a field can take: what an array's count is checked against."""
    if each.is_array:
        return 1 if flexible else 4
    element = each.element
    if not isinstance(element, Scalar):
        if each.nullable.covers(version):
            return 1
        return smallest_element(element, version, flexible)
    if element.size:
        return element.size
    if flexible:
        return 1
    return 2 if element.name == "string" else 4


def smallest_element(element: Scalar[Any] | type, version: int, flexible: bool) -> int:
    """The fewest bytes that one element of an array can take."""
    if isinstance(element, Scalar):
        alone = Field(element, VersionRange(version, version), None)
        return smallest_size(alone, version, flexible)
    plain, _, _ = fields_of(shape_of(element), version, flexible)
    return sum(smallest_size(each, version, flexible) for each in plain) + (1 if flexible else 0)
