"""From one state of the world to another, and what such a change may have broken.

This file knows which invariants concern a change: that of a leader's high watermark, of a log that
gets shorter, of the state that the controller writes. Those of states are in `invariants`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from strandline.cluster.controller.partition_repair import Choice
from tests.sim.modelcheck.controlling import Known, Standing, Written
from tests.sim.modelcheck.rules import Bounds
from tests.sim.modelcheck.steps import Broken, Steps
from tests.sim.modelcheck.values import NO_REPLICA, Replica, World

Label: TypeAlias = tuple[object, ...]
"""A verb and what it is done to."""


class Move(NamedTuple):
    """Something that can happen, the state after it, and what it breaks."""

    label: Label
    world: World
    broken: tuple[Broken, ...] = ()


class Changes:
    """See the module."""

    def __init__(self, bounds: Bounds, steps: Steps) -> None:
        self._bounds = bounds
        self._steps = steps
        self._table = steps.table
        self._marked: dict[tuple[int, Standing], int] = {}
        self._standings: dict[int, Standing] = {}

    def with_replica(self, world: World, me: int, replica: Replica) -> World:
        """One replica is another."""
        return self.changed(world, me, self._table.number(replica))

    @staticmethod
    def changed(world: World, me: int, number: int) -> World:
        """The same, by its number."""
        numbers = list(world.replicas)
        numbers[me] = number
        return world._replace(replicas=tuple(numbers))

    def advanced(
        self, label: Label, world: World, me: int, number: int, broken: tuple[Broken, ...] = ()
    ) -> Move:
        """One replica changes, perhaps a leader whose high watermark moves."""
        return self.checked(label, world, self.changed(world, me, number), me, broken)

    def checked(
        self, label: Label, before: World, after: World, me: int, broken: tuple[Broken, ...] = ()
    ) -> Move:
        """Note what a leader has committed, and check how its high watermark moved."""
        old = self._table.all[before.replicas[me]]
        new = self._table.all[after.replicas[me]]
        if not new.reign:
            return Move(label, after, broken)
        if new.mark < old.mark and old.reign and old.epoch == new.epoch:
            broken += (Broken("I-10", f"{me} moves its high watermark back to {new.mark}"),)
        if new.mark <= old.mark or before.may_lose:
            return Move(label, after, broken)
        if self._steps.rests(after.replicas[me], me):
            broken += (Broken("I-17", f"{me} commits below the minimum"),)
        known, now = after.committed, new.log[: new.mark]
        shared = min(len(known), len(now))
        if known[:shared] != now[:shared]:
            broken += (Broken("I-25", f"committed {known} became {now} on {me}"),)
        if len(now) > len(known):
            after = after._replace(committed=now)
        return Move(label, after, broken)

    def forgets(self, world: World, me: int, before: Replica, number: int) -> tuple[Broken, ...]:
        """A running member of the in-sync set must not drop what is committed (I-24)."""
        after = self._table.all[number]
        kept = len(after.log)
        if kept >= len(before.log) or kept >= len(world.committed) or world.may_lose:
            return ()
        is_member = before.is_in_sync and before.is_registered and before.recorded == before.life
        if is_member and before.log[: kept + 1] == world.committed[: kept + 1]:
            return (Broken("I-24", f"{me}, in sync, drops committed records from {kept} on"),)
        return ()

    def check_leading(self, world: World, me: int, after: int, epoch: int) -> tuple[Broken, ...]:
        """In each epoch one broker leads, in one life (I-11)."""
        for other, at in enumerate(world.replicas):
            each = self._table.all[at]
            if other != me and each.reign and each.epoch == epoch:
                return (Broken("I-11", f"{me} and {other} lead epoch {epoch}"),)
        if epoch in self._table.all[after].log:
            return (Broken("I-11", f"{me} leads epoch {epoch} for the second time"),)
        return ()

    # -- What the controller writes ----------------------------------------------------------

    def known(self, world: World) -> Known:
        """All that the controller decides by."""
        standings = []
        for number in world.replicas:
            standing = self._standings.get(number)
            if standing is None:
                standing = self._standings[number] = Standing.of(self._table.all[number])
            standings.append(standing)
        epoch = len(world.leaders) - 1
        return Known(tuple(standings), world.leaders[epoch], epoch, world.is_recovering)

    def put(
        self, label: Label, world: World, known: Known, to: Written, sender: int | None = None
    ) -> Move:
        """The controller writes another version of the partition's state."""
        numbers = tuple(
            self._mark(number, standing)
            for number, standing in zip(world.replicas, to.standings, strict=True)
        )
        leaders = world.leaders
        broken: tuple[Broken, ...] = ()
        if to.leader_epoch > known.leader_epoch:
            leaders = (*leaders, to.leader)
            broken += _check_election(known, to)
        elif sender is not None:
            broken += self._check_joining(world, known, to, sender)
        lost = self._bounds.losses - world.left.losses
        may_lose = (
            world.may_lose
            or to.choice is Choice.UNCLEAN
            or (to.choice is Choice.RESTARTED and lost > 0)
        )
        delayed = tuple(each._replace(is_current=False) for each in world.delayed)
        after = world._replace(
            replicas=numbers,
            leaders=leaders,
            committed=() if may_lose else world.committed,
            is_recovering=to.is_recovering,
            may_lose=may_lose,
            delayed=delayed,
        )
        return Move(label, after, broken)

    def _mark(self, number: int, standing: Standing) -> int:
        key = (number, standing)
        found = self._marked.get(key)
        if found is None:
            replica = self._table.all[number]
            found = self._marked[key] = self._table.number(
                replica._replace(
                    is_in_sync=standing.is_in_sync,
                    is_eligible=standing.is_eligible,
                    was_complete=standing.was_complete,
                    recorded=standing.recorded,
                    reign=tuple(reign._replace(is_current=False) for reign in replica.reign),
                )
            )
        return found

    def _check_joining(
        self, world: World, known: Known, to: Written, sender: int
    ) -> tuple[Broken, ...]:
        leader = self._table.all[world.replicas[sender]]
        if not leader.reign or leader.epoch != known.leader_epoch:
            return ()
        needed = leader.log[: max(leader.mark, leader.reign[0].start)]
        for me, (old, new) in enumerate(zip(known.standings, to.standings, strict=True)):
            replica = self._table.all[world.replicas[me]]
            if not new.is_in_sync or old.is_in_sync:
                continue
            if not replica.is_up or new.recorded != replica.life:
                continue  # the process that joins is dead, which the controller could not know yet
            if replica.log[: len(needed)] != needed:
                return (Broken("I-16", f"{me} joins without all records below {len(needed)}"),)
        return ()


def _check_election(known: Known, to: Written) -> tuple[Broken, ...]:
    if to.leader == NO_REPLICA or to.leader == known.leader or to.choice is Choice.UNCLEAN:
        return ()
    former = known.standings[to.leader]
    if former.is_in_sync or former.is_eligible or former.was_complete:
        return ()
    return (Broken("I-19", f"{to.leader} leads, and was neither in sync nor eligible"),)
