"""What the names in a log directory say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.storage.directory_names import (
    DirectoryKind,
    future_directory_name,
    parse_directory_name,
    partition_directory_name,
    retired_directory_name,
)
from strandline.types import TopicPartition

HEX = "0123456789abcdef0123456789abcdef"
TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=249)
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1))
ASIDE = [DirectoryKind.DELETED, DirectoryKind.STRAY]


@given(PARTITIONS)
def test_partitions_round_trip(topic_partition: TopicPartition) -> None:
    name = partition_directory_name(topic_partition)
    assert parse_directory_name(name) == (DirectoryKind.PARTITION, topic_partition)


@given(PARTITIONS, st.sampled_from(ASIDE))
def test_retired_names_say_what_they_are(
    topic_partition: TopicPartition, kind: DirectoryKind
) -> None:
    name = retired_directory_name(topic_partition, kind, HEX)
    assert parse_directory_name(name) == (kind, None)
    assert name.endswith(f"-{topic_partition.partition}.{HEX}-{kind.value}")
    assert len(name) <= 255


@given(PARTITIONS)
def test_names_of_copies_are_read_back(topic_partition: TopicPartition) -> None:
    name = future_directory_name(topic_partition, HEX)
    assert parse_directory_name(name) == (DirectoryKind.FUTURE, topic_partition)
    assert name == f"{partition_directory_name(topic_partition)}.{HEX}-future"


def test_a_copy_that_names_no_partition_is_known_all_the_same() -> None:
    assert parse_directory_name("t-0.1234-future") == (DirectoryKind.FUTURE, None)


@pytest.mark.parametrize(
    "name",
    [
        "lost+found",
        "orders",
        "orders-",
        "-0",
        "orders-x",
        "orders-01",
        "orders-2147483648",
        "orders-\u0665",
        "or ders-0",
        "a" * 250 + "-0",
        "orders-delete",
        "remote-log-index-cache",
        "__cluster_metadata-0",
    ],
)
def test_other_names_are_unknown(name: str) -> None:
    assert parse_directory_name(name) == (DirectoryKind.UNKNOWN, None)


def test_a_topic_may_look_like_a_suffix() -> None:
    assert parse_directory_name("x.y-delete-0").topic_partition == ("x.y-delete", 0)
