"""Quotas of a cluster's users and client ids (KIP-546). Any broker takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.client.cluster import ClusterClient
from strandline.client.refusal import check
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages import alter_client_quotas as altering
from strandline.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one entity: parts by type ("user", "client-id", "ip"; None is the default)."""

    entity: Mapping[str, str | None]
    limits: Mapping[str, float]


class QuotaAdmin:
    """See the module."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def describe(self) -> list[Quota]:
        """All quotas."""

        def ask() -> DescribeClientQuotasResponse:
            response = self._cluster.any_connection().call(
                ApiKey.DESCRIBE_CLIENT_QUOTAS,
                DescribeClientQuotasResponse,
                DescribeClientQuotasRequest(),
            )
            check(response.error_code, response.error_message, "the quotas")
            return response

        return [
            Quota(
                {part.entity_type: part.entity_name for part in entry.entity},
                {value.key: value.value for value in entry.values},
            )
            for entry in self._cluster.retry(ask).entries or ()
        ]

    def alter(
        self,
        entity: Mapping[str, str | None],
        limits: Mapping[str, float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set limits of an entity; None removes one. Raises `ProtocolError`."""
        entry = altering.EntryData(
            entity=[
                altering.EntityData(entity_type=kind, entity_name=name)
                for kind, name in entity.items()
            ],
            ops=[
                altering.OpData(key=name, value=value or 0.0, remove=value is None)
                for name, value in limits.items()
            ],
        )
        request = altering.AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)

        def ask() -> None:
            response = self._cluster.any_connection().call(
                ApiKey.ALTER_CLIENT_QUOTAS, altering.AlterClientQuotasResponse, request
            )
            for each in response.entries:
                check(each.error_code, each.error_message, "the quota")

        self._cluster.retry(ask)
