"""The subject `status`: everything about one broker at one moment, as one versioned document.

Its shape is declared in `document`; this file gathers it. A broker may have thousands of
partitions, so a question can be limited: to sums (`brief`), or to topics and partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from strandline import __version__
from strandline.node.inspection import Arguments, JsonObject
from strandline.node.inspection_arguments import (
    allow_only,
    flag,
    optional_integer,
    optional_texts,
)
from strandline.node.status import document
from strandline.node.status.broker_facts import (
    changes,
    controller,
    directories,
    errors,
    limits,
    live_brokers,
    parked,
    refusals,
    requests,
    totals,
    traffic,
)
from strandline.node.status.group_facts import group_facts
from strandline.node.status.replica_facts import partition_facts, replica_facts
from strandline.types import Instant, TopicPartition

if TYPE_CHECKING:
    from strandline.node.node import Node

Chosen = Callable[[TopicPartition], bool]


def status(node: Node, arguments: Arguments, now: Instant) -> JsonObject:
    """`brief`: no partitions, groups, changes and waiting requests. `topics`: only of these.
    `partition`: only of that number."""
    allow_only(arguments, ("brief", "topics", "partition"))
    topics = optional_texts(arguments, "topics")
    number = optional_integer(arguments, "partition")

    def chosen(at: TopicPartition) -> bool:
        return (topics is None or at.topic in topics) and number in (None, at.partition)

    encoded: JsonObject = document.as_json(
        snapshot(node, now, chosen, brief=flag(arguments, "brief"), in_detail=number is not None)
    )
    return encoded


def snapshot(
    node: Node, now: Instant, chosen: Chosen, *, brief: bool, in_detail: bool = False
) -> document.Status:
    """The document as a value."""
    image, membership = node.metadata.image, node.membership
    return document.Status(
        version=document.VERSION,
        software=__version__,
        broker=node.broker_id,
        broker_epoch=node.broker_epoch,
        registered=membership.is_registered,
        leaving=membership.is_leaving,
        wall_ms=now.wall_ms,
        cluster_id=image.cluster_id,
        metadata_version=image.zxid,
        controller=controller(node),
        brokers=live_brokers(node),
        totals=totals(node),
        log_directories=directories(node),
        limits=limits(node),
        requests=requests(node),
        errors=errors(node),
        traffic=traffic(node),
        partitions=[] if brief else _partitions(node, chosen),
        replicas=[] if brief else _replicas(node, now, chosen, in_detail=in_detail),
        changes=[] if brief else changes(node, chosen),
        parked=[] if brief else parked(node, now),
        groups=[] if brief else _groups(node),
        refusals=[] if brief else refusals(node, chosen),
    )


def _partitions(node: Node, chosen: Chosen) -> list[document.Partition]:
    return [
        partition_facts(at, topic.partitions[number], node.replicas.why_unavailable(at))
        for name, topic in sorted(node.metadata.image.topics.items())
        for number in sorted(topic.partitions)
        if chosen(at := TopicPartition(name, number))
    ]


def _replicas(
    node: Node, now: Instant, chosen: Chosen, *, in_detail: bool
) -> list[document.Replica]:
    hosted: Iterable[TopicPartition] = sorted(each.topic_partition for each in node.replicas)
    found = (node.replicas.find(at) for at in hosted if chosen(at))
    cleaning = node.background.cleaning
    return [
        replica_facts(replica, cleaning, now, in_detail=in_detail)
        for replica in found
        if replica is not None
    ]


def _groups(node: Node) -> list[document.Group]:
    if not node.routes.uses_groups:
        return []
    found = sorted(node.routes.groups.overviews(), key=lambda group: group.group_id)
    return [group_facts(group, node.replicas) for group in found]
