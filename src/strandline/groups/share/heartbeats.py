"""ShareGroupHeartbeat: by which members of share groups join, stay and leave.

A member's partitions are told with each change. There is nothing to give up first: records that it
has stay its own until their locks are over. Before a partition is given to any member a share
coordinator must keep a state of it; that is asked for here, and members get it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.consumer.metadata_hash import TopicHashes
from strandline.groups.consumer.partitions import NO_PARTITIONS, Partitions
from strandline.groups.group import GroupState
from strandline.groups.requests import Call
from strandline.groups.shard import MOVED, Shard, coordinator_error
from strandline.groups.share.assignor import simple
from strandline.groups.share.group import ShareGroup
from strandline.groups.share.heartbeat_checks import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    check,
    check_epoch,
)
from strandline.groups.share.image import KeptTopic, ShareMember, departure, places
from strandline.groups.share.records import ShareKind, ShareRecord
from strandline.protocol.messages.consumer_group_heartbeat import Assignment, TopicPartitions
from strandline.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from strandline.protocol.messages.share_groups_topic import (
    ShareGroupMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartition,
)
from strandline.types import Instant, TopicId

SESSION: Final = "share-session"

HeartbeatCall = Call[ShareGroupHeartbeatRequest]


class ShareChange:
    """One change of a share group: records, applied as they are decided, appended as one batch."""

    def __init__(self, shard: Shard, group: ShareGroup) -> None:
        self._shard = shard
        self.group = group
        self._records: list[ShareRecord] = []

    def write(self, kind: ShareKind, value: object, member_id: str | None = None) -> None:
        """A record is decided."""
        self.write_all([ShareRecord(kind, self.group.group_id, member_id, value)])

    def write_all(self, records: Iterable[ShareRecord]) -> None:
        """Records are decided."""
        for record in records:
            self.group.apply(record)
            self._records.append(record)

    def bump(self, metadata_hash: int | None = None) -> None:
        """The group gets its next epoch."""
        image = self.group.image
        value = ShareGroupMetadataValue(
            epoch=image.epoch + 1,
            metadata_hash=image.metadata_hash if metadata_hash is None else metadata_hash,
        )
        self.write(ShareKind.GROUP, value)

    def commit(
        self, now: Instant, done: Callable[[ErrorCode | None, Instant], None] | None = None
    ) -> None:
        """Append what was decided. `done` is told when it, and what it rests on, is durable."""
        shard, group = self._shard, self.group

        def ended(error: ErrorCode | None, at: Instant) -> None:
            if done is not None:
                done(None if error is None else coordinator_error(error), at)

        if self._records:
            group.last_append = shard.append(self._records, now, ended)
            return
        append_id = group.last_append if shard.is_pending(group.last_append) else None
        append_id = shard.unsettled_load if append_id is None else append_id
        if append_id is None:
            ended(None, now)
        else:
            shard.when_settled(append_id, now, ended)


class ShareHeartbeats:
    """Handles the heartbeats of one shard's share groups."""

    def __init__(self, shard: Shard, hashes: TopicHashes) -> None:
        self._shard = shard
        self._hashes = hashes

    def heartbeat(self, call: HeartbeatCall, now: Instant) -> None:
        """Handle a heartbeat, which is answered when what it tells is durable."""
        request = call.body
        check(request)
        if request.member_epoch == LEAVING_EPOCH:
            self._leave(call, now)
            return
        is_joining = request.member_epoch == JOINING_EPOCH
        group = self._group(request.group_id, may_create=is_joining)
        known = group.image.members.get(request.member_id)
        if known is None:
            if not is_joining:
                group.member(request.member_id)  # refuses
            self._check_room(group)
            known = ShareMember(request.member_id)
        elif not is_joining:
            check_epoch(known, request.member_epoch)

        change = ShareChange(self._shard, group)
        updated = _updated(known, call)
        if updated != known or request.member_id not in group.image.members:
            change.write(ShareKind.MEMBER, updated.to_metadata(), updated.member_id)
        self._refresh(change, must_bump=updated.topic_names != known.topic_names)
        self._maybe_assign(change, now)
        member = self._advance(change, updated.member_id)
        self._keep_alive(group, member.member_id, now)
        times = self._shard.cluster.times(group.group_id)
        response = ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=times.share_heartbeat_interval_ms,
        )
        if (
            is_joining
            or request.subscribed_topic_names is not None
            or member.assigned != known.assigned
        ):
            response.assignment = _told(member.assigned)

        def done(error: ErrorCode | None, at: Instant) -> None:
            answer = response
            if error is not None:
                answer = ShareGroupHeartbeatResponse(error_code=error)
            self._shard.reply(call.token, answer)
            if error is None:
                self._ask_for_states(group, at)

        change.commit(now, done)

    def _group(self, group_id: str, *, may_create: bool) -> ShareGroup:
        group = self._shard.share_groups.get(group_id)
        if group is not None and group.image.exists:
            return group
        classic = self._shard.groups.get(group_id)
        is_other = self._shard.consumer_group(group_id) is not None or (
            classic is not None and classic.state is not GroupState.DEAD
        )
        if is_other or not may_create:
            kind = "is not a share group" if is_other else "not found"
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {kind}.")
        if group is None:
            group = self._shard.share_groups[group_id] = ShareGroup(group_id)
        return group

    def _check_room(self, group: ShareGroup) -> None:
        members_max = self._shard.settings.share_members_max
        if len(group.image.members) >= members_max:
            raise ProtocolError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {members_max} members.",
            )

    # -- Topics and assignments --------------------------------------------------------------

    def _refresh(self, change: ShareChange, *, must_bump: bool) -> None:
        """Look at the topics, if they may have changed, and give the group an epoch for it."""
        group, cluster = change.group, self._shard.cluster
        if group.is_refreshed and not must_bump:
            return
        group.is_refreshed = True
        for topic_id in (
            *group.image.partitions.initialized,
            *group.image.partitions.initializing,
        ):
            if cluster.identified(topic_id) is None:
                kept = group.image.partitions.without(topic_id)
                change.write(ShareKind.PARTITIONS, kept.to_value())
        metadata_hash = self._hashes.of_group(group.subscribed_topics())
        if must_bump or metadata_hash != group.image.metadata_hash:
            change.bump(metadata_hash)

    def _maybe_assign(self, change: ShareChange, now: Instant) -> None:
        """Compute the target assignment, if the group's epoch has none yet."""
        group, image = change.group, change.group.image
        if image.target_epoch >= image.epoch:
            return
        interval_ms = self._shard.cluster.times(group.group_id).share_assignment_interval_ms
        if 0 <= now.wall_ms - image.target_ms < interval_ms:
            return
        topics = {
            kept.name: (topic_id, sorted(kept.partitions))
            for topic_id, kept in image.partitions.initialized.items()
        }
        for member_id, target in simple(image.members.values(), topics).items():
            if target != image.targets.get(member_id):
                value = ShareGroupTargetAssignmentMemberValue(
                    topic_partitions=[
                        TopicPartition(topic_id=topic_id, partitions=sorted(numbers))
                        for topic_id, numbers in target.items()
                    ]
                )
                change.write(ShareKind.TARGET, value, member_id)
        change.write(
            ShareKind.TARGET_EPOCH,
            ShareGroupTargetAssignmentMetadataValue(
                assignment_epoch=image.epoch, assignment_timestamp=now.wall_ms
            ),
        )

    def _advance(self, change: ShareChange, member_id: str) -> ShareMember:
        """Bring a member to the target assignment."""
        image = change.group.image
        member = image.members[member_id]
        target = image.targets.get(member_id, NO_PARTITIONS)
        if member.epoch == image.target_epoch and member.assigned == target:
            return member
        advanced = replace(
            member, epoch=image.target_epoch, previous_epoch=member.epoch, assigned=target
        )
        change.write(ShareKind.ASSIGNMENT, advanced.to_assignment(), member_id)
        return advanced

    # -- States ------------------------------------------------------------------------------

    def _ask_for_states(self, group: ShareGroup, now: Instant) -> None:
        """Have share coordinators keep states of what members subscribe to."""
        if not group.may_lack_states:
            return
        cluster, image = self._shard.cluster, group.image
        wanted: dict[TopicId, KeptTopic] = {}
        group.may_lack_states = False
        for name in sorted(group.subscribed_topics()):
            topic = cluster.named(name)
            if topic is None:
                continue
            there = image.partitions.initialized.get(topic.topic_id)
            lacking = frozenset(range(topic.partition_count)).difference(
                () if there is None else there.partitions
            )
            group.may_lack_states |= bool(lacking)
            missing = frozenset(
                number for number in lacking if (topic.topic_id, number) not in group.asked
            )
            if missing:
                wanted[topic.topic_id] = KeptTopic(name, missing)
        if not wanted or not image.exists:
            return
        group.asked += places(wanted)
        change = ShareChange(self._shard, group)
        kept = image.partitions
        for topic_id, topic_kept in wanted.items():
            kept = kept.moved(topic_id, topic_kept.name, topic_kept.partitions, are_there=False)
        change.write(ShareKind.PARTITIONS, kept.to_value())
        epoch = image.epoch

        def begun(error: ErrorCode | None, at: Instant) -> None:
            if error is not None:
                group.asked -= places(wanted)
                return
            self._shard.ask_states(
                "initialize",
                group.group_id,
                {topic_id: each.partitions for topic_id, each in wanted.items()},
                partial(self._initialized, group, wanted),
                now=at,
                state_epoch=epoch,
            )

        change.commit(now, begun)

    def _initialized(
        self,
        group: ShareGroup,
        wanted: Mapping[TopicId, KeptTopic],
        outcomes: Mapping[tuple[TopicId, int], ErrorCode],
        now: Instant,
    ) -> None:
        group.asked -= places(wanted)
        is_gone = self._shard.share_groups.get(group.group_id) is not group
        if outcomes is MOVED or is_gone or not group.image.exists:
            return
        kept = group.image.partitions.answered(wanted, outcomes)
        if kept == group.image.partitions:
            return
        change = ShareChange(self._shard, group)
        change.write(ShareKind.PARTITIONS, kept.to_value())
        change.bump()
        change.commit(now)

    # -- Leaving -----------------------------------------------------------------------------

    def _leave(self, call: HeartbeatCall, now: Instant) -> None:
        request = call.body
        group = self._group(request.group_id, may_create=False)
        group.member(request.member_id)
        response = ShareGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=LEAVING_EPOCH
        )

        def done(error: ErrorCode | None, _at: Instant) -> None:
            answer = response
            if error is not None:
                answer = ShareGroupHeartbeatResponse(error_code=error)
            self._shard.reply(call.token, answer)

        self._let_go(group, request.member_id, now, done)

    def _let_go(
        self,
        group: ShareGroup,
        member_id: str,
        now: Instant,
        done: Callable[[ErrorCode | None, Instant], None] | None = None,
    ) -> None:
        self._shard.cancel(SESSION, group.group_id, member_id)
        change = ShareChange(self._shard, group)
        change.write_all(departure(group.group_id, member_id))
        change.bump(self._hashes.of_group(group.subscribed_topics()))

        def ended(error: ErrorCode | None, at: Instant) -> None:
            if error is not None:
                self.watch_all(group, at)
            if done is not None:
                done(error, at)

        change.commit(now, ended)

    def _keep_alive(self, group: ShareGroup, member_id: str, now: Instant) -> None:
        self._shard.schedule(
            SESSION,
            group.group_id,
            member_id,
            now=now,
            delay_ms=self._shard.cluster.times(group.group_id).share_session_timeout_ms,
            do=partial(self._session_over, group, member_id),
        )

    def _session_over(self, group: ShareGroup, member_id: str, now: Instant) -> None:
        if member_id in group.image.members:
            self._let_go(group, member_id, now)

    def watch_all(self, group: ShareGroup, now: Instant) -> None:
        """Watch every member of a group that was just loaded, or that is as it was before."""
        for member_id in group.image.members:
            if not self._shard.is_scheduled(SESSION, group.group_id, member_id):
                self._keep_alive(group, member_id, now)


def _updated(known: ShareMember, call: HeartbeatCall) -> ShareMember:
    """The member with what it says of itself; what it leaves out is the same as before."""
    request = call.body
    names = request.subscribed_topic_names
    return replace(
        known,
        rack_id=known.rack_id if request.rack_id is None else request.rack_id,
        topic_names=known.topic_names if names is None else frozenset(names),
        client_id=call.client_id,
        client_host=call.client_host,
    )


def _told(assigned: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in assigned.items()
        ]
    )
