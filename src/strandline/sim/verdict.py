"""What a run says in the end: values only, so that it goes between processes and into reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.sim.checkers.violations import Violation
from strandline.sim.plan import Plan
from strandline.sim.world import World
from strandline.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One replica at the end. Offsets are -1 where there is no log to look at."""

    broker: int
    partition: str
    role: str
    """`leads`, `follows`, or `is down`: no running broker has it."""
    leader_epoch: int = -1
    log_start: int = -1
    high_watermark: int = -1
    log_end: int = -1
    last_stable: int = -1
    in_sync: tuple[int, ...] = ()
    """Of a leader: the committed in-sync set as it knows it."""
    remote: tuple[tuple[int, int], ...] = ()
    """Of a leader: each follower and the log end that it is known to have."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One run."""

    plan: Plan
    violations: tuple[Violation, ...]
    counters: Mapping[str, int]
    """States that prove that something interesting happened; all known names, 0 if never."""
    trace_hash: str
    events: int
    simulated_us: int
    replicas: tuple[ReplicaRow, ...]
    notes: tuple[str, ...]
    """The last events in words, with their times."""
    phases: tuple[tuple[str, int], ...]
    """Each phase that came to its end, and when."""

    @property
    def seed(self) -> int:
        return self.plan.options.seed

    @property
    def is_good(self) -> bool:
        """Whether nothing that must hold was broken."""
        return not self.violations


def replica_rows(world: World) -> tuple[ReplicaRow, ...]:
    """A row for each replica that the metadata knows of."""
    return tuple(
        _row(world, broker_id, topic.name, number)
        for topic in sorted(world.image.topics.values(), key=lambda topic: topic.name)
        for number, state in sorted(topic.partitions.items())
        for broker_id in state.replicas
    )


def _row(world: World, broker_id: int, topic: str, number: int) -> ReplicaRow:
    name = f"{topic}-{number}"
    replica = world.replica(broker_id, TopicPartition(topic, number))
    if replica is None:
        return ReplicaRow(broker_id, name, "is down")
    log, leader = replica.log, replica.leader
    return ReplicaRow(
        broker_id,
        name,
        "follows" if leader is None else "leads",
        replica.leader_epoch,
        log.log_start_offset,
        log.high_watermark,
        log.log_end_offset,
        log.last_stable_offset,
        () if leader is None else tuple(sorted(leader.in_sync.members)),
        ()
        if leader is None
        else tuple(sorted((each, p.log_end_offset) for each, p in leader.progress.items())),
    )
