"""A real Strandline cluster for tests: brokers with sockets, files and replicas, in this process.

    from strandline.testing import Cluster

    with Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(cluster.leader_of("orders", 0))

`async with Cluster(...)` gives the same with coroutines. `strandline.testing.plugin` has fixtures
for pytest. docs/testing-with-strandline.md tells more.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.testing.async_cluster import AsyncCluster
    from strandline.testing.cluster import Cluster
    from strandline.testing.control import ClusterError
    from strandline.testing.status import (
        BrokerStatus,
        ClusterStatus,
        PartitionStatus,
        ReplicaStatus,
    )

__all__ = [
    "AsyncCluster",
    "BrokerStatus",
    "Cluster",
    "ClusterError",
    "ClusterStatus",
    "PartitionStatus",
    "ReplicaStatus",
]

_MODULES = {"AsyncCluster": "async_cluster", "Cluster": "cluster", "ClusterError": "control"}


def __getattr__(name: str) -> object:
    """Import what is asked for: pytest loads the plugin in this package for every session, and
    most sessions need no broker."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'status')}"), name)
