"""The subject `picture`: the offsets of every replica of this broker, as short lists.

Pages ask for it twice a second, also of brokers with thousands of partitions. Therefore it has no
names but the one list of `COLUMNS`, and only what moves; all else is in the subject `status`. And
it can be asked for in pieces, in the order of topics and partitions, so that no look holds the
broker longer than it takes to write down `limit` rows:

    first look     limit=250                          rows 1 to 250, next ["orders", 49]
    second look    limit=250, after=["orders", 49]    rows 251 to 500, ...
    last one       limit=250, after=["views", 99]     the rest, next null

Partitions that a page shows are named in `partitions` and told in every look, as
`asked`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import Final

from strandline.cluster.image import ClusterImage, PartitionImage
from strandline.node.inspection import Arguments, JsonObject
from strandline.node.inspection_arguments import (
    allow_only,
    optional_count,
    optional_partition,
    partitions,
)
from strandline.node.parts import NodeParts
from strandline.node.replicas import Replicas
from strandline.node.status.meters import ApiMeter, Meters
from strandline.protocol.apis import ApiKey
from strandline.types import BrokerId, Instant, TopicPartition

VERSION: Final = 3
EPOCHS_MAX: Final = 16
"""So many of the newest leader epochs of a log are told."""
ASKED_MAX: Final = 64
"""So many partitions can be asked for by name."""

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
    "size_bytes",
)

Row = list[object]


def picture(node: NodeParts, arguments: Arguments, now: Instant) -> JsonObject:
    """One row for each partition that this broker is to have a replica of. `limit`: at most so
    many. `after` (topic and partition): those that come after it. `partitions` (topics and
    partitions): told as `asked`, wherever they stand."""
    allow_only(arguments, ("limit", "after", "partitions"))
    limit = optional_count(arguments, "limit")
    asked = partitions(arguments, "partitions", at_most=ASKED_MAX)
    image = node.metadata.image
    found = _behind(image, node.broker_id, optional_partition(arguments, "after"))
    piece = list(islice(found, limit))
    is_last = next(found, None) is None
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
        "totals": _totals(node.replicas),
        "produce": _produce_times(node.telemetry.settled_meters()),
        "columns": list(COLUMNS),
        "rows": [_row(node.replicas, at, partition) for at, partition in piece],
        "next": None if is_last else piece[-1][0],
        "asked": [
            _row(node.replicas, at, partition)
            for at in asked
            if (partition := image.partition(at)) is not None
            and node.broker_id in partition.replicas
        ],
    }


def _behind(
    image: ClusterImage, broker_id: BrokerId, after: TopicPartition | None
) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    """The partitions of this broker that come after one, in order."""
    topics = image.topics
    names = sorted(topics)
    for name in names[0 if after is None else bisect_left(names, after.topic) :]:
        for number, partition in sorted(topics[name].partitions.items()):
            at = TopicPartition(name, number)
            if broker_id in partition.replicas and (after is None or at > after):
                yield at, partition


def _totals(replicas: Replicas) -> dict[str, int]:
    records_in = bytes_in = bytes_out = 0
    for replica in replicas:
        records_in += replica.traffic.records_in
        bytes_in += replica.traffic.bytes_in
        bytes_out += replica.traffic.bytes_out
    return {"records_in": records_in, "bytes_in": bytes_in, "bytes_out": bytes_out}


def _produce_times(meters: Meters) -> list[int]:
    """How many produce requests were answered since the start, then in each of the buckets of
    `meters.BUCKETS_MS`, the last of which is open."""
    meter = meters.apis.get(ApiKey.PRODUCE.name) or ApiMeter()
    return [meter.count, *meter.buckets]


def _row(replicas: Replicas, at: TopicPartition, partition: PartitionImage) -> Row:
    head: Row = [*at, partition.leader, partition.leader_epoch]
    replica = replicas.find(at)
    if replica is None:
        reason = replicas.why_unavailable(at) or "The replica is not open yet."
        return [*head, None, None, None, None, [], None, list(partition.replicas), True, reason, 0]
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
        log.size_bytes,
    ]
