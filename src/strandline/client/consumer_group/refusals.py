"""What refusals mean to a member of the consumer protocol, and what its program is told of them."""

from __future__ import annotations

from typing import Any, Final

from strandline.client.refusal import refusal
from strandline.errors import ErrorCode, ProtocolError

WAIT: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""The same may succeed later."""
FENCED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        # The group was deleted, or its coordinator has lost it.
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""The member is none any more: it joins again. All others are for good."""


def failure(code: ErrorCode, answer: Any, group: str) -> ProtocolError:
    """A refusal as what the program gets."""
    if code is ErrorCode.UNSUPPORTED_VERSION:
        return ProtocolError(
            code,
            f"The coordinator of group '{group}' does not serve group.protocol=consumer (KIP-848), "
            "or not patterns of topics; group.protocol=classic is served everywhere.",
        )
    return refusal(code, getattr(answer, "error_message", None), f"group '{group}'")
