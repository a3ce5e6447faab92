"""Looking offsets up: the ends of logs, offsets of times, and what groups have committed.

This file knows three requests and their versions. It must not know what readers do with offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from strandline.client.by_broker import (
    AskLeader,
    Outcomes,
    ask_all_leaders,
    ask_leaders,
    ask_leaders_now,
)
from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.fetching import Isolation
from strandline.client.group_requests import (
    LAST_BY_NAME,
    Committed,
    Membership,
    commit_request,
    fetch_offsets_request,
    stored_offsets,
)
from strandline.client.refusal import check
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from strandline.protocol.messages.offset_commit import OffsetCommitResponse
from strandline.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from strandline.protocol.messages.offset_fetch import OffsetFetchResponse
from strandline.types import LeaderEpoch, Offset, TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """A place in a log; offset -1 when no record is as late as the time asked for."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


def list_offsets(
    cluster: ClusterClient,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, OffsetAt]:
    """For each partition the first offset at or after a time, or of `LATEST`, `EARLIEST`...

    Retries what may succeed; raises `ProtocolError` for the first partition that cannot be asked.
    """
    return ask_all_leaders(cluster, wanted, _asking(cluster, wanted, isolation))


def list_known_offsets(
    cluster: ClusterClient,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Outcomes[TopicPartition, OffsetAt]:
    """As `list_offsets`, but what one partition lacks costs no other: the offsets, and why there
    are no more. A partition that has no leader (LEADER_NOT_AVAILABLE) is not waited for.

    Raises `ProtocolError` if no broker tells which leaders there are.
    """
    return ask_leaders(cluster, wanted, _asking(cluster, wanted, isolation))


def list_offsets_now(
    cluster: ClusterClient,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Outcomes[TopicPartition, OffsetAt]:
    """As `list_known_offsets`, in one attempt for each leader."""
    return ask_leaders_now(cluster, wanted, _asking(cluster, wanted, isolation))


def _asking(
    cluster: ClusterClient, wanted: Mapping[TopicPartition, int], isolation: Isolation
) -> AskLeader[OffsetAt]:
    def ask(
        connection: Connection, partitions: Sequence[TopicPartition]
    ) -> Outcomes[TopicPartition, OffsetAt]:
        topics: dict[str, ListOffsetsTopic] = {}
        for at in partitions:
            topic = topics.setdefault(at.topic, ListOffsetsTopic(name=at.topic))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=at.partition,
                    current_leader_epoch=cluster.partition(at).leader_epoch,
                    timestamp=wanted[at],
                )
            )
        response = connection.call(
            ApiKey.LIST_OFFSETS,
            ListOffsetsResponse,
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                topics=list(topics.values()),
                timeout_ms=cluster.settings.request_timeout_ms,
            ),
        )
        return _offsets_of(response)

    return ask


def _offsets_of(response: ListOffsetsResponse) -> Outcomes[TopicPartition, OffsetAt]:
    found: dict[TopicPartition, OffsetAt] = {}
    refused: dict[TopicPartition, ProtocolError] = {}
    for topic in response.topics:
        for each in topic.partitions:
            at = TopicPartition(topic.name, each.partition_index)
            error = outcome(each.error_code, None, f"partition {at}")
            if error is not None:
                refused[at] = error
            else:
                epoch = LeaderEpoch(each.leader_epoch)
                found[at] = OffsetAt(Offset(each.offset), each.timestamp, epoch)
    return found, refused


def committed_offsets(
    cluster: ClusterClient,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    is_stable: bool = False,
) -> dict[TopicPartition, Committed]:
    """The stored offsets of a group, of all partitions by default. Those without one are absent.

    `is_stable` waits for transactions that store others, for who is to go on from there.
    """
    wanted = None if partitions is None else sorted(partitions)

    def attempt(connection: Connection) -> dict[TopicPartition, Committed]:
        response = connection.call(
            ApiKey.OFFSET_FETCH,
            OffsetFetchResponse,
            lambda version: fetch_offsets_request(group, wanted, version, is_stable=is_stable),
            highest=LAST_BY_NAME,
        )
        told = stored_offsets(response, {})
        check(told.error, None, f"group '{group}'")
        for partition, code in told.refused.items():
            check(code, None, f"partition {partition}")
        return {each: stored for each, stored in told.offsets.items() if stored is not None}

    return cluster.retry_on_coordinator(group, attempt)


def stored_positions(
    cluster: ClusterClient, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Offset]:
    """Where a reader of a group goes on in these partitions; those without an offset are absent."""
    stored = committed_offsets(cluster, group, partitions, is_stable=True)
    return {each: at.offset for each, at in stored.items()}


def commit_offsets(
    cluster: ClusterClient, group: str, offsets: Mapping[TopicPartition, Offset], metadata: str = ""
) -> None:
    """Store offsets for a group that has no members (a "simple" consumer, or a reset).

    Raises `ProtocolError`: UNKNOWN_MEMBER_ID while the group has members, or whatever is refused
    first; others of `offsets` may then be stored.
    """
    if not offsets:
        return
    values = {each: Committed(offsets[each], metadata=metadata) for each in sorted(offsets)}

    def attempt(connection: Connection) -> None:
        response = connection.call(
            ApiKey.OFFSET_COMMIT,
            OffsetCommitResponse,
            lambda version: commit_request(Membership(group, None), values, {}, version),
            highest=LAST_BY_NAME,
        )
        for topic in response.topics:
            for each in topic.partitions:
                what = f"group '{group}'"
                if each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    what = f"partition {TopicPartition(topic.name, each.partition_index)}"
                check(each.error_code, None, what)

    cluster.retry_on_coordinator(group, attempt)


def delete_offsets(
    cluster: ClusterClient, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ProtocolError | None]:
    """Forget what a group has stored; the outcome of each partition."""
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in numbers],
            )
            for name, numbers in _by_topic(partitions).items()
        ],
    )

    def attempt(connection: Connection) -> dict[TopicPartition, ProtocolError | None]:
        response = connection.call(ApiKey.OFFSET_DELETE, OffsetDeleteResponse, request)
        check(response.error_code, None, f"group '{group}'")
        outcomes: dict[TopicPartition, ProtocolError | None] = {}
        for topic in response.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                outcomes[partition] = outcome(each.error_code, None, f"partition {partition}")
        return outcomes

    return cluster.retry_on_coordinator(group, attempt)


def outcome(number: int, message: str | None, what: str) -> ProtocolError | None:
    """The error for a code as a value; None for NONE."""
    try:
        check(number, message, what)
    except ProtocolError as error:
        return error
    return None


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        grouped.setdefault(topic, []).append(partition)
    return grouped
