"""Everything that can happen next in a state.

A step that clients, brokers, the network or the controller can take is a `Move`: what it is, the
state after it, and what it has broken, if anything. What concerns one or two replicas is worked out
once for each of their states; so the real code behind it is asked some ten thousand times, while
millions of moves are made.

A fetch carries one record, so that every way of being behind occurs. Its answer arrives or is lost;
that it arrives late is the same as that whatever happens in between happens before, because a
follower ignores an answer to what it would not ask any more. Requests can be late (`Delayed`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final, NamedTuple, TypeAlias

from strandline.cluster.controller.partition_repair import Choice
from strandline.errors import ErrorCode
from strandline.replication.policies import AnswerWatermark
from strandline.sim.small.controlling import Controlling, Known, Refused, Standing, Written
from strandline.sim.small.following import Following, assigned, truncated, written
from strandline.sim.small.leading import Leading, Led, is_settled, proposed
from strandline.sim.small.rules import Bounds, ChosenLag, Rules
from strandline.sim.small.values import (
    JOINING,
    LEAVING,
    MEMBER,
    NOBODY,
    OWN,
    UNKNOWN,
    UNTOLD,
    Delayed,
    Left,
    Reign,
    Replica,
    Table,
    View,
    World,
)

_DEFINITE: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Refusals after which a proposal was certainly not carried out."""

Label: TypeAlias = tuple[object, ...]
"""A verb and what it is done to."""


class Broken(NamedTuple):
    """An invariant that does not hold."""

    invariant: str
    what: str


class Move(NamedTuple):
    """See the module."""

    label: Label
    world: World
    broken: tuple[Broken, ...] = ()


class _Fetched(NamedTuple):
    """What a fetch does: to the leader, and to the follower if it gets the answer."""

    leader: int
    follower: int
    broken: tuple[Broken, ...]


class Moves:
    """See the module."""

    def __init__(self, bounds: Bounds, rules: Rules, lag: ChosenLag) -> None:
        """`lag` is the policy in `rules`."""
        self.table = Table()
        self.bounds = bounds
        self.rules = rules
        self._leading = Leading(bounds, rules, lag)
        self._following = Following(rules)
        self._controlling = Controlling(bounds)
        self._brokers = range(bounds.replicas)
        self._fetches: dict[tuple[int, int, int, int], _Fetched | None] = {}
        self._late: dict[tuple[int, int, Delayed], int | None] = {}
        self._told: dict[tuple[int, int, int, int, tuple[bool, ...]], int] = {}
        self._writes: dict[tuple[int, int], int] = {}
        self._shrinks: dict[tuple[int, int], list[tuple[tuple[int, ...], int]]] = {}
        self._refusals: dict[tuple[int, int], int] = {}
        self._marked: dict[tuple[int, Standing], int] = {}
        self._standings: dict[int, Standing] = {}
        self._quieted: dict[tuple[int, int], int] = {}
        self._repairs: dict[Known, list[Written]] = {}
        self._preferred: dict[tuple[Known, int], Written | None] = {}
        self._answers: dict[tuple[Known, Delayed], Written | Refused | None] = {}

    def first(self) -> World:
        """Everybody is up and in sync and knows the leader, who has not been fetched from yet."""
        count = self.bounds.replicas
        views = tuple(View(UNKNOWN, UNKNOWN, MEMBER) if number else OWN for number in self._brokers)
        leading = Replica(
            log=(),
            entries=((0, 0),) if self.rules.marks_epoch_at_election else (),
            mark=0,
            compares=True,
            is_up=True,
            is_registered=True,
            life=1,
            unbroken_since=1,
            epoch=0,
            reign=(Reign(0, True, views),),
            is_in_sync=True,
            is_eligible=False,
            was_complete=False,
            recorded=1,
        )
        following = leading._replace(entries=(), reign=())
        number, other = self.table.number(leading), self.table.number(following)
        bounds = self.bounds
        return World(
            replicas=(number, *(other for _ in range(count - 1))),
            leaders=(0,),
            committed=(),
            is_recovering=False,
            may_lose=False,
            left=Left(bounds.records, bounds.crashes, bounds.losses, bounds.expiries),
            delayed=(),
        )

    def next(self, world: World) -> Iterator[Move]:
        """All moves from a state."""
        replicas = [self.table.all[number] for number in world.replicas]
        known = self._known(world, replicas)
        for me, replica in enumerate(replicas):
            if replica.is_up:
                yield from self._alive(world, me, replica, replicas)
            elif not replica.is_registered:
                yield self._start(world, me, replica)
            if replica.is_registered and (not replica.is_up or world.left.expiries):
                yield self._expire(world, me, replica)
        yield from self._controller(world, known)
        for place in range(len(world.delayed)):
            yield from self._late_arrival(world, known, place)

    # -- What a running broker does ----------------------------------------------------------

    def _alive(
        self, world: World, me: int, replica: Replica, replicas: list[Replica]
    ) -> Iterator[Move]:
        told = self._tell(world, me, replica, replicas)
        if told is not None:
            yield told
        if replica.reign:
            yield from self._leader(world, me, replica, replicas)
        elif replica.epoch != UNTOLD:
            yield from self._follower(world, me, replica)
        if not replica.is_registered:
            after = replica._replace(is_registered=True, life=replica.life + 1)
            yield Move(("register", me), self._with(world, me, after))
        if world.left.crashes:
            yield from self._crash(world, me, replica)

    def _leader(
        self, world: World, me: int, replica: Replica, replicas: list[Replica]
    ) -> Iterator[Move]:
        number = world.replicas[me]
        if world.left.records:
            left = world.left._replace(records=world.left.records - 1)
            yield self._advanced(
                ("produce", me), world._replace(left=left), me, self._write(number, me)
            )
        (reign,) = replica.reign
        if replica.epoch < len(world.leaders) - 1:
            return
        if is_settled(reign):
            for leaving, after in self._shrink(number, me):
                yield self._advanced(("lags", me, *leaving), world, me, after)
        else:
            proposal = self._proposal(me, replica, reign)
            yield from self._propose(world, self._known(world, replicas), proposal)
            if len(world.delayed) < self.bounds.delayed and proposal not in world.delayed:
                yield Move(("send-proposal", me), _with_delayed(world, proposal))

    def _follower(self, world: World, me: int, replica: Replica) -> Iterator[Move]:
        leader = world.leaders[replica.epoch]
        if leader in (me, NOBODY):
            return
        fetched = self._fetch(world, me, leader)
        if fetched is not None:
            delivered = self._changed(world, leader, fetched.leader)
            numbers = list(delivered.replicas)
            numbers[me] = fetched.follower
            both = delivered._replace(replicas=tuple(numbers))
            broken = fetched.broken + self._forgets(world, me, replica, fetched.follower)
            if both != world or broken:
                yield self._checked(("fetch", me, leader), world, both, leader, broken)
            if fetched.leader != world.replicas[leader]:
                yield self._checked(("fetch-lost", me, leader), world, delivered, leader)
        if len(world.delayed) < self.bounds.delayed:
            request = Delayed(
                True,
                me,
                leader,
                replica.life,
                replica.epoch,
                len(replica.log),
                self._following.last_epoch(replica),
            )
            if request not in world.delayed:
                yield Move(("send-fetch", me, leader), _with_delayed(world, request))

    def _fetch(self, world: World, me: int, leader: int) -> _Fetched | None:
        key = (world.replicas[me], world.replicas[leader], me, leader)
        try:
            return self._fetches[key]
        except KeyError:
            found = self._fetches[key] = self._fetch_anew(*key)
            return found

    def _fetch_anew(self, number: int, at: int, me: int, leader: int) -> _Fetched | None:
        follower, source = self.table.all[number], self.table.all[at]
        offset, last_epoch = len(follower.log), self._following.last_epoch(follower)
        request = Delayed(True, me, leader, follower.life, follower.epoch, offset, last_epoch)
        if not self._serves(source, request):
            return None
        answer = self._following.answer(source, offset, last_epoch)
        after = source
        if answer.code is ErrorCode.NONE and (
            answer.diverging is None or self.rules.counts_diverging_fetch
        ):
            led = self._leading.fetched(leader, source, me, offset=offset, life=follower.life)
            if led is None:
                return None
            after = _led(source, led)
            if self.rules.policies.answer_watermark is AnswerWatermark.POST:
                answer = answer._replace(mark=led.mark)
        taken = self._following.takes(follower, answer)
        broken: tuple[Broken, ...] = ()
        is_same_epoch = follower.epoch == source.epoch
        if taken == follower and answer.diverging is not None and is_same_epoch:
            broken = (Broken("I-20", f"{me} does not come nearer to {source.log}: {follower}"),)
        elif taken == follower and answer.code is not ErrorCode.NONE and is_same_epoch:
            broken = (Broken("I-49", f"{me} has {follower.log} and cannot get {source.log}"),)
        return _Fetched(self.table.number(after), self.table.number(taken), broken)

    def _serves(self, source: Replica, request: Delayed) -> bool:
        if not source.is_up or not source.reign:
            return False
        return source.epoch == request.epoch or not self.rules.checks_fetch_epoch

    def _write(self, number: int, me: int) -> int:
        found = self._writes.get((number, me))
        if found is None:
            replica = written(self.table.all[number])
            after = _led(replica, self._leading.appended(me, replica))
            found = self._writes[number, me] = self.table.number(after)
        return found

    def _shrink(self, number: int, me: int) -> list[tuple[tuple[int, ...], int]]:
        found = self._shrinks.get((number, me))
        if found is None:
            replica = self.table.all[number]
            after: dict[int, tuple[int, ...]] = {}
            others = [other for other in self._brokers if other != me]
            for size in range(1, len(others) + 1):
                for leaving in combinations(others, size):
                    led = self._leading.shrinks(me, replica, frozenset(leaving))
                    if led is not None:
                        after.setdefault(self.table.number(_led(replica, led)), leaving)
            found = [(leaving, to) for to, leaving in after.items()]
            self._shrinks[number, me] = found
        return found

    # -- Roles -------------------------------------------------------------------------------

    def _tell(
        self, world: World, me: int, replica: Replica, replicas: list[Replica]
    ) -> Move | None:
        epoch = len(world.leaders) - 1
        if epoch < replica.epoch:
            return None
        leader = world.leaders[epoch]
        members = tuple(other.is_in_sync for other in replicas)
        number = world.replicas[me]
        key = (number, me, epoch, leader, members)
        after = self._told.get(key)
        if after is None:
            after = self._told[key] = self.table.number(self._role(*key))
        if after == number:
            return None
        took_over = bool(self.table.all[after].reign) and not (
            replica.reign and replica.epoch == epoch
        )
        broken = self._forgets(world, me, replica, after)
        label: Label = ("leads" if took_over else "told", me)
        if took_over and any(
            other != me and each.reign and each.epoch == epoch
            for other, each in enumerate(replicas)
        ):
            broken += (Broken("I-11", f"{me} and another lead epoch {epoch}"),)
        if took_over and replica.is_up and epoch in self.table.all[after].log:
            broken += (Broken("I-11", f"{me} leads epoch {epoch} for the second time"),)
        return self._advanced(label, world, me, after, broken)

    def _role(
        self, number: int, me: int, epoch: int, leader: int, members: tuple[bool, ...]
    ) -> Replica:
        """The replica when it hears the newest state, as `node.replicas` gives roles."""
        replica = self.table.all[number]
        is_new = epoch > replica.epoch
        in_sync = frozenset(n for n, is_member in enumerate(members) if is_member)
        was_leading = bool(replica.reign)
        is_of_this_life = replica.is_registered and replica.recorded == replica.life
        if leader == me and was_leading and not is_new:
            return _led(replica, self._leading.committed(me, replica, in_sync))
        if leader == me and (is_of_this_life or not self.rules.leads_in_own_life_only):
            former_epoch = replica.epoch if self.rules.forgets_older_reigns else epoch - 1
            if self.rules.marks_epoch_at_election:
                replica = replica._replace(entries=_assigned(replica, epoch))
            led = self._leading.begins(me, replica, epoch, in_sync, former_epoch)
            return _led(replica._replace(epoch=epoch, compares=True), led)
        if is_new or was_leading:
            return self._following.begins(replica, epoch)
        return replica

    # -- Failures ----------------------------------------------------------------------------

    def _crash(self, world: World, me: int, replica: Replica) -> Iterator[Move]:
        end = len(replica.log)
        for kept in range(end if not world.left.losses else 0, end + 1):
            # What is found when the log is loaded is cut to its end (see `storage.leader_epochs`).
            after = truncated(replica, kept)._replace(
                is_up=False, reign=(), epoch=UNTOLD, compares=True
            )
            left = world.left._replace(
                crashes=world.left.crashes - 1, losses=world.left.losses - (kept < end)
            )
            label: Label = ("kill", me) if kept == end else ("power-cut", me, kept)
            yield Move(label, self._with(world._replace(left=left), me, after))

    def _start(self, world: World, me: int, replica: Replica) -> Move:
        life = replica.life + 1
        after = replica._replace(is_up=True, is_registered=True, life=life, unbroken_since=life)
        return Move(("start", me), self._with(world, me, after))

    def _expire(self, world: World, me: int, replica: Replica) -> Move:
        left = world.left
        if replica.is_up:
            left = left._replace(expiries=left.expiries - 1)
        after = replica._replace(is_registered=False)
        return Move(("expire", me), self._with(world._replace(left=left), me, after))

    # -- The controller ----------------------------------------------------------------------

    def _known(self, world: World, replicas: list[Replica]) -> Known:
        standings = []
        for number, replica in zip(world.replicas, replicas, strict=True):
            standing = self._standings.get(number)
            if standing is None:
                standing = self._standings[number] = Standing.of(replica)
            standings.append(standing)
        epoch = len(world.leaders) - 1
        return Known(tuple(standings), world.leaders[epoch], epoch, world.is_recovering)

    def _controller(self, world: World, known: Known) -> Iterator[Move]:
        repairs = self._repairs.get(known)
        if repairs is None:
            repairs = self._repairs[known] = self._possible_repairs(known)
        for repair in repairs:
            if repair.leader_epoch < self.bounds.epochs:
                yield self._put(("controller", *_said(repair)), world, known, repair)
        if known.leader_epoch + 1 >= self.bounds.epochs:
            return
        for me in self._brokers:
            key = (known, me)
            if key in self._preferred:
                found = self._preferred[key]
            else:
                found = self._preferred[key] = self._controlling.preferred(known, me)
            if found is not None:
                yield self._put(("prefer", *_said(found)), world, known, found)

    def _possible_repairs(self, known: Known) -> list[Written]:
        repairs = self._controlling.repairs(known)
        if self.rules.elects_complete_only:
            return repairs
        extra: dict[Written, None] = dict.fromkeys(repairs)
        for repair in repairs:
            for me, standing in enumerate(repair.standings):
                if repair.leader_epoch > known.leader_epoch and standing.is_registered:
                    recorded = standing._replace(is_in_sync=True, recorded=standing.life)
                    standings = (*repair.standings[:me], recorded, *repair.standings[me + 1 :])
                    extra[repair._replace(leader=me, standings=standings)] = None
        return list(extra)

    def _proposal(self, me: int, replica: Replica, reign: Reign) -> Delayed:
        """What the leader would ask the controller for now."""
        members = []
        for member in sorted(proposed(reign)):
            view = reign.views[member]
            life = view.life
            if member == me:
                life = replica.life
            elif view.membership == JOINING and self.rules.names_life_of_joining:
                life = view.joins_as
            members.append((member, life))
        return Delayed(
            is_fetch=False,
            sender=me,
            receiver=NOBODY,
            life=replica.life,
            epoch=replica.epoch,
            is_current=reign.is_current,
            members=tuple(members),
        )

    def _propose(self, world: World, known: Known, proposal: Delayed) -> Iterator[Move]:
        key = (known, proposal)
        if key in self._answers:
            answer = self._answers[key]
        else:
            answer = self._answers[key] = self._controlling.answer(known, proposal)
        me = proposal.sender
        members = tuple(member for member, _ in proposal.members)
        if isinstance(answer, Written):
            yield self._put(("alter", me, *members), world, known, answer, sender=me)
        elif answer is not None and (
            answer.code in _DEFINITE or not self.rules.keeps_on_open_refusal
        ):
            number = world.replicas[me]
            replica = self.table.all[number]
            if replica.reign and self._proposal(me, replica, replica.reign[0]) == proposal:
                after = self._refuse(number, me)
                yield self._advanced(("refused", me, *members), world, me, after)

    def _refuse(self, number: int, me: int) -> int:
        found = self._refusals.get((number, me))
        if found is None:
            replica = self.table.all[number]
            after = _led(replica, self._leading.refused(me, replica))
            found = self._refusals[number, me] = self.table.number(after)
        return found

    def _put(
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
        lost = self.bounds.losses - world.left.losses
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
            replica = self.table.all[number]
            found = self._marked[key] = self.table.number(
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
        leader = self.table.all[world.replicas[sender]]
        if not leader.reign or leader.epoch != known.leader_epoch:
            return ()
        needed = leader.log[: max(leader.mark, leader.reign[0].start)]
        for me, (old, new) in enumerate(zip(known.standings, to.standings, strict=True)):
            replica = self.table.all[world.replicas[me]]
            if not new.is_in_sync or old.is_in_sync or not replica.is_up:
                continue  # nobody can know yet that a member has died
            if replica.log[: len(needed)] != needed:
                return (Broken("I-16", f"{me} joins without all records below {len(needed)}"),)
        return ()

    # -- Late requests -----------------------------------------------------------------------

    def _late_arrival(self, world: World, known: Known, place: int) -> Iterator[Move]:
        request = world.delayed[place]
        without = world._replace(delayed=world.delayed[:place] + world.delayed[place + 1 :])
        yield Move(("lost", request.sender), without)
        if not request.is_fetch:
            for move in self._propose(without, known, request):
                yield move._replace(label=("late", *move.label))
            return
        at = request.receiver
        number = world.replicas[at]
        key = (number, at, request)
        if key in self._late:
            after = self._late[key]
        else:
            after = self._late[key] = self._count_late(number, request)
        if after is not None:
            yield self._advanced(("late", "fetch", request.sender, at), without, at, after)

    def _count_late(self, number: int, request: Delayed) -> int | None:
        source = self.table.all[number]
        if not self._serves(source, request):
            return None
        answer = self._following.answer(source, request.offset, request.last_epoch)
        if answer.code is not ErrorCode.NONE or answer.diverging is not None:
            return None
        led = self._leading.fetched(
            request.receiver, source, request.sender, offset=request.offset, life=request.life
        )
        return None if led is None else self.table.number(_led(source, led))

    def settled(self, world: World) -> World:
        """The state when everything has happened that makes no difference when it happens.

        - A follower hears the newest leader epoch when whom it would fetch from does not lead in
          its own epoch any more: there is nothing else that it could do.
        - A leader hears of a version of the state that tells it nothing new. Until then it could
          only propose in vain.
        - A leader of an old epoch stops to propose: nobody follows its proposals.
        """
        epoch = len(world.leaders) - 1
        all_replicas = self.table.all
        for me, number in enumerate(world.replicas):
            replica = all_replicas[number]
            if not replica.is_up:
                continue
            if replica.reign:
                quiet = self._quiet(world, me, epoch)
                if quiet != number:
                    world = self._changed(world, me, quiet)
            elif replica.epoch != epoch and world.leaders[epoch] != me:
                leader = NOBODY if replica.epoch == UNTOLD else world.leaders[replica.epoch]
                source = None if leader == NOBODY else all_replicas[world.replicas[leader]]
                if source is not None and source.reign and source.epoch == replica.epoch:
                    continue
                told = self._tell(world, me, replica, [all_replicas[n] for n in world.replicas])
                if told is not None:
                    world = told.world
        return world

    def _quiet(self, world: World, me: int, epoch: int) -> int:
        number = world.replicas[me]
        replica = self.table.all[number]
        (reign,) = replica.reign
        is_newest = replica.epoch == epoch
        members = 0
        if is_newest:
            if reign.is_current or not is_settled(reign):
                return number
            for other, at in enumerate(world.replicas):
                members |= self.table.all[at].is_in_sync << other
        key = (number, members)
        found = self._quieted.get(key)
        if found is None:
            found = self._quieted[key] = self.table.number(
                _quiet(replica, members if is_newest else None)
            )
        return found

    # -- What follows ------------------------------------------------------------------------

    def _with(self, world: World, me: int, replica: Replica) -> World:
        return self._changed(world, me, self.table.number(replica))

    @staticmethod
    def _changed(world: World, me: int, number: int) -> World:
        numbers = list(world.replicas)
        numbers[me] = number
        return world._replace(replicas=tuple(numbers))

    def _advanced(
        self, label: Label, world: World, me: int, number: int, broken: tuple[Broken, ...] = ()
    ) -> Move:
        """One replica changes, perhaps a leader whose high watermark moves."""
        return self._checked(label, world, self._changed(world, me, number), me, broken)

    def _checked(
        self, label: Label, before: World, after: World, me: int, broken: tuple[Broken, ...] = ()
    ) -> Move:
        """Note what a leader has committed, and check how its high watermark moved."""
        old = self.table.all[before.replicas[me]]
        new = self.table.all[after.replicas[me]]
        if not new.reign:
            return Move(label, after, broken)
        if new.mark < old.mark and old.reign and old.epoch == new.epoch:
            broken += (Broken("I-10", f"{me} moves its high watermark back to {new.mark}"),)
        if new.mark <= old.mark or before.may_lose:
            return Move(label, after, broken)
        if self.rules.policies.strict_min_isr and not self._leading.has_min_in_sync(me, new):
            broken += (Broken("I-17", f"{me} commits below the minimum"),)
        known, now = after.committed, new.log[: new.mark]
        shared = min(len(known), len(now))
        if known[:shared] != now[:shared]:
            broken += (Broken("I-25", f"committed {known} became {now} on {me}"),)
        if len(now) > len(known):
            after = after._replace(committed=now)
        return Move(label, after, broken)

    def _forgets(self, world: World, me: int, before: Replica, number: int) -> tuple[Broken, ...]:
        """A running member of the in-sync set must not drop what is committed (I-24)."""
        after = self.table.all[number]
        kept = len(after.log)
        if kept >= len(before.log) or kept >= len(world.committed) or world.may_lose:
            return ()
        is_member = before.is_in_sync and before.is_registered and before.recorded == before.life
        if is_member and before.log[: kept + 1] == world.committed[: kept + 1]:
            return (Broken("I-24", f"{me}, in sync, drops committed records from {kept} on"),)
        return ()


def _quiet(replica: Replica, members: int | None) -> Replica:
    """A leader after what makes no difference; `members` is the set in force in its epoch."""
    (reign,) = replica.reign
    views = reign.views
    if members is None:
        views = tuple(
            view._replace(membership=MEMBER) if view.membership == LEAVING else view
            for view in views
        )
        reign = reign._replace(is_current=False, views=views)
    elif members == sum((view.membership == MEMBER) << other for other, view in enumerate(views)):
        reign = reign._replace(is_current=True)
    return replica._replace(reign=(reign,))


def _check_election(known: Known, to: Written) -> tuple[Broken, ...]:
    if to.leader == NOBODY or to.leader == known.leader or to.choice is Choice.UNCLEAN:
        return ()
    former = known.standings[to.leader]
    if former.is_in_sync or former.is_eligible or former.was_complete:
        return ()
    return (Broken("I-19", f"{to.leader} leads, and was neither in sync nor eligible"),)


def _assigned(replica: Replica, epoch: int) -> tuple[tuple[int, int], ...]:
    return assigned(replica.entries, epoch, len(replica.log))


def _led(replica: Replica, led: Led) -> Replica:
    return replica._replace(reign=(led.reign,), mark=led.mark)


def _with_delayed(world: World, request: Delayed) -> World:
    return world._replace(delayed=tuple(sorted((*world.delayed, request))))


def _said(to: Written) -> Label:
    members = tuple(n for n, standing in enumerate(to.standings) if standing.is_in_sync)
    return (to.leader, to.leader_epoch, *members)
