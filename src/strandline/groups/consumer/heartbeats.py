"""ConsumerGroupHeartbeat: by which members join, stay, take what they get, give up, and leave.

The order of the checks is Kafka's. Everything that can be refused is refused (`ProtocolError`)
before anything changes; then each step adds its records to one change (see `changes`).
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.consumer.changes import Change
from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
)
from strandline.groups.consumer.opening import Opening
from strandline.groups.consumer.partitions import (
    OWNS_NOTHING,
    OwnedPartitions,
    at_epoch,
    covers,
    without_epochs,
)
from strandline.groups.consumer.reconciliation import Reported, check_known
from strandline.groups.consumer.records import MemberAssignment
from strandline.groups.consumer.steps import Steps
from strandline.groups.requests import Call
from strandline.groups.shard import Shard
from strandline.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from strandline.types import Instant

_OWN_MEMBER_ID_SINCE: Final = 1
"""KIP-1082: the version from which on clients make their member ids."""
_UNCHANGED: Final = -1
"""A rebalance timeout that is the same as before."""

HeartbeatCall = Call[ConsumerGroupHeartbeatRequest]


class Heartbeats:
    """Handles the heartbeats of one shard's consumer groups."""

    def __init__(self, shard: Shard, steps: Steps, opening: Opening) -> None:
        self._shard = shard
        self._steps = steps
        self._opening = opening

    def heartbeat(self, call: HeartbeatCall, now: Instant) -> None:
        """Handle a heartbeat, which is answered when what it tells is durable."""
        request = call.body
        _check(call, self._shard.settings.consumer.assignors)
        if request.member_epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH):
            self._leave(call, now)
        else:
            self._beat(call, now)

    # Joining and staying.

    def _beat(self, call: HeartbeatCall, now: Instant) -> None:
        request = call.body
        is_joining = request.member_epoch == JOINING_EPOCH
        opened = self._opening.open(request.group_id, may_create=is_joining)
        group = opened.group
        member_id = request.member_id or self._new_member_id()
        self._check_room(group, member_id)
        reported = _reported(request)
        known, predecessor = self._identify(call, group, member_id, reported)
        check_known(known, reported)
        pattern = request.subscribed_topic_regex
        self._steps.subscriptions.check(group, known, pattern or "")

        change = self._opening.begin(opened)
        if opened.classic is not None:
            self._steps.sessions.watch_all(group, now)
        if predecessor is not None:
            self._steps.replace(change, predecessor, known)
        group.may_see = call.may_see
        member = _updated(known, call)
        has_changed = self._steps.update(change, known, member, now)
        self._steps.targets.maybe_compute(change, now)
        member = self._steps.reconcile(
            change, member, reported, now, subscription_changed=has_changed
        )
        self._steps.sessions.keep_alive(group, member, now)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._steps.times(group).heartbeat_interval_ms,
        )
        if is_joining or _is_full(request) or member.assigned != known.assigned:
            response.assignment = _told(member.assigned)
        self._commit(call, change, response, now)

    def _new_member_id(self) -> str:
        drawn = self._shard.random.getrandbits(128).to_bytes(16, "big")
        return urlsafe_b64encode(drawn).rstrip(b"=").decode()

    def _check_room(self, group: ConsumerGroup, member_id: str) -> None:
        members_max = self._shard.settings.consumer.members_max
        if len(group.members) >= members_max and member_id not in group.members:
            raise ProtocolError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {members_max} members.",
            )

    def _identify(
        self, call: HeartbeatCall, group: ConsumerGroup, member_id: str, reported: Reported
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Who speaks, as it is known until now; and the static member that it takes over from."""
        request = call.body
        is_joining = request.member_epoch == JOINING_EPOCH
        if request.instance_id is None:
            if is_joining:
                known = group.members.get(member_id) or ConsumerMember(member_id)
            else:
                known = group.member(member_id)
            _check_epoch(known, request.member_epoch, reported)
            return known, None
        owner = group.static_member(request.instance_id)
        if not is_joining:
            owner = check_instance(owner, member_id, request.instance_id)
            _check_epoch(owner, request.member_epoch, reported)
            return owner, None
        if owner is None:
            return group.members.get(member_id) or ConsumerMember(member_id), None
        if not owner.is_classic and owner.epoch != STATIC_LEAVING_EPOCH:
            raise ProtocolError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {request.instance_id} cannot join "
                f"the group because the instance id is owned by {owner.member_id} member.",
            )
        return replace(owner, member_id=member_id, epoch=0, previous_epoch=0), owner

    # Leaving.

    def _leave(self, call: HeartbeatCall, now: Instant) -> None:
        request = call.body
        group = self._opening.consumer_group(request.group_id)
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            owner = group.static_member(request.instance_id)
            member = check_instance(owner, request.member_id, request.instance_id)
            if request.member_epoch == STATIC_LEAVING_EPOCH:
                self._leave_for_a_while(call, group, member, now)
                return

        def done(error: ErrorCode | None, _at: Instant) -> None:
            if error is not None:
                self._shard.reply(call.token, ConsumerGroupHeartbeatResponse(error_code=error))
            else:
                self._shard.reply(call.token, response)

        reason = f"{member.member_id} left."
        self._steps.sessions.fence(group, [member], reason, now, done)

    def _leave_for_a_while(
        self, call: HeartbeatCall, group: ConsumerGroup, member: ConsumerMember, now: Instant
    ) -> None:
        """A static member goes; its session goes on, and what it owns waits for its successor."""
        change = Change(self._shard, group)
        away = replace(
            member,
            epoch=STATIC_LEAVING_EPOCH,
            revoking=OWNS_NOTHING,
            assigned=at_epoch(without_epochs(member.assigned), 0),
        )
        change.write(MemberAssignment(group.group_id, member.member_id, away.to_assignment()))
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=STATIC_LEAVING_EPOCH
        )
        self._commit(call, change, response, now)

    def _commit(
        self,
        call: HeartbeatCall,
        change: Change,
        response: ConsumerGroupHeartbeatResponse,
        now: Instant,
    ) -> None:
        def done(error: ErrorCode | None, _at: Instant) -> None:
            answer = response
            if error is not None:
                answer = ConsumerGroupHeartbeatResponse(error_code=error)
            self._shard.reply(call.token, answer)

        self._steps.sessions.commit(change, now, done)


# What a request says.


def _check(call: HeartbeatCall, assignors: Sequence[str]) -> None:
    """Refuse a request that makes no sense. Raises `ProtocolError`."""
    request = call.body
    epoch = request.member_epoch
    if call.version >= _OWN_MEMBER_ID_SINCE or epoch > 0 or epoch == LEAVING_EPOCH:
        _check_given("MemberId", request.member_id)
    _check_given("GroupId", request.group_id)
    _check_given("InstanceId", request.instance_id)
    _check_given("RackId", request.rack_id)
    if epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == _UNCHANGED:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif epoch == STATIC_LEAVING_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )


def _check_given(name: str, value: str | None) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(reason: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, reason)


def _reported(request: ConsumerGroupHeartbeatRequest) -> Reported:
    if request.topic_partitions is None:
        return None
    return [
        (topic.topic_id, partition)
        for topic in request.topic_partitions
        for partition in topic.partitions
    ]


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether a member tells everything, because it does not know what its coordinator knows."""
    return (
        request.rebalance_timeout_ms != _UNCHANGED
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )


def _updated(known: ConsumerMember, call: HeartbeatCall) -> ConsumerMember:
    """The member with what it says of itself; what it leaves out is the same as before."""
    request = call.body
    timeout_ms, names = request.rebalance_timeout_ms, request.subscribed_topic_names
    return replace(
        known,
        instance_id=_either(request.instance_id, known.instance_id),
        rack_id=_either(request.rack_id, known.rack_id),
        rebalance_timeout_ms=known.rebalance_timeout_ms if timeout_ms == _UNCHANGED else timeout_ms,
        assignor=_either(request.server_assignor, known.assignor),
        topic_names=known.topic_names if names is None else frozenset(names),
        topic_regex=_either(request.subscribed_topic_regex, known.topic_regex) or "",
        client_id=call.client_id,
        client_host=call.client_host,
        classic=None,
    )


def _either(given: str | None, known: str | None) -> str | None:
    return known if given is None else given


def _told(assigned: OwnedPartitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=list(epochs))
            for topic_id, epochs in assigned.items()
        ]
    )


def _check_epoch(member: ConsumerMember, epoch: int, reported: Reported) -> None:
    """Fence a member that is not where the group knows it to be.

    It may be one step behind, if it has not got the answer that took it further, and owns nothing
    that it should not.
    """
    if epoch in (JOINING_EPOCH, member.epoch):
        return
    size = "greater" if epoch > member.epoch else "smaller"
    if (
        epoch < member.epoch
        and epoch == member.previous_epoch
        and reported is not None
        and covers(member.assigned, reported)
    ):
        return
    raise ProtocolError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({member.epoch}). The member must abandon all its partitions and "
        f"rejoin.",
    )


def check_instance(
    owner: ConsumerMember | None, member_id: str, instance_id: str | None
) -> ConsumerMember:
    """The static member that an instance id means, if that is who speaks. Raises
    `ProtocolError`."""
    if owner is None:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if owner.member_id != member_id:
        raise ProtocolError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{owner.member_id}.",
        )
    return owner
