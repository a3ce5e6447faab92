"""One classic group: its members, its generation, its state, and the rules that need nothing else.

    EMPTY ----------> PREPARING_REBALANCE <-----------------+------------+
      ^   first join     |        | all joined, or timeout  |            |
      +------------------+        v                         |            |
        none joined         COMPLETING_REBALANCE -----------+            |
                                  | the leader's assignment is stored    | join, leave,
                                  v                                      | session over
                                STABLE ----------------------------------+

    any state -> DEAD when the group is being deleted or its partition is given up

Knows no timers, no replies, no log; those are `rebalance`'s. A *generation* counts completed joins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from strandline.errors import CorruptRecords, ErrorCode, InvariantViolated, ProtocolError
from strandline.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from strandline.groups.member import Member, ParkedRequest
from strandline.groups.tally import Tally
from strandline.protocol.messages.join_group import (
    JoinGroupRequestProtocol,
    JoinGroupResponseMember,
)
from strandline.protocol.messages.offsets_topic import GroupMetadataValue


class GroupState(Enum):
    """The states of a classic group, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_PREVIOUS: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""From where each state may be entered. DEAD -> EMPTY: a deletion could not be stored."""


class Group:
    """A classic group."""

    def __init__(self, group_id: str, *, created_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = created_ms
        """Wall time of the last change of state; NO_TIMESTAMP for groups stored by old brokers."""
        self.generation = 0
        """Never falls while the group exists; only `start_generation` moves it."""
        self.protocol_type: str | None = None
        """None: offsets are stored here by consumers that manage their partitions themselves."""
        self.protocol: str | None = None
        self.leader: str | None = None
        """A member's id whenever there are members."""
        self.members: dict[str, Member] = {}
        """By member id, in the order of joining. Their protocols, and whether they wait for a join,
        are changed by methods of the group alone."""
        self._tally = Tally()
        self.static_members: dict[str, str] = {}
        """Instance id -> member id, for exactly the static members."""
        self.pending_joins: set[str] = set()
        """Member ids handed out (KIP-394) that have not joined with it; none is a member."""
        self.pending_syncs: set[str] = set()
        """Members that have joined this generation and not yet synced."""
        self.subscribed_topics: frozenset[str] | None = None
        """None: not known, because this is no group of consumers or one is not understood."""
        self.new_member_added = False
        """Someone joined during the initial delay, which is then extended."""
        self.is_stored = False
        """Some record of this group is durable; until then readers do not see it."""
        self.storing_generation: int | None = None
        """The generation whose assignment is being written, if one is."""
        self.rebalance_reason = ""
        """Why the last rebalance began, for people."""

    @classmethod
    def from_value(cls, group_id: str, value: GroupMetadataValue) -> Group:
        """A group as its last record says."""
        group = cls(group_id, created_ms=value.current_state_timestamp)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        group.is_stored = True
        for member in value.members:
            if value.protocol is None:
                raise CorruptRecords(f"Group {group_id} is stored with members and no protocol.")
            if member.member_id in group.members or (
                member.group_instance_id in group.static_members
            ):
                raise CorruptRecords(f"Group {group_id} is stored with a member twice.")
            group._insert(Member.from_value(member, value.protocol))
        if group.members:
            group.state = GroupState.STABLE
            stored_leader = value.leader
            group.leader = stored_leader if stored_leader in group.members else group._any_member()
        group.subscribed_topics = group._find_subscribed_topics()
        return group

    def to_value(self, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        """This generation as it is stored."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.state_timestamp_ms,
            members=[
                member.to_value(self.chosen_protocol, assignments.get(member.member_id, b""))
                for member in self.members.values()
            ],
        )

    # What the group is.

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the members are Kafka consumers, whose subscriptions can be understood."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def chosen_protocol(self) -> str:
        """The protocol of this generation."""
        if self.protocol is None:
            raise InvariantViolated(f"Group {self.group_id} has members and no protocol.")
        return self.protocol

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest time that any member needs to join again."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def awaiting_join_count(self) -> int:
        """How many members have joined the coming generation."""
        return self._tally.awaiting_join

    @property
    def all_members_joined(self) -> bool:
        """Whether the join can end: no member is missing, and none was asked to come back."""
        return not self.pending_joins and self.awaiting_join_count == len(self.members)

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin (rather than being under way)."""
        return self.state in _PREVIOUS[GroupState.PREPARING_REBALANCE]

    def is_leader(self, member_id: str) -> bool:
        """Whether this member computes the assignment."""
        return self.leader == member_id

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether the members read this topic. When in doubt, yes: offsets must not get lost."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def supports(self, protocol_type: str, protocols: Iterable[JoinGroupRequestProtocol]) -> bool:
        """Whether a member with these protocols may join: all must have one in common."""
        names = {protocol.name for protocol in protocols}
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        if self.protocol_type != protocol_type:
            return False
        return any(self._tally.supporters[name] == len(self.members) for name in names)

    def check_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Refuse someone who is no member, or whose instance id now belongs to another."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise ProtocolError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Instance {group_instance_id} is member {current} now.",
                )
        if member_id not in self.members:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)

    def joined_members(self) -> list[JoinGroupResponseMember]:
        """Every member with its subscription, for the leader."""
        return [member.as_joined(self.chosen_protocol) for member in self.members.values()]

    # How it changes.

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Enter a state, if it can be entered from here."""
        if self.state not in _PREVIOUS[state]:
            raise InvariantViolated(
                f"Group {self.group_id} cannot go from {self.state.value} to {state.value}."
            )
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def add(self, member: Member, protocol_type: str) -> None:
        """Take in a new member. The first one sets the type of the group, and leads."""
        if not self.members:
            self.protocol_type = protocol_type
        elif self.protocol_type != protocol_type:
            raise InvariantViolated(f"Group {self.group_id} is of type {self.protocol_type}.")
        self._insert(member)
        self.pending_joins.discard(member.member_id)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Let a member, or a promised member id, go. If it led, another member leads."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._tally.remove(member)
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader == member_id:
            self.leader = self._any_member()
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        return member

    def replace_static_member(self, group_instance_id: str, new_member_id: str) -> Member:
        """Give an instance's membership to a new member id; returns the member as it was."""
        old = self.members.pop(self.static_members[group_instance_id])
        self._tally.remove(old)
        new = self.members[new_member_id] = Member(
            member_id=new_member_id,
            group_instance_id=group_instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            session_timeout_ms=old.session_timeout_ms,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        self._tally.add(new)
        self.static_members[group_instance_id] = new_member_id
        if self.leader == old.member_id:
            self.leader = new_member_id
        if old.member_id in self.pending_syncs:
            self.pending_syncs.remove(old.member_id)
            self.pending_syncs.add(new_member_id)
        return old

    def restore_static_member(self, previous: Member) -> None:
        """Undo `replace_static_member`: the replacement could not be stored."""
        instance_id = previous.group_instance_id
        if instance_id is None:
            raise InvariantViolated(f"{previous.member_id} is no static member.")
        replacement_id = self.static_members[instance_id]
        self._tally.remove(self.members.pop(replacement_id))
        self.members[previous.member_id] = previous
        self._tally.add(previous)
        self.static_members[instance_id] = previous.member_id
        if self.leader == replacement_id:
            self.leader = previous.member_id
        if replacement_id in self.pending_syncs:
            self.pending_syncs.remove(replacement_id)
            self.pending_syncs.add(previous.member_id)

    def set_protocols(self, member: Member, protocols: list[JoinGroupRequestProtocol]) -> None:
        """A member says anew what it can do, its favourite first."""
        self._tally.set_protocols(member, protocols)

    def park_join(self, member: Member, parked: ParkedRequest) -> None:
        """Let the join of a member wait for its answer."""
        self._tally.set_awaiting_join(member, parked)

    def take_join(self, member: Member) -> ParkedRequest | None:
        """The join that waits for its answer, also of a member that is none any more; it does not
        wait any longer."""
        parked = member.awaiting_join
        if self.members.get(member.member_id) is member:
            self._tally.set_awaiting_join(member, None)
        else:
            member.awaiting_join = None
        return parked

    def maybe_elect_joined_leader(self) -> bool:
        """See to it that the leader has joined; False if none has."""
        if self.leader is None:
            return False
        if self.members[self.leader].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader = member.member_id
                return True
        return False

    def start_generation(self, now_ms: int) -> None:
        """End the join: those who are members now form the next generation."""
        self.generation += 1
        self.protocol = self.select_protocol() if self.members else None
        self.subscribed_topics = self._find_subscribed_topics()
        state = GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY
        self.transition_to(state, now_ms)

    def select_protocol(self) -> str:
        """The protocol with the most votes among those that every member supports."""
        candidates = self._tally.supported_by_all(self.members.values())
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def check(self) -> None:
        """Verify what the fields' comments promise."""
        if bool(self.members) != (self.leader is not None):
            raise InvariantViolated(f"Group {self.group_id} has members or a leader, not both.")
        if self.leader is not None and self.leader not in self.members:
            raise InvariantViolated(f"Group {self.group_id} is led by a stranger.")
        static = {
            member.group_instance_id: member.member_id
            for member in self.members.values()
            if member.group_instance_id is not None
        }
        if static != self.static_members:
            raise InvariantViolated(f"Group {self.group_id} has lost track of its instances.")
        if self.pending_joins & self.members.keys() or not self.pending_syncs <= set(self.members):
            raise InvariantViolated(f"Group {self.group_id} waits for the wrong members.")
        if self.state is GroupState.EMPTY and self.members:
            raise InvariantViolated(f"Group {self.group_id} is empty and has members.")
        self._check_parked()
        self._tally.check(self.members.values())

    def _check_parked(self) -> None:
        for member in self.members.values():
            if member.awaiting_sync and self.state is not GroupState.COMPLETING_REBALANCE:
                raise InvariantViolated(f"{member.member_id} waits for a sync that cannot come.")
            if member.awaiting_join and self.state not in (
                GroupState.PREPARING_REBALANCE,
                GroupState.STABLE,  # a replaced static member, while its record is written
            ):
                raise InvariantViolated(f"{member.member_id} waits for a join that cannot come.")

    def _insert(self, member: Member) -> None:
        instance_id = member.group_instance_id
        if member.member_id in self.members or instance_id in self.static_members:
            raise InvariantViolated(f"{member.member_id} is a member of {self.group_id} already.")
        self.members[member.member_id] = member
        self._tally.add(member)
        if instance_id is not None:
            self.static_members[instance_id] = member.member_id

    def _any_member(self) -> str | None:
        return next(iter(self.members), None)

    def _find_subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        try:
            return frozenset().union(
                *(
                    subscribed_topics(member.metadata(self.protocol))
                    for member in self.members.values()
                )
            )
        except CorruptRecords:
            return None  # a type that only calls itself "consumer": treated as subscribed to all


def no_group(group_id: str) -> ProtocolError:
    """The refusal of a request that names a group which does not exist."""
    return ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
