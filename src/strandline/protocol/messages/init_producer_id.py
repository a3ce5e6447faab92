"""InitProducerId: an identity for an idempotent or transactional producer.

Version 6 (two-phase commit, KIP-939) is not stable in Kafka 4.3 and not declared here.
"""

from __future__ import annotations

from strandline.protocol.declare import (
    int16,
    int32,
    int64,
    message,
    nullable_string,
)


@message("0-5", flexible="2+")
class InitProducerIdRequest:
    """From version 3 with the current id and epoch, to raise the epoch (KIP-360)."""

    transactional_id: str | None = nullable_string()
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


@message("0-5", flexible="2+")
class InitProducerIdResponse:
    """The id and epoch to produce with."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
