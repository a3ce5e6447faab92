"""Interesting states of replicas and leaders, seen by looking at a node after each of its events.

This is on the way of every event: what is remembered of a replica is one small object, and most
looks end after a few comparisons.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.replication.in_sync import Committed, Expanding, Shrinking
from strandline.sim.machine import Machine
from strandline.sim.world import World
from strandline.types import BrokerId

REPLICA_STATES: Final = (
    "follower truncates",
    "follower truncates, keeps an older epoch's end",
    "follower starts over at the leader's start",
    "new leader does not know the end yet",
    "two brokers lead one partition",
    "leader asks to expand the in-sync set",
    "leader asks to shrink the in-sync set",
    "leader gives up a change that may come true",
    "leadership ends while an in-sync change is under way",
    "high watermark stands below the minimum",
    "follower fetches and makes no progress",
    "segment rolled",
    "old segments deleted",
    "log start rises",
    "log directory fails at work",
    "empty log under a new epoch",
)


class _Seen:
    """What a replica was at the last look."""

    __slots__ = ("change", "end", "epoch", "is_leading", "segments", "start", "stuck")

    def __init__(self, replica: Replica) -> None:
        log = replica.log
        self.end = log.log_end_offset
        self.start = log.log_start_offset
        self.epoch = replica.leader_epoch
        self.is_leading = replica.leader is not None
        self.segments = log.segments.last
        self.change: object = None
        self.stuck: tuple[object, ...] = ()


class ReplicaStates:
    """Compares replicas with what they were."""

    def __init__(self, world: World, found: Counter[str]) -> None:
        self._world = world
        self._found = found
        self._seen: dict[BrokerId, dict[Replica, _Seen]] = {}
        self._failed: dict[BrokerId, int] = {}

    def forget(self, machine: Machine) -> None:
        """The replicas of this broker's next life are others."""
        self._seen.pop(machine.broker_id, None)
        self._failed.pop(machine.broker_id, None)

    def look(self, machine: Machine) -> None:
        """See what has changed on a broker."""
        broker_id = machine.broker_id
        replicas = machine.node.replicas
        seen = self._seen.get(broker_id)
        if seen is None:
            seen = self._seen[broker_id] = {}
        for replica in replicas:
            known = seen.get(replica)
            if known is None:
                seen[replica] = _Seen(replica)
                continue
            offsets = replica.log.offsets
            if offsets.log_end_offset != known.end or offsets.log_start_offset != known.start:
                self._log_moved(replica, known)
            if replica.leader_epoch != known.epoch:
                self._epoch_changed(machine, replica, known)
            leading = replica.leading
            if leading is not None and leading.state.in_sync is not known.change:
                self._change(replica, known)
        self._directories(broker_id, replicas)

    def _log_moved(self, replica: Replica, known: _Seen) -> None:
        found, log = self._found, replica.log
        end, start = log.log_end_offset, log.log_start_offset
        if start > known.start and end == start and end != known.end:
            found["follower starts over at the leader's start"] += 1
        elif end < known.end:
            found["follower truncates"] += 1
            if replica.leader_epoch > log.leader_epochs.latest:
                found["follower truncates, keeps an older epoch's end"] += 1
        elif start > known.start:
            found["log start rises"] += 1
        last = log.segments.last
        if last is not known.segments:
            known.segments = last
            found["segment rolled"] += 1
        if log.first_segment_offset > known.start and start > known.start:
            found["old segments deleted"] += 1
        known.end, known.start = end, start

    def _epoch_changed(self, machine: Machine, replica: Replica, known: _Seen) -> None:
        found = self._found
        leader = replica.leader
        if (
            known.is_leading
            and known.change is not None
            and not isinstance(known.change, Committed)
        ):
            found["leadership ends while an in-sync change is under way"] += 1
        known.epoch = replica.leader_epoch
        known.is_leading = leader is not None
        known.change = None
        if leader is None:
            return
        if replica.is_end_unknown:
            found["new leader does not know the end yet"] += 1
        if replica.log.is_empty and replica.log.log_end_offset > 0:
            found["empty log under a new epoch"] += 1
        for other in self._world.machines.values():
            if other is not machine and other.is_up:
                rival = self._world.replica(other.broker_id, replica.topic_partition)
                if rival is not None and rival.is_leading:
                    found["two brokers lead one partition"] += 1

    def _change(self, replica: Replica, known: _Seen) -> None:
        found, leader = self._found, replica.leader
        if leader is None:
            return
        change = known.change = leader.in_sync
        if isinstance(change, Expanding):
            found["leader asks to expand the in-sync set"] += 1
        elif isinstance(change, Committed):
            if len(change.members) < replica.log.config.min_insync_replicas:
                found["high watermark stands below the minimum"] += 1
        elif isinstance(change, Shrinking):
            found["leader asks to shrink the in-sync set"] += 1
            self._why_shrink(replica, change.leaving)
        else:
            found["leader gives up a change that may come true"] += 1

    def _why_shrink(self, replica: Replica, leaving: frozenset[BrokerId]) -> None:
        """A follower that fetches all the time and yet is dropped hears no answers (F-25)."""
        leader = replica.leader
        if leader is None:
            return
        for broker_id in sorted(leaving):
            progress = leader.progress.get(broker_id)
            if progress is not None and progress.last_fetch_ms > progress.last_caught_up_ms:
                self._found["follower fetches and makes no progress"] += 1

    def _directories(self, broker_id: BrokerId, replicas: Replicas) -> None:
        failed = 0
        for directory in replicas.logs.directories:
            if directory.offline_reason is not None:
                failed += 1
        if failed != self._failed.get(broker_id, failed):
            self._found["log directory fails at work"] += 1
        self._failed[broker_id] = failed
