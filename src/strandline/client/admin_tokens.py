"""Delegation tokens (KIP-48): secrets that log in for a user, for some time (docs/security.md).

Any broker takes the requests, from clients that have authenticated by something else than a token.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

from strandline.authorization.authorizer import parse_principal
from strandline.client.cluster import ClusterClient
from strandline.client.refusal import check
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from strandline.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from strandline.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from strandline.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from strandline.types import Principal

AS_THE_BROKER_SAYS = -1
"""In the place of a time: what its settings say."""


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """One token. A client logs in with `token_id` as its name and `secret` as its password, and
    `tokenauth=true`. Times are milliseconds since 1970."""

    token_id: str
    secret: str = field(repr=False)
    """In Base64, as Kafka's tool shows it."""
    owner: str
    """`User:alice`, as the following ones."""
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    lives_until_ms: int
    """How far it may be renewed."""


class TokenAdmin:
    """See the module. All raise `ProtocolError` with a sentence."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def create(
        self,
        owner: str | None = None,
        renewers: Sequence[str] = (),
        max_lifetime_ms: int = AS_THE_BROKER_SAYS,
    ) -> DelegationToken:
        """Make a token of the client itself, or of `owner`. Raises `ValueError` for a principal
        that is not `User:NAME`."""
        whose = None if owner is None else parse_principal(owner)
        request = CreateDelegationTokenRequest(
            owner_principal_type="" if whose is None else whose.type,
            owner_principal_name="" if whose is None else whose.name,
            renewers=[
                CreatableRenewers(principal_type=each.type, principal_name=each.name)
                for each in map(parse_principal, renewers)
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        # Not tried again when the outcome is unknown: there would be two.
        made = self._cluster.any_connection().call(
            ApiKey.CREATE_DELEGATION_TOKEN, CreateDelegationTokenResponse, request
        )
        check(made.error_code, None, "the token")
        owned_by = Principal(made.principal_type, made.principal_name)
        return DelegationToken(
            made.token_id,
            base64.b64encode(made.hmac).decode(),
            str(owned_by),
            _requester(made, owned_by),
            tuple(renewers),
            made.issue_timestamp_ms,
            made.expiry_timestamp_ms,
            made.max_timestamp_ms,
        )

    def renew(self, secret: str, period_ms: int = AS_THE_BROKER_SAYS) -> int:
        """Have a token expire so long from now; returns when it does."""
        request = RenewDelegationTokenRequest(hmac=_decoded(secret), renew_period_ms=period_ms)
        response = self._cluster.retry(
            lambda: self._cluster.any_connection().call(
                ApiKey.RENEW_DELEGATION_TOKEN, RenewDelegationTokenResponse, request
            )
        )
        check(response.error_code, None, "the token")
        return response.expiry_timestamp_ms

    def expire(self, secret: str, period_ms: int = -1) -> int:
        """Have a token expire so long from now, or at once; returns when it does."""
        request = ExpireDelegationTokenRequest(
            hmac=_decoded(secret), expiry_time_period_ms=period_ms
        )
        response = self._cluster.retry(
            lambda: self._cluster.any_connection().call(
                ApiKey.EXPIRE_DELEGATION_TOKEN, ExpireDelegationTokenResponse, request
            )
        )
        check(response.error_code, None, "the token")
        return response.expiry_timestamp_ms

    def describe(self, owners: Sequence[str] | None = None) -> list[DelegationToken]:
        """The tokens that the client may see: all, or those of these owners and renewers."""
        named = [
            DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name)
            for each in map(parse_principal, owners or ())
        ]
        request = DescribeDelegationTokenRequest(owners=None if owners is None else named)
        response = self._cluster.retry(
            lambda: self._cluster.any_connection().call(
                ApiKey.DESCRIBE_DELEGATION_TOKEN, DescribeDelegationTokenResponse, request
            )
        )
        check(response.error_code, None, "the tokens")
        found = []
        for each in response.tokens:
            owned_by = Principal(each.principal_type, each.principal_name)
            found.append(
                DelegationToken(
                    each.token_id,
                    base64.b64encode(each.hmac).decode(),
                    str(owned_by),
                    _requester(each, owned_by),
                    tuple(
                        str(Principal(one.principal_type, one.principal_name))
                        for one in each.renewers
                    ),
                    each.issue_timestamp,
                    each.expiry_timestamp,
                    each.max_timestamp,
                )
            )
        return found


def _requester(
    told: CreateDelegationTokenResponse | DescribedDelegationToken, owner: Principal
) -> str:
    """Brokers that are too old to say who asked made tokens for the client itself only."""
    name = told.token_requester_principal_name
    return str(Principal(told.token_requester_principal_type, name) if name else owner)


def _decoded(secret: str) -> bytes:
    """Raises `ValueError` for what is no Base64; its text has nothing of it."""
    try:
        return base64.b64decode(secret, validate=True)
    except ValueError:
        raise ValueError("The secret of a token is text in Base64.") from None
