"""What a user puts between topic and table: a query over the batch, or a function of data frames.

    select *, amount * 2 as doubled from batch where amount > 0          Select
    def enrich(batch: DataFrame) -> DataFrame                            Function, `orders:enrich`

This file knows how each is named, found and called, and how one tells that it has changed. It must
not know what comes in or what becomes of what goes out.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

from strandline.errors import InvalidSetting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.lakehouse.tables.definition import TableSpec

TransformFunction = Callable[["DataFrame"], "DataFrame"]

BATCH: Final = "batch"
"""What a select calls the rows of a batch."""
PLACE: Final = "{place}"
"""In a select: the columns that every row must keep."""
_SAID_MAX: Final = 200
_DIGEST: Final = 8


class Transform(Protocol):
    """From the rows of a batch to rows of the table."""

    @property
    def label(self) -> str:
        """What it is called, and a digest of what it does: another label is another transform."""

    def apply(self, batch: DataFrame, place: Sequence[str]) -> DataFrame:
        """The rows; `place` are the columns that every row must keep."""


@dataclass(frozen=True)
class Select:
    """A query in Spark's SQL."""

    query: str

    @property
    def label(self) -> str:
        """As `Transform.label`."""
        text = " ".join(self.query.split())
        shown = text if len(text) <= _SAID_MAX else f"{text[:_SAID_MAX]}..."
        return f"select '{shown}' ({_digest(self.query)})"

    def apply(self, batch: DataFrame, place: Sequence[str]) -> DataFrame:
        """As `Transform.apply`."""
        batch.createOrReplaceTempView(BATCH)
        return batch.sparkSession.sql(self.query.replace(PLACE, ", ".join(place)))


@dataclass(frozen=True)
class Function:
    """A function of the user's, by the name under which it can be found again."""

    name: str
    call: TransformFunction

    @property
    def label(self) -> str:
        """As `Transform.label`. A function without a source is known by its name alone."""
        try:
            source = inspect.getsource(self.call)
        except (OSError, TypeError):
            return f"transform {self.name}"
        return f"transform {self.name} ({_digest(source)})"

    def apply(self, batch: DataFrame, place: Sequence[str]) -> DataFrame:
        """As `Transform.apply`."""
        del place
        return self.call(batch)


def named(function: TransformFunction) -> Function:
    """A function that a program gives, by its module and name."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return Function(f"{function.__module__}:{name}", function)


def transform_of(spec: TableSpec) -> Transform | None:
    """What the definition says; None for a table of values as they are. Raises InvalidSetting."""
    if spec.select is not None:
        return Select(spec.select)
    return None if spec.transform is None else load(spec.transform)


def load(name: str) -> Function:
    """The function `module:function`, modules of the working directory included.

    Raises InvalidSetting when it cannot be found.
    """
    module, colon, path = name.partition(":")
    if not colon or not module or not path:
        raise InvalidSetting("transform", f"A transform is module:function, not '{name}'.")
    found: object
    try:
        found = _import(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:  # a user's module may raise anything
        raise InvalidSetting(
            "transform",
            f"The transform {name} cannot be imported: {type(error).__name__}: {error}. It is "
            "looked for in the working directory and where Python looks.",
        ) from error
    if not callable(found):
        raise InvalidSetting("transform", f"The transform {name} is no function.")
    return Function(name, found)


def _import(module: str) -> object:
    here = os.getcwd()
    if here in sys.path:
        return import_module(module)
    sys.path.insert(0, here)
    try:
        return import_module(module)
    finally:
        sys.path.remove(here)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
