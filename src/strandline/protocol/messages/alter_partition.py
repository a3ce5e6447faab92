"""AlterPartition: a leader asks the controller to change its in-sync replicas (KIP-497).

Between brokers only. From version 3 each proposed member comes with the epoch of its broker's
registration, so that a member which restarted meanwhile is not taken for the one that was in sync
(KIP-903).
"""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    INT32,
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    structure,
    uuid,
)


@structure
class BrokerState:
    """A proposed member and the epoch of its registration, -1 for "do not check"."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


@structure
class PartitionData:
    """The wish for one partition, and the epochs under which its leader wishes it."""

    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(INT32, "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


@structure
class TopicData:
    """Partitions of one topic."""

    topic_id: UUID = uuid(ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


@message("2-3", flexible="0+")
class AlterPartitionRequest:
    """The in-sync replicas that one leader wishes for its partitions."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[TopicData] = array(TopicData)


@structure
class AlteredPartitionData:
    """What the controller has decided, or why it did not."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(INT32)
    leader_recovery_state: int = int8(ignorable=True)
    partition_epoch: int = int32()


@structure
class AlteredTopicData:
    """Partitions of one topic."""

    topic_id: UUID = uuid(ignorable=True)
    partitions: list[AlteredPartitionData] = array(AlteredPartitionData)


@message("2-3", flexible="0+")
class AlterPartitionResponse:
    """Outcome per partition, unless the whole request was refused."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlteredTopicData] = array(AlteredTopicData)
