"""One state for all that differ in the names of the brokers only.

Brokers are sorted by what can be said of each without naming others; only those of which the same
is to be said are tried in every order. So most states are named once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, permutations, product
from typing import TypeAlias

from tests.sim.modelcheck.values import NO_REPLICA, OWN, Delayed, Table, World

Order: TypeAlias = tuple[int, ...]
"""For each new number, the old number of the broker."""


class Symmetry:
    """See the module."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._kinds: dict[int, int] = {}
        self._kind_numbers: dict[tuple[object, ...], int] = {}
        self._renamed: dict[tuple[int, Order], int] = {}

    def canonical(self, world: World) -> World:
        """The one state that stands for all with the same meaning."""
        orders = self._orders(world)
        first = next(orders)
        best = self.in_order(world, first)
        for order in orders:
            best = min(best, self.in_order(world, order))
        return best

    def _orders(self, world: World) -> Iterator[Order]:
        kinds = []
        for number, at in enumerate(world.replicas):
            kind = self._kinds.get(at)
            if kind is None:
                kind = self._kinds[at] = self._kind(at)
            led = tuple(e for e, leader in enumerate(world.leaders) if leader == number)
            kinds.append(((kind, led), number))
        kinds.sort()
        groups = [
            [number for _, number in group] for _, group in groupby(kinds, key=lambda each: each[0])
        ]
        if len(groups) == len(kinds):
            yield tuple(group[0] for group in groups)
            return
        for choice in product(*(permutations(group) for group in groups)):
            yield tuple(number for group in choice for number in group)

    def _kind(self, at: int) -> int:
        replica = self._table.all[at]
        reign = tuple(
            (each.start, each.is_current, tuple(sorted(each.views))) for each in replica.reign
        )
        return self._kind_numbers.setdefault(
            replica._replace(reign=reign),  # type: ignore[arg-type]  # a key, not a replica
            len(self._kind_numbers),
        )

    def in_order(self, world: World, order: Order) -> World:
        """The same state when the broker of that old number has each new one."""
        if order == tuple(range(len(order))):
            return world
        new = {old: number for number, old in enumerate(order)}
        new[NO_REPLICA] = NO_REPLICA
        return world._replace(
            replicas=tuple(self._rename(world.replicas[old], order) for old in order),
            leaders=tuple(new[leader] for leader in world.leaders),
            delayed=tuple(sorted(_renamed(each, new, order) for each in world.delayed)),
        )

    def _rename(self, at: int, order: Order) -> int:
        key = (at, order)
        found = self._renamed.get(key)
        if found is None:
            replica = self._table.all[at]
            if replica.reign:
                (reign,) = replica.reign
                views = tuple(reign.views[old] for old in order)
                replica = replica._replace(reign=(reign._replace(views=views),))
            found = self._renamed[key] = self._table.number(replica)
        return found


def _renamed(request: Delayed, new: dict[int, int], order: Order) -> Delayed:
    return request._replace(
        sender=new[request.sender],
        receiver=new[request.receiver],
        members=tuple(sorted((new[member], life) for member, life in request.members)),
        registrations=tuple(request.registrations[old] for old in order if request.registrations),
    )


__all__ = ["OWN", "Order", "Symmetry"]
