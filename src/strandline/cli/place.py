"""A topic or one of its partitions, as arguments name it: `TOPIC` or `TOPIC/PARTITION`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from strandline.numerals import INT32_MAX, whole_number

F = TypeVar("F", bound=Callable[..., Any])


class Place(NamedTuple):
    """What was named."""

    topic: str
    partition: int | None

    def __str__(self) -> str:
        if self.partition is None:
            return f"topic '{self.topic}'"
        return f"partition {self.partition} of topic '{self.topic}'"

    def limits(self) -> dict[str, object]:
        """As arguments of the inspection `status`."""
        found: dict[str, object] = {"topics": [self.topic]}
        if self.partition is not None:
            found["partition"] = self.partition
        return found


class _PlaceType(click.ParamType[Any]):
    """Topics have no slashes in their names."""

    name = "place"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Place:
        """Read an argument."""
        if isinstance(value, Place):
            return value
        topic, slash, digits = str(value).partition("/")
        number = whole_number(digits, INT32_MAX)
        if not topic or (slash and number is None):
            self.fail(f"'{value}' is neither TOPIC nor TOPIC/PARTITION.", param, ctx)
        return Place(topic, number)


def place_argument(command: F) -> F:
    """Add the optional argument `TOPIC[/PARTITION]`."""
    return click.argument(
        "place", metavar="[TOPIC[/PARTITION]]", type=_PlaceType(), required=False
    )(command)
