"""Fetch requests and the records in their answers.

This file knows one request to one broker and how batches become records for a reader. It must not
know positions over time, that is `consumer.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from strandline.client.aborted import AbortedFilter
from strandline.errors import CorruptRecords
from strandline.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from strandline.records.batch import check_crc, iterate_headers
from strandline.records.record import Record, read_records
from strandline.types import (
    NO_EPOCH,
    NO_TOPIC_ID,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicId,
    TopicPartition,
)

TOPIC_IDS_SINCE: Final = 13
LAST_BY_NAME: Final = 12


class Isolation(IntEnum):
    """What a reader gets to see of transactions."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


ISOLATIONS: Final = {level.name.lower(): level for level in Isolation}
"""By their names in `isolation.level`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """Limits of one fetch request."""

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    rack: str = ""
    checks_crc: bool = True


@dataclass(frozen=True, slots=True)
class FetchFrom:
    """From where to fetch one partition. The leader must have the epoch; -1: any."""

    partition: TopicPartition
    topic_id: TopicId
    offset: Offset
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """Records of one partition, maybe none, and where its log begins and ends for this reader."""

    topic_partition: TopicPartition
    records: tuple[Record, ...]
    next_offset: Offset
    """Where to go on: behind everything fetched, skipped records and markers included."""
    end_offset: Offset
    """The high watermark, or the last stable offset for a reader of committed records."""
    log_start_offset: Offset
    last_epoch: LeaderEpoch = NO_EPOCH
    """The leader epoch of the last batch; none without one."""
    asked_epoch: LeaderEpoch = NO_EPOCH
    """The leader epoch in which the broker was asked, and which it has compared with its own."""


def fetch_request(
    wanted: Iterable[FetchFrom],
    settings: FetchSettings,
    max_wait_ms: int,
    *,
    session: tuple[int, int] = (0, -1),
    forgotten: Iterable[FetchFrom] = (),
) -> FetchRequest:
    """A request for all of `wanted`, which one broker leads.

    `session` has the id and the epoch of a fetch session, out of which `forgotten` are taken
    (see `fetch_session`); without them the request stands for itself.
    """
    topics: dict[tuple[str, TopicId], FetchTopic] = {}
    for each in wanted:
        name, number = each.partition
        topic = topics.get((name, each.topic_id))
        if topic is None:
            topic = topics[name, each.topic_id] = FetchTopic(topic=name, topic_id=each.topic_id)
        topic.partitions.append(
            FetchPartition(
                partition=number,
                current_leader_epoch=each.leader_epoch,
                fetch_offset=each.offset,
                partition_max_bytes=settings.partition_max_bytes,
            )
        )
    gone: dict[tuple[str, TopicId], ForgottenTopic] = {}
    for each in forgotten:
        name, number = each.partition
        left = gone.get((name, each.topic_id))
        if left is None:
            left = gone[name, each.topic_id] = ForgottenTopic(topic=name, topic_id=each.topic_id)
        left.partitions.append(number)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        isolation_level=settings.isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=list(topics.values()),
        forgotten_topics_data=list(gone.values()),
        rack_id=settings.rack,
    )


def highest_version(wanted: Sequence[FetchFrom]) -> int | None:
    """The newest usable version: without topic ids it is one that names topics."""
    return LAST_BY_NAME if any(each.topic_id == NO_TOPIC_ID for each in wanted) else None


def answers_by_partition(
    response: FetchResponse, names: Mapping[TopicId, str]
) -> Iterator[tuple[TopicPartition, TopicId, PartitionData]]:
    """The parts of a response, with the topic's id if the response has it; those of topics that
    were not asked for are left out."""
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id)
        if name:
            for data in topic.partitions:
                yield TopicPartition(name, data.partition_index), topic.topic_id, data


def records_of(asked: FetchFrom, data: PartitionData, settings: FetchSettings) -> FetchedRecords:
    """The records in one partition's part of a response, from the asked offset on.

    Raises `CorruptRecords` with the partition and the offset at which reading stopped.
    """
    is_committed = settings.isolation is Isolation.READ_COMMITTED
    aborted = AbortedFilter(
        (ProducerId(each.producer_id), Offset(each.first_offset))
        for each in (data.aborted_transactions or () if is_committed else ())
    )
    buffer = data.records if isinstance(data.records, memoryview) else memoryview(b"")
    records: list[Record] = []
    next_offset = asked.offset
    last_epoch = NO_EPOCH
    try:
        for position, header in iterate_headers(buffer):
            # First, as in Kafka's client: what is skipped is skipped by what its header says.
            if settings.checks_crc:
                check_crc(buffer, position, header)
            if header.next_offset <= asked.offset:
                continue  # a broker may send whole batches from before the offset
            if header.is_control:
                for record in read_records(buffer, position, check_crc=False):
                    aborted.pass_marker(header, record)
            elif not aborted.skips(header):
                batch = read_records(buffer, position, check_crc=False)
                if header.base_offset >= asked.offset:
                    records.extend(batch)
                else:
                    records.extend(record for record in batch if record.offset >= asked.offset)
            next_offset = header.next_offset
            last_epoch = header.leader_epoch
    except CorruptRecords as error:
        raise CorruptRecords(
            f"Partition {asked.partition} cannot be read beyond offset {next_offset}: {error}"
        ) from error
    end = data.last_stable_offset if is_committed else data.high_watermark
    return FetchedRecords(
        asked.partition,
        tuple(records),
        next_offset,
        Offset(end),
        Offset(data.log_start_offset),
        last_epoch,
        asked.leader_epoch,
    )
