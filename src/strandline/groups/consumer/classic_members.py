"""Members that speak the classic protocol in a consumer group: joins, syncs, heartbeats, leaves.

Such a member does not wait for others: its join takes the next step of its reconciliation at once,
the answer's generation is its epoch, and its sync gets what it owns by then. A heartbeat tells it
to join again when there is a next step. There is no leader: assignments are the coordinator's.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import replace
from typing import Final

from strandline.errors import CorruptRecords, ErrorCode, ProtocolError
from strandline.groups.consumer.changes import Change
from strandline.groups.consumer.downgrade import Downgrades, named_partitions, spoken
from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.consumer.heartbeats import check_instance
from strandline.groups.consumer.member import ConsumerMember, MemberState
from strandline.groups.consumer.partitions import without_epochs
from strandline.groups.consumer.steps import Steps
from strandline.groups.consumer.upgrade import classic_side
from strandline.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    read_subscription,
    written_assignment,
)
from strandline.groups.member import rebalance_timeout_ms
from strandline.groups.requests import NO_MEMBER_ID, Call, refused
from strandline.groups.shard import Shard
from strandline.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from strandline.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from strandline.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from strandline.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from strandline.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from strandline.types import Instant, TopicId

_KNOWN_MEMBER_ID_SINCE: Final = 4
"""KIP-394: a dynamic member first fetches an id."""


class ClassicMembers:
    """Handles the classic protocol in one shard's consumer groups."""

    def __init__(self, shard: Shard, steps: Steps, downgrades: Downgrades) -> None:
        self._shard = shard
        self._steps = steps
        self._downgrades = downgrades

    # JoinGroup.

    def join(self, call: Call[JoinGroupRequest], group: ConsumerGroup, now: Instant) -> None:
        """Handle JoinGroup, which is answered when the member's step is durable."""
        request = call.body
        member_id = request.member_id or self._new_member_id()
        self._check_join(request, group, member_id)
        instance_id = request.group_instance_id
        is_unknown = request.member_id == NO_MEMBER_ID
        if is_unknown and instance_id is None and call.version >= _KNOWN_MEMBER_ID_SINCE:
            answer = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            self._shard.reply(call.token, answer)
            return
        subscription = _subscription(request)
        known, predecessor = self._identify(request, group, member_id)
        leaving = [] if predecessor is None else [predecessor]
        ends_group = (
            predecessor is not None
            and not predecessor.is_classic
            and self._downgrades.may_downgrade(group, leaving, joining=1)
        )
        change = Change(self._shard, group)
        change.if_refused(lambda at: self._steps.sessions.watch_all(group, at))
        if predecessor is not None:
            self._steps.replace(change, predecessor, known)
        member = _updated(known, call, subscription)
        has_changed = self._steps.update(change, known, member, now)
        if not ends_group:
            self._steps.targets.maybe_compute(change, now)
        is_stale = group.image.target_epoch < group.image.epoch
        if not (ends_group and is_stale):
            member = self._steps.reconcile(
                change,
                member,
                self._owned(subscription),
                now,
                subscription_changed=has_changed,
            )
        answer = JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=spoken(member).protocol_name,
            member_id=member.member_id,
        )

        def done(error: ErrorCode | None, _at: Instant) -> None:
            told = answer if error is None else refused(request, error)
            self._shard.reply(call.token, told)

        if ends_group:
            members = list(group.members.values())
            # Beyond Kafka, which looks at the epochs alone: a member that is not there yet may have
            # been told the generation, and would never ask for the rest of its partitions.
            is_settled = all(each.is_reconciled_to(group.image.epoch) for each in members)
            reason = (
                None if is_settled else "The last member of the consumer protocol was replaced."
            )
            self._downgrades.downgrade(change, members, reason, now, done)
        else:
            self._steps.sessions.joined(group, member, now)
            change.commit(now, done)

    def _check_join(self, request: JoinGroupRequest, group: ConsumerGroup, member_id: str) -> None:
        settings = self._shard.settings.consumer
        if settings.is_migration_disabled:
            raise ProtocolError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Cannot join the consumer group {group.group_id} with the classic protocol "
                f"because the group migration is disabled.",
            )
        if len(group.members) >= settings.members_max and member_id not in group.members:
            raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        names = [protocol.name for protocol in request.protocols]
        if not group.supports_classic(request.protocol_type, names):
            raise ProtocolError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Member {member_id}'s protocols are not supported.",
            )

    def _identify(
        self, request: JoinGroupRequest, group: ConsumerGroup, member_id: str
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Who joins, as it is known until now; and the static member that it takes over from."""
        instance_id = request.group_instance_id
        owner = group.static_member(instance_id)
        if instance_id is not None and request.member_id != NO_MEMBER_ID:
            return check_instance(owner, member_id, instance_id), None
        if owner is not None:
            return replace(owner, member_id=member_id, epoch=0, previous_epoch=0), owner
        return group.members.get(member_id) or ConsumerMember(member_id), None

    def _owned(self, subscription: ConsumerProtocolSubscription) -> list[tuple[TopicId, int]]:
        found: list[tuple[TopicId, int]] = []
        for owned in subscription.owned_partitions:
            topic = self._steps.cluster.named(owned.topic)
            if topic is not None:
                found += ((topic.topic_id, partition) for partition in owned.partitions)
        return found

    def _new_member_id(self) -> str:
        drawn = self._shard.random.getrandbits(128).to_bytes(16, "big")
        return urlsafe_b64encode(drawn).rstrip(b"=").decode()

    # SyncGroup.

    def sync(self, call: Call[SyncGroupRequest], group: ConsumerGroup, now: Instant) -> None:
        """Handle SyncGroup: tell a member what it owns, when that is durable."""
        request = call.body
        member = _identified(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        side = spoken(member)
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or (
            request.protocol_name not in (None, side.protocol_name)
        ):
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.image.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            self._steps.sessions.expect_join(group, member, now)
            raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._steps.sessions.synced(group, member, now)
        names = named_partitions(without_epochs(member.assigned), self._steps.cluster)
        answer = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=written_assignment(names, side.subscription),
        )

        def done(error: ErrorCode | None, _at: Instant) -> None:
            told = answer if error is None else refused(request, error)
            self._shard.reply(call.token, told)

        Change(self._shard, group).commit(now, done)

    # Heartbeat.

    def heartbeat(self, call: Call[HeartbeatRequest], group: ConsumerGroup, now: Instant) -> None:
        """Handle Heartbeat, which tells a member to join again if there is a next step for it."""
        request = call.body
        member = _identified(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        sessions = self._steps.sessions
        sessions.keep_alive(group, member, now)
        self._look_around(group, now)
        error = ErrorCode.NONE
        if self._has_next_step(group, member):
            error = ErrorCode.REBALANCE_IN_PROGRESS
            sessions.expect_join(group, member, now)
        self._shard.reply(call.token, HeartbeatResponse(error_code=error))

    def _look_around(self, group: ConsumerGroup, now: Instant) -> None:
        """See whether the group needs a new assignment: there may be no member of the other
        protocol whose heartbeat does (design note 0027)."""
        change = Change(self._shard, group)
        if self._steps.subscriptions.is_due(group):
            reason = "Topics that the group reads have changed."
            self._steps.subscriptions.look_at_topics(change, reason, must_bump=False)
        self._steps.targets.maybe_compute(change, now)
        if change.records:
            self._steps.sessions.commit(change, now)

    def _has_next_step(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        match member.state:
            case MemberState.UNREVOKED:
                return True
            case MemberState.UNRELEASED if not self._waits_for_others(group, member):
                return True
        return member.epoch < group.image.target_epoch

    def _waits_for_others(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        """Whether others still have what the member is to own."""
        target = group.image.target(member.member_id)
        return any(
            partition not in member.assigned.get(topic_id, ())
            and group.owner(topic_id, partition) is not None
            for topic_id, numbers in target.items()
            for partition in numbers
        )

    # LeaveGroup.

    def leave(self, call: Call[LeaveGroupRequest], group: ConsumerGroup, now: Instant) -> None:
        """Handle LeaveGroup, by which also members of the consumer protocol can be removed."""
        leaving: dict[str, ConsumerMember] = {}
        answer = LeaveGroupResponse()
        for identity in call.body.members:
            left = MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id
            )
            answer.members.append(left)
            try:
                member = _leaving(group, identity)
            except ProtocolError as refusal:
                left.error_code = refusal.code
            else:
                leaving[member.member_id] = member

        def done(error: ErrorCode | None, _at: Instant) -> None:
            told = answer if error is None else refused(call.body, error)
            self._shard.reply(call.token, told)

        reasons = sorted({each.reason for each in call.body.members if each.reason})
        reason = f"Members left{': ' if reasons else ''}{', '.join(reasons)}."
        self._steps.sessions.fence(group, list(leaving.values()), reason, now, done)


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(request.protocols[0].metadata)
    except CorruptRecords as error:
        raise ProtocolError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The subscription is not one of a Kafka consumer: {error}",
        ) from error


def _updated(
    known: ConsumerMember,
    call: Call[JoinGroupRequest],
    subscription: ConsumerProtocolSubscription,
) -> ConsumerMember:
    request = call.body
    return replace(
        known,
        instance_id=request.group_instance_id or known.instance_id,
        rack_id=subscription.rack_id or known.rack_id,
        rebalance_timeout_ms=rebalance_timeout_ms(call),
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        client_id=call.client_id,
        client_host=call.client_host,
        classic=classic_side(request.session_timeout_ms, request.protocols),
    )


def _identified(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """The member of the classic protocol that speaks. Raises `ProtocolError`."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = check_instance(group.static_member(instance_id), member_id, instance_id)
    if not member.is_classic:
        raise ProtocolError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} does not use the classic protocol.",
        )
    return member


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    """Whom a LeaveGroup entry means: an administrator knows only the instance id."""
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.member(identity.member_id)
    owner = group.static_member(instance_id)
    if owner is not None and identity.member_id == NO_MEMBER_ID:
        return owner
    return check_instance(owner, identity.member_id, instance_id)
