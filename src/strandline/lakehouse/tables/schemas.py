"""One schema from the files of a batch, whose tasks each saw other records.

Theory: a column of the table keeps its type, a new one takes the widest type that any file has.
Files may lack columns, and fields of structs, which readers fill with nulls; a file whose column is
of another type than the table's would be misread, so that its batch must be written again under the
schema found here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import pyarrow as pa

from strandline.lakehouse.tables.types import (
    NoCommonType,
    differing_in_case,
    merge_types,
    type_only_adds,
)
from strandline.lakehouse.tables.written import WrittenFile


class SettledSchema(NamedTuple):
    """The table's columns with what the files add; the files that do not fit; and why, if any."""

    schema: pa.Schema
    misfits: tuple[WrittenFile, ...]
    reason: str


def settle_schema(
    present: pa.Schema, files: Iterable[WrittenFile], *, without: Collection[str] = ()
) -> SettledSchema:
    """What the table must have for the files. The first file decides where no type holds both.

    `without` names columns that files have and `present` does not.
    """
    fixed = {field.name: field.type for field in present}
    found = dict(fixed)
    schemas = [
        (file, [field for field in file.read_schema() if field.name not in without])
        for file in files
    ]
    reason = ""
    for file, schema in schemas:
        for field in schema:
            if (other := differing_in_case(field.name, found)) is not None:
                reason = reason or f"Column {field.name} differs from {other} in case only."
                continue
            known = found.get(field.name, pa.null())
            try:
                merged = merge_types(field.name, known, field.type)
            except NoCommonType as error:
                reason = reason or f"{error} (file {file.path})"
                continue
            if field.name not in fixed or type_only_adds(known, merged):
                found[field.name] = merged
    misfits = tuple(
        file
        for file, schema in schemas
        if not all(
            field.name in found and type_only_adds(field.type, found[field.name])
            for field in schema
        )
    )
    if misfits and not reason:
        reason = f"{misfits[0].path} has a narrower type than the table."
    return SettledSchema(pa.schema(list(found.items())), misfits, reason)


def wider_columns(present: pa.Schema, files: Iterable[WrittenFile]) -> tuple[str, ...]:
    """The table's columns of integers that are doubles in some of the files."""
    integers = {field.name for field in present if pa.types.is_integer(field.type)}
    found = {
        field.name
        for file in files
        for field in file.read_schema()
        if field.name in integers and pa.types.is_floating(field.type)
    }
    return tuple(sorted(found))
