"""RenewDelegationToken: have a token expire later (KIP-48)."""

from __future__ import annotations

from strandline.protocol.declare import binary, int16, int32, int64, message


@message("1-2", flexible="2+")
class RenewDelegationTokenRequest:
    """Which token, and for how long from now; -1 is what the broker gives by default."""

    hmac: bytes = binary()
    renew_period_ms: int = int64()


@message("1-2", flexible="2+")
class RenewDelegationTokenResponse:
    """When the token expires now."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
