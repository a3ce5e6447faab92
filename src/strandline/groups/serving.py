"""A shard with everything that works on it, from the end of its loading to its being given up."""

from __future__ import annotations

from collections.abc import Set

from strandline.errors import ErrorCode, InvariantViolated
from strandline.groups.cleanup import Cleanup
from strandline.groups.consumer.metadata_hash import TopicHashes
from strandline.groups.consumer.serving import ConsumerSide
from strandline.groups.group import GroupState
from strandline.groups.group_joins import GroupJoins
from strandline.groups.membership import Membership
from strandline.groups.offset_service import OffsetService
from strandline.groups.rebalance import Rebalance
from strandline.groups.requests import Token
from strandline.groups.shard import Shard
from strandline.groups.share.admin import ShareAdmin
from strandline.groups.share.heartbeats import ShareHeartbeats
from strandline.groups.transactional_offsets import TransactionalOffsets
from strandline.protocol.messages.join_group import JoinGroupResponse
from strandline.protocol.messages.sync_group import SyncGroupResponse
from strandline.types import Instant


class ServedShard:
    """One partition's groups, ready to be asked."""

    def __init__(self, shard: Shard, hashes: TopicHashes) -> None:
        self.shard = shard
        self._rebalance = Rebalance(shard)
        self.joining = GroupJoins(shard, self._rebalance)
        self.membership = Membership(shard, self._rebalance)
        self.offsets = OffsetService(shard, self._rebalance)
        self.transactional_offsets = TransactionalOffsets(shard)
        self.cleanup = Cleanup(shard)
        self.consumers = ConsumerSide(shard, self._rebalance, hashes)
        self.share_heartbeats = ShareHeartbeats(shard, hashes)
        self.share_admin = ShareAdmin(shard)

    def start(self, now: Instant) -> None:
        """The state is loaded: sessions begin anew, since no heartbeats could be sent."""
        for group in self.shard.groups.values():
            for member in group.members.values():
                self._rebalance.keep_alive(group, member, now)
            if len(group.members) > self.shard.settings.members_max:
                self._rebalance.begin(group, "The group is larger than is allowed now.", now)
        self.consumers.start(now)
        for share_group in self.shard.share_groups.values():
            self.share_heartbeats.watch_all(share_group, now)
        self.cleanup.schedule(now)

    def topics_changed(self, names: Set[str], *, are_new: bool) -> None:
        """See `GroupCoordinator.topics_changed`."""
        self.consumers.topics_changed(names, are_new=are_new)
        for group in self.shard.share_groups.values():
            if group.reads_any(names):
                group.topics_changed()

    def stop(self, now: Instant) -> None:
        """Another broker coordinates these groups now: everyone who waits is told so."""
        for group in self.shard.groups.values():
            for member in group.members.values():
                moved = ErrorCode.NOT_COORDINATOR
                told = JoinGroupResponse(error_code=moved, member_id=member.member_id)
                self._rebalance.answer_join(group, member, told)
                self._rebalance.answer_sync(member, SyncGroupResponse(error_code=moved))
            group.transition_to(GroupState.DEAD, now.wall_ms)
        self.shard.close(now)

    def check(self) -> set[Token]:
        """Verify the invariants of all groups; returns the tokens that wait in members."""
        self.shard.check()
        self.consumers.check()
        parked: list[Token] = []
        for group_id, group in self.shard.groups.items():
            if group_id != group.group_id:
                raise InvariantViolated(f"Group {group.group_id} is filed under {group_id}.")
            if self.shard.consumer_group(group_id) is not None:
                raise InvariantViolated(f"There are two groups of the name {group_id}.")
            group.check()
            for member in group.members.values():
                if member.awaiting_join is not None:
                    parked.append(member.awaiting_join.token)
                if member.awaiting_sync is not None:
                    parked.append(member.awaiting_sync.token)
            self._check_deadlines(group_id)
        if len(parked) != len(set(parked)):
            raise InvariantViolated("One request waits in two places.")
        return set(parked)

    def _check_deadlines(self, group_id: str) -> None:
        """Whatever a group waits for, it does not wait for ever."""
        group, shard = self.shard.groups[group_id], self.shard
        preparing = group.state is GroupState.PREPARING_REBALANCE
        if preparing != shard.is_scheduled("join", group_id):
            raise InvariantViolated(f"Group {group_id}: the join phase and its timer disagree.")
        if bool(group.pending_syncs) != shard.is_scheduled("sync", group_id):
            raise InvariantViolated(f"Group {group_id}: the sync phase and its timer disagree.")
        for member_id in group.pending_joins:
            if not shard.is_scheduled("session", group_id, member_id):
                raise InvariantViolated(f"The pending member {member_id} has no session timer.")
        for member in group.members.values():
            if member.satisfies_heartbeat:
                continue
            if not shard.is_scheduled("session", group_id, member.member_id):
                raise InvariantViolated(f"The member {member.member_id} has no session timer.")
            storing = group.storing_generation == group.generation
            if group.state is GroupState.COMPLETING_REBALANCE and not (
                group.pending_syncs or storing
            ):
                raise InvariantViolated(f"Group {group_id} waits for no sync and no append.")
