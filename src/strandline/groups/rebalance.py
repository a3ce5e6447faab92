"""How a group goes from one generation to the next, and how members are watched.

The join phase ends when every member has joined, or when the longest rebalance timeout has passed
and the missing dynamic members are let go. A group that was empty waits a little longer, for more
members to come (`group.initial.rebalance.delay.ms`). Then everyone must sync, in the same time.

Members are watched by a session timer each, which every sign of life puts off; members that wait
for the coordinator's own answer are not at fault (`Member.satisfies_heartbeat`). Methods that may
store a group return the id of the append that they began, for answers that depend on it.
"""

from __future__ import annotations

from functools import partial

from strandline.errors import ErrorCode, InvariantViolated
from strandline.groups.group import Group, GroupState
from strandline.groups.member import Member
from strandline.groups.offset_records import GroupRecord
from strandline.groups.shard import Shard
from strandline.protocol.messages.join_group import JoinGroupResponse
from strandline.protocol.messages.sync_group import SyncGroupResponse
from strandline.types import Instant

REASON_LENGTH_MAX = 255


class Rebalance:
    """Generations and sessions of the groups of one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._settings = shard.settings

    # Beginning and ending the join phase.

    def begin_or_complete(self, group: Group, reason: str, now: Instant) -> int | None:
        """Begin a rebalance; or, if one is under way, see whether the join can end."""
        if group.can_rebalance:
            return self.begin(group, reason, now)
        return self.complete_if_all_joined(group, now)

    def begin(self, group: Group, reason: str, now: Instant) -> int | None:
        """Ask all members to join again."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        group.pending_syncs.clear()
        self._shard.cancel("sync", group.group_id)
        is_first = group.state is GroupState.EMPTY
        group.rebalance_reason = reason[:REASON_LENGTH_MAX]
        group.transition_to(GroupState.PREPARING_REBALANCE, now.wall_ms)
        if is_first:
            delay_ms = self._settings.initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._wait_for_more_members(group, delay_ms, remaining_ms, now)
            return None
        if group.all_members_joined:
            return self._complete_join(group, now)
        self._wait_for_members(group, now)
        return None

    def complete_if_all_joined(self, group: Group, now: Instant) -> int | None:
        """End the join phase if no member is missing; the first one always takes its time."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is not GroupState.EMPTY
            and group.all_members_joined
        ):
            return self._complete_join(group, now)
        return None

    def _wait_for_members(self, group: Group, now: Instant) -> None:
        self._shard.schedule(
            "join",
            group.group_id,
            now=now,
            delay_ms=group.rebalance_timeout_ms,
            do=partial(self._join_over, group),
        )

    def _wait_for_more_members(
        self, group: Group, delay_ms: int, remaining_ms: int, now: Instant
    ) -> None:
        self._shard.schedule(
            "join",
            group.group_id,
            now=now,
            delay_ms=delay_ms,
            do=partial(self._initial_delay_over, group, delay_ms, remaining_ms),
        )

    def _initial_delay_over(
        self, group: Group, delay_ms: int, remaining_ms: int, now: Instant
    ) -> None:
        if group.new_member_added and remaining_ms > 0:
            group.new_member_added = False
            next_delay_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
            next_remaining_ms = max(remaining_ms - delay_ms, 0)
            self._wait_for_more_members(group, next_delay_ms, next_remaining_ms, now)
        else:
            self._join_over(group, now)

    def _join_over(self, group: Group, now: Instant) -> None:
        if group.state is not GroupState.PREPARING_REBALANCE:
            raise InvariantViolated(f"Group {group.group_id} has a join timer and no join.")
        self._complete_join(group, now)

    def _complete_join(self, group: Group, now: Instant) -> int | None:
        self._shard.cancel("join", group.group_id)
        group.new_member_added = False
        for member in list(group.members.values()):
            if member.awaiting_join is None and not member.is_static:
                self.remove(group, member.member_id)
        if group.members and not group.maybe_elect_joined_leader():
            # Only static members are left, and none has come: wait for their sessions to end.
            self._wait_for_members(group, now)
            return None
        group.start_generation(now.wall_ms)
        if group.state is GroupState.EMPTY:
            return self._shard.append([GroupRecord(group.group_id, group.to_value({}))], now)
        self._hand_out_generation(group, now)
        return None

    def _hand_out_generation(self, group: Group, now: Instant) -> None:
        for member in group.members.values():
            self.answer_join(group, member, self.current_generation(group, member.member_id))
            self.keep_alive(group, member, now)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        self._shard.schedule(
            "sync",
            group.group_id,
            now=now,
            delay_ms=group.rebalance_timeout_ms,
            do=partial(self._sync_over, group, group.generation),
        )

    def current_generation(self, group: Group, member_id: str) -> JoinGroupResponse:
        """The answer to a join: this generation, and for the leader everyone in it."""
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=group.leader or "",
            member_id=member_id,
            members=group.joined_members() if group.is_leader(member_id) else [],
        )

    # Syncing.

    def synced(self, group: Group, member_id: str) -> None:
        """A member has come for its assignment."""
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            self._shard.cancel("sync", group.group_id)

    def assign(self, group: Group, assignments: dict[str, bytes], now: Instant) -> None:
        """The generation's assignment is durable: everyone who waits gets its part."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            response = SyncGroupResponse(
                protocol_type=group.protocol_type,
                protocol_name=group.protocol,
                assignment=member.assignment,
            )
            if self.answer_sync(member, response):
                self.keep_alive(group, member, now)
        group.transition_to(GroupState.STABLE, now.wall_ms)

    def fail_syncs(self, group: Group, error: ErrorCode, now: Instant) -> None:
        """There will be no assignment for this generation."""
        for member in group.members.values():
            member.assignment = b""
            if self.answer_sync(member, SyncGroupResponse(error_code=error)):
                self.keep_alive(group, member, now)

    def _sync_over(self, group: Group, generation: int, now: Instant) -> None:
        if generation != group.generation or not group.pending_syncs:
            raise InvariantViolated(f"Group {group.group_id} has a sync timer and no sync.")
        missing = sorted(group.pending_syncs)
        for member_id in missing:
            self.remove(group, member_id)
        self.begin(group, f"No sync came from {', '.join(missing)}.", now)

    # Members.

    def keep_alive(
        self, group: Group, member: Member, now: Instant, timeout_ms: int | None = None
    ) -> None:
        """A sign of life: the member's session begins anew."""
        session_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.watch(group, member.member_id, session_ms, now)

    def watch(self, group: Group, member_id: str, timeout_ms: int, now: Instant) -> None:
        """Expect to hear of a member, or of someone with a promised id, within a time."""
        self._shard.schedule(
            "session",
            group.group_id,
            member_id,
            now=now,
            delay_ms=timeout_ms,
            do=partial(self._session_over, group, member_id),
        )

    def remove(
        self, group: Group, member_id: str, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID
    ) -> None:
        """Let a member go. If it waits for an answer, `error` makes it join again."""
        self._shard.cancel("session", group.group_id, member_id)
        member = group.remove(member_id)
        if member is not None:
            self.answer_join(group, member, JoinGroupResponse(error_code=error))
            self.answer_sync(member, SyncGroupResponse(error_code=error))
        if not group.pending_syncs:
            self._shard.cancel("sync", group.group_id)

    def complete_after_departure(self, group: Group, reason: str, now: Instant) -> int | None:
        """Someone has gone: the others rebalance, or need not wait any longer."""
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self.begin(group, reason, now)
        if group.state is GroupState.PREPARING_REBALANCE and group.all_members_joined:
            return self._complete_join(group, now)
        return None

    def _session_over(self, group: Group, member_id: str, now: Instant) -> None:
        if member_id in group.pending_joins:
            self.remove(group, member_id)
            if group.state is GroupState.PREPARING_REBALANCE and group.all_members_joined:
                self._complete_join(group, now)
            return
        member = group.members.get(member_id)
        if member is not None and not member.satisfies_heartbeat:
            self.remove(group, member_id)
            self.complete_after_departure(group, f"The session of {member_id} is over.", now)

    def dissolve(self, group: Group, error: ErrorCode) -> None:
        """Forget a group with all its members, who are told `error`."""
        for member_id in [*group.members, *group.pending_joins]:
            self.remove(group, member_id, error)
        self._shard.cancel("join", group.group_id)
        self._shard.cancel("sync", group.group_id)
        self._shard.groups.pop(group.group_id, None)

    def suspend(self, group: Group) -> None:
        """Stop the time of a group that is to become one of another kind."""
        for member_id in [*group.members, *group.pending_joins]:
            self._shard.cancel("session", group.group_id, member_id)
        group.pending_joins.clear()
        self._shard.cancel("join", group.group_id)
        self._shard.cancel("sync", group.group_id)

    def resume(self, group: Group, now: Instant) -> None:
        """The group stays what it was: its members have another try."""
        for member in group.members.values():
            self.keep_alive(group, member, now)
        if group.state is GroupState.PREPARING_REBALANCE:
            self._wait_for_members(group, now)
        elif group.state is GroupState.COMPLETING_REBALANCE:
            self.begin(group, "The group could not become a consumer group.", now)

    # Answers.

    def answer_join(self, group: Group, member: Member, response: JoinGroupResponse) -> bool:
        """Answer the join of a member, or of one that has just gone, if it waits for one."""
        parked = group.take_join(member)
        if parked is None:
            return False
        self._shard.reply(parked.token, response)
        return True

    def answer_sync(self, member: Member, response: SyncGroupResponse) -> bool:
        """Answer the member's sync, if it waits for one."""
        parked, member.awaiting_sync = member.awaiting_sync, None
        if parked is None:
            return False
        self._shard.reply(parked.token, response)
        return True
