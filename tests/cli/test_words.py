"""Small things that commands share: times, sizes, tables."""

from __future__ import annotations

import ssl

import click
import pytest

from strandline.cli.moments import parse_duration, parse_time
from strandline.cli.output import counted, print_table, shown_bytes, size_text, time_text
from strandline.client.security.tls import failed
from strandline.numerals import INT64_MAX, whole_number


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01.5Z", 1500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("20270101", 1_798_761_600_000),
        ("1798761600000", 1_798_761_600_000),
    ],
)
def test_times(text: str, milliseconds: int) -> None:
    assert parse_time(text, "--t") == milliseconds


def test_whole_numbers() -> None:
    assert [whole_number(text, INT64_MAX) for text in ("0", "007", str(2**63 - 1))] == [
        *(0, 7, 2**63 - 1)
    ]
    for text in ("", "-1", "1.0", "\u0661", str(2**63), "9" * 5000):
        assert whole_number(text, INT64_MAX) is None


@pytest.mark.parametrize("text", ["", "noon", "2027", "12345", "1798761600000000", "-1"])
def test_what_is_no_time(text: str) -> None:
    """A year, and microseconds, were taken for milliseconds since 1970."""
    with pytest.raises(click.UsageError, match=r"--t takes an ISO 8601 time .* not '"):
        parse_time(text, "--t")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("P1D", 86_400_000), ("PT1H30M", 5_400_000), ("PT0.25S", 250), ("P1DT1S", 86_401_000)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration(text, "--d") == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "P1H", "PT-1S", "P1M"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.UsageError, match="--d takes an ISO 8601 duration"):
        parse_duration(text, "--d")


def test_sizes_times_and_counts() -> None:
    assert [size_text(each) for each in (0, 1023, 1024, 5 * 1024**3)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 GiB",
    ]
    assert [time_text(each) for each in (-1, 0, 2**62)] == [
        "-1",
        "1970-01-01T00:00:00.000Z",
        str(2**62),
    ]
    assert [counted(each, "record") for each in (0, 1, 2000)] == [
        "0 records",
        "1 record",
        "2,000 records",
    ]


def test_bytes_for_a_terminal() -> None:
    assert shown_bytes(None) == "null"
    assert shown_bytes("grün\x07\u202e".encode() + b"\xfe") == "grün\\x07\\u202e\\xfe"


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "N"), [("a", 1), ("bb", None), ("c", 100)])
    assert capsys.readouterr().out == "NAME    N\na       1\nbb      -\nc     100\n"


def test_a_sentence_of_openssl_ends_once() -> None:
    """Its sentence about another host has a full stop, the others have none."""
    error = ssl.SSLCertVerificationError("not verified")
    error.verify_code = 62
    error.verify_message = "Hostname mismatch, certificate is not valid for 'x'."
    assert ".." not in failed(("x", 1), error).message
