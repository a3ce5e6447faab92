"""Bootstrap addresses as people write them."""

from __future__ import annotations

import pytest

from strandline.client.settings import Address, parse_addresses
from strandline.errors import InvalidSetting


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        ("::1", [("::1", 9092)]),
    ],
)
def test_addresses_are_read(text: str, expected: list[tuple[str, int]]) -> None:
    assert list(parse_addresses(text)) == expected


@pytest.mark.parametrize("text", ["", " , ", "a:", "a:x", "a:0", "a:65536", ":9092", "[::1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting):
        parse_addresses(text)


def test_an_address_is_written_as_it_is_read() -> None:
    for address in (Address("host", 1), Address("::1", 2)):
        assert parse_addresses(str(address)) == (address,)
