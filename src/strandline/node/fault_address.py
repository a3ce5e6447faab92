"""The subject `faults`: where faults can be asked for, if this cluster was started for that."""

from __future__ import annotations

from strandline.errors import ErrorCode, ProtocolError
from strandline.node.inspection import Arguments, JsonObject
from strandline.node.inspection_arguments import allow_only
from strandline.node.parts import NodeParts
from strandline.types import Instant


def faults(node: NodeParts, arguments: Arguments, now: Instant) -> JsonObject:
    """The address. Refused with POLICY_VIOLATION where faults are not allowed."""
    del now
    allow_only(arguments, ())
    if node.fault_control is None:
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION,
            "This cluster does not allow faults: start it with `strandline serve --faults`.",
        )
    return {"version": 1, "broker": node.broker_id, "address": node.fault_control}
