"""How the topics look in which brokers keep state of their own."""

from __future__ import annotations

from strandline.cluster.controller.create_topics import TopicSpec
from strandline.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from strandline.config.broker import BrokerConfig


def internal_topic_spec(name: str, broker: BrokerConfig, *, broker_count: int) -> TopicSpec | None:
    """What to create when the internal topic is first needed, or None for any other topic.

    A small cluster gets as many replicas as it has brokers, unless the setting
    `offsets.topic.replication.factor`, or `transaction.state.log.replication.factor`, was made:
    then that many are insisted on.
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
