"""The heartbeats and descriptions of groups of the consumer protocol (KIP-848).

Kafka 4 with the protocol switched off shows these requests in ApiVersions all the same and answers
UNSUPPORTED_VERSION. Clients take that for final; of a broker that does not show them, some believe
for minutes that it is only starting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from strandline.authorization.acls import Operation
from strandline.cluster.features import GROUP_VERSION, level_of
from strandline.errors import ErrorCode
from strandline.groups.requests import every_topic
from strandline.node.group_host import GroupHost
from strandline.node.handlers.authorized import GROUP_OPERATIONS
from strandline.node.metadata import Metadata
from strandline.node.request import Request
from strandline.node.settings import Settings
from strandline.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from strandline.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from strandline.types import Instant

if TYPE_CHECKING:
    from strandline.node.authorization.authority import Authority

NO_CONSUMER_PROTOCOL: Final = (
    "The consumer protocol is not served: group.coordinator.rebalance.protocols is without "
    "consumer, or the cluster's group.version is 0. Set group.protocol=classic."
)


class ConsumerGroupsHandler:
    """Answers ConsumerGroupHeartbeat and ConsumerGroupDescribe, versions 0 and 1."""

    def __init__(
        self,
        groups: Callable[[], GroupHost],
        metadata: Metadata,
        settings: Settings,
        authority: Authority | None = None,
    ) -> None:
        """With an authority a member's pattern matches what the member may see."""
        self._authority = authority
        self._groups = groups
        self._metadata = metadata
        self._settings = settings

    def heartbeat(self, request: Request[ConsumerGroupHeartbeatRequest], now: Instant) -> None:
        """Let a member join, stay or leave."""
        if self._is_served:
            may_see: Callable[[str], bool] = every_topic
            if self._authority is not None:
                access = self._authority.access(request, now)
                may_see = access.topics(Operation.DESCRIBE, is_noted=False)
            self._groups().ask(request, now, may_see=may_see)
            return
        request.reply(
            ConsumerGroupHeartbeatResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=NO_CONSUMER_PROTOCOL
            )
        )

    def describe(self, request: Request[ConsumerGroupDescribeRequest], now: Instant) -> None:
        """Describe groups with their members."""
        if self._is_served:
            complete = _with_operations if request.body.include_authorized_operations else None
            self._groups().ask(request, now, complete=complete)
            return
        refused = ErrorCode.UNSUPPORTED_VERSION
        request.reply(
            ConsumerGroupDescribeResponse(
                groups=[
                    DescribedGroup(group_id=group_id, error_code=refused)
                    for group_id in request.body.group_ids
                ]
            )
        )

    @property
    def _is_served(self) -> bool:
        """Whether it is switched on, and every broker of the cluster knows it."""
        is_on = "consumer" in self._settings.broker.group_coordinator_rebalance_protocols
        return is_on and level_of(self._metadata.image, GROUP_VERSION) > 0


def _with_operations(response: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
    for group in response.groups:
        if group.error_code == ErrorCode.NONE:
            group.authorized_operations = GROUP_OPERATIONS
    return response
