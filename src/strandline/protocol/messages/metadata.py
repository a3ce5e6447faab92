"""Metadata: brokers, topics, partitions and who leads them.

A null list of topics asks for all of them; version 0 says the same with an empty one.
"""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    INT32,
    array,
    boolean,
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
class MetadataRequestTopic:
    """One topic, by name or from version 10 by id."""

    topic_id: UUID = uuid("10+", ignorable=True)
    name: str | None = nullable_string(nullable="10+")


@message("0-13", flexible="9+")
class MetadataRequest:
    """The topics to describe; null for all."""

    topics: list[MetadataRequestTopic] | None = nullable_array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@structure
class MetadataResponseBroker:
    """A live broker."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string("1+", default=None, ignorable=True)


@structure
class MetadataResponsePartition:
    """Leader and replicas of one partition."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(INT32)
    isr_nodes: list[int] = array(INT32)
    offline_replicas: list[int] = array(INT32, "5+", ignorable=True)


@structure
class MetadataResponseTopic:
    """One topic with its partitions."""

    error_code: int = int16()
    name: str | None = nullable_string(nullable="12+")
    topic_id: UUID = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-0x8000_0000)


@message("0-13", flexible="9+")
class MetadataResponse:
    """The cluster as this broker sees it."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = nullable_string("2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-0x8000_0000)
    error_code: int = int16("13+", ignorable=True)
