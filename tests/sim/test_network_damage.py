"""Bit flips: only where it is certain what must come of them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.records.batch import HEADER_BYTES, verify_crc
from strandline.records.builder import build_batch
from strandline.records.record import Record
from strandline.sim.damage import find_batches, flip_in_records, flip_in_size
from strandline.sim.latency import Tcp
from tests.sim.test_network import ONE, Setup, framed, send

FIRST_AFFECTED = 17
"""Where a batch's CRC stands; what is before it is not covered."""


def batch(value: bytes, records: int = 1) -> bytes:
    return build_batch([Record(timestamp=7, key=b"key", value=value) for _ in range(records)])


def differences(some: bytes, other: bytes) -> list[int]:
    assert len(some) == len(other)
    return [at for at, (a, b) in enumerate(zip(some, other, strict=True)) if a != b]


@given(
    parts=st.lists(
        st.one_of(
            st.binary(max_size=80),
            st.builds(batch, st.binary(max_size=30), st.integers(1, 3)),
            st.builds(lambda data: batch(data)[:-1], st.binary(max_size=30)),
        ),
        max_size=6,
    ),
    seed=st.integers(0, 1000),
)
def test_only_checked_bytes_of_whole_batches_are_changed(parts: list[bytes], seed: int) -> None:
    data = b"".join(parts)
    whole = find_batches(data)
    assert len(whole) >= sum(
        len(part) > HEADER_BYTES and verify_crc(part, 0, len(part)) for part in parts
    ) * (len(parts) == 1)
    damaged = flip_in_records(data, Random(seed).randrange)
    if not whole:
        assert damaged is None
        return
    assert damaged is not None
    (at,) = differences(data, damaged)
    (hit,) = [each for each in whole if each.start <= at < each.end]
    assert at - hit.start >= FIRST_AFFECTED
    assert not verify_crc(damaged, hit.start, hit.end - hit.start)
    for other in whole:
        if other != hit:
            assert verify_crc(damaged, other.start, other.end - other.start)


def test_every_batch_of_a_frame_is_found() -> None:
    first, second = batch(b"\x02" * 50), batch(b"other", 3)
    data = b"\x02" * 40 + first + second + b"\x00\x02"
    assert find_batches(data) == [
        (40, 40 + len(first)),
        (40 + len(first), 40 + len(first) + len(second)),
    ]


def test_a_flip_in_the_size_makes_it_negative() -> None:
    damaged = flip_in_size(framed(b"abc"), Random(1).randrange)
    assert damaged == b"\x80\x00\x00\x03abc"
    assert flip_in_size(b"\x00", Random(1).randrange) is None
    assert flip_in_size(pack(">i", 100) + b"part", Random(1).randrange) is None
    assert flip_in_size(b"\xff\xff\xff\xff", Random(1).randrange) is None


class TestOverTheNetwork:
    def test_the_next_frame_with_records_is_damaged_and_known_to_be(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        setup.network.flip("client", ONE)
        bodies = [b"no records", batch(b"value"), batch(b"value")]
        send(server, batch(b"the other way"))
        send(client, *bodies)
        setup.run()
        assert client.frames == [batch(b"the other way")]
        assert [bool(differences(*pair)) for pair in zip(bodies, server.frames, strict=True)] == [
            False,
            True,
            False,
        ]
        assert client.wire is not None
        assert server.wire is not None
        assert client.wire.is_damaged
        assert server.wire.is_damaged
        assert setup.network.counts.flips == 1

    def test_a_damaged_size_ends_the_connection(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        setup.network.flip(ONE, "client", "size")
        send(server, b"answer")
        setup.run()
        assert client.frames == []
        assert client.ended is not None
        assert server.ended is not None

    def test_a_flip_that_finds_nothing_waits_until_everything_is_healed(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        setup.network.flip(None, None)
        send(client, b"no records")
        setup.run()
        setup.network.heal()
        send(client, batch(b"value"))
        setup.run()
        assert server.frames == [b"no records", batch(b"value")]

    def test_other_places_cannot_be_flipped(self) -> None:
        with pytest.raises(Exception, match="not in offsets"):
            Setup().network.flip(None, None, "offsets")

    def test_a_batch_in_pieces_is_left_alone(self) -> None:
        setup = Setup(replace(Tcp(), window_bytes=50))
        client, server = setup.connect()
        setup.network.flip(None, None)
        send(client, batch(b"value"))
        setup.run()
        assert server.frames == [batch(b"value")]
