"""What one or two replicas do, worked out once for each of their states.

Replicas are numbers of the table, before and after. So the real code behind these steps is asked
some ten thousand times, while millions of moves are made of the answers. This file knows no world.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

from strandline.errors import ErrorCode
from strandline.replication.policies import AnswerWatermark
from tests.sim.modelcheck.following import Following, assigned, truncated, written
from tests.sim.modelcheck.leading import Leading, Led, proposed
from tests.sim.modelcheck.rules import Bounds, ChosenLag, Rules
from tests.sim.modelcheck.values import (
    JOINING,
    LEAVING,
    MEMBER,
    NO_REPLICA,
    OWN,
    UNKNOWN,
    UNTOLD,
    Delayed,
    Reign,
    Replica,
    Table,
    View,
)


class Broken(NamedTuple):
    """An invariant that does not hold."""

    invariant: str
    what: str


class Fetched(NamedTuple):
    """What a fetch does: to the leader, and to the follower if it gets the answer."""

    leader: int
    follower: int
    broken: tuple[Broken, ...]


class Steps:
    """See the module."""

    def __init__(self, bounds: Bounds, rules: Rules, lag: ChosenLag) -> None:
        """`lag` is the policy in `rules`."""
        self.table = Table()
        self._rules = rules
        self._brokers = range(bounds.replicas)
        self._leading = Leading(bounds, rules, lag)
        self._following = Following(rules)
        self._fetches: dict[tuple[int, int, int, int], Fetched | None] = {}
        self._late: dict[tuple[int, Delayed], int | None] = {}
        self._told: dict[tuple[int, int, int, int, tuple[bool, ...]], int] = {}
        self._writes: dict[tuple[int, int], int] = {}
        self._shrinks: dict[tuple[int, int], list[tuple[tuple[int, ...], int]]] = {}
        self._refusals: dict[tuple[int, int, bool], int] = {}
        self._quieted: dict[tuple[int, int], int] = {}

    def first(self, *, is_leader: bool) -> int:
        """A replica that is up and in sync; the leader has not been fetched from yet."""
        views = tuple(View(UNKNOWN, UNKNOWN, MEMBER) if number else OWN for number in self._brokers)
        has_entry = is_leader and self._rules.marks_epoch_at_election
        return self.table.number(
            Replica(
                log=(),
                entries=((0, 0),) if has_entry else (),
                mark=0,
                compares=True,
                is_up=True,
                is_registered=True,
                life=1,
                unbroken_since=1,
                epoch=0,
                reign=(Reign(0, True, views),) if is_leader else (),
                is_in_sync=True,
                is_eligible=False,
                was_complete=False,
                recorded=1,
            )
        )

    # -- Fetches -----------------------------------------------------------------------------

    def fetched(self, number: int, at: int, me: int, leader: int) -> Fetched | None:
        """A follower fetches and is answered; None if it is refused."""
        key = (number, at, me, leader)
        try:
            return self._fetches[key]
        except KeyError:
            found = self._fetches[key] = self._fetch(*key)
            return found

    def _fetch(self, number: int, at: int, me: int, leader: int) -> Fetched | None:
        follower, source = self.table.all[number], self.table.all[at]
        request = self.request(me, leader, follower)
        if not self._serves(source, request):
            return None
        answer = self._following.answer(source, request.offset, request.last_epoch)
        after = source
        if answer.code is ErrorCode.NONE and (
            answer.diverging is None or self._rules.counts_diverging_fetch
        ):
            led = self._count(source, request)
            if led is None:
                return None
            after = _led(source, led)
            if self._rules.policies.answer_watermark is AnswerWatermark.POST:
                answer = answer._replace(mark=led.mark)
        taken = self._following.takes(follower, answer)
        broken: tuple[Broken, ...] = ()
        is_same_epoch = follower.epoch == source.epoch
        if taken == follower and answer.diverging is not None and is_same_epoch:
            broken = (Broken("I-20", f"{me} does not come nearer to {source.log}: {follower}"),)
        elif taken == follower and answer.code is not ErrorCode.NONE and is_same_epoch:
            broken = (Broken("I-49", f"{me} has {follower.log} and cannot get {source.log}"),)
        return Fetched(self.table.number(after), self.table.number(taken), broken)

    def request(self, me: int, leader: int, follower: Replica) -> Delayed:
        """What a follower asks for."""
        return Delayed(
            True,
            me,
            leader,
            follower.life,
            follower.epoch,
            len(follower.log),
            self._following.last_epoch(follower),
        )

    def counted_late(self, number: int, request: Delayed) -> int | None:
        """The leader when a fetch arrives whose answer the follower does not await any more."""
        key = (number, request)
        if key not in self._late:
            self._late[key] = self._count_late(number, request)
        return self._late[key]

    def _count_late(self, number: int, request: Delayed) -> int | None:
        source = self.table.all[number]
        if not self._serves(source, request):
            return None
        answer = self._following.answer(source, request.offset, request.last_epoch)
        if answer.code is not ErrorCode.NONE or answer.diverging is not None:
            return None
        led = self._count(source, request)
        return None if led is None else self.table.number(_led(source, led))

    def _count(self, source: Replica, request: Delayed) -> Led | None:
        offset, life = request.offset, request.life
        return self._leading.fetched(
            request.receiver, source, request.sender, offset=offset, life=life
        )

    def _serves(self, source: Replica, request: Delayed) -> bool:
        if not source.is_up or not source.reign:
            return False
        return source.epoch == request.epoch or not self._rules.checks_fetch_epoch

    # -- Leaders -----------------------------------------------------------------------------

    def written(self, number: int, me: int) -> int:
        """A client writes a record."""
        found = self._writes.get((number, me))
        if found is None:
            replica = written(self.table.all[number])
            after = _led(replica, self._leading.appended(me, replica))
            found = self._writes[number, me] = self.table.number(after)
        return found

    def shrunken(self, number: int, me: int) -> list[tuple[tuple[int, ...], int]]:
        """The leader wants to do without some, for each choice of who lags."""
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

    def refused(self, number: int, me: int, *, is_open: bool) -> int:
        """What a leader proposes is not done; `is_open`: an earlier attempt may yet succeed."""
        key = (number, me, is_open)
        found = self._refusals.get(key)
        if found is None:
            replica = self.table.all[number]
            after = _led(replica, self._leading.refused(me, replica, is_open=is_open))
            found = self._refusals[key] = self.table.number(after)
        return found

    def proposal(self, me: int, replica: Replica) -> Delayed:
        """What a leader would ask the controller for now."""
        (reign,) = replica.reign
        members = []
        for member in sorted(proposed(reign)):
            view = reign.views[member]
            life = view.life
            if member == me:
                life = replica.life
            elif view.membership == JOINING and self._rules.names_life_of_joining:
                life = view.joins_as
            members.append((member, life))
        return Delayed(
            is_fetch=False,
            sender=me,
            receiver=NO_REPLICA,
            life=replica.life,
            epoch=replica.epoch,
            is_current=reign.is_current,
            members=tuple(members),
        )

    def rests(self, number: int, me: int) -> bool:
        """Whether the leader must leave its high watermark where it is."""
        is_enough = self._leading.has_min_in_sync(me, self.table.all[number])
        return self._rules.policies.strict_min_isr and not is_enough

    # -- Roles -------------------------------------------------------------------------------

    def told(self, number: int, me: int, epoch: int, leader: int, members: tuple[bool, ...]) -> int:
        """A broker hears the newest version of the partition's state."""
        key = (number, me, epoch, leader, members)
        after = self._told.get(key)
        if after is None:
            after = self._told[key] = self.table.number(self._role(*key))
        return after

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
        if leader == me and (is_of_this_life or not self._rules.leads_in_own_life_only):
            former_epoch = replica.epoch if self._rules.forgets_older_reigns else epoch - 1
            if self._rules.marks_epoch_at_election:
                entries = assigned(replica.entries, epoch, len(replica.log))
                replica = replica._replace(entries=entries)
            led = self._leading.begins(me, replica, epoch, in_sync, former_epoch)
            return _led(replica._replace(epoch=epoch, compares=True), led)
        if is_new or was_leading:
            return self._following.begins(replica, epoch)
        return replica

    def crashed(self, replica: Replica, kept: int) -> int:
        """A process dies, and of its log so much is left."""
        # What is found when the log is loaded is cut to its end (see `storage.leader_epochs`).
        after = truncated(replica, kept)
        after = after._replace(is_up=False, reign=(), epoch=UNTOLD, compares=True)
        return self.table.number(after)

    def quiet(self, number: int, members: int | None) -> int:
        """A leader after what makes no difference when it happens (see `Moves.settled`).

        `members` is the set in force, a bit for each; None if another epoch has begun.
        """
        key = (number, -1 if members is None else members)
        found = self._quieted.get(key)
        if found is None:
            after = _quiet(self.table.all[number], members)
            found = self._quieted[key] = self.table.number(after)
        return found


def _led(replica: Replica, led: Led) -> Replica:
    return replica._replace(reign=(led.reign,), mark=led.mark)


def _quiet(replica: Replica, members: int | None) -> Replica:
    """See `Steps.quiet`."""
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
