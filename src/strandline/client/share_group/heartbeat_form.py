"""How a member of a share group writes its heartbeats. Knows ShareGroupHeartbeat alone."""

from __future__ import annotations

from typing import Final

from strandline.client.consumer_group.heartbeats import Wish
from strandline.client.group_requests import Membership
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


class ShareForm:
    """See `HeartbeatForm`."""

    key: Final = ApiKey.SHARE_GROUP_HEARTBEAT

    def __init__(self, rack: str) -> None:
        self._rack = rack

    def heartbeat(
        self, who: Membership, epoch: int, wish: Wish, told: Wish | None, version: int
    ) -> ShareGroupHeartbeatRequest:
        """See `HeartbeatForm`."""
        del version
        request = self.goodbye(who, epoch)
        if told is None:
            request.rack_id = self._rack or None
        if told is None or wish.topics != told.topics:
            request.subscribed_topic_names = list(wish.topics)
        return request

    def goodbye(self, who: Membership, epoch: int) -> ShareGroupHeartbeatRequest:
        """See `HeartbeatForm`."""
        return ShareGroupHeartbeatRequest(
            group_id=who.group, member_id=who.member_id, member_epoch=epoch
        )
