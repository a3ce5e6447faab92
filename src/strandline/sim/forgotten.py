"""Transactions that their coordinator has forgotten, and the end that an operator gives them.

The log of a coordinator may lose more records than acks=all survives (the profile `beyond`). A
transaction that only these records spoke of stays open in its partitions for good: their last
stable offset stands, and readers of committed records wait. Kafka has no other remedy than
`kafka-transactions --find-hanging` and `--abort`; here an operator does the same once all faults
are over. A coordinator may also have lost only that a transaction was decided: it waits for its
client, which has gone on, until `transaction.timeout.ms` has passed. The operator ends these as
well once clients have finished, or have tried to for long. Where no more is lost than may be, no
transaction is ended by this: one that hangs then breaks I-50.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from strandline.sim.plan import Action
from strandline.types import NO_OFFSET, ProducerEpoch, ProducerId, TopicPartition

if TYPE_CHECKING:
    from strandline.sim.world import World


class OpenTransaction(NamedTuple):
    """A transaction that a partition has seen no end of."""

    partition: TopicPartition
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int

    @property
    def abort_action(self) -> Action:
        """What an operator does to end it."""
        wishes = {
            "producer": str(self.producer_id),
            "epoch": str(self.producer_epoch),
            "coordinator": str(self.coordinator_epoch),
        }
        return Action(0, "abort-transaction", (str(self.partition),), wishes)


class TransactionOperator:
    """Ends transactions that hang."""

    def __init__(
        self,
        world: World,
        perform: Callable[[Action], object],
        passes_until: Callable[[Callable[[], bool], int], bool],
    ) -> None:
        """`passes_until` lets time pass until a condition holds, at most so many microseconds."""
        self._world = world
        self._perform = perform
        self._passes_until = passes_until

    def end_forgotten(self, within_us: int, then_us: int) -> None:
        """End what is forgotten, as soon as all coordinators can say what they know. What a client
        has begun just now is known to its coordinator, and to a partition, later: so it counts only
        if it is still there after `then_us`."""
        self._passes_until(lambda: forgotten_transactions(self._world) is not None, within_us)
        found = forgotten_transactions(self._world) or frozenset()
        self._passes_until(lambda: False, then_us)
        self._abort(found & (forgotten_transactions(self._world) or frozenset()))

    def end_open(self) -> None:
        """End all that is open now."""
        self._abort(open_transactions(self._world))

    def _abort(self, transactions: Iterable[OpenTransaction]) -> None:
        for each in sorted(transactions):
            self._perform(each.abort_action)


def forgotten_transactions(world: World) -> frozenset[OpenTransaction] | None:
    """Those of which no coordinator knows, in a world that has settled; None while a coordinator
    loads its state or ends transactions."""
    known: set[tuple[ProducerId, TopicPartition]] = set()
    for machine in world.machines.values():
        if not machine.is_up or not machine.node.transactions.is_used:
            continue
        host = machine.node.transactions.host
        if host.loading or host.is_deciding:
            return None
        for _, entry in host.open_transactions():
            transaction = entry.current
            known.update((transaction.producer_id, each) for each in transaction.partitions)
    return frozenset(
        each for each in open_transactions(world) if (each.producer_id, each.partition) not in known
    )


def open_transactions(world: World) -> Iterator[OpenTransaction]:
    """All of them, by what the leaders of partitions know."""
    for topic in world.image.topics.values():
        for number, state in topic.partitions.items():
            at = TopicPartition(topic.name, number)
            replica = None if state.leader is None else world.replica(state.leader, at)
            if replica is None:
                continue
            for producer in replica.log.producers.active.values():
                if producer.transaction_first_offset != NO_OFFSET:
                    yield OpenTransaction(
                        at, producer.producer_id, producer.epoch, producer.coordinator_epoch
                    )
