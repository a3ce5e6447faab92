"""The subject `status`: everything about one broker at one moment, as one versioned document.

Its shape is declared in `document`; this file gathers it. A broker may have thousands of
partitions, so a question can be limited: to sums (`brief`), or to topics and partitions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from strandline.cluster.image import ClusterImage
from strandline.node.group_access import GroupAccess
from strandline.node.inspection import Arguments, JsonObject
from strandline.node.inspection_arguments import (
    allow_only,
    flag,
    optional_integer,
    optional_texts,
)
from strandline.node.parts import NodeParts
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.status import document
from strandline.node.status.broker_facts import (
    authentications,
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
from strandline.node.status.facts import as_json
from strandline.node.status.group_facts import group_facts
from strandline.node.status.replica_facts import partition_facts, replica_facts
from strandline.node.transaction_access import TransactionAccess
from strandline.records._kernels import missing
from strandline.types import Instant, TopicPartition
from strandline.version import VERSION


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question is limited to; None means that it is not."""

    topics: Collection[str] | None
    number: int | None

    def includes(self, at: TopicPartition) -> bool:
        """Whether a partition was asked about."""
        return (self.topics is None or at.topic in self.topics) and self.number in (
            None,
            at.partition,
        )


def status(node: NodeParts, arguments: Arguments, now: Instant) -> JsonObject:
    """`brief`: no partitions, groups, changes and waiting requests. `topics`: only of these.
    `partition`: only of that number."""
    allow_only(arguments, ("brief", "topics", "partition"))
    asked = Asked(optional_texts(arguments, "topics"), optional_integer(arguments, "partition"))
    encoded: JsonObject = as_json(snapshot(node, now, asked, brief=flag(arguments, "brief")))
    return encoded


def snapshot(node: NodeParts, now: Instant, asked: Asked, *, brief: bool) -> document.Status:
    """The document as a value."""
    image, membership, replicas = node.metadata.image, node.membership, node.replicas
    history, refused = node.telemetry.history, node.telemetry.refusals
    return document.Status(
        version=document.VERSION,
        software=VERSION,
        kernels_missing=missing(),
        broker=node.broker_id,
        broker_epoch=membership.broker_epoch,
        registered=membership.is_registered,
        leaving=membership.is_leaving,
        wall_ms=now.wall_ms,
        cluster_id=image.cluster_id,
        metadata_version=image.zxid,
        controller=controller(node.metadata, node.controller_loop, history),
        brokers=live_brokers(image),
        totals=totals(image, replicas, history, node.purgatory),
        log_directories=directories(replicas, node.background.moves),
        limits=limits(node.settings),
        handles=None if node.handle_use is None else node.handle_use(),
        event_loop=None if node.loop_use is None else node.loop_use(),
        requests=requests(node.telemetry),
        errors=errors(refused),
        authentications=authentications(node.authentication.attempts),
        certificates=[] if node.certificates is None else node.certificates(),
        traffic=traffic(replicas),
        partitions=[] if brief else _partitions(image, replicas, asked),
        replicas=[] if brief else _replicas(node, now, asked),
        changes=[] if brief else changes(history, asked.includes),
        parked=[] if brief else parked(node.purgatory, now),
        groups=[] if brief else _groups(node.groups, replicas),
        transactions=[] if brief else _transactions(node.transactions),
        refusals=[] if brief else refusals(refused, asked.includes),
    )


def _partitions(image: ClusterImage, replicas: Replicas, asked: Asked) -> list[document.Partition]:
    delayed = frozenset(replicas.delayed)
    return [
        partition_facts(at, partition, replicas.why_unavailable(at), delayed=at in delayed)
        for at, partition in image.chosen(asked.topics, asked.number)
    ]


def _replicas(node: NodeParts, now: Instant, asked: Asked) -> list[document.Replica]:
    cleaning = node.background.cleaning
    return [
        replica_facts(replica, cleaning, now, in_detail=asked.number is not None)
        for replica in _hosted(node.metadata.image, node.replicas, asked)
    ]


def _hosted(image: ClusterImage, replicas: Replicas, asked: Asked) -> list[Replica]:
    """In order. Of one topic they are looked up: there may be thousands of others."""
    if asked.topics is None:
        found = [each for each in replicas if asked.includes(each.topic_partition)]
        return sorted(found, key=lambda each: each.topic_partition)
    places = (at for at, _ in image.chosen(asked.topics, asked.number))
    return [replica for at in places if (replica := replicas.find(at)) is not None]


def _transactions(transactions: TransactionAccess) -> list[document.OpenTransaction]:
    if not transactions.is_used:
        return []
    return [
        document.OpenTransaction(
            transactional_id=entry.transactional_id,
            state=entry.current.state.label,
            since_wall_ms=entry.current.started_ms,
            timeout_ms=entry.current.timeout_ms,
            producer_id=entry.current.producer_id,
            producer_epoch=entry.current.producer_epoch,
            coordinator_partition=partition,
            partitions=[f"{at.topic}/{at.partition}" for at in sorted(entry.current.partitions)],
        )
        for partition, entry in transactions.host.open_transactions()
    ]


def _groups(groups: GroupAccess, replicas: Replicas) -> list[document.Group]:
    if not groups.is_used:
        return []
    found = sorted(groups.host.overviews(), key=lambda group: group.group_id)
    return [group_facts(group, replicas) for group in found]
