"""UnregisterBroker: have the cluster forget a broker that will not come back (KIP-631)."""

from __future__ import annotations

from strandline.protocol.declare import int16, int32, message, nullable_string


@message("0", flexible="0+")
class UnregisterBrokerRequest:
    """The broker to forget."""

    broker_id: int = int32()


@message("0", flexible="0+")
class UnregisterBrokerResponse:
    """Whether it is forgotten."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
