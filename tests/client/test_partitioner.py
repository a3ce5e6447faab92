"""Where records go: equal to Java's client for keys."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.client.partitioner import StickyChoice, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_java(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed & 0xFFFF_FFFF


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_a_key_has_a_partition(key: bytes, partitions: int) -> None:
    assert 0 <= partition_for_key(key, partitions) < partitions


def test_keyless_records_stay_until_enough_bytes_went_there() -> None:
    choice = StickyChoice(Random(1), stay_bytes=100)
    chosen = [choice.choose("t", [0, 1, 2], 50) for _ in range(6)]
    assert chosen[0] == chosen[1]
    assert chosen[2] == chosen[3] != chosen[1]
    assert chosen[4] == chosen[5] != chosen[3]


def test_a_partition_that_lost_its_leader_is_left() -> None:
    choice = StickyChoice(Random(1), stay_bytes=10**9)
    first = choice.choose("t", [0, 1], 1)
    assert choice.choose("t", [1 - first], 1) == 1 - first
