"""The rows of a topic, as Spark's own `kafka` source has them.

This file knows the schema only. Names, types and nullability are those of Spark's connector, so
that queries move either way; the Arrow types are the ones that Spark makes of its own (`timestamp`
in microseconds and UTC, list elements named `element`), because Spark takes no others.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS: Final = pa.list_(pa.field("element", HEADER))
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

_PLAIN: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestampType", pa.int32()),
    ]
)
_WITH_HEADERS: Final = _PLAIN.append(pa.field("headers", HEADERS))


def kafka_schema(with_headers: bool = False) -> pa.Schema:
    """The columns of a topic's rows; `headers` only where it was asked for, as in Spark."""
    return _WITH_HEADERS if with_headers else _PLAIN
