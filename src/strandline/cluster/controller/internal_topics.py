"""How the topics look in which brokers keep state of their own."""

from __future__ import annotations

from dataclasses import replace

from strandline.cluster.controller.create_topics import USE_DEFAULT, TopicSpec
from strandline.cluster.topic_names import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from strandline.config.broker import BrokerConfig


def internal_topic_spec(name: str, broker: BrokerConfig, *, broker_count: int) -> TopicSpec | None:
    """What to create when the internal topic is first needed, or None for any other topic.

    A small cluster gets as many replicas as it has brokers, unless the setting
    `offsets.topic.replication.factor`, `transaction.state.log.replication.factor` or
    `share.coordinator.state.topic.replication.factor` was made: then that many are insisted on.
    """
    if name == TRANSACTION_STATE:
        return TopicSpec(
            name,
            partition_count=broker.transaction_state_log_num_partitions,
            replication_factor=broker.transaction_topic_replicas(broker_count),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(broker.transaction_topic_min_in_sync(broker_count)),
                "segment.bytes": str(broker.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_GROUP_STATE:
        return TopicSpec(
            name,
            partition_count=broker.share_coordinator_state_topic_num_partitions,
            replication_factor=broker.share_topic_replicas(broker_count),
            configs={
                # The coordinator itself deletes what newer snapshots stand for.
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(broker.share_topic_min_in_sync(broker_count)),
                "retention.ms": "-1",
                "segment.bytes": str(broker.share_coordinator_state_topic_segment_bytes),
            },
        )
    if name != CONSUMER_OFFSETS:
        return None
    return TopicSpec(
        name,
        partition_count=broker.offsets_topic_num_partitions,
        replication_factor=broker.offsets_topic_replicas(broker_count),
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(broker.offsets_topic_segment_bytes),
        },
    )


def as_brokers_make_it(spec: TopicSpec, broker: BrokerConfig, *, broker_count: int) -> TopicSpec:
    """The topic that is wanted; if it is an internal one, with what brokers would give it where
    nothing else is asked for."""
    factor = len(spec.assignments[0][1]) if spec.assignments else spec.replication_factor
    size = broker_count if factor == USE_DEFAULT else factor
    own = internal_topic_spec(spec.name, broker, broker_count=size)
    if own is None:
        return spec
    wanted = replace(spec, configs={**own.configs, **spec.configs})
    if spec.assignments:
        return wanted
    if spec.partition_count == USE_DEFAULT:
        wanted = replace(wanted, partition_count=own.partition_count)
    if factor == USE_DEFAULT:
        wanted = replace(wanted, replication_factor=own.replication_factor)
    return wanted
