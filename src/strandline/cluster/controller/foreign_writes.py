"""What another program has done to the logs of a broker that is alone, such as Kafka.

A directory that Kafka wrote is served here, goes back to Kafka, and may come again. Two things that
only metadata say then have to be beyond what the logs know already:

- *leader epochs*: a batch of an earlier epoch behind one of a later epoch makes truncation go
  wrong, and markers of a coordinator with an earlier epoch are refused;
- *producer ids*: an id that is given out again is taken for the producer that had it. Its first
  batch may look like one that is known, and is answered as a duplicate without being written.

Ids from here on leave room for those that Kafka gives out when the directory is back there, since
Kafka's metadata log hears of nothing that happens here. Version 0.1.0 left none: where its counter
is found beside such a log, room is left later.

A broker in a cluster never does this: there the metadata are what all logs are held against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from strandline.cluster.controller.adoption import FoundPartition
from strandline.cluster.controller.decision import fenced
from strandline.cluster.controller.state_writes import StateWrites
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Create, Operation, SetData
from strandline.cluster.znodes import ProducerIdBlockNode
from strandline.cluster.znodes.singles import PRODUCER_ID_BLOCK_SIZE
from strandline.types import BrokerId, LeaderEpoch

PRODUCER_IDS_LEFT: Final = 1_000_000_000
"""So many ids stay free for the program that has written the logs."""


def catch_up(
    image: ClusterImage,
    found: Sequence[FoundPartition],
    broker_id: BrokerId,
    next_id_of_logs: int,
    next_id_of_kafka: int | None = None,
) -> tuple[Operation, ...]:
    """The writes that make the metadata go on behind what the logs know, and behind Kafka's
    metadata log if there is one. Nothing where no other program has written.

    `next_id_of_logs` is larger than every producer id that a log knows.
    """
    states = StateWrites(image)
    for log in found:
        topic = image.topics.get(log.partition.topic)
        state = None if topic is None else topic.partitions.get(log.partition.partition)
        if state is None or state.replicas != (broker_id,) or state.partition_epoch < 0:
            continue
        if log.latest_epoch > state.leader_epoch:
            after = LeaderEpoch(log.latest_epoch + 1)
            states.put(log.partition, replace(state, leader_epoch=after))
    given = _given_out(image)
    needs_room = next_id_of_kafka is not None and has_no_room(image)
    ids: list[Operation] = []
    if needs_room or next_id_of_logs > given:
        used = max(next_id_of_logs, next_id_of_kafka or 0, given)
        ids = [_block_behind(image, broker_id, used)]
    return (*states.operations(), *ids) if states.count else fenced(image, ids)


def has_no_room(image: ClusterImage) -> bool:
    """Whether Kafka may come to give out ids that were given out here."""
    return _given_out(image) < PRODUCER_IDS_LEFT


def _given_out(image: ClusterImage) -> int:
    """All ids below."""
    stored = image.producer_id_block
    return 0 if stored is None or stored.value is None else stored.value.last + 1


def _block_behind(image: ClusterImage, broker_id: BrokerId, used: int) -> Operation:
    last = used + PRODUCER_IDS_LEFT - 1
    data = ProducerIdBlockNode(broker_id, last + 1 - PRODUCER_ID_BLOCK_SIZE, last).encode()
    stored = image.producer_id_block
    if stored is None:
        return Create(ProducerIdBlockNode.path, data)
    return SetData(ProducerIdBlockNode.path, data, stored.version)
