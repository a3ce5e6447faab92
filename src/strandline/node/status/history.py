"""What happened to in-sync sets, leaders and the controller, with the reason of each change.

Every broker follows all metadata, so each can tell this of every partition. The reason is not
written there: it is read off the difference of two images, and of a shrink, on the leader, off what
it knew of the follower. Bounded; the oldest go first. A restart forgets it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from strandline.cluster.image import ClusterImage, ImageDelta, PartitionImage
from strandline.node.replicas import Replicas
from strandline.replication.progress import NEVER_MS
from strandline.types import BrokerId, Instant, TopicPartition

EVENTS_MAX: Final = 2000


class Kind(StrEnum):
    """What changed."""

    IN_SYNC = "in_sync"
    LEADER = "leader"
    CONTROLLER = "controller"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Event:
    """One change. Brokers before and after: the set, or the leader or the controller alone."""

    wall_ms: int
    monotonic_ms: int
    kind: Kind
    partition: TopicPartition | None
    leader_epoch: int
    before: tuple[BrokerId, ...]
    after: tuple[BrokerId, ...]
    reason: str
    is_unclean: bool = False


class History:
    """The last changes, and how many there were of each kind that Kafka counts."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.shrinks = 0
        self.expands = 0
        """Of partitions that this broker led then."""
        self.elections = 0
        self.unclean_elections = 0

    def __iter__(self) -> Iterator[Event]:
        """The oldest first."""
        return iter(self._events)

    def last(self, kind: Kind, partition: TopicPartition | None = None) -> Event | None:
        """The newest change of that kind."""
        for event in reversed(self._events):
            if event.kind is kind and (partition is None or event.partition == partition):
                return event
        return None

    def follow(
        self, before: ClusterImage, after: ClusterImage, delta: ImageDelta, now: Instant
    ) -> None:
        """Note what a step of the metadata changed."""
        self._follow_brokers(before, after, delta, now)
        if before.controller != after.controller:
            self._add(
                now,
                Kind.CONTROLLER,
                None,
                -1 if after.controller_epoch is None else after.controller_epoch.value,
                () if before.controller is None else (before.controller,),
                () if after.controller is None else (after.controller,),
                _controller_reason(before, after),
            )
        for partition in delta.partitions_changed:
            old, new = before.partition(partition), after.partition(partition)
            if old is not None and new is not None and old != new:
                self._follow_partition(partition, old, new, _Brokers(before, after), now)

    def _follow_brokers(
        self, before: ClusterImage, after: ClusterImage, delta: ImageDelta, now: Instant
    ) -> None:
        for broker_id in delta.brokers_changed:
            old, new = before.brokers.get(broker_id), after.brokers.get(broker_id)
            if new is None:
                reason = "its session ended"
            elif old is None or old.epoch != new.epoch:
                reason = "it registered"
            elif new.is_shutting_down and not old.is_shutting_down:
                reason = "it is about to stop"
            else:
                continue
            self._add(
                now,
                Kind.BROKER,
                None,
                -1,
                () if old is None else (broker_id,),
                () if new is None else (broker_id,),
                f"broker {broker_id}: {reason}",
            )

    def _follow_partition(
        self,
        partition: TopicPartition,
        old: PartitionImage,
        new: PartitionImage,
        brokers: _Brokers,
        now: Instant,
    ) -> None:
        if new.leader_epoch != old.leader_epoch:
            self.elections += new.has_leader
            is_unclean = new.is_recovering and not old.is_recovering
            self.unclean_elections += is_unclean
            self._add(
                now,
                Kind.LEADER,
                partition,
                new.leader_epoch,
                (old.leader,) if old.has_leader else (),
                (new.leader,) if new.has_leader else (),
                _leader_reason(old, new, brokers, is_unclean=is_unclean),
                is_unclean=is_unclean,
            )
        left = [each for each in old.in_sync_replicas if each not in new.in_sync_replicas]
        joined = [each for each in new.in_sync_replicas if each not in old.in_sync_replicas]
        if not left and not joined:
            return
        if new.leader == self._replicas.host.broker_id:
            self.shrinks += bool(left)
            self.expands += bool(joined)
        reasons = [self._reason_to_leave(partition, each, new, brokers, now) for each in left]
        reasons += [f"broker {each} caught up with the leader" for each in joined]
        self._add(
            now,
            Kind.IN_SYNC,
            partition,
            new.leader_epoch,
            old.in_sync_replicas,
            new.in_sync_replicas,
            "; ".join(reasons),
        )

    def _reason_to_leave(
        self,
        partition: TopicPartition,
        broker_id: BrokerId,
        new: PartitionImage,
        brokers: _Brokers,
        now: Instant,
    ) -> str:
        if broker_id not in new.replicas:
            return f"broker {broker_id} has no replica any more"
        away = brokers.why_away(broker_id)
        if away is not None:
            return away
        if new.is_recovering:
            return f"broker {broker_id} was passed over by an unclean election"
        lag_max_ms = self._replicas.host.lag_max_ms
        behind = f"broker {broker_id} fell behind for {lag_max_ms} ms (replica.lag.time.max.ms)"
        replica = self._replicas.find(partition)
        if replica is None or replica.leader is None:
            return behind
        progress = replica.leader.progress.get(broker_id)
        if progress is None or progress.last_caught_up_ms == NEVER_MS:
            return f"{behind}; it never fetched in this leader epoch"
        caught_up_ms = now.monotonic_ms - progress.last_caught_up_ms
        fetched_ms = now.monotonic_ms - progress.last_fetch_ms
        return (
            f"{behind}: caught up {caught_up_ms} ms ago, fetched {fetched_ms} ms ago, at offset "
            f"{progress.log_end_offset} of {replica.log.log_end_offset}"
        )

    def _add(
        self,
        now: Instant,
        kind: Kind,
        partition: TopicPartition | None,
        leader_epoch: int,
        before: Collection[BrokerId],
        after: Collection[BrokerId],
        reason: str,
        *,
        is_unclean: bool = False,
    ) -> None:
        self._events.append(
            Event(
                now.wall_ms,
                now.monotonic_ms,
                kind,
                partition,
                leader_epoch,
                tuple(before),
                tuple(after),
                reason,
                is_unclean,
            )
        )


class _Brokers:
    """Who is there, before and after."""

    def __init__(self, before: ClusterImage, after: ClusterImage) -> None:
        self._before, self._after = before.brokers, after.brokers

    def why_away(self, broker_id: BrokerId) -> str | None:
        """Why a broker cannot serve as it did, or None if it can."""
        broker = self._after.get(broker_id)
        if broker is None:
            return f"broker {broker_id} is not registered: it died, or is cut off"
        if broker.is_shutting_down:
            return f"broker {broker_id} is about to stop"
        former = self._before.get(broker_id)
        if former is not None and former.epoch != broker.epoch:
            return f"broker {broker_id} registered anew, and may have lost records"
        return None


def _leader_reason(
    old: PartitionImage, new: PartitionImage, brokers: _Brokers, *, is_unclean: bool
) -> str:
    if not old.has_leader and old.leader_epoch < 0:
        return "the first leader"
    away = brokers.why_away(old.leader) if old.has_leader else None
    if not new.has_leader:
        waits = ", ".join(map(str, sorted({*new.in_sync_replicas, *new.elr, *new.last_known_elr})))
        return (
            f"{away or 'the leader cannot lead'}; only {waits or 'no broker'} may lead, and is away"
        )
    if is_unclean:
        return "unclean election: no replica was left that had every committed record"
    if away is not None:
        return away
    if not old.has_leader:
        return f"broker {new.leader}, which may lead, is back"
    if new.leader == old.leader:
        return f"broker {new.leader} leads anew: it registered again, or the replicas changed"
    if new.leader == new.replicas[0]:
        return f"broker {new.leader} is the preferred leader"
    return f"broker {old.leader} cannot lead any more"


def _controller_reason(before: ClusterImage, after: ClusterImage) -> str:
    if before.controller is not None and before.controller not in after.brokers:
        return f"the session of broker {before.controller} ended"
    if after.controller is None:
        return f"broker {before.controller} resigned as controller"
    return f"broker {after.controller} became the controller, where there was none"
