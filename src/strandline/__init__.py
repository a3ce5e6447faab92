"""Strandline: a replicated commit log in Python that speaks the Kafka wire protocol.

    import strandline

    with strandline.Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=3)
        with strandline.Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            producer.send("orders", b"one more")

What `__all__` names is the public interface, documented in docs/api.md; everything else in this
package is private and may change with any release.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from strandline.version import VERSION

if TYPE_CHECKING:
    from strandline.client.admin_acls import Acl
    from strandline.client.admin_cluster import ClusterDescription
    from strandline.client.admin_groups import GroupDescription, GroupListing, GroupMember
    from strandline.client.admin_share_groups import ShareGroupOffset
    from strandline.client.admin_tokens import DelegationToken
    from strandline.client.aio.admin import AsyncAdmin
    from strandline.client.aio.consumer import AsyncConsumer
    from strandline.client.aio.producer import AsyncProducer
    from strandline.client.aio.share_consumer import AsyncShareConsumer
    from strandline.client.api.admin import Admin
    from strandline.client.api.consumer import Consumer, ConsumerRecord
    from strandline.client.api.producer import Producer
    from strandline.client.api.share_consumer import ShareConsumer
    from strandline.client.delivery import Delivery, FailedRecords, FlushResult
    from strandline.client.group_requests import Membership
    from strandline.client.metadata import BrokerInfo, PartitionInfo, TopicInfo
    from strandline.client.share_group.acknowledgements import ShareRecord
    from strandline.errors import (
        AuthenticationFailed,
        ErrorCode,
        InvalidSetting,
        ProducerFailed,
        ProtocolError,
        StrandlineError,
        TransactionFailed,
    )
    from strandline.lakehouse.pipeline.errors import PipelineError
    from strandline.lakehouse.pipeline.events import Committed, Notice, Started, Stopped
    from strandline.lakehouse.results.sink import TableSink
    from strandline.lakehouse.sink.transactional import TopicSink
    from strandline.lakehouse.spark_options import SparkOptions
    from strandline.lakehouse.table import Table, open_table
    from strandline.lakehouse.tables.definition import TableSpec, parse_partitioning
    from strandline.lakehouse.tables.errors import TableError
    from strandline.testing.async_cluster import AsyncCluster
    from strandline.testing.cluster import Cluster
    from strandline.testing.control import ClusterError
    from strandline.types import TopicPartition

__version__: Final = VERSION

__all__ = [
    "__version__",
    # brokers
    "AsyncCluster",
    "Cluster",
    "ClusterError",
    # clients
    "Acl",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncShareConsumer",
    "BrokerInfo",
    "ClusterDescription",
    "Consumer",
    "ConsumerRecord",
    "DelegationToken",
    "Delivery",
    "FailedRecords",
    "FlushResult",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "Membership",
    "PartitionInfo",
    "Producer",
    "ShareConsumer",
    "ShareGroupOffset",
    "ShareRecord",
    "TopicInfo",
    "TopicPartition",
    # tables
    "Committed",
    "Notice",
    "PipelineError",
    "SparkOptions",
    "Started",
    "Stopped",
    "Table",
    "TableError",
    "TableSink",
    "TableSpec",
    "TopicSink",
    "open_table",
    "parse_partitioning",
    # errors
    "AuthenticationFailed",
    "ErrorCode",
    "InvalidSetting",
    "ProducerFailed",
    "ProtocolError",
    "StrandlineError",
    "TransactionFailed",
]

_MODULES: Final = {
    "AsyncCluster": "testing.async_cluster",
    "Cluster": "testing.cluster",
    "ClusterError": "testing.control",
    "Acl": "client.admin_acls",
    "Admin": "client.api.admin",
    "AsyncAdmin": "client.aio.admin",
    "AsyncConsumer": "client.aio.consumer",
    "AsyncProducer": "client.aio.producer",
    "AsyncShareConsumer": "client.aio.share_consumer",
    "BrokerInfo": "client.metadata",
    "ClusterDescription": "client.admin_cluster",
    "Consumer": "client.api.consumer",
    "ConsumerRecord": "client.api.consumer",
    "DelegationToken": "client.admin_tokens",
    "Delivery": "client.delivery",
    "FailedRecords": "client.delivery",
    "FlushResult": "client.delivery",
    "GroupDescription": "client.admin_groups",
    "GroupListing": "client.admin_groups",
    "GroupMember": "client.admin_groups",
    "Membership": "client.group_requests",
    "PartitionInfo": "client.metadata",
    "Producer": "client.api.producer",
    "ShareConsumer": "client.api.share_consumer",
    "ShareGroupOffset": "client.admin_share_groups",
    "ShareRecord": "client.share_group.acknowledgements",
    "TopicInfo": "client.metadata",
    "TopicPartition": "types",
    "Committed": "lakehouse.pipeline.events",
    "Notice": "lakehouse.pipeline.events",
    "PipelineError": "lakehouse.pipeline.errors",
    "SparkOptions": "lakehouse.spark_options",
    "Started": "lakehouse.pipeline.events",
    "Stopped": "lakehouse.pipeline.events",
    "Table": "lakehouse.table",
    "TableError": "lakehouse.tables.errors",
    "TableSink": "lakehouse.results.sink",
    "TableSpec": "lakehouse.tables.spec",
    "TopicSink": "lakehouse.sink.transactional",
    "open_table": "lakehouse.table",
    "parse_partitioning": "lakehouse.tables.spec",
    "AuthenticationFailed": "errors",
    "ErrorCode": "errors",
    "InvalidSetting": "errors",
    "ProducerFailed": "errors",
    "ProtocolError": "errors",
    "StrandlineError": "errors",
    "TransactionFailed": "errors",
}


def __getattr__(name: str) -> object:
    """Import what is asked for: a broker needs no Spark, and a table no broker."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    """Also what is not imported yet: shells offer these names."""
    return sorted({*globals(), *__all__})
