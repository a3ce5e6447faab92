"""The requests of a group member in all their versions, and the assignment that a leader makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from strandline.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from strandline.protocol.messages.consumer_protocol import TopicPartition as Numbers
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
from strandline.protocol.schema import decode_versioned, encode_versioned
from strandline.types import TopicId, TopicPartition

PROTOCOL_TYPE: Final = "consumer"
RANGE: Final = "range"
NO_MEMBER: Final = ""
_LISTS_SINCE: Final = 4
_MEMBERS_SINCE: Final = 3
_GROUPS_SINCE: Final = 8
_NO_ERROR: Final = 0


class Membership(NamedTuple):
    """As whom a member speaks."""

    group: str
    member_id: str
    generation: int
    instance_id: str | None


def join(
    who: Membership, topics: Sequence[str], *, session_ms: int, rebalance_ms: int
) -> JoinGroupRequest:
    """Enter the next generation."""
    subscription = ConsumerProtocolSubscription(topics=list(topics))
    return JoinGroupRequest(
        group_id=who.group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[
            JoinGroupRequestProtocol(name=RANGE, metadata=encode_versioned(subscription, 1))
        ],
    )


def leave(who: Membership, version: int) -> LeaveGroupRequest:
    """Go."""
    if version >= _MEMBERS_SINCE:
        member = MemberIdentity(member_id=who.member_id, group_instance_id=who.instance_id)
        return LeaveGroupRequest(group_id=who.group, members=[member])
    return LeaveGroupRequest(group_id=who.group, member_id=who.member_id)


def commit(
    who: Membership,
    offsets: Mapping[TopicPartition, int],
    ids: Mapping[str, TopicId],
) -> OffsetCommitRequest:
    """Store how far a member has read."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for at, offset in offsets.items():
        topic = topics.get(at.topic)
        if topic is None:
            topic = OffsetCommitRequestTopic(name=at.topic, topic_id=ids[at.topic])
            topics[at.topic] = topic
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=at.partition, committed_offset=offset, committed_metadata=""
            )
        )
    return OffsetCommitRequest(
        group_id=who.group,
        generation_id_or_member_epoch=who.generation,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        topics=list(topics.values()),
    )


def fetch_offsets(
    group: str, partitions: Sequence[TopicPartition], ids: Mapping[str, TopicId], version: int
) -> OffsetFetchRequest:
    """Ask for what a group has stored."""
    numbers: dict[str, list[int]] = {}
    for at in partitions:
        numbers.setdefault(at.topic, []).append(at.partition)
    if version >= _GROUPS_SINCE:
        wanted = [
            OffsetFetchRequestTopics(name=name, topic_id=ids[name], partition_indexes=indexes)
            for name, indexes in numbers.items()
        ]
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)])
    older = [
        OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
        for name, indexes in numbers.items()
    ]
    return OffsetFetchRequest(group_id=group, topics=older)


def stored_offsets(
    answer: OffsetFetchResponse, names: Mapping[TopicId, str]
) -> tuple[int, dict[TopicPartition, int]]:
    """The first error code, and the stored offsets; -1 where there is none."""
    found: dict[TopicPartition, int] = {}
    first_error = answer.error_code
    for name, part in _parts(answer, names):
        if isinstance(part, int):
            first_error = first_error or part
            continue
        first_error = first_error or part.error_code
        found[TopicPartition(name, part.partition_index)] = part.committed_offset
    return first_error, found


def _parts(answer: OffsetFetchResponse, names: Mapping[TopicId, str]) -> Iterator[tuple[str, Any]]:
    """(topic, partition) of all forms of the answer; an error of a group stands alone."""
    for older in answer.topics:
        for each in older.partitions:
            yield older.name, each
    for group in answer.groups:
        if group.error_code != _NO_ERROR:
            yield "", group.error_code
        for topic in group.topics:
            name = topic.name or names.get(topic.topic_id, "")
            for part in topic.partitions:
                yield name, part


def assignments(
    members: Mapping[str, bytes], partitions: Mapping[str, Sequence[int]]
) -> dict[str, bytes]:
    """Kafka's range assignment: of each topic, every subscriber gets a run of partitions. The
    members come with their subscriptions, the topics with their partitions."""
    parts: dict[str, list[Numbers]] = {member: [] for member in sorted(members)}
    subscriptions = {
        member: decode_versioned(ConsumerProtocolSubscription, metadata).topics
        for member, metadata in members.items()
    }
    for topic, numbers in partitions.items():
        subscribers = [member for member in parts if topic in subscriptions[member]]
        if not subscribers:
            continue
        share, rest = divmod(len(numbers), len(subscribers))
        begin = 0
        for place, member in enumerate(subscribers):
            end = begin + share + (1 if place < rest else 0)
            if end > begin:
                parts[member].append(Numbers(topic=topic, partitions=list(numbers[begin:end])))
            begin = end
    return {
        member: encode_versioned(ConsumerProtocolAssignment(assigned_partitions=part), 1)
        for member, part in parts.items()
    }


def assigned(data: bytes) -> list[TopicPartition]:
    """What a member was given; nothing for an empty assignment."""
    if not data:
        return []
    found = decode_versioned(ConsumerProtocolAssignment, data)
    return [
        TopicPartition(each.topic, number)
        for each in found.assigned_partitions
        for number in each.partitions
    ]
