"""docs/tables.md names everything that a definition and an error can say."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from strandline.lakehouse.deadletters.letters import LOST_RANGE, letter_schema
from strandline.lakehouse.tables import errors
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.names import KEY_VALUE, NAMES, RECORD_HEADERS
from strandline.lakehouse.tables.types import WORDS
from strandline.lakehouse.tables.writing import MISSING_KEY
from strandline.lakehouse.values import decoding
from strandline.lakehouse.values.keys import BAD_KEY

PAGE = Path(__file__).parents[3].joinpath("docs/tables.md").read_text(encoding="utf-8")


def missing(names: set[str]) -> list[str]:
    return sorted(name for name in names if f"`{name}`" not in PAGE)


def test_every_field_of_a_definition_has_its_row() -> None:
    rows = {line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `")}
    assert {item.name for item in fields(TableSpec)} <= rows


def test_every_error_and_class_of_letters_is_named() -> None:
    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.TableError)
    }
    classes = {
        decoding.BAD_VALUE,
        decoding.WRONG_TYPE,
        decoding.UNKNOWN_FIELD,
        decoding.MISSING_FIELD,
        decoding.UNKNOWN_SCHEMA,
        MISSING_KEY,
        BAD_KEY,
        LOST_RANGE,
    }
    assert missing((kinds - {"TableError"}) | classes) == []


def test_every_type_and_column_is_named() -> None:
    assert (
        missing({*WORDS, *NAMES.own, KEY_VALUE, RECORD_HEADERS, *letter_schema(NAMES).names}) == []
    )
