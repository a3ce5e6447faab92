"""`strandline.Admin`: topics, settings, groups, ACLs and the cluster itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from strandline.authorization.filters import AclFilter, exactly
from strandline.client.admin import Admin as AdminOperations
from strandline.client.admin_acls import Acl
from strandline.client.admin_cluster import ClusterDescription
from strandline.client.admin_configs import Resource
from strandline.client.admin_groups import GroupDescription, GroupListing
from strandline.client.admin_share_groups import ShareGroupOffset
from strandline.client.admin_tokens import DelegationToken
from strandline.client.admin_topics import HIGH_WATERMARK
from strandline.client.api.one_thread import one_thread
from strandline.client.api.refusals import Use
from strandline.client.api.settings import connecting_of
from strandline.client.arguments import by_partition
from strandline.client.cluster import ClusterClient
from strandline.client.metadata import TopicInfo
from strandline.errors import ProtocolError
from strandline.types import BrokerId, Offset, TopicPartition

BROKER_DEFAULT = -1
"""What the broker's own settings say."""


@one_thread
class Admin:
    """Manages any Kafka cluster, from one thread.

        with strandline.Admin({"bootstrap.servers": "localhost:9092"}) as admin:
            admin.create_topic("orders", partitions=3)
            print(admin.describe_topic("orders").partitions[0].leader)

    - `settings`: by Kafka's names (see [clients](clients.md)); `bootstrap.servers` is needed.

    Every method waits for its answer, tries again what a retry may mend, for at most
    `default.api.timeout.ms`, and raises `ProtocolError` with the broker's reason. Connects to
    nothing yet. Raises `InvalidSetting` for an unknown setting or value. A context manager that
    closes it.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        connecting = connecting_of(settings)
        self._cluster = ClusterClient(connecting.bootstrap, connecting.client)
        self._operations = AdminOperations(self._cluster)
        self._use = Use("admin client")

    @property
    def _open(self) -> AdminOperations:
        self._use.check_open()
        return self._operations

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- Topics ------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, object] | None = None,
    ) -> None:
        """Make a topic; -1 is the default of the broker. `configs` are topic settings by
        name: text, numbers, truth values.

        Raises `ProtocolError`: TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR, INVALID_CONFIG...
        """
        self._open.topics.create(
            name, partitions=partitions, replication_factor=replication_factor, configs=configs
        )

    def delete_topics(self, names: Iterable[str]) -> dict[str, ProtocolError | None]:
        """Delete topics with all of their records; the error of each, None if it is gone."""
        return self._open.topics.delete(names)

    def list_topics(self) -> list[TopicInfo]:
        """All topics, internal ones included, in the order of their names."""
        return self._open.topics.list_all()

    def describe_topic(self, name: str) -> TopicInfo:
        """A topic with the leader and the replicas of each partition.

        Raises `ProtocolError`: UNKNOWN_TOPIC_OR_PARTITION.
        """
        return self._open.topics.describe(name)

    def create_partitions(self, name: str, total: int) -> None:
        """Widen a topic to `total` partitions. Records with keys may go elsewhere from then on."""
        self._open.topics.add_partitions(name, total)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """Delete the records below these offsets (-1: all that there are); where each log starts
        afterwards."""
        return self._open.topics.delete_records(by_partition(before, least=HIGH_WATERMARK))

    # -- Settings ----------------------------------------------------------------------------

    def topic_config(self, name: str) -> dict[str, str | None]:
        """The settings in force for a topic, by name; secrets have no value."""
        entries = self._open.configs.describe(Resource.topic(name))
        return {each.name: each.value for each in entries}

    def broker_config(self, broker_id: int) -> dict[str, str | None]:
        """The settings in force on a broker, by name; secrets have no value."""
        entries = self._open.configs.describe(Resource.broker(BrokerId(broker_id)))
        return {each.name: each.value for each in entries}

    def alter_topic_config(
        self, name: str, *, set_to: Mapping[str, object] | None = None, reset: Iterable[str] = ()
    ) -> None:
        """Set some of a topic's settings and reset others to what the broker says."""
        self._open.configs.alter(Resource.topic(name), set_to=set_to, reset=reset)

    def group_config(self, group: str) -> dict[str, str | None]:
        """The settings in force for a group, by name."""
        entries = self._open.configs.describe(Resource.group(group))
        return {each.name: each.value for each in entries}

    def alter_group_config(
        self, group: str, *, set_to: Mapping[str, object] | None = None, reset: Iterable[str] = ()
    ) -> None:
        """Set some of a group's settings (`share.auto.offset.reset`, ...), and reset others. There
        need not be such a group yet."""
        of_group = Resource.group(group)
        self._open.configs.alter(of_group, set_to=set_to, reset=reset)

    # -- Groups ------------------------------------------------------------------------------

    def list_groups(self) -> list[GroupListing]:
        """The groups of all brokers in the order of their names."""
        return self._open.groups.list_all()

    def describe_group(self, group: str) -> GroupDescription:
        """A group with its members. Raises `ProtocolError`: GROUP_ID_NOT_FOUND."""
        return self._open.groups.describe(group)

    def group_offsets(self, group: str) -> dict[TopicPartition, Offset]:
        """All offsets that a group has committed."""
        stored = self._open.groups.offsets(group)
        return {each: at.offset for each, at in stored.items()}

    def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Store offsets for a group without members; it is made if there is none.

        Raises `ProtocolError`: UNKNOWN_MEMBER_ID while it has members.
        """
        stored = by_partition(offsets)
        self._open.groups.set_offsets(group, stored)

    def share_group_offsets(self, group: str) -> dict[TopicPartition, ShareGroupOffset]:
        """Where a share group is, in each partition that it has begun or was put in.

        Raises `ProtocolError`: GROUP_ID_NOT_FOUND.
        """
        return self._open.share_groups.offsets(group)

    def alter_share_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Have a share group without members begin at these offsets.

        Raises `ProtocolError`: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND.
        """
        starts = by_partition(offsets)
        self._open.share_groups.set_offsets(group, starts)

    def delete_share_group_offsets(
        self, group: str, topics: Iterable[str]
    ) -> dict[str, ProtocolError | None]:
        """Have a share group without members forget topics; the error of each, None if it did.

        Raises `ProtocolError`: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND.
        """
        return self._open.share_groups.delete_offsets(group, topics)

    def delete_group(self, group: str) -> None:
        """Delete a group without members, with its offsets. Raises `ProtocolError`."""
        self._open.groups.delete(group)

    # -- Who may do what ---------------------------------------------------------------------

    def create_acls(self, acls: Iterable[Acl]) -> None:
        """Add ACLs; those that are there already are no error.

        Raises `ProtocolError` with the reason of the first that cannot be (the others are made),
        SECURITY_DISABLED without an authorizer, and `ValueError` for a word that is not known.
        """
        outcomes = self._open.acls.create([each.binding() for each in acls])
        for error in outcomes:
            if error is not None:
                raise error

    def list_acls(self) -> list[Acl]:
        """All ACLs, by resource. Raises `ProtocolError`: SECURITY_DISABLED."""
        return [Acl.of(each) for each in self._open.acls.describe(AclFilter())]

    def delete_acls(self, acls: Iterable[Acl]) -> list[Acl]:
        """Delete exactly these ACLs, and return those that there were."""
        filters = [exactly(each.binding()) for each in acls]
        return [Acl.of(each) for each in self._open.acls.delete(filters)]

    # -- Delegation tokens -------------------------------------------------------------------

    def create_token(
        self,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int = BROKER_DEFAULT,
    ) -> DelegationToken:
        """Make a delegation token of the client itself, or of `owner` (`User:alice`).

        It may live `max_lifetime_ms` (-1: as long as the broker lets it), if the client or one of
        the `renewers` (`User:bob`) renews it. A request whose outcome is unknown is not repeated.
        Raises `ProtocolError`: DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        for a client that has logged in by a token..., and `ValueError` for no principal.
        """
        return self._open.tokens.create(owner, tuple(renewers), max_lifetime_ms)

    def renew_token(self, secret: str, period_ms: int = BROKER_DEFAULT) -> int:
        """Have the token of that secret expire `period_ms` from now (-1: as the broker says).

        Returns when it does, in milliseconds since 1970. Raises `ProtocolError`:
        DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
        """
        return self._open.tokens.renew(secret, period_ms)

    def expire_token(self, secret: str, period_ms: int = -1) -> int:
        """Have the token of that secret expire `period_ms` from now, or at once (-1).

        Returns when it does, in milliseconds since 1970. Raises what `renew_token` raises.
        """
        return self._open.tokens.expire(secret, period_ms)

    def list_tokens(self, owners: Iterable[str] | None = None) -> list[DelegationToken]:
        """The delegation tokens that the client may see: all, or those of these owners and
        renewers (`User:alice`)."""
        return self._open.tokens.describe(None if owners is None else tuple(owners))

    # -- The cluster -------------------------------------------------------------------------

    def describe_cluster(self) -> ClusterDescription:
        """The brokers that are alive, those that are down, and which one is the controller."""
        return self._open.cluster.describe()

    def close(self) -> None:
        """Close all connections."""
        self._use.is_closed = True
        self._cluster.close()
