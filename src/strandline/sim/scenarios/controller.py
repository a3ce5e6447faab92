"""A controller as small as a scenario needs: the state of one partition, and who may change it.

The real decisions are in `strandline.cluster.controller`; scenarios use this one so that they can
also play the rules that were given up (no epochs in the in-sync set, no eligible leader replicas)
and so that each decision is one line of a script. This file knows names, epochs and sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from strandline.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class State:
    """The partition's state as it is in the store; `partition_epoch` is its version."""

    replicas: tuple[str, ...]
    leader: str | None
    in_sync: tuple[str, ...]
    broker_epochs: Mapping[str, int]
    """The registration under which each member of the in-sync or eligible set got there."""
    eligible: tuple[str, ...] = ()
    """Replicas outside the in-sync set that have everything committed (KIP-966)."""
    last_leader: str = ""
    leader_epoch: int = 0
    partition_epoch: int = 0

    def __str__(self) -> str:
        eligible = f", eligible {''.join(self.eligible)}" if self.eligible else ""
        return (
            f"leader {self.leader or 'none'}, epoch {self.leader_epoch}, "
            f"in sync {''.join(self.in_sync) or 'none'}{eligible}, version {self.partition_epoch}"
        )


class Live(NamedTuple):
    """One registered broker."""

    broker_epoch: int
    previous_epoch: int
    """The registration since which it has certainly forgotten nothing: the one that it shut down
    cleanly under, or that the same process had before; -1 if there is none."""
    is_shutting_down: bool


class Proposal(NamedTuple):
    """A leader asks for another in-sync set (AlterPartition)."""

    leader_epoch: int
    partition_epoch: int
    members: Mapping[str, int]
    """With the broker epoch that the leader has seen, -1 for none."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Which elections and writes are allowed."""

    min_in_sync: int = 1
    has_eligible: bool = False
    allows_unclean: bool = False
    writes_directly: bool = False
    """Leaders write the state themselves, as before KIP-497: nobody compares broker epochs."""


class Election(NamedTuple):
    """What the controller decided on its own."""

    state: State
    is_unclean: bool


def reconcile(state: State, live: Mapping[str, Live], rules: Rules) -> Election | None:
    """What follows for the partition from who is registered now; None for nothing."""
    present = [name for name in state.in_sync if _is_present(state, live, name)]
    staying = [name for name in present if not live[name].is_shutting_down] or present
    eligible = [name for name in state.eligible if not _has_forgotten(state, live, name)]
    leader = state.leader if state.leader in staying else None
    is_unclean = False
    in_sync = staying
    if leader is None:
        leader, in_sync, is_unclean = _elect(state, live, rules, staying, eligible)
    changed = _with_members(state, live, rules, in_sync, eligible)
    if leader != state.leader or (leader is not None and state.leader not in staying):
        last = leader or state.last_leader
        epoch = state.leader_epoch + 1
        changed = replace(changed, leader=leader, last_leader=last, leader_epoch=epoch)
    if changed == state:
        return None
    return Election(replace(changed, partition_epoch=state.partition_epoch + 1), is_unclean)


def _elect(
    state: State,
    live: Mapping[str, Live],
    rules: Rules,
    staying: list[str],
    eligible: list[str],
) -> tuple[str | None, list[str], bool]:
    for name in state.replicas:
        if name in staying:
            return name, staying, False
    for name in state.replicas:
        if name in eligible and name in live:
            return name, [name], False
    if not rules.has_eligible and not staying:
        # The last member stays in the set, and leads again whatever it has lost: "last replica
        # standing", the hole that KIP-966 closes.
        last = state.in_sync[-1]
        if last in live:
            return last, [last], False
        staying = [last]
    last_leader = state.last_leader
    if rules.has_eligible and not staying and not eligible and last_leader in live:
        # Nobody is known to have everything, and its last leader is the best guess.
        return last_leader, [last_leader], True
    if rules.allows_unclean:
        for name in state.replicas:
            if name in live:
                return name, [name], True
    return None, staying, False


def decide(
    state: State, live: Mapping[str, Live], rules: Rules, proposal: Proposal
) -> State | ErrorCode:
    """Answer AlterPartition, in Kafka's order of checks (specification 2.2)."""
    if proposal.leader_epoch > state.leader_epoch:
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if set(proposal.members) == set(state.in_sync):
        return state
    if proposal.partition_epoch < state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if not rules.writes_directly:
        for name, broker_epoch in proposal.members.items():
            found = live.get(name)
            if found is None or found.is_shutting_down:
                return ErrorCode.INELIGIBLE_REPLICA
            if broker_epoch not in (-1, found.broker_epoch):
                return ErrorCode.INELIGIBLE_REPLICA
    members = [name for name in state.replicas if name in proposal.members]
    changed = _with_members(state, live, rules, members, list(state.eligible))
    return replace(changed, partition_epoch=state.partition_epoch + 1)


def _with_members(
    state: State, live: Mapping[str, Live], rules: Rules, in_sync: list[str], eligible: list[str]
) -> State:
    """The state with another in-sync set, and what becomes of those who left it."""
    kept: list[str] = []
    if rules.has_eligible and len(in_sync) < min(rules.min_in_sync, len(state.replicas)):
        left = [n for n in state.in_sync if n not in in_sync and not _has_forgotten(state, live, n)]
        kept = [n for n in state.replicas if n in (*eligible, *left) and n not in in_sync]
    epochs = {}
    for name in (*in_sync, *kept):
        known = state.broker_epochs.get(name, -1)
        epochs[name] = live[name].broker_epoch if name in live else known
    return replace(state, in_sync=tuple(in_sync), eligible=tuple(kept), broker_epochs=epochs)


def _is_present(state: State, live: Mapping[str, Live], name: str) -> bool:
    """Alive, and the same process as when it got into the set."""
    return name in live and live[name].broker_epoch == state.broker_epochs[name]


def _has_forgotten(state: State, live: Mapping[str, Live], name: str) -> bool:
    """Whether a crash may have cost it records since it got into the set."""
    return name in live and state.broker_epochs[name] not in live[name][:2]
