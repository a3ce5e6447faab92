"""Which replica a consumer should read from: the nearest that has what it wants (KIP-392).

This file knows the choice by rack. It must not know brokers' addresses or requests. Only in-sync
replicas are offered: a lagging one would be chosen again and again, and its reader would fall
behind for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from strandline.replication.leader import Leader
from strandline.types import BrokerId, Offset


class ReplicaView(NamedTuple):
    """One replica as a selector sees it."""

    broker_id: BrokerId
    rack: str | None
    log_end_offset: Offset
    last_caught_up_ms: int


def readable_followers(
    leader: Leader, fetch_offset: Offset, rack_of: Callable[[BrokerId], str | None]
) -> Iterator[ReplicaView]:
    """The in-sync followers that have `fetch_offset`, as far as their leader knows."""
    for progress in leader.progress.values():
        if (
            progress.broker_id in leader.in_sync.members
            and progress.log_start_offset <= fetch_offset <= progress.log_end_offset
        ):
            yield ReplicaView(
                progress.broker_id,
                rack_of(progress.broker_id),
                progress.log_end_offset,
                progress.last_caught_up_ms,
            )


def preferred_replica(
    rack: str | None, leader_rack: str | None, candidates: Iterable[ReplicaView]
) -> BrokerId | None:
    """The candidate that a consumer in `rack` should read from; None for the leader.

    The leader wins in its own rack. Elsewhere it is the replica in that rack that is furthest,
    then the one that was caught up last; brokers alone in their rack have no one nearer.
    """
    if not rack or rack == leader_rack:
        return None
    nearest = [candidate for candidate in candidates if candidate.rack == rack]
    if not nearest:
        return None
    best = max(nearest, key=lambda c: (c.log_end_offset, c.last_caught_up_ms, c.broker_id))
    return best.broker_id
