"""Rules of the controller: who may lead, what a restart means, and who may decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from strandline.cluster.controller import (
    adoption,
    decision,
    in_sync_proposals,
    leader_elections,
    partition_repair,
    reassignments,
    reconciliation,
    state_writes,
)
from strandline.cluster.controller.in_sync_proposals import _Judge
from strandline.cluster.controller.partition_repair import Choice, Repair, Rules
from strandline.cluster.controller.standings import Brokers, Members, Standing
from strandline.cluster.controller.state_writes import StateWrites
from strandline.cluster.image import ClusterImage, PartitionImage
from strandline.cluster.image_parts import BrokerImage
from strandline.cluster.store import ANY_VERSION, Operation, SetData
from strandline.node.controller_loop import ControllerLoop
from strandline.node.membership import Membership
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.types import BrokerId
from tests.sim.mutants.mutant import Mutant, SwitchOn, nothing, patch, patch_all, together, yes

_true_incomplete_leader = partition_repair._incomplete_leader
_true_leader = partition_repair._leader
_true_moved = partition_repair._moved
_true_put_state = StateWrites._put_state
_true_repaired = partition_repair.repaired
_true_standing = Brokers.standing
_true_with_members = partition_repair.with_members

_CONTROLLER: Final = adoption.__package__


def _modules(*names: str) -> tuple[object, ...]:
    """Of the controller's decisions: the package has functions of these names."""
    return tuple(import_module(f"{_CONTROLLER}.{name}") for name in names)


_FENCED: Final = (
    adoption,
    decision,
    *_modules("alter_configs", "create_topics", "producer_ids"),
)
_FENCED_FROM_DELETIONS: Final = (
    reconciliation,
    state_writes,
    *_modules("alter_configs", "create_partitions", "delete_topics"),
)


def _anybody(
    partition: PartitionImage, members: Members, brokers: Brokers, rules: Rules
) -> tuple[BrokerId, Choice]:
    leader, choice = _true_leader(partition, members, brokers, rules)
    alive = [broker for broker in partition.replicas if brokers.is_alive(broker)]
    if choice is Choice.STAYS or not alive:
        return leader, choice
    return alive[0], Choice.COMPLETE


def _unasked(
    partition: PartitionImage, members: Members, brokers: Brokers, rules: Rules
) -> tuple[BrokerId, Choice]:
    return _true_incomplete_leader(
        partition, members, brokers, replace(rules, unclean_allowed=True)
    )


def _without_waiting(
    partition: PartitionImage, members: Members, brokers: Brokers, rules: Rules
) -> tuple[BrokerId, Choice]:
    lossy = [broker for broker in members.lossy if brokers.is_alive(broker)]
    if lossy:
        return lossy[0], Choice.RESTARTED
    return _true_incomplete_leader(partition, members, brokers, rules)


def _members(partition: PartitionImage, brokers: Brokers, min_in_sync: int) -> Members:
    found = _true_members(partition, brokers, min_in_sync)
    return replace(found, lossy=tuple(b for b in partition.replicas if b in found.lossy))


_true_members = Members.of


def _nobody_eligible(*args: Any) -> PartitionImage:
    changed = _true_with_members(*args)
    epochs = {b: e for b, e in changed.in_sync_epochs.items() if b in changed.in_sync_replicas}
    return replace(changed, elr=(), in_sync_epochs=epochs)


def _eligible_for_ever(
    partition: PartitionImage, in_sync: Any, members: Members, brokers: Brokers, rules: Rules
) -> PartitionImage:
    # As if every set were too small.
    large = replace(rules, min_in_sync=len(partition.replicas) + 1)
    return _true_with_members(partition, in_sync, members, brokers, large)


def _members_with_all(partition: PartitionImage, brokers: Brokers, min_in_sync: int) -> Members:
    del min_in_sync
    return _true_members(partition, brokers, len(partition.replicas) + 1)


def _same_epoch(partition: PartitionImage, brokers: Brokers, rules: Rules) -> Repair:
    repair = _true_repaired(partition, brokers, rules)
    return replace(repair, partition=replace(repair.partition, leader_epoch=partition.leader_epoch))


def _lets_go_itself(partition: PartitionImage, brokers: Brokers, rules: Rules) -> Repair:
    repair = _true_repaired(partition, brokers, rules)
    after = repair.partition
    staying = [b for b in after.in_sync_replicas if b == after.leader or not brokers.is_leaving(b)]
    members = _true_members(partition, brokers, rules.min_in_sync)
    return replace(repair, partition=_true_with_members(after, staying, members, brokers, rules))


def _moved_at_once(partition: PartitionImage, **more: Any) -> PartitionImage:
    target = tuple(b for b in partition.replicas if b not in partition.removing)
    is_moving = bool(partition.adding or partition.removing)
    if is_moving and partition.has_leader and target:
        partition = replace(partition, in_sync_replicas=target)
    return _true_moved(partition, **more)


def _unclean_is(standing: Standing) -> SwitchOn:
    def judged(self: Brokers, broker: BrokerId, recorded: int | None) -> Standing:
        found = _true_standing(self, broker, recorded)
        return standing if found is Standing.UNCLEAN else found

    return patch(Brokers, standing=judged)


def _unfenced(image: ClusterImage, operations: Sequence[Operation]) -> tuple[Operation, ...]:
    del image
    return tuple(operations)


def _any_version(self: StateWrites, *args: Any) -> None:
    _true_put_state(self, *args)
    write = self._operations[-1]
    if isinstance(write, SetData):
        self._operations[-1] = replace(write, version=ANY_VERSION)


def _in_any_reign(self: ControllerLoop) -> bool:
    return self._metadata.image.controller == self._membership.broker_id


def _follows_nobody(self: Replica) -> bool:
    return self.leader is None


def _keeps_continuity(self: Membership, other: BrokerImage) -> None:
    del self, other


_ANY_STATE = patch(StateWrites, _put_state=_any_version)
_NO_FENCE = patch_all(_FENCED, fenced=_unfenced)

CONTROLLING: Final = (
    Mutant(
        "elect-complete-replicas",
        "Leaders come from the in-sync set and the eligible replicas (KIP-966).",
        ("I-19", "I-23"),
        patch(partition_repair, _leader=_anybody),
    ),
    Mutant(
        "unclean-elections-on-request",
        "An incomplete replica is elected only where unclean.leader.election.enable allows it.",
        ("I-29", "I-19", "I-23"),
        patch(partition_repair, _incomplete_leader=_unasked),
    ),
    Mutant(
        "wait-for-complete-replicas",
        "After an unclean restart a replica waits for a complete one to be elected (KIP-966).",
        ("I-23", "I-19"),
        patch(partition_repair, _incomplete_leader=_without_waiting),
    ),
    Mutant(
        "last-leader-first",
        "Of several crashed replicas the one that was in sync longest is elected (Unclean "
        "Recovery, KIP-966).",
        (),
        patch(Members, of=staticmethod(_members)),
        "each of them has what acks=all has promised; of the rest the last leader has most",
    ),
    Mutant(
        "remember-eligible-leaders",
        "Who leaves a set that is too small then stays complete, and may lead (KIP-966).",
        ("I-19", "I-23"),
        patch_all(
            (partition_repair, in_sync_proposals, reassignments), with_members=_nobody_eligible
        ),
    ),
    Mutant(
        "eligible-below-the-minimum",
        "There are eligible leaders only while too few replicas are in sync (KIP-966).",
        ("I-31", "I-32", "I-23"),
        together(
            patch_all(
                (partition_repair, in_sync_proposals, reassignments),
                with_members=_eligible_for_ever,
            ),
            patch(Members, of=staticmethod(_members_with_all)),
        ),
    ),
    Mutant(
        "notice-restarts",
        "A member that restarted uncleanly is not in sync any more (KIP-380, KIP-966).",
        ("I-33", "I-14", "I-23"),
        _unclean_is(Standing.PRESENT),
    ),
    Mutant(
        "trust-clean-restarts-only",
        "Only a restart that lost nothing keeps a replica complete (KIP-966).",
        ("I-33", "I-14", "I-23"),
        _unclean_is(Standing.CLEAN),
    ),
    Mutant(
        "lead-in-this-life-only",
        "A state from before a restart makes no broker the leader (KIP-380).",
        ("I-11", "I-23", "I-14"),
        patch(Replicas, _is_of_this_life=yes),
    ),
    Mutant(
        "no-answers-without-a-role",
        "A replica that neither leads nor follows answers no consumer.",
        ("I-25", "I-35"),
        patch(Replica, is_following=property(_follows_nobody)),
    ),
    Mutant(
        "raise-the-leader-epoch",
        "Every election has a leader epoch of its own (KAFKA-7164).",
        ("I-11", "I-18", "I-21"),
        patch_all((partition_repair, reconciliation, leader_elections), repaired=_same_epoch),
    ),
    Mutant(
        "leaders-let-go",
        "Only its leader takes a broker that shuts down out of the in-sync set (note 0040).",
        ("I-14", "I-23"),
        patch_all((partition_repair, reconciliation, leader_elections), repaired=_lets_go_itself),
    ),
    Mutant(
        "move-when-in-sync",
        "A reassignment ends when all of its target is in sync (KIP-455, KAFKA-15665).",
        ("I-16", "I-14", "I-23"),
        patch(partition_repair, _moved=_moved_at_once),
    ),
    Mutant(
        "moves-keep-the-minimum",
        "A cancelled move leaves committed records on enough replicas (note 0054).",
        ("I-23", "I-25", "I-28"),
        patch(reassignments, _check_staying=nothing),
    ),
    Mutant(
        "continuity-ends-with-a-twin",
        "A process whose id another one has used cannot say that nothing was lost (KIP-966).",
        ("I-33", "I-14"),
        patch(Membership, _give_up_continuity=_keeps_continuity),
    ),
    Mutant(
        "fence-controllers",
        "Every write of a controller checks that its reign is the present one (KAFKA-6082).",
        ("I-18",),
        _NO_FENCE,
    ),
    Mutant(
        "compare-deletions",
        "What was decided about a topic is not written to the next one of its name.",
        ("I-18",),
        patch_all(_FENCED_FROM_DELETIONS, fenced_from_deletions=decision.fenced),
    ),
    Mutant(
        "compare-and-set-states",
        "A partition's state is written over the version that was read (KAFKA-2729).",
        ("I-18", "I-13"),
        _ANY_STATE,
    ),
    Mutant(
        "one-reign-at-a-time",
        "A deposed controller writes no state: neither reign nor version is looked at.",
        ("I-18", "I-13"),
        together(
            _NO_FENCE, _ANY_STATE, patch(ControllerLoop, is_controller=property(_in_any_reign))
        ),
    ),
    Mutant(
        "compare-versions",
        "A proposal made from an older version of the state is refused (KIP-497).",
        ("I-13", "I-14"),
        patch(_Judge, _check_version=nothing),
    ),
    Mutant(
        "proposals-of-the-leader-only",
        "Only the leader of the present epoch changes the in-sync set (KIP-497).",
        (),
        patch(_Judge, _check_leader=nothing),
        "an election raises the version of the state, too: see compare-versions",
    ),
)
