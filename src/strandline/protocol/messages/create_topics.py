"""CreateTopics: make topics, or only check whether they could be made."""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    INT32,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    nullable_array,
    nullable_string,
    string,
    structure,
    uuid,
)


@structure
class CreatableReplicaAssignment:
    """The brokers of one partition, chosen by hand."""

    partition_index: int = int32()
    broker_ids: list[int] = array(INT32)


@structure
class CreatableTopicConfig:
    """A setting of the new topic."""

    name: str = string()
    value: str | None = nullable_string()


@structure
class CreatableTopic:
    """A topic to make; -1 partitions or replicas ask for the broker's default (KIP-464)."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@message("2-7", flexible="5+")
class CreateTopicsRequest:
    """The topics to make."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60_000)
    validate_only: bool = boolean()


@structure
class CreatableTopicConfigs:
    """A setting that the new topic has."""

    name: str = string()
    value: str | None = nullable_string()
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


@structure
class CreatableTopicResult:
    """Outcome for one topic. Without permission to see its settings they are null."""

    name: str = string()
    topic_id: UUID = uuid("7+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = nullable_string()
    topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = nullable_array(
        CreatableTopicConfigs, "5+", ignorable=True
    )


@message("2-7", flexible="5+")
class CreateTopicsResponse:
    """Outcome per topic."""

    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
