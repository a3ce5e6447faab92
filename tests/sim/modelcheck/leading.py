"""The leader's decisions: a `Reign` becomes a real `Leader`, is asked, and becomes a `Reign` again.

This file knows how the fields correspond. It decides nothing. Every question is answered once for
each state of the replica, which is what makes the search fast.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.errors import ProtocolError
from strandline.replication.in_sync import Expanding, Shrinking, Withdrawing
from strandline.replication.leader import Leader
from strandline.types import BrokerId, LeaderEpoch, Offset
from tests.sim.modelcheck.rules import Bounds, ChosenLag, Rules
from tests.sim.modelcheck.values import (
    JOINING,
    LEAVING,
    MEMBER,
    OUT,
    OWN,
    UNKNOWN,
    WITHDRAWN,
    Reign,
    Replica,
    View,
)

_OLD_VERSION = 0
_NEW_VERSION = 1


class Led(NamedTuple):
    """A reign after a question, and the high watermark then."""

    reign: Reign
    mark: int


class Leading:
    """See the module."""

    def __init__(self, bounds: Bounds, rules: Rules, lag: ChosenLag) -> None:
        """`lag` is the policy in `rules`."""
        self._bounds = bounds
        self._policies = rules.policies
        self._lag = lag
        self._brokers = [BrokerId(number) for number in range(bounds.replicas)]

    def begins(
        self, me: int, replica: Replica, epoch: int, members: frozenset[int], former_epoch: int
    ) -> Led:
        """Accept leadership in a new epoch with these members in sync."""
        former = self._revived(me, replica.reign[0], former_epoch) if replica.reign else None
        leader = Leader(
            BrokerId(me),
            leader_epoch=LeaderEpoch(epoch),
            partition_epoch=_NEW_VERSION,
            start_offset=Offset(len(replica.log)),
            replicas=self._brokers,
            in_sync=[BrokerId(member) for member in sorted(members)],
            lag_max_ms=0,
            min_in_sync=self._bounds.min_in_sync,
            now_ms=0,
            log_start_offset=Offset(0),
            former=former,
            policies=self._policies,
        )
        return self._advanced(me, leader, replica)

    def appended(self, me: int, replica: Replica) -> Led:
        """The log of the leader has grown."""
        leader = self._revived(me, replica.reign[0], replica.epoch)
        return self._advanced(me, leader, replica)

    def fetched(
        self, me: int, replica: Replica, follower: int, *, offset: int, life: int
    ) -> Led | None:
        """Count a fetch; None if it is refused as one from before a restart."""
        leader = self._revived(me, replica.reign[0], replica.epoch)
        end = Offset(len(replica.log))
        try:
            leader.fetched(
                BrokerId(follower),
                offset=Offset(offset),
                log_start_offset=Offset(0),
                broker_epoch=life,
                log_end_offset=end,
                now_ms=0,
            )
        except ProtocolError:
            return None
        leader.maybe_expand(BrokerId(follower), high_watermark=Offset(replica.mark), may_join=True)
        return self._advanced(me, leader, replica)

    def shrinks(self, me: int, replica: Replica, leaving: frozenset[int]) -> Led | None:
        """Some followers lag; None if that changes nothing."""
        leader = self._revived(me, replica.reign[0], replica.epoch)
        others = frozenset(range(self._bounds.replicas)) - leaving
        self._lag.patient_with = others
        try:
            is_proposed = leader.maybe_shrink(Offset(len(replica.log)), 0)
        finally:
            self._lag.patient_with = frozenset()
        if not is_proposed:
            return None
        return self._advanced(me, leader, replica)

    def committed(self, me: int, replica: Replica, members: frozenset[int]) -> Led:
        """The leader hears the newest version of the partition's state."""
        leader = self._revived(me, replica.reign[0], replica.epoch)
        # With one minimum for all, the set alone says whether others can be eligible.
        leader.committed([BrokerId(member) for member in sorted(members)], _NEW_VERSION, False)
        return self._advanced(me, leader, replica)

    def refused(self, me: int, replica: Replica, *, is_open: bool) -> Led:
        """What the leader proposed was not done; `is_open`: another attempt may yet succeed."""
        leader = self._revived(me, replica.reign[0], replica.epoch)
        leader.refused(definite=True, is_open=is_open)
        return self._advanced(me, leader, replica)

    def has_min_in_sync(self, me: int, replica: Replica) -> bool:
        """Whether the leader lets the high watermark move, as it sees the in-sync set."""
        return self._revived(me, replica.reign[0], replica.epoch).has_min_in_sync

    def _advanced(self, me: int, leader: Leader, replica: Replica) -> Led:
        mark = leader.next_high_watermark(
            Offset(replica.mark), Offset(len(replica.log)), 0, may_join=_any_broker
        )
        return Led(_reign(me, leader), mark)

    def _revived(self, me: int, reign: Reign, epoch: int) -> Leader:
        members = [
            BrokerId(number)
            for number, view in enumerate(reign.views)
            if view.membership in (MEMBER, LEAVING)
        ]
        leader = Leader(
            BrokerId(me),
            leader_epoch=LeaderEpoch(epoch),
            partition_epoch=_NEW_VERSION if reign.is_current else _OLD_VERSION,
            start_offset=Offset(reign.start),
            replicas=self._brokers,
            in_sync=members,
            lag_max_ms=0,
            min_in_sync=self._bounds.min_in_sync,
            now_ms=0,
            log_start_offset=Offset(0),
            policies=self._policies,
        )
        members_now = leader.in_sync.members
        leaving = set()
        for number, view in enumerate(reign.views):
            if number == me:
                continue
            progress = leader.progress[BrokerId(number)]
            progress.log_end_offset = Offset(view.end)
            progress.log_start_offset = Offset(min(view.end, 0))
            progress.broker_epoch = view.life
            if view.membership == JOINING:
                leader.in_sync = Expanding(members_now, BrokerId(number), view.joins_as)
            elif view.membership == WITHDRAWN:
                leader.in_sync = Withdrawing(members_now, BrokerId(number))
            elif view.membership == LEAVING:
                leaving.add(BrokerId(number))
        if leaving:
            leader.in_sync = Shrinking(members_now, frozenset(leaving))
        leader.reassigned(leader.replicas)
        return leader


def _any_broker(broker_id: BrokerId) -> bool:
    """The leader's metadata may be old: it may take any broker for alive."""
    del broker_id
    return True


def _reign(me: int, leader: Leader) -> Reign:
    state = leader.in_sync
    views = []
    for number in sorted({me, *leader.progress}):
        broker = BrokerId(number)
        if number == me:
            views.append(OWN)
            continue
        progress = leader.progress[broker]
        membership, joins_as = MEMBER if broker in state.members else OUT, UNKNOWN
        if isinstance(state, Expanding) and broker == state.joining:
            membership, joins_as = JOINING, state.broker_epoch
        elif isinstance(state, Withdrawing) and broker == state.joining:
            membership = WITHDRAWN
        elif isinstance(state, Shrinking) and broker in state.leaving:
            membership = LEAVING
        views.append(View(progress.log_end_offset, progress.broker_epoch, membership, joins_as))
    return Reign(leader.start_offset, leader.partition_epoch == _NEW_VERSION, tuple(views))


def is_settled(reign: Reign) -> bool:
    """Whether no change of the in-sync set is under way."""
    return all(view.membership in (OUT, MEMBER) for view in reign.views)


def proposed(reign: Reign) -> frozenset[int]:
    """The in-sync set that the leader wants."""
    return frozenset(n for n, v in enumerate(reign.views) if v.membership in (MEMBER, JOINING))


def maximal(reign: Reign) -> frozenset[int]:
    """Whom the leader may count as in sync."""
    return frozenset(n for n, v in enumerate(reign.views) if v.membership != OUT)
