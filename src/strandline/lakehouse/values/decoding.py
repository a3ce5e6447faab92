"""What every decoder of values takes and gives.

Theory: a decoder gets the values of a batch and answers with typed columns for those that it could
read exactly, and with a fault for each that it could not. Nothing is cut, rounded to an integer or
turned into null on the way: what does not fit is a fault, and the record becomes a dead letter. The
one exception are nanoseconds, of Protobuf's times and of JSON's in that format, which are cut to
microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa


class Fault(NamedTuple):
    """Why the value in row `row` of the batch is no row of the table: a class and a sentence."""

    row: int
    kind: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """`columns` row k is the value of input row `rows[k]`; rows are in the order of the input.

    Types may differ from one call to the next: a decoder learns. Null values give rows of nulls.
    """

    columns: pa.RecordBatch
    rows: pa.Array
    faults: list[Fault]


class Decoder(Protocol):
    """Reads values of one format. Keeps what it learned, so one object serves one task."""

    @property
    def name(self) -> str:
        """What a dead letter says was used to read it."""

    def decode(self, values: pa.Array) -> Decoded:
        """Read an array of binary values."""


class Unfit(Exception):
    """A value, or a part of it, cannot be what the column is."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.sentence = sentence


BAD_VALUE = "BadValue"
"""The bytes do not follow the format."""
WRONG_TYPE = "WrongType"
"""A field cannot be held by its column's type."""
UNKNOWN_FIELD = "UnknownField"
"""A field has no column, and may not get one."""
MISSING_FIELD = "MissingField"
"""A field that the schema requires is not there, or null."""
UNKNOWN_SCHEMA = "UnknownSchema"
"""The value names a schema that the table was not given."""


def empty_columns(rows: int) -> pa.RecordBatch:
    """`rows` rows without a column."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
