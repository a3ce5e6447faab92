"""What the status document says of one replica, and of one partition of the metadata."""

from __future__ import annotations

from typing import NamedTuple

from strandline.cluster.image import PartitionImage
from strandline.node.follower_sessions import quiet_until_ms
from strandline.node.log_cleaner import LogCleaner
from strandline.node.replica import Replica
from strandline.node.status import document
from strandline.replication.in_sync import Committed
from strandline.replication.leader import Leader
from strandline.replication.progress import NEVER_MS, NO_BROKER_EPOCH, Progress
from strandline.storage.log import Log
from strandline.storage.retention_facts import retention_facts
from strandline.types import NO_OFFSET, BrokerId, Instant, TopicPartition


def replica_facts(
    replica: Replica, cleaning: LogCleaner, now: Instant, *, in_detail: bool
) -> document.Replica:
    """Everything about a hosted partition; `in_detail` what has to look at every segment, too."""
    log, leader = replica.log, replica.leader
    role = "leader" if leader is not None else "follower" if replica.is_following else "none"
    return document.Replica(
        topic=replica.topic_partition.topic,
        partition=replica.topic_partition.partition,
        topic_id=str(replica.topic_id),
        role=role,
        leader=known(replica.leader_id),
        leader_epoch=replica.leader_epoch,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_end_offset=log.log_end_offset,
        epochs=[
            document.EpochStart(epoch=entry.epoch, start_offset=entry.start_offset)
            for entry in log.leader_epochs.entries
        ],
        waiting_produces=replica.commits_waiting,
        waiting_fetches=len(replica.waiters) + len(replica.log_end_waiters.waiters),
        leading=None if leader is None else _leading(replica, leader, now),
        retention=_retention(log, now) if in_detail else None,
        compaction=_compaction(log, cleaning) if log.config.is_compacted else None,
        log=_log(log),
    )


def partition_facts(
    at: TopicPartition, partition: PartitionImage, unavailable: str | None, *, delayed: bool
) -> document.Partition:
    """What the metadata say of a partition, and whether its replica here can be used."""
    return document.Partition(
        topic=at.topic,
        partition=at.partition,
        replicas=list(partition.replicas),
        in_sync=list(partition.in_sync_replicas),
        leader=known(partition.leader),
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        eligible=list(partition.elr),
        last_known_eligible=list(partition.last_known_elr),
        adding=list(partition.adding),
        removing=list(partition.removing),
        recovering=partition.is_recovering,
        unavailable=unavailable,
        delayed=delayed,
    )


def known(number: int) -> int | None:
    """A number of which -1 means that there is none."""
    return None if number < 0 else number


def lag_of(progress: Progress, log_end_offset: int) -> int | None:
    """Records that a follower lacks, as its leader last heard."""
    if progress.log_end_offset == NO_OFFSET:
        return None
    return max(0, log_end_offset - progress.log_end_offset)


def _leading(replica: Replica, leader: Leader, now: Instant) -> document.LeaderView:
    state = leader.in_sync
    return document.LeaderView(
        in_sync=sorted(state.members),
        change=None if isinstance(state, Committed) else type(state).__name__.lower(),
        proposed=sorted(state.proposed),
        maximal=sorted(state.maximal),
        min_in_sync=leader.effective_min_in_sync,
        start_offset=leader.start_offset,
        end_known=not replica.is_end_unknown,
        low_watermark=known(replica.check_leading().low_watermark),
        followers=[
            _follower(replica, leader, broker_id, progress, now)
            for broker_id, progress in sorted(leader.progress.items())
        ],
    )


def _follower(
    replica: Replica, leader: Leader, broker_id: BrokerId, progress: Progress, now: Instant
) -> document.FollowerView:
    seen = seen_of(replica, leader, progress, now)
    return document.FollowerView(
        broker=broker_id,
        alive=replica.host.is_alive(broker_id),
        in_sync=broker_id in leader.in_sync.members,
        counted=progress.is_counted,
        log_start_offset=known(progress.log_start_offset),
        log_end_offset=known(progress.log_end_offset),
        lag=lag_of(progress, replica.log.log_end_offset),
        caught_up_ago_ms=seen.caught_up_ago_ms,
        fetched_ago_ms=seen.fetched_ago_ms,
        broker_epoch=(None if progress.broker_epoch == NO_BROKER_EPOCH else progress.broker_epoch),
    )


class Seen(NamedTuple):
    """How long ago a follower had the whole log, and fetched; None for never in this epoch."""

    caught_up_ago_ms: int | None
    fetched_ago_ms: int | None


def seen_of(replica: Replica, leader: Leader, progress: Progress, now: Instant) -> Seen:
    """When a follower was last heard of, the fetches included that had nothing to tell."""
    quiet_ms = quiet_until_ms(replica, leader, progress.broker_id, now.monotonic_ms)
    fetched_ms = progress.last_fetch_ms if progress.has_fetched else NEVER_MS
    return Seen(
        ago(max(progress.last_caught_up_ms, quiet_ms), now),
        ago(max(fetched_ms, quiet_ms), now),
    )


def ago(at_ms: int, now: Instant) -> int | None:
    """How long a monotonic time has passed; None for never."""
    return None if at_ms == NEVER_MS else now.monotonic_ms - at_ms


def _retention(log: Log, now: Instant) -> document.Retention:
    facts = retention_facts(log, now.wall_ms)
    return document.Retention(
        segments=len(facts.goes_next),
        size_bytes=sum(each.size_bytes for each in facts.goes_next),
        changes_wall_ms=facts.goes_at_ms,
    )


def _compaction(log: Log, cleaning: LogCleaner) -> document.Compaction:
    present, last = cleaning.round_of(log), cleaning.last.get(log)
    return document.Compaction(
        running_since_wall_ms=None if present is None else present.began_ms,
        bytes_to_read=None if present is None else present.plan.bytes_to_read,
        last_began_wall_ms=None if last is None else last.began_ms,
        last_ended_wall_ms=None if last is None else last.ended_ms,
        last_problem=None if last is None else last.problem,
        uncleanable=cleaning.uncleanable.get(log),
    )


def _log(log: Log) -> document.Log:
    config = log.config
    return document.Log(
        directory=log.directory,
        size_bytes=log.size_bytes,
        segments=len(log.segments),
        recovery_point=log.recovery_point,
        log_start_saved=log.offsets.log_start_saved,
        failure=log.failure,
        producers=len(log.producers.active),
        open_transaction_offset=log.producers.transactions.first_unstable_offset,
        open_transaction_producer=_holder(log),
        newest_timestamp_ms=known(log.active.max_timestamp),
        cleanup_policy=sorted(config.cleanup_policies),
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
    )


def _holder(log: Log) -> int | None:
    """Whose transaction keeps the last stable offset back."""
    transactions = log.producers.transactions
    earliest = transactions.earliest_open
    is_first = earliest is not None and earliest[0] == transactions.first_unstable_offset
    return earliest[1] if earliest is not None and is_first else None
