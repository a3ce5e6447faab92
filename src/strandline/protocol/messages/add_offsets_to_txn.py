"""AddOffsetsToTxn: a group's offsets join a transaction."""

from __future__ import annotations

from strandline.protocol.declare import (
    int16,
    int32,
    int64,
    message,
    string,
)


@message("0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    """The group whose offsets join."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message("0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """Outcome."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
