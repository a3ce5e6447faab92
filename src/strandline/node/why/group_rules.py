"""Rules about consumer groups and their coordinators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from strandline.cluster.image import TopicImage
from strandline.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from strandline.errors import ErrorCode
from strandline.groups.consumer.image import ConsumerGroupState
from strandline.groups.group import GroupState
from strandline.groups.overview import GroupOverview
from strandline.node.why.refusals import Refusal
from strandline.node.why.rule import Finding, Rule, Scope
from strandline.node.why.scene import Scene, refusal_evidence
from strandline.node.why.writing_rules import refusal_rule, refused
from strandline.numerals import counted
from strandline.protocol.apis import ApiKey
from strandline.replication.leader import Leader
from strandline.types import TopicPartition

_UNSETTLED: Final = (ConsumerGroupState.ASSIGNING, ConsumerGroupState.RECONCILING)
_SHOWN_MAX: Final = 10
_REBALANCING: Final = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
_IN_MOTION: Final = (*_REBALANCING, *_UNSETTLED)


def _groups(scene: Scene) -> Iterator[GroupOverview]:
    if scene.node.groups.is_used:
        for each in scene.node.groups.host.overviews():
            if scene.group in (None, each.group_id):
                yield each


def rebalancing(scene: Scene) -> Iterator[Finding]:
    """Groups between two generations."""
    for group in _groups(scene):
        if group.state not in _REBALANCING:
            continue
        awaited = [each for each in group.members if each.is_awaited]
        is_joining = group.state is GroupState.PREPARING_REBALANCE
        evidence = [f"generation {group.generation}: {group.rebalance_reason}"]
        evidence += [
            f"{each.client_id} at {each.client_host} ({each.member_id}) has not "
            f"{'joined again' if is_joining else 'synced'} yet"
            for each in awaited[:10]
        ]
        waits = f"{len(awaited)} of {len(group.members)} members" if awaited else "more members"
        yield Finding(
            f"group {group.group_id}",
            f"the group is rebalancing and waits for {waits} to "
            f"{'join' if is_joining else 'take their assignment'}",
            group.state_since_ms if group.state_since_ms >= 0 else None,
            tuple(evidence),
        )
    unsettled = [each.group_id for each in _groups(scene) if each.state in _IN_MOTION]
    for refusal in scene.refusals(ErrorCode.REBALANCE_IN_PROGRESS):
        yield Finding(
            str(refusal.about),
            "members were told that the group rebalances",
            refusal.first.wall_ms,
            refusal_evidence(refusal, scene.now),
            is_over=refusal.about.group not in unsettled,
        )


def reconciling(scene: Scene) -> Iterator[Finding]:
    """Groups of the consumer protocol whose members do not own yet what they are to own."""
    for group in _groups(scene):
        if group.state not in _UNSETTLED:
            continue
        behind = [each for each in group.members if each.is_awaited]
        evidence = [f"epoch {group.generation}: {group.rebalance_reason}"]
        for each in behind[:_SHOWN_MAX]:
            who = f"{each.client_id} at {each.client_host} ({each.member_id})"
            if each.revoking_partitions:
                evidence.append(f"{who} has to give up {_listed(each.revoking_partitions)}")
            elif each.missing:
                waits = ", ".join(f"{at} of {owner}" for at, owner in each.missing[:_SHOWN_MAX])
                evidence.append(f"{who} waits for {waits}")
            else:
                evidence.append(f"{who} is at epoch {each.epoch}: its next heartbeat takes it on")
        cause = (
            f"the group is at epoch {group.generation} and waits for its next assignment"
            if group.state is ConsumerGroupState.ASSIGNING
            else f"{len(behind)} of {len(group.members)} members do not own yet what epoch "
            f"{group.assignment_epoch} gives them"
        )
        since_ms = group.state_since_ms if group.state_since_ms >= 0 else None
        yield Finding(f"group {group.group_id}", cause, since_ms, tuple(evidence))


def _listed(partitions: Sequence[TopicPartition]) -> str:
    shown = ", ".join(map(str, partitions[:_SHOWN_MAX]))
    more = len(partitions) - _SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def loading(scene: Scene) -> Iterator[Finding]:
    """Coordinators that read their groups."""
    host = scene.node.groups.host if scene.node.groups.is_used else None
    for partition in () if host is None else host.loading:
        if scene.group is None or (host and host.partition_for(scene.group) == partition):
            yield Finding(
                f"{CONSUMER_OFFSETS}-{partition}",
                "this broker has just become the coordinator, and reads the groups from the log",
            )
    for refusal in scene.refusals(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        is_about_ids = refusal.api == ApiKey.INIT_PRODUCER_ID.name
        yield Finding(
            str(refusal.about),
            "no producer id could be granted: the metadata could not be written"
            if is_about_ids
            else "the coordinator was reading its groups",
            refusal.first.wall_ms,
            refusal_evidence(refusal, scene.now),
            is_over=not is_about_ids and not _is_loading(scene),
        )


def _is_loading(scene: Scene) -> bool:
    """Whether any coordinator of this broker is loading. It does not say which one refused."""
    node = scene.node
    coordinators = (node.groups, node.transactions, node.sharing)
    return any(each.is_used and each.host.loading for each in coordinators)


def no_coordinator(scene: Scene) -> Iterator[Finding]:
    """Groups whose coordinator is away, or cannot store anything."""
    topic = scene.image.topics.get(CONSUMER_OFFSETS)
    codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    if topic is not None:
        yield from _not_stored(scene, topic)
        codes.append(ErrorCode.NOT_COORDINATOR)
    else:
        missing = scene.node.creation.refusal(CONSUMER_OFFSETS, scene.image)
        if missing is not None:
            cause = f"the topic of the groups cannot be made: {missing.message}"
            yield Finding(CONSUMER_OFFSETS, cause)
    for refusal in scene.refusals(*codes):
        is_over = _is_served(scene, refusal)
        if refusal.code is ErrorCode.NOT_COORDINATOR:
            cause = f"{'this' if is_over else 'another'} broker coordinates the group"
        elif topic is None and refusal.about.group is not None:
            cause = f"the topic {CONSUMER_OFFSETS} did not exist"
        else:
            cause = "the coordinator was not available"
        yield Finding(
            str(refusal.about),
            cause,
            refusal.first.wall_ms,
            refusal_evidence(refusal, scene.now),
            is_over=is_over,
        )


def _not_stored(scene: Scene, topic: TopicImage) -> Iterator[Finding]:
    numbers = sorted(topic.partitions)
    if scene.group is not None:
        numbers = [scene.node.groups.host.partition_for(scene.group)]
    for number in numbers:
        state = topic.partitions.get(number)
        at = TopicPartition(CONSUMER_OFFSETS, number)
        if state is not None and not scene.image.is_alive(state.leader):
            yield Finding(
                str(at),
                "the partition in which the groups live has no leader: "
                f"`strandline why {CONSUMER_OFFSETS}/{number}` tells why",
            )
            continue
        leader = _leader_here(scene, at)
        if leader is not None and not leader.has_min_in_sync:
            yield Finding(
                str(at),
                "the coordinator cannot store anything: too few replicas of the partition in which "
                "the groups live are in sync",
                None,
                (f"in sync are {sorted(leader.in_sync.members)} of {list(leader.replicas)}",),
            )


def _is_served(scene: Scene, refusal: Refusal) -> bool:
    """Whether what was refused has its coordinator now: that can store something, or that is this
    broker."""
    node, about = scene.node, refusal.about
    if about.group is not None and node.groups.is_used:
        at = TopicPartition(CONSUMER_OFFSETS, node.groups.host.partition_for(about.group))
    elif about.transactional_id is not None and node.transactions.is_used:
        number = node.transactions.host.partition_for(about.transactional_id)
        at = TopicPartition(TRANSACTION_STATE, number)
    else:
        return False
    state, leader = scene.image.partition(at), _leader_here(scene, at)
    if refusal.code is ErrorCode.NOT_COORDINATOR:
        return leader is not None
    if state is None or not scene.image.is_alive(state.leader):
        return False
    return state.leader != node.broker_id or (leader is not None and leader.has_min_in_sync)


def _leader_here(scene: Scene, at: TopicPartition) -> Leader | None:
    replica = scene.node.replicas.find(at)
    return None if replica is None else replica.leader


def member_gone(scene: Scene) -> Iterator[Finding]:
    """Requests of members that the group does not have."""
    for refusal in scene.refusals(*MEMBER_GONE.codes):
        group = next(
            (each for each in _groups(scene) if each.group_id == refusal.about.group), None
        )
        state = () if group is None else (
            f"the group is {group.state.value} in generation {group.generation} with "
            f"{len(group.members)} members",
        )  # fmt: skip
        yield Finding(
            str(refusal.about),
            "the group has gone on without this member, or knows no such generation",
            refusal.first.wall_ms,
            refusal_evidence(refusal, scene.now) + state,
        )


def empty(scene: Scene) -> Iterator[Finding]:
    """Groups with committed offsets and without members."""
    for group in _groups(scene):
        is_empty = group.state in (GroupState.EMPTY, ConsumerGroupState.EMPTY)
        if is_empty and group.committed:
            yield Finding(
                f"group {group.group_id}",
                "the group has no members, so no consumer reads on from its committed offsets",
                group.state_since_ms if group.state_since_ms >= 0 else None,
                (f"it has committed offsets of {counted(len(group.committed), 'partition')}",),
            )


NOT_SERVED: Final = (
    "Offsets of tiered storage are not served, nor are streams groups; the consumer protocol of "
    "KIP-848 can be switched off, and share groups (KIP-932) by the feature share.version."
)
MEMBER_GONE: Final = Rule(
    "member-gone",
    "A member of a group is refused",
    Scope.GROUP,
    (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.NON_EMPTY_GROUP,
    ),
    "The group took the member for gone, since it sent no heartbeat for session.timeout.ms or did "
    "not poll in time, or another process joined with its group.instance.id; or the group has "
    "members where there must be none.",
    "Nothing: the consumer joins again by itself. If it happens often, process fewer records per "
    "poll, or raise max.poll.interval.ms and session.timeout.ms.",
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    member_gone,
)
RULES: Final = (
    Rule(
        "rebalancing",
        "A group is rebalancing, and its members read nothing meanwhile",
        Scope.GROUP,
        (ErrorCode.REBALANCE_IN_PROGRESS,),
        "A member came, went, or changed its subscription. All members must join again and then "
        "take their assignment; each has its rebalance timeout for that.",
        "It ends when the members named have joined, or their time is up and they are let go.",
        ("group.initial.rebalance.delay.ms",),
        rebalancing,
    ),
    Rule(
        "reconciling",
        "A group of the consumer protocol is reconciling",
        Scope.GROUP,
        (),
        "The group has a new target assignment. A member gives up what is not in it, says so with "
        "its next heartbeat, and only then another member gets it; all others read on.",
        "It ends when the members named have given up what they must. A member that does not do so "
        "within its max.poll.interval.ms is fenced.",
        ("group.consumer.assignment.interval.ms", "group.consumer.heartbeat.interval.ms"),
        reconciling,
    ),
    refusal_rule(
        "member-fenced",
        "A member of the consumer protocol is fenced",
        (
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.STALE_MEMBER_EPOCH,
            ErrorCode.UNRELEASED_INSTANCE_ID,
        ),
        "The member is in another epoch than the group knows: the group took it for gone, or its "
        "answer got lost; or another process that has not left holds its group.instance.id.",
        "Nothing: the consumer gives up its partitions and joins again by itself. An instance id "
        "is free when its holder is closed, or when its session is over.",
        ("group.consumer.session.timeout.ms",),
        Scope.GROUP,
    ),
    refusal_rule(
        "member-not-admitted",
        "A consumer is not admitted to a group",
        (
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ),
        "The group is full, has no protocol in common with the consumer, is not there, or is of "
        "another kind; or the consumer asks for an assignor or a pattern that the broker does not "
        "have.",
        "Change what the sentence names. A pattern needs the package strandline[regex] on the "
        "broker.",
        (
            "group.max.size",
            "group.consumer.max.size",
            "group.consumer.assignors",
            "group.consumer.migration.policy",
        ),
        Scope.GROUP,
    ),
    Rule(
        "coordinator-loading",
        "A coordinator is loading its groups",
        Scope.GROUP,
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,),
        "A broker that becomes the coordinator reads the groups from its partition of "
        "__consumer_offsets first.",
        "Nothing: it takes as long as that log is.",
        ("offsets.load.buffer.size",),
        loading,
    ),
    Rule(
        "no-coordinator",
        "A group has no coordinator, or one that cannot store anything",
        Scope.GROUP,
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR),
        "The coordinator is the leader of the group's partition of __consumer_offsets. It moved, "
        "there is none, or too few replicas of it are in sync.",
        "Bring the brokers of that partition back.",
        ("offsets.topic.replication.factor",),
        no_coordinator,
    ),
    MEMBER_GONE,
    Rule(
        "not-served",
        "A client asks for what this version does not serve",
        Scope.GROUP,
        (ErrorCode.UNSUPPORTED_VERSION,),
        NOT_SERVED,
        "Set group.protocol=classic, the default, for consumers, or switch the consumer protocol, "
        "or share groups, on.",
        ("group.coordinator.rebalance.protocols",),
        partial(refused, codes=(ErrorCode.UNSUPPORTED_VERSION,), cause=NOT_SERVED),
    ),
    Rule(
        "group-empty",
        "A group reads nothing: it has no members",
        Scope.GROUP,
        (),
        "No consumer with this group.id is running.",
        "Start one.",
        ("offsets.retention.minutes",),
        empty,
    ),
)
