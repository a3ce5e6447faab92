"""Managing a cluster: topics, replicas, settings, groups, ACLs, tokens, and the cluster itself.

    admin = Admin(cluster)
    admin.topics.create("orders", partitions=3)
    admin.groups.describe("billing")

One small class per kind of thing, each in its own file. All of them raise `ProtocolError` with a
sentence when a request for one thing is refused, and return outcomes per item for several.
"""

from __future__ import annotations

from strandline.client.admin_acls import AclAdmin
from strandline.client.admin_cluster import ClusterAdmin
from strandline.client.admin_configs import ConfigAdmin
from strandline.client.admin_groups import GroupAdmin
from strandline.client.admin_log_dirs import LogDirAdmin
from strandline.client.admin_quotas import QuotaAdmin
from strandline.client.admin_replicas import ReplicaAdmin
from strandline.client.admin_share_groups import ShareGroupAdmin
from strandline.client.admin_throttles import ThrottleAdmin
from strandline.client.admin_tokens import TokenAdmin
from strandline.client.admin_topics import TopicAdmin
from strandline.client.admin_transactions import TransactionAdmin
from strandline.client.cluster import ClusterClient


class Admin:
    """See the module."""

    def __init__(self, cluster: ClusterClient) -> None:
        self.acls = AclAdmin(cluster)
        self.tokens = TokenAdmin(cluster)
        self.topics = TopicAdmin(cluster)
        self.configs = ConfigAdmin(cluster)
        self.groups = GroupAdmin(cluster)
        self.share_groups = ShareGroupAdmin(cluster)
        self.cluster = ClusterAdmin(cluster)
        self.replicas = ReplicaAdmin(cluster)
        self.log_dirs = LogDirAdmin(cluster)
        self.transactions = TransactionAdmin(cluster)
        self.quotas = QuotaAdmin(cluster)
        self.throttles = ThrottleAdmin(cluster)
