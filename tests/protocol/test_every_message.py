"""Properties that hold for every message in every version."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.errors import MalformedFrame, ProtocolError
from strandline.protocol import schema
from strandline.protocol.declare import shape_of

FEW = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
"""Few examples, because each is drawn for every version of every message."""


def _versions(declared: Any) -> range:
    lowest, highest = shape_of(declared).versions
    return range(lowest, highest + 1)


@FEW
@given(data=st.data())
def test_what_was_written_is_read_again(declared: Any, values_of: Any, data: Any) -> None:
    for version in _versions(declared):
        message = data.draw(values_of(declared, version))
        encoded = schema.encode(message, version)
        assert schema.decode(declared, version, encoded) == message
        padded = b"\xff\xff" + encoded
        assert schema.decode(declared, version, memoryview(bytearray(padded)), 2) == message


@settings(FEW, max_examples=2)
@given(data=st.data())
def test_a_cut_or_prolonged_message_is_refused(declared: Any, values_of: Any, data: Any) -> None:
    for version in _versions(declared):
        encoded = schema.encode(data.draw(values_of(declared, version)), version)
        for size in range(len(encoded)):
            with pytest.raises(MalformedFrame):
                schema.decode(declared, version, encoded[:size])
        with pytest.raises(MalformedFrame):
            schema.decode(declared, version, encoded + b"\0")


@FEW
@given(data=st.data())
def test_damaged_messages_raise_nothing_but_malformed_frame(
    declared: Any, values_of: Any, data: Any
) -> None:
    for version in _versions(declared):
        damaged = bytearray(schema.encode(data.draw(values_of(declared, version)), version))
        for position in data.draw(st.lists(st.integers(0, len(damaged)), max_size=4)):
            damaged[position : position + 1] = data.draw(
                st.sampled_from([b"", b"\0", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff\x07"])
            )
        with contextlib.suppress(MalformedFrame):
            schema.decode(declared, version, damaged)


@settings(FEW, max_examples=30)
@given(noise=st.binary(max_size=200))
def test_noise_raises_nothing_but_malformed_frame(declared: Any, noise: bytes) -> None:
    for version in _versions(declared):
        with contextlib.suppress(MalformedFrame):
            schema.decode(declared, version, noise)


def test_a_message_without_anything_can_be_sent_in_every_version(declared: Any) -> None:
    for version in _versions(declared):
        assert schema.decode(declared, version, schema.encode(declared(), version)) == declared()


def test_versions_outside_the_range_are_refused(declared: Any) -> None:
    versions = _versions(declared)
    for version in (versions.start - 1, versions.stop):
        with pytest.raises(ProtocolError, match="has no version"):
            schema.encode(declared(), version)
        with pytest.raises(ProtocolError, match="has no version"):
            schema.decode(declared, version, b"")
