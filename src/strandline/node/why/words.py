"""What several rules say alike: brokers, followers, and the refusals that they stand for."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.errors import ErrorCode
from strandline.node.replica import Replica
from strandline.node.status.replica_facts import seen_of
from strandline.node.why.scene import Scene, refusal_evidence
from strandline.replication.progress import Progress
from strandline.types import Instant, TopicPartition


def brokers(ids: Iterable[int]) -> str:
    """Their ids, or that there are none."""
    return ", ".join(map(str, ids)) or "none"


def follower(replica: Replica, progress: Progress, now: Instant) -> str:
    """Where a follower is, as its leader last heard."""
    host = replica.host
    state = "registered" if host.is_alive(progress.broker_id) else "not registered"
    if progress.log_end_offset < 0:
        return f"broker {progress.broker_id} ({state}) has not fetched from this leader yet"
    lag = replica.log.log_end_offset - progress.log_end_offset
    leader = replica.check_leading().state
    caught_up, fetched = seen_of(replica, leader, progress, now)
    return (
        f"broker {progress.broker_id} ({state}) is at offset {progress.log_end_offset}, {lag} "
        f"records behind; {_time_ago('fetched', fetched)}, {_time_ago('had everything', caught_up)}"
    )


def _time_ago(what: str, milliseconds: int | None) -> str:
    if milliseconds is None:
        return f"never {what} in this leader epoch"
    return f"{what} {milliseconds / 1000:.1f} s ago"


def refused(scene: Scene, at: TopicPartition, codes: Iterable[ErrorCode]) -> list[str]:
    """The evidence of refusals with these codes about one partition."""
    return [
        line
        for refusal in scene.refusals(*codes)
        if refusal.about.topic_partition == at
        for line in refusal_evidence(refusal, scene.now)
    ]
