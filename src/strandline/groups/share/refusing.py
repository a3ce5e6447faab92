"""What a share group cannot be asked: requests of other kinds of groups are refused."""

from __future__ import annotations

from typing import Any

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.shard import Shard
from strandline.protocol.messages.heartbeat import HeartbeatRequest
from strandline.protocol.messages.join_group import JoinGroupRequest
from strandline.protocol.messages.leave_group import LeaveGroupRequest
from strandline.protocol.messages.sync_group import SyncGroupRequest


def check_no_share_group(shard: Shard, body: Any) -> None:
    """Refuse a request of a classic or consumer group about a share group. Raises
    `ProtocolError`."""
    group = shard.share_groups.get(body.group_id)
    if group is None or not group.image.exists:
        return
    match body:
        case JoinGroupRequest():
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        case SyncGroupRequest() | HeartbeatRequest() | LeaveGroupRequest():
            code = ErrorCode.UNKNOWN_MEMBER_ID
        case _:
            code = ErrorCode.GROUP_ID_NOT_FOUND
    raise ProtocolError(code, f"Group {body.group_id} is a share group.")
