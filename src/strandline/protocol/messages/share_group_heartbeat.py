"""ShareGroupHeartbeat: members of share groups (KIP-932)."""

from __future__ import annotations

from strandline.protocol.declare import (
    STRING,
    int16,
    int32,
    message,
    nullable_array,
    nullable_one,
    nullable_string,
    string,
)
from strandline.protocol.messages.consumer_group_heartbeat import Assignment


@message("1", flexible="0+")
class ShareGroupHeartbeatRequest:
    """A member says that it is there, and what it wants."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = nullable_string(default=None)
    subscribed_topic_names: list[str] | None = nullable_array(STRING, null_by_default=True)


@message("1", flexible="0+")
class ShareGroupHeartbeatResponse:
    """The member's place in the group, or why it has none."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    member_id: str | None = nullable_string(default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nullable_one(Assignment)
