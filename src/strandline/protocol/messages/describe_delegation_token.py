"""DescribeDelegationToken: the tokens that there are, with their secrets (KIP-48)."""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    binary,
    int16,
    int32,
    int64,
    message,
    nullable_array,
    string,
    structure,
)


@structure
class DescribeDelegationTokenOwner:
    """An owner or renewer of tokens."""

    principal_type: str = string()
    principal_name: str = string()


@message("1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    """Whose tokens; null means all of them, an empty list none."""

    owners: list[DescribeDelegationTokenOwner] | None = nullable_array(DescribeDelegationTokenOwner)


@structure
class DescribedDelegationTokenRenewer:
    """A principal that may renew the token."""

    principal_type: str = string()
    principal_name: str = string()


@structure
class DescribedDelegationToken:
    """One token. `hmac` is the secret that logs in."""

    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = binary()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


@message("1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    """The tokens that the client may see."""

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
