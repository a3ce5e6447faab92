"""ExpireDelegationToken: have a token expire earlier, or at once (KIP-48)."""

from __future__ import annotations

from strandline.protocol.declare import binary, int16, int32, int64, message


@message("1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    """Which token, and how long from now; below zero it goes at once."""

    hmac: bytes = binary()
    expiry_time_period_ms: int = int64()


@message("1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    """When the token expires now, or when it went."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
