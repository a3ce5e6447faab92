"""JoinGroup: who may become or stay a member, and under which id.

Three ways in: someone without an id gets one, and, being dynamic, must come back with it (KIP-394);
someone with an id joins again; and a static member's new process takes its predecessor's place,
without disturbing a stable group if it can (KIP-345). The order of the checks is Kafka's.
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.consumer.image import burial
from strandline.groups.consumer.records import ConsumerRecord
from strandline.groups.group import Group, GroupState
from strandline.groups.member import Member, ParkedRequest, rebalance_timeout_ms
from strandline.groups.offset_records import GroupRecord
from strandline.groups.rebalance import Rebalance
from strandline.groups.requests import NO_MEMBER_ID, Call
from strandline.groups.shard import Shard, coordinator_error
from strandline.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from strandline.protocol.messages.sync_group import SyncGroupResponse
from strandline.protocol.wire import STRING_BYTES_MAX
from strandline.types import Instant

_UUID_LENGTH = 36
_KNOWN_MEMBER_ID_SINCE = 4
"""KIP-394: a dynamic member first fetches an id, so that a lost reply leaves no ghost."""
_SKIPPED_ASSIGNMENT_SINCE = 9
"""KIP-814: a returning static leader is told that it leads and need not assign."""


class GroupJoins:
    """Handles the joins to the groups of one shard."""

    def __init__(self, shard: Shard, rebalance: Rebalance) -> None:
        self._shard = shard
        self._rebalance = rebalance

    def join(
        self,
        call: Call[JoinGroupRequest],
        now: Instant,
        *,
        instead_of: ConsumerGroup | None = None,
    ) -> None:
        """Handle JoinGroup. The answer comes now, or when the join phase ends.

        `instead_of`: an empty group of the consumer protocol whose place a new one takes.
        """
        self.check_limits(call)
        group = self._shard.groups.get(call.body.group_id)
        if group is None or instead_of is not None:
            self._join_new_group(call, now, instead_of)
        elif not self._has_room(group, call.body.member_id):
            self._rebalance.remove(group, call.body.member_id)
            self._rebalance.complete_if_all_joined(group, now)
            raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        else:
            self._join_group(call, group, now)

    def check_limits(self, call: Call[JoinGroupRequest]) -> None:
        """Refuse what no group permits. Raises `ProtocolError`."""
        settings = self._shard.settings
        shortest_ms, longest_ms = settings.session_timeout_min_ms, settings.session_timeout_max_ms
        if not shortest_ms <= call.body.session_timeout_ms <= longest_ms:
            raise ProtocolError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"The session timeout must be {shortest_ms} to {longest_ms} ms.",
            )
        prefix = call.body.group_instance_id or call.client_id
        if len(prefix.encode()) + 1 + _UUID_LENGTH > STRING_BYTES_MAX:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "No member id can hold this client id.")

    def _join_new_group(
        self, call: Call[JoinGroupRequest], now: Instant, instead_of: ConsumerGroup | None
    ) -> None:
        if call.body.member_id != NO_MEMBER_ID:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        group = Group(call.body.group_id, created_ms=now.wall_ms)
        unborn = GroupRecord(group.group_id, group.to_value({}))
        self._join_newcomer(call, group, now)
        self._shard.groups[group.group_id] = group
        tombstones: list[ConsumerRecord] = []
        if instead_of is not None:
            tombstones += burial(group.group_id, instead_of.image)
            for tombstone in tombstones:
                instead_of.apply(tombstone)
        append_id: int | None = None

        def stored(error: ErrorCode | None, _at: Instant) -> None:
            """A group that could not be written must not go on; one that is merely late may."""
            if error is None or self._shard.is_pending(append_id):
                return
            if instead_of is not None or not group.is_stored:
                self._rebalance.dissolve(group, coordinator_error(error))

        append_id = self._shard.append([*tombstones, unborn], now, stored)
        if instead_of is not None:
            instead_of.last_append = append_id

    def _has_room(self, group: Group, member_id: str) -> bool:
        members_max = self._shard.settings.members_max
        member = group.members.get(member_id)
        match group.state:
            case GroupState.EMPTY | GroupState.DEAD:
                return True
            case GroupState.PREPARING_REBALANCE:
                # Counting those who have joined lets a group that is over its size shrink.
                joined = member is not None and member.awaiting_join is not None
                return joined or group.awaiting_join_count < members_max
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member is not None or len(group.members) < members_max

    def _join_group(self, call: Call[JoinGroupRequest], group: Group, now: Instant) -> None:
        if group.state is GroupState.DEAD:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if call.body.member_id == NO_MEMBER_ID:
            self._join_newcomer(call, group, now)
            return
        self._check_protocols(call, group)
        if call.body.member_id in group.pending_joins:
            if call.body.group_instance_id is not None:
                raise ProtocolError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, "Static members are never asked to come back."
                )
            self._add(call, group, call.body.member_id, now)
        else:
            group.check_member(call.body.member_id, call.body.group_instance_id)
            self._join_again(call, group, group.members[call.body.member_id], now)

    def _check_protocols(self, call: Call[JoinGroupRequest], group: Group) -> None:
        if not group.supports(call.body.protocol_type, call.body.protocols):
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    # Newcomers.

    def _join_newcomer(self, call: Call[JoinGroupRequest], group: Group, now: Instant) -> None:
        self._check_protocols(call, group)
        instance_id = call.body.group_instance_id
        member_id = self._new_member_id(instance_id or call.client_id)
        if instance_id is not None and instance_id in group.static_members:
            self._replace_static(call, group, instance_id, member_id, now)
        elif instance_id is None and call.version >= _KNOWN_MEMBER_ID_SINCE:
            group.pending_joins.add(member_id)
            self._rebalance.watch(group, member_id, call.body.session_timeout_ms, now)
            self._shard.reply(
                call.token,
                JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id),
            )
        else:
            self._add(call, group, member_id, now)

    def _new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{UUID(int=self._shard.random.getrandbits(128), version=4)}"

    def _add(
        self, call: Call[JoinGroupRequest], group: Group, member_id: str, now: Instant
    ) -> None:
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is GroupState.EMPTY
        ):
            group.new_member_added = True
        member = Member.from_call(call, member_id)
        member.awaiting_join = ParkedRequest(call.token)
        group.add(member, call.body.protocol_type)
        # Its client cannot send heartbeats before it knows its id, and a client that has gone and
        # tried again must not leave a waiting ghost for ever.
        timeout_ms = self._shard.settings.new_member_join_timeout_ms
        self._rebalance.keep_alive(group, member, now, timeout_ms)
        self._rebalance.begin_or_complete(group, f"{member_id} joined{_client_reason(call)}", now)

    # Members that join again.

    def _join_again(
        self, call: Call[JoinGroupRequest], group: Group, member: Member, now: Instant
    ) -> None:
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                rebalances = True
            case GroupState.COMPLETING_REBALANCE:
                # The same metadata again: the answer to its join has got lost.
                rebalances = member.protocols != call.body.protocols
            case GroupState.STABLE:
                # A leader that joins again has seen a change that its metadata does not show.
                rebalances = (
                    group.is_leader(member.member_id) or member.protocols != call.body.protocols
                )
            case GroupState.EMPTY | GroupState.DEAD:
                raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        if rebalances:
            self._update(call, group, member)
            self._rebalance.begin_or_complete(
                group, f"{member.member_id} joined again{_client_reason(call)}", now
            )
        else:
            # What it needs to sync (again), and for a leader, to assign (again).
            self._shard.reply(
                call.token, self._rebalance.current_generation(group, member.member_id)
            )

    def _update(self, call: Call[JoinGroupRequest], group: Group, member: Member) -> None:
        """Take over what a member says; one of its joins that waits already is superseded."""
        group.set_protocols(member, call.body.protocols)
        member.session_timeout_ms = call.body.session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms(call)
        self._rebalance.answer_join(group, member, _superseded())
        group.park_join(member, ParkedRequest(call.token))

    # Static members whose process has been replaced.

    def _replace_static(
        self,
        call: Call[JoinGroupRequest],
        group: Group,
        instance_id: str,
        member_id: str,
        now: Instant,
    ) -> None:
        leader_before = group.leader or NO_MEMBER_ID
        previous = group.replace_static_member(instance_id, member_id)
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._rebalance.answer_join(
            group,
            previous,
            JoinGroupResponse(error_code=fenced, protocol_name=None, member_id=previous.member_id),
        )
        self._rebalance.answer_sync(previous, SyncGroupResponse(error_code=fenced))
        self._shard.cancel("session", group.group_id, previous.member_id)
        member = group.members[member_id]
        self._update(call, group, member)
        self._rebalance.keep_alive(group, member, now)
        if group.state is GroupState.STABLE and group.protocol == group.select_protocol():
            self._store_replacement(call, group, previous, leader_before, now)
        else:
            # The old id may have been sent to the leader already, which would assign to it.
            self._rebalance.begin_or_complete(
                group, f"{instance_id} came back as {member_id}{_client_reason(call)}", now
            )

    def _store_replacement(
        self,
        call: Call[JoinGroupRequest],
        group: Group,
        previous: Member,
        leader_before: str,
        now: Instant,
    ) -> None:
        assignments = {member.member_id: member.assignment for member in group.members.values()}
        self._shard.append(
            [GroupRecord(group.group_id, group.to_value(assignments))],
            now,
            partial(self._replacement_stored, call, group, previous, leader_before),
        )

    def _replacement_stored(
        self,
        call: Call[JoinGroupRequest],
        group: Group,
        previous: Member,
        leader_before: str,
        error: ErrorCode | None,
        now: Instant,
    ) -> None:
        member_id = group.static_members.get(previous.group_instance_id or "")
        member = group.members.get(member_id or "")
        if (
            group.state is not GroupState.STABLE  # the rebalance that has begun will answer
            or member is None
            or member.awaiting_join != ParkedRequest(call.token)
        ):
            return
        if error is not None:
            told = JoinGroupResponse(error_code=coordinator_error(error))
            self._rebalance.answer_join(group, member, told)
            self._shard.cancel("session", group.group_id, member.member_id)
            group.restore_static_member(previous)
            self._rebalance.keep_alive(group, previous, now)
            return
        unchanged = self._unchanged_generation(call, group, member.member_id, leader_before)
        self._rebalance.answer_join(group, member, unchanged)
        self._rebalance.keep_alive(group, member, now)

    def _unchanged_generation(
        self, call: Call[JoinGroupRequest], group: Group, member_id: str, leader_before: str
    ) -> JoinGroupResponse:
        """The answer that lets a replaced member go on without an assignment being computed."""
        leads = group.is_leader(member_id)
        if call.version >= _SKIPPED_ASSIGNMENT_SINCE:
            members = group.joined_members() if leads else []
            leader = group.leader or NO_MEMBER_ID
        else:
            # A client that cannot skip must not notice that it leads: the assignment that it would
            # compute goes nowhere in a stable group.
            members, leader, leads = [], leader_before, False
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=leader,
            skip_assignment=leads,
            member_id=member_id,
            members=members,
        )


def _client_reason(call: Call[JoinGroupRequest]) -> str:
    return f": {call.body.reason}" if call.body.reason else ""


def _superseded() -> JoinGroupResponse:
    """The answer to a join that the same member has repeated before it was answered."""
    return JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
