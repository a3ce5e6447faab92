"""The timers that a member of a consumer group may have."""

from __future__ import annotations

from typing import Final

from strandline.groups.shard import Shard

SESSION: Final = "session"
REBALANCE: Final = "rebalance"
CLASSIC_JOIN: Final = "classic-join"
CLASSIC_SYNC: Final = "classic-sync"

_ALL: Final = (SESSION, REBALANCE, CLASSIC_JOIN, CLASSIC_SYNC)


def forget_member(shard: Shard, group_id: str, member_id: str) -> None:
    """Do not watch a member any more."""
    for kind in _ALL:
        shard.cancel(kind, group_id, member_id)
