"""Heartbeat: a group member is alive and learns whether the group rebalances."""

from __future__ import annotations

from strandline.protocol.declare import (
    int16,
    int32,
    message,
    nullable_string,
    string,
)


@message("0-4", flexible="4+")
class HeartbeatRequest:
    """A member says that it is alive."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = nullable_string("3+", default=None)


@message("0-4", flexible="4+")
class HeartbeatResponse:
    """Whether all is well; REBALANCE_IN_PROGRESS asks to join again."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
