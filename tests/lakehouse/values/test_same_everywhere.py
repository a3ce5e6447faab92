"""A table and the page read the same bytes as the same value, or both refuse them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.values.making import given_columns, make_decoder
from strandline.schemas.places import SchemaPlaces
from strandline.schemas.sources import Schemas
from strandline.ui.decoding import Decoder, Form

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "P",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "lines", "type": {"type": "array", "items": "int"}},
    ],
}
RECORDS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "kind": st.sampled_from("AB"),
        "note": st.none() | st.text(),
        "lines": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5),
    }
)


def written(record: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    schema = fastavro.parse_schema(json.loads(json.dumps(SCHEMA)))
    fastavro.schemaless_writer(stream, schema, record)
    return stream.getvalue()


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("schemas")
    (directory / "7.avsc").write_text(json.dumps(SCHEMA))
    return directory


@given(
    RECORDS.map(written) | st.binary(max_size=12),
    st.sampled_from([7, 7, 7, 8]),
    st.binary(max_size=2),
)
def test_a_table_and_the_page_agree(places: Path, payload: bytes, number: int, more: bytes) -> None:
    value = b"\x00" + number.to_bytes(4, "big") + payload + more
    spec = TableSpec(
        name="t", topics=("t",), location="unused", value_format="avro", framing="confluent",
        schemas={"7": json.dumps(SCHEMA)},
    )  # fmt: skip
    columns = given_columns(spec)
    row = make_decoder(spec, columns).decode(pa.array([value], pa.binary()))
    shown = Decoder(Form.AVRO, Schemas.at(SchemaPlaces(str(places))), "t", "value").shown(value)
    assert shown is not None
    if row.faults:
        assert shown["as"] == "hex"
        if row.faults[0].kind != "UnknownSchema":
            assert shown["reason"] == row.faults[0].sentence
    else:
        assert [json.loads(shown["text"])] == row.columns.to_pylist()
