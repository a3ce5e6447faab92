"""The subject `picture`: the offsets of every replica of this broker, as short lists.

Pages ask for it twice a second, also of brokers with thousands of partitions. Therefore it has no
names but the one list of `COLUMNS`, and only what moves; all else is in the subject `status`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.cluster.image import PartitionImage
from strandline.node.inspection import Arguments, JsonObject
from strandline.node.inspection_arguments import allow_only
from strandline.types import Instant, TopicPartition

if TYPE_CHECKING:
    from strandline.node.node import Node

VERSION: Final = 1
EPOCHS_MAX: Final = 16
"""So many of the newest leader epochs of a log are told."""

COLUMNS: Final = (
    "topic",
    "partition",
    "leader",
    "leader_epoch",
    "log_start_offset",
    "high_watermark",
    "last_stable_offset",
    "log_end_offset",
    "epochs",
    "in_sync",
    "replicas",
    "is_offline",
    "reason",
)

Row = list[object]


def picture(node: Node, arguments: Arguments, now: Instant) -> JsonObject:
    """One row for each partition that this broker is to have a replica of."""
    allow_only(arguments, ())
    image = node.metadata.image
    return {
        "version": VERSION,
        "broker": node.broker_id,
        "wall_ms": now.wall_ms,
        "controller": image.controller,
        "brokers": [
            [broker_id, *each.endpoints[0][1:3], each.rack, each.is_shutting_down]
            for broker_id, each in sorted(image.brokers.items())
            if each.endpoints
        ],
        "totals": _totals(node),
        "columns": list(COLUMNS),
        "rows": [
            _row(node, TopicPartition(name, number), partition)
            for name, topic in image.topics.items()
            for number, partition in topic.partitions.items()
            if node.broker_id in partition.replicas
        ],
    }


def _totals(node: Node) -> dict[str, int]:
    records_in = bytes_in = bytes_out = 0
    for replica in node.replicas:
        records_in += replica.traffic.records_in
        bytes_in += replica.traffic.bytes_in
        bytes_out += replica.traffic.bytes_out
    return {"records_in": records_in, "bytes_in": bytes_in, "bytes_out": bytes_out}


def _row(node: Node, at: TopicPartition, partition: PartitionImage) -> Row:
    head: Row = [*at, partition.leader, partition.leader_epoch]
    replica = node.replicas.find(at)
    if replica is None:
        reason = node.replicas.why_unavailable(at) or "The replica is not open yet."
        return [*head, None, None, None, None, [], None, list(partition.replicas), True, reason]
    log, leader = replica.log, replica.leader
    newest = log.leader_epochs.entries[-EPOCHS_MAX:]
    return [
        *head,
        log.log_start_offset,
        log.high_watermark,
        log.last_stable_offset,
        log.log_end_offset,
        [[entry.epoch, entry.start_offset] for entry in newest],
        None if leader is None else sorted(leader.in_sync.members),
        list(partition.replicas),
        log.failure is not None,
        log.failure,
    ]
