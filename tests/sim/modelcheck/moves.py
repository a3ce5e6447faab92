"""Everything that can happen next in a state.

A step that clients, brokers, the network or the controller can take is a `Move`. A fetch carries
one record, so that every way of being behind occurs. Its answer arrives or is lost; that it arrives
late is the same as that whatever happens in between happens before, because a follower ignores an
answer to what it would not ask any more. Requests can be late (`Delayed`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.errors import ErrorCode
from tests.sim.modelcheck.changes import Changes, Label, Move
from tests.sim.modelcheck.controlling import Controlling, Known, Refused, Written
from tests.sim.modelcheck.leading import is_settled
from tests.sim.modelcheck.rules import Bounds, ChosenLag, Rules
from tests.sim.modelcheck.steps import Broken, Steps
from tests.sim.modelcheck.values import NO_REPLICA, UNTOLD, Delayed, Left, Replica, World

__all__ = ["Broken", "Label", "Move", "Moves"]

_DEFINITE: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Refusals after which a proposal was certainly not carried out."""


class Moves:
    """See the module."""

    def __init__(self, bounds: Bounds, rules: Rules, lag: ChosenLag) -> None:
        """`lag` is the policy in `rules`."""
        self._bounds = bounds
        self._rules = rules
        self._steps = Steps(bounds, rules, lag)
        self._changes = Changes(bounds, self._steps)
        self._controlling = Controlling(bounds)
        self.table = self._steps.table
        self._repairs: dict[Known, list[Written]] = {}
        self._preferred: dict[tuple[Known, int], Written | None] = {}
        self._answers: dict[tuple[Known, Delayed], Written | Refused | None] = {}

    def first(self) -> World:
        """All replicas are up, in sync, and know the leader, from which none has fetched yet."""
        bounds = self._bounds
        others = [self._steps.first(is_leader=False)] * (bounds.replicas - 1)
        return World(
            replicas=(self._steps.first(is_leader=True), *others),
            leaders=(0,),
            committed=(),
            is_recovering=False,
            may_lose=False,
            left=Left(bounds.records, bounds.crashes, bounds.losses, bounds.expiries),
            delayed=(),
        )

    def next(self, world: World) -> Iterator[Move]:
        """All moves from a state."""
        for me, number in enumerate(world.replicas):
            replica = self.table.all[number]
            if replica.is_up:
                yield from self._alive(world, me, replica)
            elif not replica.is_registered:
                yield self._start(world, me, replica)
            if replica.is_registered and (not replica.is_up or world.left.expiries):
                yield self._expire(world, me, replica)
        known = self._changes.known(world)
        yield from self._controller(world, known)
        for place in range(len(world.delayed)):
            yield from self._late_arrival(world, known, place)

    def settled(self, world: World) -> World:
        """The state when everything has happened that makes no difference when it happens.

        - A follower hears the newest leader epoch when whom it would fetch from does not lead in
          its own epoch any more: there is nothing else that it could do.
        - A leader hears of a version of the state that tells it nothing new. Until then it could
          only propose in vain.
        - A leader of an old epoch stops to propose: the controller refuses its proposals.
        """
        epoch = len(world.leaders) - 1
        all_replicas = self.table.all
        for me, number in enumerate(world.replicas):
            replica = all_replicas[number]
            if not replica.is_up:
                continue
            if replica.reign:
                quiet = self._quiet(world, me, replica)
                if quiet != number:
                    world = self._changes.changed(world, me, quiet)
            elif replica.epoch != epoch and world.leaders[epoch] != me:
                leader = NO_REPLICA if replica.epoch == UNTOLD else world.leaders[replica.epoch]
                source = None if leader == NO_REPLICA else all_replicas[world.replicas[leader]]
                if source is not None and source.reign and source.epoch == replica.epoch:
                    continue
                told = self._tell(world, me, replica)
                if told is not None:
                    world = told.world
        return world

    def _quiet(self, world: World, me: int, replica: Replica) -> int:
        number = world.replicas[me]
        (reign,) = replica.reign
        if replica.epoch < len(world.leaders) - 1:
            return self._steps.quiet(number, None)
        if reign.is_current or not is_settled(reign):
            return number
        members = 0
        for other, at in enumerate(world.replicas):
            members |= self.table.all[at].is_in_sync << other
        return self._steps.quiet(number, members)

    # -- What a running broker does ----------------------------------------------------------

    def _alive(self, world: World, me: int, replica: Replica) -> Iterator[Move]:
        told = self._tell(world, me, replica)
        if told is not None:
            yield told
        if replica.reign:
            yield from self._leader(world, me, replica)
        elif replica.epoch != UNTOLD:
            yield from self._follower(world, me, replica)
        if not replica.is_registered:
            after = replica._replace(is_registered=True, life=replica.life + 1)
            yield Move(("register", me), self._changes.with_replica(world, me, after))
        if world.left.crashes:
            yield from self._crash(world, me, replica)

    def _leader(self, world: World, me: int, replica: Replica) -> Iterator[Move]:
        number, steps, advanced = world.replicas[me], self._steps, self._changes.advanced
        if world.left.records:
            left = world.left._replace(records=world.left.records - 1)
            after = steps.written(number, me)
            yield advanced(("produce", me), world._replace(left=left), me, after)
        if replica.epoch < len(world.leaders) - 1:
            return
        if is_settled(replica.reign[0]):
            for leaving, after in steps.shrunken(number, me):
                yield advanced(("lags", me, *leaving), world, me, after)
        else:
            proposal = steps.proposal(me, replica)
            known = self._changes.known(world)
            yield from self._propose(world, known, proposal)
            if len(world.delayed) < self._bounds.delayed:
                yield from self._ask_late(world, known, proposal)

    def _follower(self, world: World, me: int, replica: Replica) -> Iterator[Move]:
        leader = world.leaders[replica.epoch]
        if leader in (me, NO_REPLICA):
            return
        changes = self._changes
        at = world.replicas[leader]
        fetched = self._steps.fetched(world.replicas[me], at, me, leader)
        if fetched is not None:
            delivered = changes.changed(world, leader, fetched.leader)
            both = changes.changed(delivered, me, fetched.follower)
            broken = fetched.broken + changes.forgets(world, me, replica, fetched.follower)
            if both != world or broken:
                yield changes.checked(("fetch", me, leader), world, both, leader, broken)
            if fetched.leader != at:
                yield changes.checked(("fetch-lost", me, leader), world, delivered, leader)
        if len(world.delayed) < self._bounds.delayed:
            request = self._steps.request(me, leader, replica)
            if request not in world.delayed:
                yield Move(("send-fetch", me, leader), _with_delayed(world, request))

    def _tell(self, world: World, me: int, replica: Replica) -> Move | None:
        """A broker hears the newest version of the partition's state; None if it knows it."""
        epoch = len(world.leaders) - 1
        if epoch < replica.epoch:
            return None
        number, all_replicas = world.replicas[me], self.table.all
        members = tuple(all_replicas[other].is_in_sync for other in world.replicas)
        after = self._steps.told(number, me, epoch, world.leaders[epoch], members)
        if after == number:
            return None
        broken = self._changes.forgets(world, me, replica, after)
        takes_over = bool(all_replicas[after].reign) and not (
            replica.reign and replica.epoch == epoch
        )
        if takes_over:
            broken += self._changes.check_leading(world, me, after, epoch)
        label: Label = ("leads" if takes_over else "told", me)
        return self._changes.advanced(label, world, me, after, broken)

    # -- Failures ----------------------------------------------------------------------------

    def _crash(self, world: World, me: int, replica: Replica) -> Iterator[Move]:
        end = len(replica.log)
        for kept in range(end if not world.left.losses else 0, end + 1):
            after = self._steps.crashed(replica, kept)
            left = world.left._replace(
                crashes=world.left.crashes - 1, losses=world.left.losses - (kept < end)
            )
            label: Label = ("kill", me) if kept == end else ("power-cut", me, kept)
            yield Move(label, self._changes.changed(world._replace(left=left), me, after))

    def _start(self, world: World, me: int, replica: Replica) -> Move:
        life = replica.life + 1
        after = replica._replace(is_up=True, is_registered=True, life=life, unbroken_since=life)
        return Move(("start", me), self._changes.with_replica(world, me, after))

    def _expire(self, world: World, me: int, replica: Replica) -> Move:
        left = world.left
        if replica.is_up:
            left = left._replace(expiries=left.expiries - 1)
        after = replica._replace(is_registered=False)
        return Move(
            ("expire", me), self._changes.with_replica(world._replace(left=left), me, after)
        )

    # -- The controller ----------------------------------------------------------------------

    def _controller(self, world: World, known: Known) -> Iterator[Move]:
        repairs = self._repairs.get(known)
        if repairs is None:
            repairs = self._repairs[known] = self._possible_repairs(known)
        for repair in repairs:
            if repair.leader_epoch < self._bounds.epochs:
                yield self._changes.put(("controller", *_said(repair)), world, known, repair)
        if known.leader_epoch + 1 >= self._bounds.epochs:
            return
        for me in range(self._bounds.replicas):
            key = (known, me)
            if key in self._preferred:
                found = self._preferred[key]
            else:
                found = self._preferred[key] = self._controlling.preferred(known, me)
            if found is not None:
                yield self._changes.put(("prefer", *_said(found)), world, known, found)

    def _possible_repairs(self, known: Known) -> list[Written]:
        repairs = self._controlling.repairs(known)
        if self._rules.elects_complete_only:
            return repairs
        extra: dict[Written, None] = dict.fromkeys(repairs)
        for repair in repairs:
            for me, standing in enumerate(repair.standings):
                if repair.leader_epoch > known.leader_epoch and standing.is_registered:
                    recorded = standing._replace(is_in_sync=True, recorded=standing.life)
                    standings = (*repair.standings[:me], recorded, *repair.standings[me + 1 :])
                    extra[repair._replace(leader=me, standings=standings)] = None
        return list(extra)

    def _propose(self, world: World, known: Known, proposal: Delayed) -> Iterator[Move]:
        """A leader asks and is answered."""
        answer = self._answer(known, proposal)
        me, members = proposal.sender, tuple(member for member, _ in proposal.members)
        if isinstance(answer, Written):
            yield self._changes.put(("alter", me, *members), world, known, answer, sender=me)
        elif answer is not None and (
            answer.code in _DEFINITE or not self._rules.keeps_on_open_refusal
        ):
            is_open = self._rules.minds_open_attempts and any(
                each.sender == me and members == tuple(member for member, _ in each.members)
                for each in world.delayed
            )
            after = self._steps.refused(world.replicas[me], me, is_open=is_open)
            if after != world.replicas[me]:
                yield self._changes.advanced(("refused", me, *members), world, me, after)

    def _answer(self, known: Known, proposal: Delayed) -> Written | Refused | None:
        key = (known, proposal)
        if key not in self._answers:
            self._answers[key] = self._controlling.answer(known, proposal)
        return self._answers[key]

    def _ask_late(self, world: World, known: Known, proposal: Delayed) -> Iterator[Move]:
        """An attempt goes out, or the controller's write for it, and arrives later."""
        decided = proposal._replace(
            registrations=tuple(
                (each.is_registered, each.life, each.unbroken_since) for each in known.standings
            )
        )
        for verb, request in (("send-proposal", proposal), ("decide", decided)):
            if request not in world.delayed:
                yield Move((verb, proposal.sender), _with_delayed(world, request))

    def _late_arrival(self, world: World, known: Known, place: int) -> Iterator[Move]:
        request = world.delayed[place]
        without = world._replace(delayed=world.delayed[:place] + world.delayed[place + 1 :])
        yield Move(("lost", request.sender), without)
        if request.is_fetch:
            at = request.receiver
            after = self._steps.counted_late(world.replicas[at], request)
            if after is not None:
                fetch: Label = ("late", "fetch", request.sender, at)
                yield self._changes.advanced(fetch, without, at, after)
            return
        if request.registrations:
            if not request.is_current:
                return  # the state has another version: the write is refused
            known = known._replace(
                standings=tuple(
                    each._replace(is_registered=is_registered, life=life, unbroken_since=since)
                    for each, (is_registered, life, since) in zip(
                        known.standings, request.registrations, strict=True
                    )
                )
            )
            request = request._replace(registrations=())
        answer = self._answer(known, request)
        if isinstance(answer, Written):
            members = (member for member, _ in request.members)
            alter: Label = ("late", "alter", request.sender, *members)
            yield self._changes.put(alter, without, known, answer, sender=request.sender)


def _with_delayed(world: World, request: Delayed) -> World:
    return world._replace(delayed=tuple(sorted((*world.delayed, request))))


def _said(to: Written) -> Label:
    members = tuple(n for n, standing in enumerate(to.standings) if standing.is_in_sync)
    return (to.leader, to.leader_epoch, *members)
