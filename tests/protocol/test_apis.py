"""The table of APIs agrees with the declared messages, and costs little to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import strandline
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol import apis
from strandline.protocol.apis import ApiKey
from strandline.protocol.declare import shape_of
from strandline.protocol.versions import NEWEST, NO_VERSIONS, VersionRange, parse_versions


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_the_table_says_what_the_messages_say(key: ApiKey) -> None:
    api = apis.api_of(key)
    for declared, kind in ((api.request_class, "Request"), (api.response_class, "Response")):
        shape = shape_of(declared)
        assert shape.name == api.name + kind
        assert shape.versions == api.versions
        for version in range(api.versions.lowest, api.versions.highest + 1):
            assert shape.flexible.covers(version) == api.is_flexible(version)


def test_every_key_is_known_once() -> None:
    assert set(apis.KNOWN) == {int(key) for key in ApiKey}


def test_produce_is_advertised_from_version_0_for_librdkafka() -> None:
    assert apis.api_of(ApiKey.PRODUCE).advertised_versions == VersionRange(0, 13)
    assert apis.api_of(ApiKey.PRODUCE).versions == VersionRange(3, 13)
    assert apis.api_of(ApiKey.FETCH).advertised_versions == VersionRange(4, 18)


def test_unknown_keys() -> None:
    assert apis.find_api(5) is None
    with pytest.raises(ProtocolError) as refused:
        apis.api_of(5)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (ApiKey.METADATA, 8, 1, 0),
        (ApiKey.METADATA, 9, 2, 1),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.METADATA, 99, 2, 1),
    ],
)
def test_header_versions(
    key: ApiKey, version: int, request_header: int, response_header: int
) -> None:
    api = apis.api_of(key)
    assert api.request_header_version(version) == request_header
    assert api.response_header_version(version) == response_header


def test_messages_are_imported_only_when_asked_for() -> None:
    program = (
        "import sys; from strandline.protocol import apis, framing, schema; "
        "loaded = [n for n in sys.modules if n.startswith('strandline.protocol.messages.')]; "
        "assert not loaded, loaded; apis.api_of(3).request_class; "
        "loaded = [n for n in sys.modules if n.startswith('strandline.protocol.messages.')]; "
        "assert loaded == ['strandline.protocol.messages.metadata'], loaded"
    )
    source = str(Path(strandline.__file__).parents[1])
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": source})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3+", VersionRange(3, NEWEST)),
        ("0-7", VersionRange(0, 7)),
        ("5", VersionRange(5, 5)),
        ("none", NO_VERSIONS),
    ],
)
def test_ranges_are_read_and_written_as_kafka_writes_them(
    text: str, expected: VersionRange
) -> None:
    assert parse_versions(text) == expected
    assert str(expected) == text


def test_ranges_cover_both_ends_and_overlap() -> None:
    assert [version for version in range(6) if VersionRange(2, 4).covers(version)] == [2, 3, 4]
    assert VersionRange(0, 3).overlap(VersionRange(3, 9)) == VersionRange(3, 3)
    assert VersionRange(0, 3).overlap(VersionRange(4, 9)).empty
    with pytest.raises(ValueError, match="invalid literal"):
        parse_versions("x")
