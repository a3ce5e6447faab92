"""What errors of a classic group's coordinator mean for a member. All others are for good."""

from __future__ import annotations

from typing import Final

from strandline.errors import ErrorCode

WAIT: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""The same request may succeed later."""
AT_ONCE: Final = frozenset({ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS})
"""The member is known, and is to join."""
UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""The member, or its generation, is none any more: it joins anew."""
