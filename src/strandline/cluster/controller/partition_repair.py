"""What the state of one partition should be, given who is there: the heart of the controller.

`repaired` looks at one partition and says who leads it from now on, who is in sync and who is
eligible to lead. It is level-triggered: it compares what is written with who is registered and
does not ask what happened in between, so that a controller which takes over goes on where the
last one stopped. Calling it on its own result changes nothing.

Who may lead, the first assigned replica of the first kind that there is:

1. in sync, and the very registration that was recorded;
2. eligible (KIP-966), likewise;
3. in sync or eligible, restarted without a loss;
4. any of those although it is shutting down, since no other is left;
5. one that restarted uncleanly, if no complete replica is left, here or away (KIP-966); of
   several the one that was in sync longest, which is the last leader if it is among them;
6. any live replica, if unclean elections are allowed for the topic.

An election adds one to the leader epoch, also when the same broker is elected again (KAFKA-7164);
so does losing the leader, and the end of a reassignment. A member that leaves the in-sync set
while the leader stays does not: the ZooKeeper controller of Kafka did that because its brokers
ignored states of an epoch they knew, and Kafka gave it up in 3.6 (KAFKA-15021). Our leaders learn
it from the partition epoch.

A broker that shuts down keeps its place in the in-sync set. Its leader lets it go, which proves
that the leader lives: one that is registered may be dead, and its disk with it (note 0040).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from strandline.cluster.assignment import Replicas
from strandline.cluster.controller.standings import Brokers, Members, Standing
from strandline.cluster.image import PartitionImage
from strandline.types import NO_LEADER, BrokerId, LeaderEpoch


class Choice(Enum):
    """On what ground a leader leads."""

    STAYS = auto()
    COMPLETE = auto()
    RESTARTED = auto()
    UNCLEAN = auto()
    NONE_LEFT = auto()


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of the topic. `min_in_sync` is the effective one of this partition."""

    min_in_sync: int
    unclean_allowed: bool = False


@dataclass(frozen=True, slots=True)
class Repair:
    """The partition as it should be, and why it is led so."""

    partition: PartitionImage
    choice: Choice


def repaired(partition: PartitionImage, brokers: Brokers, rules: Rules) -> Repair:
    """The partition as it should be, which may be as it is. `partition_epoch` is not touched."""
    members = Members.of(partition, brokers, rules.min_in_sync)
    leader, choice = _leader(partition, members, brokers, rules)
    in_sync = _in_sync(leader, choice, members)
    epoch = partition.leader_epoch
    # A partition without a leader that gets none was told so once.
    if choice is not Choice.STAYS and (leader, partition.leader) != (NO_LEADER, NO_LEADER):
        epoch = LeaderEpoch(epoch + 1)
    changed = replace(
        partition,
        leader=leader,
        leader_epoch=epoch,
        is_recovering=partition.is_recovering or choice is Choice.UNCLEAN,
    )
    changed = with_members(changed, in_sync, members, brokers, rules)
    if choice in (Choice.RESTARTED, Choice.UNCLEAN):
        # What it has is complete from now on, whatever it was.
        epochs = {**changed.in_sync_epochs, leader: brokers.epochs[leader]}
        changed = replace(changed, in_sync_epochs=dict(sorted(epochs.items())))
    if choice is Choice.UNCLEAN:
        # What the others have may contradict what this one leads with (KIP-966 clears them too).
        changed = without_eligible(changed)
    return Repair(_moved(changed, epoch_before=partition.leader_epoch), choice)


def with_members(
    partition: PartitionImage,
    in_sync: Iterable[BrokerId],
    members: Members,
    brokers: Brokers,
    rules: Rules,
) -> PartitionImage:
    """The partition with another in-sync set, and with the eligible leaders that follow from it.

    While fewer replicas are in sync than must be, the high watermark stands still; so a replica
    that was complete before and leaves now stays complete (KIP-966, with D-02).
    """
    wanted = set(in_sync)
    ordered = tuple(b for b in partition.replicas if b in wanted)
    if sorted(ordered) == sorted(partition.in_sync_replicas):
        ordered = partition.in_sync_replicas  # another order is not worth a partition epoch
    eligible: Replicas = ()
    last_known: Replicas = ()
    if len(ordered) < rules.min_in_sync:
        eligible = tuple(b for b in partition.replicas if b in members.complete and b not in wanted)
    if len(ordered) < rules.min_in_sync or not partition.has_leader:
        last_known = tuple(b for b in members.lossy if b not in wanted)
    epochs = {
        b: _recorded(b, partition.in_sync_epochs, members, brokers) for b in (*ordered, *eligible)
    }
    return replace(
        partition,
        in_sync_replicas=ordered,
        elr=eligible,
        last_known_elr=last_known,
        in_sync_epochs={b: epoch for b, epoch in sorted(epochs.items()) if epoch is not None},
    )


def without_eligible(partition: PartitionImage) -> PartitionImage:
    """The partition without eligible or last-known leader replicas."""
    epochs = partition.in_sync_epochs
    return replace(
        partition,
        elr=(),
        last_known_elr=(),
        in_sync_epochs={b: epochs[b] for b in partition.in_sync_replicas if b in epochs},
    )


def is_settled(partition: PartitionImage, serving: dict[BrokerId, int]) -> bool:
    """A quick look: whether certainly nothing is to be done. Most partitions are, mostly."""
    if partition.has_eligible or partition.adding or partition.removing or partition.leader < 0:
        return False
    epochs, replicas = partition.in_sync_epochs, partition.replicas
    for broker in partition.in_sync_replicas:
        if serving.get(broker, -1) != epochs.get(broker) or broker not in replicas:
            return False
    return partition.leader in partition.in_sync_replicas


def _leader(
    partition: PartitionImage, members: Members, brokers: Brokers, rules: Rules
) -> tuple[BrokerId, Choice]:
    """Who leads, by the order in the module's docstring."""
    in_sync = members.standing_at(members.in_sync, Standing.PRESENT)
    # Without a record it is not known whether it is still the process that was elected.
    if partition.leader in in_sync and partition.leader in partition.in_sync_epochs:
        heir = _staying(in_sync, brokers) if brokers.is_leaving(partition.leader) else None
        if heir is not None:
            return heir, Choice.COMPLETE
        return partition.leader, Choice.STAYS
    eligible = members.standing_at(members.eligible, Standing.PRESENT)
    restarted = members.standing_at((*members.in_sync, *members.eligible), Standing.CLEAN)
    complete = (*in_sync, *eligible, *restarted)
    heir = _staying(complete, brokers)
    if heir is not None or complete:
        return complete[0] if heir is None else heir, Choice.COMPLETE
    return _incomplete_leader(partition, members, brokers, rules)


def _incomplete_leader(
    partition: PartitionImage, members: Members, brokers: Brokers, rules: Rules
) -> tuple[BrokerId, Choice]:
    """Who leads if no replica is there that certainly has everything."""
    alive = tuple(b for b in partition.replicas if brokers.is_alive(b))
    lossy = tuple(b for b in members.lossy if brokers.is_alive(b))
    candidates = lossy or alive
    if not candidates:
        return NO_LEADER, Choice.NONE_LEFT
    heir = _staying(candidates, brokers)
    leader = candidates[0] if heir is None else heir
    if lossy and not members.complete:
        return leader, Choice.RESTARTED
    return (leader, Choice.UNCLEAN) if rules.unclean_allowed else (NO_LEADER, Choice.NONE_LEFT)


def _staying(candidates: Iterable[BrokerId], brokers: Brokers) -> BrokerId | None:
    """The first that is not shutting down."""
    return next((b for b in candidates if not brokers.is_leaving(b)), None)


def _in_sync(leader: BrokerId, choice: Choice, members: Members) -> tuple[BrokerId, ...]:
    """Who is in sync under that leader: only those who were and of whom nothing is in doubt.

    A broker that is shutting down stays: its leader lets it go (note 0040).
    """
    if choice is Choice.NONE_LEFT:
        return tuple(b for b in members.in_sync if b in members.complete or not members.complete)
    if leader not in members.in_sync or members.standings[leader] is Standing.UNCLEAN:
        return (leader,)
    good = {Standing.PRESENT}
    if members.standings[leader] is Standing.CLEAN:
        # No member stayed. Those that came back whole need not leave only to be let in again.
        good.add(Standing.CLEAN)
    return tuple(b for b in members.in_sync if b == leader or members.standings[b] in good)


def _recorded(
    broker: BrokerId, recorded: Mapping[BrokerId, int], members: Members, brokers: Brokers
) -> int | None:
    """The epoch under which the member is complete, as far as that is known."""
    standing = members.standings.get(broker)
    if standing is Standing.GONE or (standing is Standing.UNCLEAN and broker in members.in_sync):
        return recorded.get(broker)
    return brokers.epochs.get(broker)


def _moved(partition: PartitionImage, *, epoch_before: LeaderEpoch) -> PartitionImage:
    """The end of a reassignment, if it is reached: all of the target is in sync (KAFKA-15665).

    The assignment and the state change in one multi, so that there is no moment at which only one
    of them knows the original replicas.
    """
    target = tuple(b for b in partition.replicas if b not in partition.removing)
    is_moving = bool(partition.adding or partition.removing)
    if not is_moving or not partition.has_leader or not target:
        return partition
    if not set(target) <= set(partition.in_sync_replicas):
        return partition
    leader = partition.leader if partition.leader in target else target[0]
    epoch = partition.leader_epoch
    return without_eligible(
        replace(
            partition,
            replicas=target,
            adding=(),
            removing=(),
            leader=leader,
            leader_epoch=LeaderEpoch(epoch + 1) if epoch == epoch_before else epoch,
            in_sync_replicas=target,
        )
    )
