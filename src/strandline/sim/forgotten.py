"""Transactions that their coordinator has forgotten, and the end that an operator gives them.

The log of a coordinator may lose more records than acks=all survives (the profile `beyond`). A
transaction that only these records spoke of stays open in its partitions for good: their last
stable offset stands, and readers of committed records wait. Kafka has no other remedy than
`kafka-transactions --find-hanging` and `--abort`; here an operator does the same once all faults
are over. Where no more is lost than may be, no transaction is ended by this: one that hangs then
breaks I-50.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from strandline.types import NO_OFFSET, ProducerEpoch, ProducerId, TopicPartition

if TYPE_CHECKING:
    from strandline.sim.world import World


class Forgotten(NamedTuple):
    """An open transaction of which no coordinator knows."""

    partition: TopicPartition
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int


def forgotten_transactions(world: World) -> frozenset[Forgotten] | None:
    """All of them, in a world that has settled; None while a coordinator loads its state or ends
    transactions."""
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
        each
        for each in _open_transactions(world)
        if (each.producer_id, each.partition) not in known
    )


def _open_transactions(world: World) -> Iterator[Forgotten]:
    for topic in world.image.topics.values():
        for number, state in topic.partitions.items():
            at = TopicPartition(topic.name, number)
            replica = None if state.leader is None else world.replica(state.leader, at)
            if replica is None:
                continue
            for producer in replica.log.producers.active.values():
                if producer.transaction_first_offset != NO_OFFSET:
                    yield Forgotten(
                        at, producer.producer_id, producer.epoch, producer.coordinator_epoch
                    )
