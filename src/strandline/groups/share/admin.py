"""What administrators do with share groups: describe them, put them elsewhere, end them.

A group must be without members for anything but being described. What concerns states of partitions
is done by share coordinators, and stored here before and after, so that a coordinator that fails in
between leaves nothing unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.consumer.cluster_view import ClusterView, named_partitions
from strandline.groups.consumer.partitions import Partitions
from strandline.groups.shard import MOVED, Shard, coordinator_error
from strandline.groups.share.assignor import NAME
from strandline.groups.share.group import ShareGroup
from strandline.groups.share.heartbeats import ShareChange
from strandline.groups.share.image import KeptTopic, ShareImage, burial, places
from strandline.groups.share.records import ShareKind
from strandline.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from strandline.types import Instant, TopicId

Outcomes = Mapping[tuple[TopicId, int], ErrorCode]
Deliver = Callable[[ErrorCode], None]
DeliverAll = Callable[[ErrorCode, Outcomes], None]
"""Told why nothing was done, or else what became of each partition."""


class ShareAdmin:
    """Administers the share groups of one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def group(self, group_id: str) -> ShareGroup:
        """A group. Raises `ProtocolError` (GROUP_ID_NOT_FOUND)."""
        group = self._shard.share_groups.get(group_id)
        if group is None or not group.image.exists:
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def _empty_group(self, group_id: str) -> ShareGroup:
        group = self.group(group_id)
        if group.image.members:
            raise ProtocolError(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id} has members.")
        return group

    def describe(self, group_id: str) -> DescribedGroup:
        """One entry of a ShareGroupDescribe answer."""
        group = self._shard.share_groups.get(group_id)
        if group is None or not group.durable.exists:
            return DescribedGroup(
                group_id=group_id,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} not found.",
            )
        return described_share_group(group_id, group.durable, self._shard.cluster)

    def delete(self, group_id: str, now: Instant, deliver: Deliver) -> None:
        """End a group, and all states of its partitions."""
        group = self._empty_group(group_id)
        kept = ending = group.image.partitions
        partitions: dict[TopicId, frozenset[int]] = {}
        for topics in (kept.initializing, kept.initialized):
            for topic_id, topic in topics.items():
                partitions[topic_id] = partitions.get(topic_id, frozenset()) | topic.partitions
                ending = ending.ending(topic_id, topic.name)
        for topic_id in kept.deleting:  # by a request before this one, which did not come through
            facts = self._shard.cluster.identified(topic_id)
            if facts is not None:
                partitions[topic_id] = frozenset(range(facts.partition_count))
        # States that are gone must not pass for being there if this one does not come through
        # either; and a member that joins meanwhile must not have them begun before they end.
        change = ShareChange(self._shard, group)
        if ending != kept:
            change.write(ShareKind.PARTITIONS, ending.to_value())
        asked = Counter(
            (topic_id, each) for topic_id in partitions for each in partitions[topic_id]
        )
        group.asked += asked

        def begun(error: ErrorCode | None, at: Instant) -> None:
            if error is not None:
                group.asked -= asked
                deliver(coordinator_error(error))
                return
            self._shard.ask_states("delete", group_id, partitions, ended, now=at)

        def ended(outcomes: Outcomes, at: Instant) -> None:
            group.asked -= asked
            refused = [code for code in outcomes.values() if code is not ErrorCode.NONE]
            if refused:
                deliver(refused[0])
                return
            if group.image.members:
                deliver(ErrorCode.NON_EMPTY_GROUP)
                return
            last = ShareChange(self._shard, group)
            if group.image.exists:  # or else another request has deleted it meanwhile
                last.write_all(list(burial(group_id, group.image)))
            last.commit(at, lambda error, _: deliver(_code(error)))

        change.commit(now, begun)

    def alter(
        self,
        group_id: str,
        starts: Mapping[TopicId, Mapping[int, int]],
        now: Instant,
        deliver: DeliverAll,
    ) -> None:
        """Put a group elsewhere in partitions (by topic id and number)."""
        group = self._empty_group(group_id)
        change = ShareChange(self._shard, group)
        change.bump()
        kept = group.image.partitions
        wanted: dict[TopicId, KeptTopic] = {}
        for topic_id, numbers in starts.items():
            topic = self._shard.cluster.identified(topic_id)
            if topic is not None:
                wanted[topic_id] = KeptTopic(topic.name, frozenset(numbers))
                kept = kept.moved(topic_id, topic.name, frozenset(numbers), are_there=False)
        change.write(ShareKind.PARTITIONS, kept.to_value())
        epoch = group.image.epoch
        # A member that joins meanwhile must not have the partitions begin where they do by default.
        group.asked += places(wanted)

        def begun(error: ErrorCode | None, at: Instant) -> None:
            if error is not None:
                group.asked -= places(wanted)
                deliver(coordinator_error(error), {})
                return
            self._shard.ask_states(
                "initialize",
                group_id,
                {topic_id: topic.partitions for topic_id, topic in wanted.items()},
                partial(self._altered, group, wanted, deliver),
                state_epoch=epoch,
                starts={
                    (topic_id, number): start
                    for topic_id, numbers in starts.items()
                    for number, start in numbers.items()
                },
                now=at,
            )

        change.commit(now, begun)

    def _altered(
        self,
        group: ShareGroup,
        wanted: Mapping[TopicId, KeptTopic],
        deliver: DeliverAll,
        outcomes: Outcomes,
        now: Instant,
    ) -> None:
        if outcomes is MOVED:
            deliver(ErrorCode.NOT_COORDINATOR, {})
            return
        group.asked -= places(wanted)
        if self._is_gone(group):
            deliver(ErrorCode.GROUP_ID_NOT_FOUND, {})
            return
        kept = group.image.partitions.answered(wanted, outcomes)
        change = ShareChange(self._shard, group)
        change.write(ShareKind.PARTITIONS, kept.to_value())
        if group.image.members:
            change.bump()  # those that have joined meanwhile are to get these partitions
        change.commit(now, lambda error, _: deliver(_code(error), outcomes))

    def forget_topics(
        self, group_id: str, topic_ids: Iterable[TopicId], now: Instant, deliver: DeliverAll
    ) -> None:
        """End the states that a group has of topics. A topic of which it has none is not among
        the outcomes."""
        group = self._empty_group(group_id)
        kept = ending = group.image.partitions
        partitions: dict[TopicId, frozenset[int]] = {}
        for topic_id in topic_ids:
            there = [
                topics[topic_id]
                for topics in (kept.initializing, kept.initialized)
                if topic_id in topics
            ]
            facts = self._shard.cluster.identified(topic_id)
            if there:
                partitions[topic_id] = frozenset().union(*(each.partitions for each in there))
                ending = ending.ending(topic_id, there[0].name)
            elif topic_id in kept.deleting and facts is not None:
                # By a request before this one, which did not come through.
                partitions[topic_id] = frozenset(range(facts.partition_count))
        change = ShareChange(self._shard, group)
        if ending != kept:
            change.write(ShareKind.PARTITIONS, ending.to_value())
        # A member that joins meanwhile must not have them begun before they end.
        asked = Counter(
            (topic_id, each) for topic_id in partitions for each in partitions[topic_id]
        )
        group.asked += asked

        def begun(error: ErrorCode | None, at: Instant) -> None:
            if error is not None:
                group.asked -= asked
                deliver(coordinator_error(error), {})
                return
            self._shard.ask_states("delete", group_id, partitions, ended, now=at)

        def ended(outcomes: Outcomes, at: Instant) -> None:
            group.asked -= asked
            if outcomes is MOVED:
                deliver(ErrorCode.NOT_COORDINATOR, {})
                return
            if self._is_gone(group):
                deliver(ErrorCode.GROUP_ID_NOT_FOUND, {})
                return
            left = group.image.partitions
            for topic_id, numbers in partitions.items():
                if all(outcomes.get((topic_id, each)) is ErrorCode.NONE for each in numbers):
                    left = left.ended(topic_id, numbers)
            last = ShareChange(self._shard, group)
            last.write(ShareKind.PARTITIONS, left.to_value())
            last.commit(at, lambda error, _: deliver(_code(error), outcomes))

        change.commit(now, begun)

    def _is_gone(self, group: ShareGroup) -> bool:
        """Whether the group was deleted while share coordinators were asked: a record of it would
        make it anew."""
        filed = self._shard.share_groups.get(group.group_id)
        return filed is not group or not group.image.exists


def described_share_group(group_id: str, image: ShareImage, cluster: ClusterView) -> DescribedGroup:
    """A group as readers see it."""
    return DescribedGroup(
        group_id=group_id,
        group_state=image.state.value,
        group_epoch=image.epoch,
        assignment_epoch=image.target_epoch,
        assignor_name=NAME,
        members=[
            Member(
                member_id=member_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.topic_names),
                assignment=_assignment(member.assigned, cluster),
            )
            for member_id, member in image.members.items()
        ],
    )


def _assignment(partitions: Partitions, cluster: ClusterView) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic.topic_id, topic_name=topic.name, partitions=numbers)
            for topic, numbers in named_partitions(partitions, cluster)
        ]
    )


def _code(error: ErrorCode | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else coordinator_error(error)
