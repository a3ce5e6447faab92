"""The authorizer of one node: its ACLs follow the metadata, its decisions are audited.

Brokers read the metadata before they open a listener, so there is no moment at which requests are
served and ACLs are not known yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strandline.authorization.acls import CLUSTER_NAME, Operation, ResourceType
from strandline.authorization.authorizer import Authorizer, Verdict, parse_super_users
from strandline.cluster.image import ClusterImage, ImageDelta
from strandline.config.broker import BrokerConfig
from strandline.node.authorization.audit import Asked, Audit
from strandline.node.metadata import Metadata
from strandline.node.open_connections import OpenConnections
from strandline.node.request import Request
from strandline.types import Instant

CLUSTER = ResourceType.CLUSTER


class Authority:
    """See the module."""

    def __init__(
        self, config: BrokerConfig, metadata: Metadata, connections: OpenConnections
    ) -> None:
        self.authorizer = Authorizer(
            super_users=parse_super_users(config.super_users),
            allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found,
        )
        self.audit = Audit(config.node_id, tells_allowed=config.strandline_audit_log_allowed)
        self.creates_topics = config.auto_create_topics_enable
        """Whether a request for the metadata of a missing topic creates it."""
        self._metadata = metadata
        self._connections = connections
        image = metadata.image
        self.authorizer.replace_all({at: each.value.entries for at, each in image.acls.items()})

    @property
    def image(self) -> ClusterImage:
        """The metadata as this node knows it."""
        return self._metadata.image

    def follow(self, delta: ImageDelta) -> None:
        """The metadata has changed. What fast paths were allowed is asked again."""
        if not delta.acls_changed:
            return
        acls = self._metadata.image.acls
        for resource in delta.acls_changed:
            stored = acls.get(resource)
            self.authorizer.replace(resource, () if stored is None else stored.value.entries)
        self._connections.forget_fast_paths()

    def access(self, request: Request[Any], now: Instant) -> Access:
        """What the client of the request may do."""
        return Access(self, request, now)


class Access:
    """The permissions of one request's client."""

    __slots__ = ("_authority", "_now", "_request")

    def __init__(self, authority: Authority, request: Request[Any], now: Instant) -> None:
        self._authority = authority
        self._request = request
        self._now = now

    @property
    def image(self) -> ClusterImage:
        """The metadata as this node knows it."""
        return self._authority.image

    @property
    def creates_topics(self) -> bool:
        """Whether a request for the metadata of a missing topic creates it."""
        return self._authority.creates_topics

    def may(
        self, operation: Operation, kind: ResourceType, name: str, *, is_noted: bool = True
    ) -> bool:
        """Whether the client may do that to the resource. `is_noted` is false for what is only
        left out of an answer without it, as in Kafka's log."""
        connection = self._request.connection
        verdict = self._authority.authorizer.authorize(
            connection.principal, connection.client_host, operation, kind, name
        )
        if is_noted:
            self._note(operation, kind, name, verdict)
        return verdict.is_allowed

    def may_cluster(self, operation: Operation, *, is_noted: bool = True) -> bool:
        """Whether the client may do that to the cluster."""
        return self.may(operation, CLUSTER, CLUSTER_NAME, is_noted=is_noted)

    def may_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether there is some resource of the type to which the client may do that."""
        connection = self._request.connection
        return self._authority.authorizer.authorize_by_type(
            connection.principal, connection.client_host, operation, kind
        ).is_allowed

    def topics(self, operation: Operation, *, is_noted: bool = True) -> Callable[[str], bool]:
        """Says of each topic whether the client may do that to it."""
        return lambda name: self.may(operation, ResourceType.TOPIC, name, is_noted=is_noted)

    def operations(self, kind: ResourceType, name: str) -> int:
        """All that the client may do to the resource, as the bits of KIP-430."""
        connection = self._request.connection
        allowed = self._authority.authorizer.operations(
            connection.principal, connection.client_host, kind, name
        )
        return sum(1 << each for each in allowed)

    def _note(self, operation: Operation, kind: ResourceType, name: str, verdict: Verdict) -> None:
        request = self._request
        connection = request.connection
        self._authority.audit.note(
            Asked(
                connection.principal,
                connection.client_host,
                request.api_key.name,
                operation,
                kind,
                name,
            ),
            verdict=verdict,
            listener=connection.listener,
            client_id=request.client_id,
            now=self._now,
        )
