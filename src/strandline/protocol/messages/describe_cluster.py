"""DescribeCluster: brokers and controller, without any topics (KIP-700)."""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    nullable_string,
    string,
    structure,
)


@message("0-2", flexible="0+")
class DescribeClusterRequest:
    """Asks brokers (endpoint type 1) or controllers (2)."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


@structure
class DescribeClusterBroker:
    """One broker."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string(default=None)
    is_fenced: bool = boolean("2+")


@message("0-2", flexible="0+")
class DescribeClusterResponse:
    """The cluster."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-0x8000_0000)
