"""The nodes of the metadata store: where each lies and what its content means.

One module per kind. Each kind gives its path, a frozen value, and `encode` and `decode` between
the value and Kafka's JSON (`kafka.zk.ZkData`), so that Kafka's own tools can read the tree. Keys
that this version does not know are carried in `extra` and written back, because a newer or other
broker may have put them there. Decoding raises `MalformedNode`. Nothing here knows the store.
"""

from __future__ import annotations

from strandline.cluster.znodes.acls import ACL_SKELETON, AclNode, acl_path, resource_of
from strandline.cluster.znodes.brokers import (
    NO_PREVIOUS_EPOCH,
    BrokerNode,
    Endpoint,
    FeatureRange,
    endpoint_at,
)
from strandline.cluster.znodes.configs import (
    CLUSTER_DEFAULT,
    ConfigNode,
    ConfigResource,
    ResourceKind,
)
from strandline.cluster.znodes.features import FeatureNode
from strandline.cluster.znodes.registrations import RegistrationNode, registration_path
from strandline.cluster.znodes.singles import (
    ClusterIdNode,
    ControllerEpochNode,
    ControllerNode,
    FormatNode,
    ProducerIdBlockNode,
    adoption_path,
)
from strandline.cluster.znodes.tokens import TOKEN_SKELETON, TokenNode, token_path
from strandline.cluster.znodes.topics import (
    DELETIONS,
    PartitionStateNode,
    TopicNode,
    deletion_path,
    partition_path,
    partitions_path,
    state_path,
    topic_path,
)

__all__ = [
    "ACL_SKELETON",
    "CLUSTER_DEFAULT",
    "DELETIONS",
    "NO_PREVIOUS_EPOCH",
    "TOKEN_SKELETON",
    "AclNode",
    "BrokerNode",
    "ClusterIdNode",
    "ConfigNode",
    "ConfigResource",
    "ControllerEpochNode",
    "ControllerNode",
    "Endpoint",
    "FeatureNode",
    "FeatureRange",
    "PartitionStateNode",
    "ProducerIdBlockNode",
    "RegistrationNode",
    "ResourceKind",
    "TokenNode",
    "TopicNode",
    "FormatNode",
    "acl_path",
    "adoption_path",
    "endpoint_at",
    "deletion_path",
    "partition_path",
    "partitions_path",
    "registration_path",
    "resource_of",
    "state_path",
    "token_path",
    "topic_path",
]
