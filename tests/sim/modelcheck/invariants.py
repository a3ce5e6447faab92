"""What must hold in every state; the numbers are those of the specification.

What compares two replicas is worked out once for each two of their states. Once an election has
happened after which records may be gone, only what must hold even then is checked.
"""

from __future__ import annotations

from itertools import combinations

from tests.sim.modelcheck.leading import maximal
from tests.sim.modelcheck.rules import Bounds
from tests.sim.modelcheck.steps import Broken
from tests.sim.modelcheck.values import NO_REPLICA, UNTOLD, Replica, Table, World


class Invariants:
    """See the module."""

    def __init__(self, bounds: Bounds, table: Table) -> None:
        self._bounds = bounds
        self._table = table
        self._alone: dict[int, tuple[Broken, ...]] = {}
        self._pairs: dict[tuple[int, int], tuple[Broken, ...]] = {}

    def broken(self, world: World) -> tuple[Broken, ...]:
        """What does not hold in a state."""
        found: tuple[Broken, ...] = ()
        numbers = world.replicas
        for number in numbers:
            alone = self._alone.get(number)
            if alone is None:
                alone = self._alone[number] = _check_alone(self._table.all[number])
            found += alone
        for one, other in combinations(numbers, 2):
            pair = (one, other)
            matching = self._pairs.get(pair)
            if matching is None:
                matching = self._pairs[pair] = _check_pair(*map(self._replica, pair))
            found += matching
        replicas = [self._table.all[number] for number in numbers]
        if not world.may_lose:
            found += _check_safe(world, replicas)
        return found + self._check_members(world, replicas)

    def _replica(self, number: int) -> Replica:
        return self._table.all[number]

    def _check_members(self, world: World, replicas: list[Replica]) -> tuple[Broken, ...]:
        in_sync = [replica for replica in replicas if replica.is_in_sync]
        found: tuple[Broken, ...] = ()
        leader = world.leaders[-1]
        if leader != NO_REPLICA and not replicas[leader].is_in_sync:
            found += (Broken("I-12", f"leader {leader} is not in sync"),)
        if not any(each.is_in_sync or each.is_eligible or each.was_complete for each in replicas):
            found += (Broken("I-12", "no replica is in sync or eligible, or was so"),)
        minimum = min(self._bounds.min_in_sync, len(replicas))
        if any(replica.is_eligible for replica in replicas) and len(in_sync) >= minimum:
            found += (Broken("I-31", "there are eligible replicas beside enough in sync"),)
        if any(replica.is_eligible and replica.is_in_sync for replica in replicas):
            found += (Broken("I-31", "a replica is in sync and eligible"),)
        return found


def _check_alone(replica: Replica) -> tuple[Broken, ...]:
    """I-01, I-03: one replica by itself."""
    end = len(replica.log)
    if not 0 <= replica.mark <= end:
        return (Broken("I-01", f"high watermark {replica.mark} of {end} records"),)
    if list(replica.log) != sorted(replica.log):
        return (Broken("I-03", f"epochs out of order: {replica.log}"),)
    if replica.epoch != UNTOLD and replica.log and replica.log[-1] > replica.epoch:
        return (Broken("I-03", f"{replica.log} has an epoch that was not told yet"),)
    expected = tuple(
        (epoch, offset)
        for offset, epoch in enumerate(replica.log)
        if offset == 0 or replica.log[offset - 1] != epoch
    )
    entries = replica.entries
    if entries and entries[-1][1] >= end:
        entries = entries[:-1]
    if entries != expected:
        return (Broken("I-03", f"table {replica.entries} for {replica.log}"),)
    return ()


def _check_pair(one: Replica, other: Replica) -> tuple[Broken, ...]:
    """I-21 and I-22: the logs of two replicas."""
    same = True
    for offset, (epoch, its) in enumerate(zip(one.log, other.log, strict=False)):
        if epoch == its and not same:
            return (Broken("I-21", f"{one.log} and {other.log} agree again at {offset}"),)
        same = same and epoch == its
    return ()


def _check_safe(world: World, replicas: list[Replica]) -> tuple[Broken, ...]:
    """What holds as long as nothing committed may be lost."""
    found: tuple[Broken, ...] = ()
    committed = world.committed
    length = len(committed)
    epoch = len(world.leaders) - 1
    for me, replica in enumerate(replicas):
        is_present = replica.is_up and replica.is_registered and replica.recorded == replica.life
        has_all = replica.log[:length] == committed
        if replica.log[: min(replica.mark, length)] != committed[: replica.mark]:
            found += (Broken("I-22", f"{me} calls {replica.log[: replica.mark]} committed"),)
        if replica.reign and replica.epoch == epoch and not has_all:
            found += (Broken("I-23", f"{me} leads without the committed {committed}"),)
        if replica.is_eligible and is_present and not has_all:
            found += (Broken("I-32", f"{me} is eligible without the committed {committed}"),)
        if replica.reign:
            found += _check_leader(me, replica, replicas, is_newest=replica.epoch == epoch)
    return found


def _check_leader(
    me: int, replica: Replica, replicas: list[Replica], *, is_newest: bool
) -> tuple[Broken, ...]:
    (reign,) = replica.reign
    below = replica.log[: replica.mark]
    counted = maximal(reign)
    for other, each in enumerate(replicas):
        is_present = each.is_up and each.is_registered and each.recorded == each.life
        if each.is_in_sync and is_present and each.log[: replica.mark] != below:
            return (Broken("I-14", f"{other} is in sync and lacks some of {below} of {me}"),)
        if is_newest and each.is_in_sync and other not in counted:
            return (Broken("I-13", f"{me} does not count {other}, who is in sync"),)
        view = reign.views[other]
        is_known = other != me and view.life == each.life and each.epoch == replica.epoch
        if is_known and view.end > len(each.log):
            return (Broken("I-15", f"{me} believes that {other} has {view.end} records"),)
    return ()
