"""EndTxn: commit or abort a transaction. From version 5 the epoch is raised by it (KIP-890)."""

from __future__ import annotations

from strandline.protocol.declare import (
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
)


@message("0-5", flexible="3+")
class EndTxnRequest:
    """How the transaction is to end."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message("0-5", flexible="3+")
class EndTxnResponse:
    """Outcome, with the id and epoch of the next transaction."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
