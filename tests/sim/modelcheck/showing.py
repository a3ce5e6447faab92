"""States in words, for a reader of the steps that lead to a violation.

    0*[01]1 leads e1 (1@2, 2@? joins) | 1*[01]0 e1 | 2[0]0 down, expired | 0 elected in e1

Broker 0 is in sync (`*`; `~` eligible, `?` restarted uncleanly), has two records of the leader
epochs 0 and 1 and the high watermark 1, and leads epoch 1; it knows that broker 1 has two records,
and wants 2, of which it knows nothing, to join. `old`: it has not heard the newest state.
"""

from __future__ import annotations

from typing import Final

from tests.sim.modelcheck.values import (
    JOINING,
    LEAVING,
    MEMBER,
    NO_REPLICA,
    OUT,
    UNKNOWN,
    UNTOLD,
    WITHDRAWN,
    Reign,
    Replica,
    Table,
    World,
)

_MEMBERSHIPS: Final = {
    OUT: " out",
    MEMBER: "",
    JOINING: " joins",
    LEAVING: " leaves",
    WITHDRAWN: " withdrawn",
}


def show(world: World, table: Table) -> str:
    """See the module."""
    parts = [_replica(me, table.all[number]) for me, number in enumerate(world.replicas)]
    leader, epoch = world.leaders[-1], len(world.leaders) - 1
    parts.append(f"{'none' if leader == NO_REPLICA else leader} elected in e{epoch}")
    return " | ".join(parts)


def _replica(me: int, replica: Replica) -> str:
    signs = (("*", replica.is_in_sync), ("~", replica.is_eligible), ("?", replica.was_complete))
    marks = "".join(sign for sign, holds in signs if holds)
    log = "".join(map(str, replica.log))
    expired = "" if replica.is_registered else ", expired"
    return f"{me}{marks}[{log}]{replica.mark} {_role(me, replica)}{expired}"


def _role(me: int, replica: Replica) -> str:
    if not replica.is_up:
        return "down"
    if replica.reign:
        return f"leads e{replica.epoch} {_reign(me, replica.reign[0])}"
    return "up" if replica.epoch == UNTOLD else f"e{replica.epoch}"


def _reign(me: int, reign: Reign) -> str:
    views = (
        f"{other}@{'?' if view.end == UNKNOWN else view.end}{_MEMBERSHIPS[view.membership]}"
        for other, view in enumerate(reign.views)
        if other != me
    )
    return f"({', '.join(views)}{'' if reign.is_current else '; old'})"
