"""Appending what the broker has put together itself, beside appending the same bytes unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from strandline.config.topic import TopicConfig
from strandline.errors import ErrorCode, ProtocolError
from strandline.records.codec import Codec
from strandline.records.own_batch import OwnBatch, own_batch, own_marker
from strandline.storage.log import Log
from strandline.storage.memory_files import MemoryFiles
from strandline.types import LeaderEpoch, ProducerEpoch, ProducerId
from tests.storage.conftest import NOW_MS, SMALL, World

EPOCH = LeaderEpoch(3)
PRODUCER = ProducerId(9), ProducerEpoch(2)
CONFIGS = {
    "of_the_producer": SMALL,
    "uncompressed": replace(SMALL, compression_type="uncompressed"),
    "repacked": replace(SMALL, compression_type="gzip"),
    "stamped": replace(SMALL, message_timestamp_type="LogAppendTime"),
    "compacted": replace(SMALL, cleanup_policies=frozenset({"compact"})),
}


def state(value: bytes, codec: Codec = Codec.NONE) -> OwnBatch:
    return own_batch([(b"key", value), (b"other", None)], timestamp=NOW_MS - 1, codec=codec)


def data(value: bytes) -> OwnBatch:
    return own_batch([(b"key", value)], timestamp=NOW_MS - 1, producer=PRODUCER)


def marker(*, commits: bool, producer_epoch: int = 2, coordinator_epoch: int = 5) -> OwnBatch:
    return own_marker(
        commits=commits,
        coordinator_epoch=coordinator_epoch,
        timestamp=NOW_MS - 1,
        producer_id=PRODUCER[0],
        producer_epoch=ProducerEpoch(producer_epoch),
    )


Append = Callable[[Log, OwnBatch, int], int]


def known(log: Log, own: OwnBatch, version: int) -> int:
    return log.appender.append_own(
        own, leader_epoch=EPOCH, now_ms=NOW_MS, transaction_version=version
    )


def unknown(log: Log, own: OwnBatch, version: int) -> int:
    return log.appender.append_as_coordinator(
        own.buffer, leader_epoch=EPOCH, now_ms=NOW_MS, transaction_version=version
    ).base_offset


def written(
    world: World, append: Append, config: TopicConfig
) -> tuple[list[object], bytes, object]:
    """What came of each append, the log, and what is known of the producer."""
    log = world.create(config)
    outcomes: list[object] = []
    for own, version in (
        (state(b"1"), 0),
        (state(b"2" * 300, Codec.GZIP), 0),
        (data(b"3"), 0),
        (marker(commits=False), 0),
        (data(b"4"), 0),
        (state(b"5" * 900), 0),
        (state(b"6" * 300), 0),  # in the next segment
        (marker(commits=True), 0),
        (marker(commits=True, producer_epoch=1), 0),
        (marker(commits=True, coordinator_epoch=4), 0),
        (data(b"7"), 0),
        (marker(commits=True), 2),
        (marker(commits=True, producer_epoch=3), 2),
        (data(b"8"), 0),
    ):
        try:
            outcomes.append(append(log, own, version))
        except ProtocolError as refusal:
            outcomes.append(refusal.code)
    log.check()
    [entry] = log.producers.active.values()
    known_of_it = {name: getattr(entry, name) for name in entry.__slots__}
    transactions = log.producers.transactions.first_unstable_offset
    bytes_written = b"".join(each.log.read_at(0, each.log.size) for each in log.segments.all)
    return outcomes, bytes_written, (known_of_it, transactions, len(log.segments.all))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_both_write_the_same_and_know_the_same_afterwards(config: TopicConfig) -> None:
    first, second = (
        written(World(MemoryFiles(), "/data", "memory"), append, config)
        for append in (known, unknown)
    )
    assert first == second
    outcomes = first[0]
    assert ErrorCode.INVALID_PRODUCER_EPOCH in outcomes
    assert ErrorCode.TRANSACTION_COORDINATOR_FENCED in outcomes


def test_one_that_is_too_large_is_refused_and_nothing_is_written(world: Any) -> None:
    log = world.create(replace(SMALL, max_message_bytes=150))
    assert known(log, state(b"1"), 0) == 0
    with pytest.raises(ProtocolError) as refused:
        known(log, state(b"2" * 100), 0)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    log.update_config(replace(SMALL, segment_bytes=150))
    with pytest.raises(ProtocolError) as refused:
        known(log, state(b"2" * 100), 0)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 2


def test_a_codec_that_the_topic_does_not_want_is_undone(world: Any, kit: Any) -> None:
    log = world.create(replace(SMALL, compression_type="uncompressed"))
    known(log, state(b"1" * 500, Codec.GZIP), 0)
    assert log.segments.active.size > 500
    assert [value for _, value in kit.records(log)] == [b"1" * 500, None]
