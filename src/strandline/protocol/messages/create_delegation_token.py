"""CreateDelegationToken: a token that logs in for its owner until it expires (KIP-48, KIP-373).

Version 3 may name an owner other than the client that asks.
"""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    binary,
    int16,
    int32,
    int64,
    message,
    nullable_string,
    string,
    structure,
)


@structure
class CreatableRenewers:
    """A principal that may renew the token."""

    principal_type: str = string()
    principal_name: str = string()


@message("1-3", flexible="2+")
class CreateDelegationTokenRequest:
    """Whose token, and for how long; -1 is what the broker allows at most."""

    owner_principal_type: str | None = nullable_string("3+")
    owner_principal_name: str | None = nullable_string("3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


@message("1-3", flexible="2+")
class CreateDelegationTokenResponse:
    """The token. `hmac` is the secret that logs in."""

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = binary()
    throttle_time_ms: int = int32()
