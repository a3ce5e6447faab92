"""Bytes as people read them: by the format that the user chose, or by a guess."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.schemas.places import SchemaPlaces
from strandline.schemas.sources import Schemas
from strandline.ui.decoding import AVRO_BYTES_MAX, SHOWN_MAX, Decoder, Form
from tests.schemas.values import avro, framed

KEY = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "int"}]}


@pytest.fixture
def schemas(tmp_path: Path) -> Schemas:
    """Schema 7 is a string, 8 an array of nulls, 9 a record; `plain` has its own."""
    for name, schema in (
        ("7", "string"),
        ("8", {"type": "array", "items": "null"}),
        ("9", KEY),
        ("plain-value", "string"),
    ):
        (tmp_path / f"{name}.avsc").write_text(json.dumps(schema))
    return Schemas.at(SchemaPlaces(str(tmp_path)))


def shown(form: str, schemas: Schemas, data: bytes | None, topic: str = "t") -> Any:
    return Decoder(Form(form), schemas, topic, "value").shown(data)


def test_what_looks_like_something_is_shown_as_that(schemas: Schemas) -> None:
    assert shown("auto", schemas, None) is None
    assert shown("auto", schemas, b'{"a":1}') == {"as": "json", "text": '{\n  "a": 1\n}'}
    assert shown("auto", schemas, b"hello") == {"as": "text", "text": "hello"}
    assert shown("auto", schemas, b"") == {"as": "text", "text": ""}
    assert shown("auto", schemas, b"\xff\x00") == {"as": "hex", "text": "ff 00"}
    assert shown("auto", schemas, framed(7, avro("string", "é"))) == {
        "as": "avro",
        "schema": "schema 7",
        "text": '"é"',
    }


def test_what_looks_like_avro_and_is_not_is_bytes_with_the_reason(schemas: Schemas) -> None:
    unknown = shown("auto", schemas, framed(5, b"a"))
    assert (unknown["as"], unknown["text"]) == ("hex", "00 00 00 00 05 61")
    assert "Schema 5 is not known: there is no 5.avsc" in unknown["reason"]
    left = shown("auto", schemas, framed(7, b"\x02ab"))
    assert left["reason"] == "After the Avro value, 1 bytes are left."


def test_a_topic_with_a_schema_of_its_own_is_read_with_it(schemas: Schemas) -> None:
    assert shown("auto", schemas, b"\x06abc", "plain") == {
        "as": "avro",
        "schema": "plain-value.avsc",
        "text": '"abc"',
    }
    other = shown("auto", schemas, b'{"a":1}', "plain")
    assert (other["as"], "A length is negative" in other["reason"]) == ("json", True)
    chosen = shown("avro", schemas, b'{"a":1}', "plain")
    assert (chosen["as"], "A length is negative" in chosen["reason"]) == ("hex", True)


@pytest.mark.parametrize(
    ("form", "data", "kind", "text", "reason"),
    [
        ("json", b"42", "json", "42", None),
        ("json", b"hello", "hex", "68 65 6c 6c 6f", "It is not JSON: Expecting value"),
        ("json", b"\xff", "hex", "ff", "It is not JSON"),
        ("json", b"[" * 10_000, "hex", (b"[" * 10_000).hex(" "), "nested too deeply"),
        ("text", b'{"a":1}', "text", '{"a":1}', None),
        ("text", b"ab\xff", "hex", "61 62 ff", "It is not UTF-8: invalid start byte at byte 2."),
        ("bytes", b"hello", "hex", "68 65 6c 6c 6f", None),
        ("avro", b"hello", "hex", "68 65 6c 6c 6f", "does not begin with a schema id"),
        ("avro", b"", "hex", "", "does not begin with a schema id"),
    ],
)
def test_the_format_that_the_user_chose_counts(
    schemas: Schemas, form: str, data: bytes, kind: str, text: str, reason: str | None
) -> None:
    found = shown(form, schemas, data)
    assert (found["as"], found["text"]) == (kind, text)
    assert ("reason" in found) == (reason is not None)
    assert reason is None or reason in found["reason"]


def test_what_is_long_is_cut_and_says_how_long_it_is(schemas: Schemas) -> None:
    text = "x" * 50_000
    for form, data, start in (
        ("text", text.encode(), "xxx"),
        ("bytes", text.encode(), "78 78"),
        ("json", json.dumps([text]).encode(), '["xxx'),
        ("avro", framed(7, avro("string", text)), '"xxx'),
    ):
        found = shown(form, schemas, data)
        assert found["size"] == len(data)
        assert found["text"].startswith(start)
        assert len(found["text"]) <= 3 * SHOWN_MAX


def test_what_would_become_too_much_is_bytes(schemas: Schemas) -> None:
    nulls = framed(8, b"\xfe" + b"\xff" * 8 + b"\x01\x00")
    assert "over 20000 single values" in shown("auto", schemas, nulls)["reason"]
    large = framed(7, bytes(AVRO_BYTES_MAX))
    assert f"up to {AVRO_BYTES_MAX} are decoded" in shown("auto", schemas, large)["reason"]


def test_a_key_is_found_as_it_is_shown(schemas: Schemas) -> None:
    def is_found(form: str, wanted: str, data: bytes | None) -> bool:
        return Decoder(Form(form), schemas, "t", "key").finder(wanted)(data)

    text, record = framed(7, avro("string", "ab")), framed(9, avro(KEY, {"id": 7}))
    assert is_found("auto", "ab", b"ab")
    assert is_found("auto", "ab", text)
    assert is_found("auto", '"ab"', text)
    assert is_found("avro", '{"id":7}', record)
    assert is_found("auto", "ff 00", b"\xff\x00")
    assert is_found("bytes", "00 00 00 00 07 04 61 62", text)
    assert not is_found("bytes", "ab", text)
    assert not is_found("auto", "ab", None)
    assert not is_found("auto", "ac", text)
    assert not is_found("auto", "ab", framed(5, b"\x04ab"))


def test_without_the_extra_everything_else_is_shown(
    schemas: Schemas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    found = shown("auto", schemas, framed(7, b"\x02a"))
    assert found["as"] == "hex"
    assert "install strandline[avro]" in found["reason"]
    assert shown("auto", schemas, b"text") == {"as": "text", "text": "text"}


@given(
    st.sampled_from(Form),
    st.sampled_from([b"", b"\x00\x00\x00\x00\x07", b"\x00\x00\x00\x00\x08", b"{", b"["]),
    st.binary(max_size=80),
    st.sampled_from(["t", "plain"]),
)
def test_no_bytes_are_too_much_for_it(
    tmp_path_factory: pytest.TempPathFactory, form: Form, head: bytes, data: bytes, topic: str
) -> None:
    directory = tmp_path_factory.getbasetemp() / "garbage"
    if not directory.exists():
        directory.mkdir()
        for name in ("7", "plain-value"):
            (directory / f"{name}.avsc").write_text(json.dumps(KEY))
        (directory / "8.avsc").write_text(json.dumps({"type": "array", "items": "null"}))
    decoder = Decoder(form, Schemas.at(SchemaPlaces(str(directory))), topic, "value")
    found = decoder.shown(head + data)
    assert found is not None
    assert found["as"] in ("json", "text", "hex", "avro")
    json.dumps(found)
    decoder.finder("x")(head + data)
