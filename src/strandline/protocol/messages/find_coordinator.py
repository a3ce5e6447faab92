"""FindCoordinator: which broker coordinates a group or a transactional id.

Versions up to 3 ask about one key, later ones about several (KIP-699).
"""

from __future__ import annotations

from strandline.protocol.declare import (
    STRING,
    array,
    int8,
    int16,
    int32,
    message,
    nullable_string,
    string,
    structure,
)


@message("0-6", flexible="3+")
class FindCoordinatorRequest:
    """Keys of `key_type` 0 (groups), 1 (transactional ids) or 2 (share groups)."""

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(STRING, "4+")


@structure
class Coordinator:
    """The coordinator of one key."""

    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


@message("0-6", flexible="3+")
class FindCoordinatorResponse:
    """The coordinators."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = nullable_string("1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
