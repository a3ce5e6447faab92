"""The properties file format; test_against_kafka compares it with Java's reader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.config.properties import parse_properties
from strandline.errors import InvalidSetting


def escape(text: str) -> str:
    plain = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
    special = "\\=:#! "
    return "".join(
        plain.get(c) or (f"\\{c}" if c in special else c if c.isascii() else utf16(c)) for c in text
    )


def utf16(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02X}" for i in range(0, len(units), 2))


text = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(text, text))
def test_escaped_text_comes_back(properties: dict[str, str]) -> None:
    lines = [f"{escape(name)}={escape(value)}" for name, value in properties.items()]
    assert parse_properties("\n".join(lines)) == properties


def test_comments_continuations_and_separators() -> None:
    assert parse_properties(
        "# a comment\n! another\n\none = 1\ntwo: 2\nthree 3\nfour=a,\\\n     b\nfive\n one=9"
    ) == {"one": "9", "two": "2", "three": "3", "four": "a,b", "five": ""}


def test_an_open_continuation_ends_with_the_file() -> None:
    assert parse_properties("a=1\\") == {"a": "1"}


@pytest.mark.parametrize("digits", ["", "12", "12g4", "_123"])
def test_broken_escapes(digits: str) -> None:
    with pytest.raises(InvalidSetting, match="four hexadecimal digits"):
        parse_properties(f"a=\\u{digits}")
