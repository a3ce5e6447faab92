"""SyncGroup, Heartbeat and LeaveGroup: what members do between joins.

The order of the checks is Kafka's. Refusals are raised (`ProtocolError`) before anything changes.
"""

from __future__ import annotations

from functools import partial
from typing import assert_never

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.group import Group, GroupState
from strandline.groups.member import Member, ParkedRequest
from strandline.groups.offset_records import GroupRecord
from strandline.groups.rebalance import Rebalance
from strandline.groups.requests import NO_MEMBER_ID, Call, refused
from strandline.groups.shard import Shard, coordinator_error
from strandline.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from strandline.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from strandline.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from strandline.types import Instant


class Membership:
    """Handles what the members of one shard's groups ask."""

    def __init__(self, shard: Shard, rebalance: Rebalance) -> None:
        self._shard = shard
        self._rebalance = rebalance

    # SyncGroup.

    def sync(self, call: Call[SyncGroupRequest], now: Instant) -> None:
        """Handle SyncGroup. The answer comes now, or when the leader's assignment is stored."""
        request = call.body
        group = self._group(request.group_id)
        self._check_sync(request, group)
        member = group.members[request.member_id]
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)
            case GroupState.COMPLETING_REBALANCE:
                self._park_sync(call, group, member)
                if group.is_leader(member.member_id):
                    self._store_assignment(request, group, now)
            case GroupState.STABLE:
                self._rebalance.synced(group, member.member_id)
                loaded = self._shard.unsettled_load
                if loaded is not None:
                    # The generation that a new coordinator found above its high watermark may
                    # vanish with it, and its number would be used again (I-39).
                    self._shard.when_settled(loaded, now, partial(self._load_settled, call))
                    return
                self._shard.reply(
                    call.token,
                    SyncGroupResponse(
                        protocol_type=group.protocol_type,
                        protocol_name=group.protocol,
                        assignment=member.assignment,
                    ),
                )
            case GroupState.EMPTY | GroupState.DEAD:
                raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
            case _:
                assert_never(group.state)

    def _load_settled(
        self, call: Call[SyncGroupRequest], error: ErrorCode | None, now: Instant
    ) -> None:
        """What was loaded is committed, or is not in time; the group may have gone on since."""
        code = None if error is None else coordinator_error(error)
        if code is None:
            try:
                self.sync(call, now)
            except ProtocolError as refusal:
                code = refusal.code
        if code is not None:
            self._shard.reply(call.token, SyncGroupResponse(error_code=code))

    def _check_sync(self, request: SyncGroupRequest, group: Group) -> None:
        if group.state is GroupState.EMPTY:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        _check_alive(group)
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
        if _differs(request.protocol_type, group.protocol_type) or _differs(
            request.protocol_name, group.protocol
        ):
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _park_sync(self, call: Call[SyncGroupRequest], group: Group, member: Member) -> None:
        superseded = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalance.answer_sync(member, superseded)
        member.awaiting_sync = ParkedRequest(call.token)
        self._rebalance.synced(group, member.member_id)

    def _store_assignment(self, request: SyncGroupRequest, group: Group, now: Instant) -> None:
        if group.storing_generation == group.generation:
            return  # the leader repeats itself; what it said first is being written
        group.storing_generation = group.generation
        assignments = {
            part.member_id: part.assignment
            for part in request.assignments
            if part.member_id in group.members
        }
        self._shard.append(
            [GroupRecord(group.group_id, group.to_value(assignments))],
            now,
            partial(self._assignment_stored, group, group.generation, assignments),
        )

    def _assignment_stored(
        self,
        group: Group,
        generation: int,
        assignments: dict[str, bytes],
        error: ErrorCode | None,
        now: Instant,
    ) -> None:
        if group.storing_generation == generation:
            group.storing_generation = None
        if self._shard.groups.get(group.group_id) is not group:
            return  # it has become a consumer group meanwhile, and everyone has been told
        if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
            return  # a rebalance has begun meanwhile, and everyone has been told
        if error is None:
            self._rebalance.assign(group, assignments, now)
        else:
            self._rebalance.fail_syncs(group, coordinator_error(error), now)
            self._rebalance.begin(group, f"The assignment met {error.name}.", now)

    # Heartbeat.

    def heartbeat(self, call: Call[HeartbeatRequest], now: Instant) -> None:
        """Handle Heartbeat, which is answered at once."""
        request = call.body
        group = self._group(request.group_id)
        _check_alive(group)
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
        self._rebalance.keep_alive(group, group.members[request.member_id], now)
        rebalancing = group.state is GroupState.PREPARING_REBALANCE
        error = ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE
        self._shard.reply(call.token, HeartbeatResponse(error_code=error))

    # LeaveGroup.

    def leave(self, call: Call[LeaveGroupRequest], now: Instant) -> None:
        """Handle LeaveGroup. If the group ends up empty, the answer waits for that to be stored."""
        request = call.body
        group = self._group(request.group_id)
        _check_alive(group)
        response = LeaveGroupResponse(
            members=[self._remove(group, leaving) for leaving in request.members]
        )
        append_id = None
        if any(left.error_code == ErrorCode.NONE for left in response.members):
            append_id = self._rebalance_without(group, request, now)
        if append_id is None:
            self._shard.reply(call.token, response)
        else:
            left = partial(self._left, call, response)
            self._shard.when_settled(append_id, now, left)

    def _rebalance_without(
        self, group: Group, request: LeaveGroupRequest, now: Instant
    ) -> int | None:
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            reasons = {leaving.reason for leaving in request.members if leaving.reason}
            reason = f": {', '.join(sorted(reasons))}" if reasons else ""
            return self._rebalance.begin(group, f"Members left{reason}", now)
        return self._rebalance.complete_if_all_joined(group, now)

    def _remove(self, group: Group, leaving: MemberIdentity) -> MemberResponse:
        left = MemberResponse(
            member_id=leaving.member_id, group_instance_id=leaving.group_instance_id
        )
        try:
            member_id = _identify(group, leaving)
        except ProtocolError as refusal:
            left.error_code = refusal.code
        else:
            self._rebalance.remove(group, member_id)
        return left

    def _left(
        self,
        call: Call[LeaveGroupRequest],
        response: LeaveGroupResponse,
        error: ErrorCode | None,
        _now: Instant,
    ) -> None:
        self._shard.reply(
            call.token, response if error is None else refused(call.body, coordinator_error(error))
        )

    def _group(self, group_id: str) -> Group:
        group = self._shard.groups.get(group_id)
        if group is None:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} not found.")
        return group


def _identify(group: Group, leaving: MemberIdentity) -> str:
    """Whom a LeaveGroup entry means: an administrator knows only the instance id."""
    if leaving.member_id == NO_MEMBER_ID:
        member_id = group.static_members.get(leaving.group_instance_id or NO_MEMBER_ID)
        if member_id is None:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member_id
    if leaving.member_id not in group.pending_joins:
        group.check_member(leaving.member_id, leaving.group_instance_id)
    return leaving.member_id


def _check_alive(group: Group) -> None:
    if group.state is GroupState.DEAD:
        raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _differs(given: str | None, known: str | None) -> bool:
    return given is not None and known is not None and given != known
