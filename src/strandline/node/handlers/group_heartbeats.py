"""The heartbeats of group protocols that are not served: each member is told so at once.

Kafka 4 with the protocol switched off shows these requests in ApiVersions all the same and answers
UNSUPPORTED_VERSION. Clients take that for final; of a broker that does not show them, some believe
for minutes that it is only starting.
"""

from __future__ import annotations

from typing import Final

from strandline.errors import ErrorCode
from strandline.node.request import Request
from strandline.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from strandline.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from strandline.types import Instant

NO_CONSUMER_PROTOCOL: Final = (
    "The group protocol of KIP-848 is not served by this version of Strandline: set "
    "group.protocol=classic."
)
NO_SHARE_GROUPS: Final = "Share groups are not served by this version of Strandline."


class GroupHeartbeatHandler:
    """Answers ConsumerGroupHeartbeat, versions 0 to 1, and ShareGroupHeartbeat, version 1."""

    def consumer(self, request: Request[ConsumerGroupHeartbeatRequest], now: Instant) -> None:
        """Refuse the member of a group of KIP-848."""
        del now
        request.reply(
            ConsumerGroupHeartbeatResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=NO_CONSUMER_PROTOCOL
            )
        )

    def share(self, request: Request[ShareGroupHeartbeatRequest], now: Instant) -> None:
        """Refuse the member of a share group."""
        del now
        request.reply(
            ShareGroupHeartbeatResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=NO_SHARE_GROUPS
            )
        )
