"""The requests of a group member in all their versions, and the offsets in their answers.

This file knows messages. It must not know when which one is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from strandline.client.consumer_protocol import NO_GENERATION, PROTOCOL_TYPE
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.messages.heartbeat import HeartbeatRequest
from strandline.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from strandline.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from strandline.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from strandline.types import NO_EPOCH, NO_TOPIC_ID, LeaderEpoch, Offset, TopicId, TopicPartition

NO_MEMBER: Final = ""
LAST_BY_NAME: Final = 9
"""From version 10 on OffsetCommit and OffsetFetch name topics by their ids. A group may hold
offsets of topics that are gone, which have no id to ask with."""
_GROUPS_SINCE: Final = 8
_STABLE_SINCE: Final = 7
_MEMBERS_SINCE: Final = 3
_STATIC_SINCE: Final = {"JoinGroup": 5, "SyncGroup": 3, "Heartbeat": 3, "OffsetCommit": 7}


@dataclass(frozen=True, slots=True)
class Membership:
    """As whom a member of a group speaks to its coordinator (Kafka's `ConsumerGroupMetadata`)."""

    group: str
    instance_id: str | None
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    """In the consumer protocol the member's epoch."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What a group has stored for a partition, or is to store."""

    offset: Offset
    leader_epoch: LeaderEpoch = NO_EPOCH
    metadata: str = ""


class JoinTerms(NamedTuple):
    """What a member asks for when it joins."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Sequence[tuple[str, bytes]]
    """Assignors and the subscription that goes with each."""
    reason: str


def join_request(who: Membership, terms: JoinTerms, version: int) -> JoinGroupRequest:
    """Enter the next generation."""
    _check_static("JoinGroup", who, version)
    return JoinGroupRequest(
        group_id=who.group,
        session_timeout_ms=terms.session_timeout_ms,
        rebalance_timeout_ms=terms.rebalance_timeout_ms,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name, metadata in terms.protocols
        ],
        reason=terms.reason,
    )


def sync_request(
    who: Membership, protocol: str, parts: Mapping[str, bytes], version: int
) -> SyncGroupRequest:
    """Ask for the assignment; the leader brings those of all members."""
    _check_static("SyncGroup", who, version)
    return SyncGroupRequest(
        group_id=who.group,
        generation_id=who.generation,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequestAssignment(member_id=member, assignment=part)
            for member, part in parts.items()
        ],
    )


def heartbeat_request(who: Membership, version: int) -> HeartbeatRequest:
    """Say that the member is alive."""
    _check_static("Heartbeat", who, version)
    return HeartbeatRequest(
        group_id=who.group,
        generation_id=who.generation,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
    )


def leave_request(who: Membership, reason: str, version: int) -> LeaveGroupRequest:
    """Go."""
    if version < _MEMBERS_SINCE:
        return LeaveGroupRequest(group_id=who.group, member_id=who.member_id)
    member = MemberIdentity(
        member_id=who.member_id, group_instance_id=who.instance_id, reason=reason
    )
    return LeaveGroupRequest(group_id=who.group, members=[member])


def commit_request(
    who: Membership,
    offsets: Mapping[TopicPartition, Committed],
    ids: Mapping[str, TopicId],
    version: int,
) -> OffsetCommitRequest:
    """Store how far a member has read."""
    _check_static("OffsetCommit", who, version)
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for at, committed in offsets.items():
        topic = topics.get(at.topic)
        if topic is None:
            topic = OffsetCommitRequestTopic(name=at.topic, topic_id=ids.get(at.topic, NO_TOPIC_ID))
            topics[at.topic] = topic
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=at.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=who.group,
        generation_id_or_member_epoch=who.generation,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        topics=list(topics.values()),
    )


def fetch_offsets_request(
    group: str,
    partitions: Iterable[TopicPartition] | None,
    version: int,
    *,
    ids: Mapping[str, TopicId] | None = None,
    is_stable: bool = False,
    who: Membership | None = None,
) -> OffsetFetchRequest:
    """Ask for what a group has stored, of all partitions by default. With `is_stable`, partitions
    with offsets of open transactions are refused until these are decided (KIP-447). Members of the
    consumer protocol say `who` they are, and are refused if they are not any more."""
    numbers: dict[str, list[int]] = {}
    for at in partitions or ():
        numbers.setdefault(at.topic, []).append(at.partition)
    if version >= _GROUPS_SINCE:
        wanted = [
            OffsetFetchRequestTopics(
                name=name, topic_id=(ids or {}).get(name, NO_TOPIC_ID), partition_indexes=indexes
            )
            for name, indexes in numbers.items()
        ]
        asked = OffsetFetchRequestGroup(
            group_id=group, topics=None if partitions is None else wanted
        )
        if who is not None:
            asked.member_id, asked.member_epoch = who.member_id, who.generation
        return OffsetFetchRequest(groups=[asked], require_stable=is_stable)
    older = [
        OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
        for name, indexes in numbers.items()
    ]
    return OffsetFetchRequest(
        group_id=group,
        topics=None if partitions is None else older,
        require_stable=is_stable and version >= _STABLE_SINCE,
    )


class StoredOffsets(NamedTuple):
    """What an OffsetFetch brought."""

    error: ErrorCode
    """Of the group as a whole."""
    offsets: dict[TopicPartition, Committed | None]
    """None where nothing is stored."""
    refused: dict[TopicPartition, ErrorCode]


def stored_offsets(answer: OffsetFetchResponse, names: Mapping[TopicId, str]) -> StoredOffsets:
    """The answer's content. `names` are of the topics that were asked for by id."""
    found = StoredOffsets(_group_error(answer), {}, {})
    for name, part in _parts(answer, names):
        at = TopicPartition(name, part.partition_index)
        if part.error_code != ErrorCode.NONE:
            found.refused[at] = ErrorCode(part.error_code)
        elif part.committed_offset < 0:
            found.offsets[at] = None
        else:
            found.offsets[at] = Committed(
                Offset(part.committed_offset),
                LeaderEpoch(part.committed_leader_epoch),
                part.metadata or "",
            )
    return found


def _group_error(answer: OffsetFetchResponse) -> ErrorCode:
    code = answer.error_code
    for group in answer.groups:
        code = code or group.error_code
    return ErrorCode(code)


def _parts(answer: OffsetFetchResponse, names: Mapping[TopicId, str]) -> Iterator[tuple[str, Any]]:
    """(topic, partition) of all forms of the answer."""
    for older in answer.topics:
        for each in older.partitions:
            yield older.name, each
    for group in answer.groups:
        for topic in group.topics:
            for part in topic.partitions:
                yield topic.name or names.get(topic.topic_id, ""), part


def _check_static(api: str, who: Membership, version: int) -> None:
    """Older versions have no place for the name of a static member."""
    if who.instance_id is not None and version < _STATIC_SINCE[api]:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The coordinator of group '{who.group}' is too old for group.instance.id: it speaks "
            f"{api} in version {version}.",
        )
