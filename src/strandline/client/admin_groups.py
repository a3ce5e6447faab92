"""Listing, describing, resetting and deleting consumer groups.

This file knows the classic group protocol, in which members tell one another their subscriptions
in bytes of their own (`consumer_protocol`). Groups of Kafka's newer protocol (KIP-848) are listed
and their offsets read and reset; their members are described through ConsumerGroupDescribe, and
those of share groups (KIP-932) through ShareGroupDescribe.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.consumer_protocol import (
    PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
)
from strandline.client.group_requests import Committed
from strandline.client.offsets import (
    LATEST,
    commit_offsets,
    committed_offsets,
    delete_offsets,
    list_offsets,
    outcome,
)
from strandline.client.refusal import check
from strandline.errors import ErrorCode, MalformedFrame, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages import (
    consumer_group_describe,
    describe_groups,
    share_group_describe,
)
from strandline.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from strandline.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from strandline.types import Offset, TopicPartition

_DEAD: Final = "Dead"
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
_CLASSIC_MEMBER: Final = 0


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group by name. State and type are empty where the broker is too old to tell."""

    group: str
    state: str
    protocol_type: str
    group_type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member. Topics and partitions are empty where its protocol is not understood."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    subscribed: tuple[str, ...]
    """By name. A pattern is in `pattern`."""
    assigned: tuple[TopicPartition, ...]
    """What it owns; in a group of the consumer protocol with what it still has to give up."""
    protocol: str = CLASSIC
    """The group protocol that it speaks."""
    epoch: int | None = None
    """How far it is, in a group of the consumer protocol, or a share group."""
    target: tuple[TopicPartition, ...] | None = None
    """What it is to own, in a group of the consumer protocol."""
    pattern: str = ""
    """For topics, matched by the broker."""

    @property
    def to_give_up(self) -> tuple[TopicPartition, ...]:
        """What it has and must not keep."""
        return () if self.target is None else tuple(sorted({*self.assigned} - {*self.target}))

    @property
    def to_come(self) -> tuple[TopicPartition, ...]:
        """What it is to own and does not yet."""
        return () if self.target is None else tuple(sorted({*self.target} - {*self.assigned}))


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members."""

    group: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: str
    members: tuple[GroupMember, ...]
    group_type: str = CLASSIC
    """`classic`, `consumer` or `share`."""
    epoch: int | None = None
    """Of a group of the consumer protocol, or a share group."""
    assignment_epoch: int | None = None
    """For which epoch the target assignment is."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group has come in one partition. `end` is None if the partition is gone."""

    partition: TopicPartition
    committed: Committed | None
    end: Offset | None

    @property
    def lag(self) -> int | None:
        """Records still to read; None if either side is unknown."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed.offset)


class GroupAdmin:
    """See the module."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def list_all(self) -> list[GroupListing]:
        """The groups of all brokers in the order of their names."""

        def ask(connection: Connection) -> ListGroupsResponse:
            response = connection.call(ApiKey.LIST_GROUPS, ListGroupsResponse, ListGroupsRequest())
            check(response.error_code, None, "the list of groups")
            return response

        found: dict[str, GroupListing] = {}
        for response in self._cluster.ask_all_brokers(ask).values():
            for each in response.groups:
                found[each.group_id] = GroupListing(
                    each.group_id, each.group_state, each.protocol_type, each.group_type
                )
        return [found[name] for name in sorted(found)]

    def describe(self, group: str) -> GroupDescription:
        """A group with its members. Raises `ProtocolError` (GROUP_ID_NOT_FOUND)."""
        return self._cluster.retry_on_coordinator(
            group, lambda connection: _describe(connection, group)
        )

    def offsets(self, group: str) -> dict[TopicPartition, Committed]:
        """All offsets that the group has stored."""
        return committed_offsets(self._cluster, group)

    def lag(self, group: str, extra: Iterable[TopicPartition] = ()) -> list[PartitionLag]:
        """How far the group has come everywhere, and in `extra` partitions without an offset."""
        committed = self.offsets(group)
        partitions = sorted({*committed, *extra})
        view = self._cluster.refresh({each.topic for each in partitions})
        existing = [
            each
            for each in partitions
            if each.topic in view.topics and each.partition in view.topics[each.topic].partitions
        ]
        ends = list_offsets(self._cluster, dict.fromkeys(existing, LATEST))
        return [
            PartitionLag(each, committed.get(each), ends[each].offset if each in ends else None)
            for each in partitions
        ]

    def set_offsets(self, group: str, offsets: dict[TopicPartition, Offset]) -> None:
        """Store offsets for a group without members; it is made if there is none."""
        commit_offsets(self._cluster, group, offsets)

    def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ProtocolError | None]:
        """Forget stored offsets; the outcome of each partition."""
        return delete_offsets(self._cluster, group, partitions)

    def delete(self, group: str) -> None:
        """Delete a group without members, with all of its offsets."""

        def attempt(connection: Connection) -> None:
            response = connection.call(
                ApiKey.DELETE_GROUPS,
                DeleteGroupsResponse,
                DeleteGroupsRequest(groups_names=[group]),
            )
            for each in response.results:
                check(each.error_code, None, f"group '{group}'")

        self._cluster.retry_on_coordinator(group, attempt)


def _describe(connection: Connection, group: str) -> GroupDescription:
    response = connection.call(
        ApiKey.DESCRIBE_GROUPS,
        describe_groups.DescribeGroupsResponse,
        describe_groups.DescribeGroupsRequest(groups=[group]),
    )
    found = response.groups[0]
    if _may_be_of_new_protocol(found):
        for key, describe in _NEWER.items():
            newer = describe(connection, group) if connection.serves(key) else None
            if newer is not None:
                return newer
    check(found.error_code, _own_sentence_for(found), f"group '{group}'")
    if found.group_state == _DEAD and not found.members:
        check(ErrorCode.GROUP_ID_NOT_FOUND, None, f"group '{group}'")
    understood = found.protocol_type == PROTOCOL_TYPE
    return GroupDescription(
        group,
        found.group_state,
        found.protocol_type,
        found.protocol_data,
        str(connection.address),
        tuple(
            GroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                _subscribed(member.member_metadata) if understood else (),
                _assigned(member.member_assignment) if understood else (),
            )
            for member in found.members
        ),
    )


def _may_be_of_new_protocol(found: describe_groups.DescribedGroup) -> bool:
    return found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or found.group_state == _DEAD


def _own_sentence_for(found: describe_groups.DescribedGroup) -> str | None:
    """None where ours is as good as the broker's."""
    return None if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND else found.error_message


def _describe_newer(connection: Connection, group: str) -> GroupDescription | None:
    response = connection.call(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        consumer_group_describe.ConsumerGroupDescribeResponse,
        consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[group]),
    )
    found = response.groups[0]
    if outcome(found.error_code, found.error_message, group) is not None:
        return None
    members = [
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            tuple(member.subscribed_topic_names),
            _partitions(member.assignment),
            CLASSIC if member.member_type == _CLASSIC_MEMBER else CONSUMER,
            member.member_epoch,
            _partitions(member.target_assignment),
            member.subscribed_topic_regex or "",
        )
        for member in found.members
    ]
    return _with_epochs(connection, found, CONSUMER, PROTOCOL_TYPE, members)


def _describe_share_group(connection: Connection, group: str) -> GroupDescription | None:
    response = connection.call(
        ApiKey.SHARE_GROUP_DESCRIBE,
        share_group_describe.ShareGroupDescribeResponse,
        share_group_describe.ShareGroupDescribeRequest(group_ids=[group]),
    )
    found = response.groups[0]
    if outcome(found.error_code, found.error_message, group) is not None:
        return None
    members = [
        GroupMember(
            member.member_id,
            None,
            member.client_id,
            member.client_host,
            tuple(member.subscribed_topic_names),
            _partitions(member.assignment),
            SHARE,
            member.member_epoch,
        )
        for member in found.members
    ]
    return _with_epochs(connection, found, SHARE, SHARE, members)


def _with_epochs(
    connection: Connection,
    found: consumer_group_describe.DescribedGroup | share_group_describe.DescribedGroup,
    kind: str,
    protocol_type: str,
    members: Iterable[GroupMember],
) -> GroupDescription:
    return GroupDescription(
        found.group_id,
        found.group_state,
        protocol_type,
        found.assignor_name,
        str(connection.address),
        tuple(members),
        kind,
        found.group_epoch,
        found.assignment_epoch,
    )


_NEWER: Final = {
    ApiKey.CONSUMER_GROUP_DESCRIBE: _describe_newer,
    ApiKey.SHARE_GROUP_DESCRIBE: _describe_share_group,
}
"""How the groups are described that DescribeGroups does not know."""


def _partitions(
    assignment: consumer_group_describe.Assignment | share_group_describe.Assignment,
) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )
    )


def _subscribed(data: bytes) -> tuple[str, ...]:
    """The topics of a subscription; none if a client wrote it in a form of its own."""
    try:
        return read_subscription(data).topics
    except MalformedFrame:
        return ()


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment; none while there is none."""
    try:
        return read_assignment(data)
    except MalformedFrame:
        return ()
