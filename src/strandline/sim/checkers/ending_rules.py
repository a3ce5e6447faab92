"""Rules for the settled cluster at the end of a run: I-27 and I-40 then, and I-48 to I-51.

Asked once, when all faults are over, everything runs, clients are done and the cluster is said to
have settled. The caller that runs the world says how long that may take.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from strandline.node.waiting_fetch import WaitingFetch
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.violations import Findings
from strandline.types import BrokerId, Offset, TopicPartition

if TYPE_CHECKING:
    from strandline.cluster.image import ClusterImage, PartitionImage
    from strandline.node.replica import Replica
    from strandline.sim.machine import Machine
    from strandline.sim.world import World
    from strandline.storage.log import Log

WORK_PATHS = (
    "/admin/delete_topics",
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
    "/isr_change_notification",
    "/log_dir_event_notification",
)

FOLLOWED_US = 10_000_000
"""Within that time a follower without faults has heard where its leader's log starts."""


class EndingRules:
    """See the module."""

    def __init__(self, world: World, findings: Findings) -> None:
        self._world = world
        self._findings = findings

    def check(self, models: Mapping[Replica, LogModel]) -> None:
        """Everything. `models` says what logs hold; empty where that is not judged."""
        image = self._world.image
        self._check_controller(image)
        by_partition: dict[TopicPartition, dict[BrokerId, Replica]] = {}
        for machine in self._world.machines.values():
            if machine.is_up:
                self._check_nothing_waits(machine)
                for replica in machine.node.replicas:
                    at = replica.topic_partition
                    by_partition.setdefault(at, {})[machine.broker_id] = replica
        for name, topic in image.topics.items():
            for number, state in topic.partitions.items():
                at = TopicPartition(name, number)
                self._check_partition(image, at, state, by_partition.get(at, {}), models)
        self._check_work(image)

    def _check_controller(self, image: ClusterImage) -> None:
        """I-48: the elected controller, and no other broker, believes to be the controller."""
        if image.controller is None or image.controller not in image.brokers:
            self._findings.add("I-48", f"The controller is {image.controller}, which is not alive")
        up = {b for b, machine in self._world.machines.items() if machine.is_up}
        for broker in sorted(up - image.brokers.keys()):
            self._findings.add("I-48", f"Broker {broker} runs and is not registered")

    def _check_partition(
        self,
        image: ClusterImage,
        at: TopicPartition,
        state: PartitionImage,
        replicas: Mapping[BrokerId, Replica],
        models: Mapping[Replica, LogModel],
    ) -> None:
        candidates = [b for b in (*state.in_sync_replicas, *state.elr) if b in image.brokers]
        if candidates and (not state.has_leader or state.leader not in image.brokers):
            self._findings.add(
                "I-48",
                f"{at} is led by {state.leader}, though {candidates} live and could lead",
                at,
            )
        live = [b for b in state.replicas if b in image.brokers]
        missing = [b for b in live if b not in state.in_sync_replicas]
        if missing:
            self._findings.add(
                "I-49", f"{at}: brokers {missing} live and are not in sync: {state}", at
            )
        self._check_equal(at, live, replicas, models)
        leader = replicas.get(state.leader)
        if leader is None:
            return
        if not leader.is_leading:
            self._findings.add("I-48", f"{at}: broker {state.leader} is to lead, and does not", at)
        elif leader in models:
            self._check_starts(at, models[leader], replicas)

    def _check_starts(
        self, at: TopicPartition, leader: LogModel, replicas: Mapping[BrokerId, Replica]
    ) -> None:
        """I-27: what the leader has deleted some time ago is deleted everywhere."""
        if self._world.schedule.now_us - leader.start_rose_us < FOLLOWED_US:
            return
        for broker, replica in replicas.items():
            if replica.log.log_start_offset < leader.log_start:
                self._findings.add(
                    "I-27",
                    f"{at} on broker {broker} starts at {replica.log.log_start_offset}, but "
                    f"{leader}, which leads, has started at {leader.log_start} for a while",
                    at,
                )

    def _check_equal(
        self,
        at: TopicPartition,
        live: list[BrokerId],
        replicas: Mapping[BrokerId, Replica],
        models: Mapping[Replica, LogModel],
    ) -> None:
        """I-49: same offsets, same batches, same epochs; and nothing is undecided (I-50)."""
        first: Replica | None = None
        for broker in live:
            replica = replicas.get(broker)
            if replica is None:
                self._findings.add("I-49", f"{at}: broker {broker} lives and has no log of it", at)
                continue
            log = replica.log
            if (
                log.last_stable_offset != log.high_watermark
                or log.high_watermark != log.log_end_offset
            ):
                self._findings.add(
                    "I-50",
                    f"{at} on broker {broker} ends at {log.log_end_offset}, but its high watermark "
                    f"is {log.high_watermark} and its last stable offset {log.last_stable_offset}",
                    at,
                )
            if first is None:
                first = replica
                continue
            # Retention runs on each replica by itself.
            start = max(log.log_start_offset, first.log.log_start_offset)
            mine = _summary(log, models.get(replica), start)
            other = _summary(first.log, models.get(first), start)
            if mine != other:
                self._findings.add(
                    "I-49", f"{at} on broker {broker} has {mine}, but another one {other}", at
                )

    def _check_work(self, image: ClusterImage) -> None:
        """I-51: nothing that was begun is left undone."""
        for name, topic in image.topics.items():
            for number, state in topic.partitions.items():
                if state.adding or state.removing:
                    self._findings.add(
                        "I-51",
                        f"{name}-{number} is still being reassigned: {state.adding} are being "
                        f"added, {state.removing} removed",
                        TopicPartition(name, number),
                    )
        if image.requested_deletions:
            self._findings.add(
                "I-51", f"The topics {sorted(image.requested_deletions)} are still to be deleted"
            )
        tree = self._world.store.tree
        for path in WORK_PATHS:
            if path in tree and (children := tree.children(path)):
                self._findings.add("I-51", f"{path} still has {children}")

    def _check_nothing_waits(self, machine: Machine) -> None:
        """I-40: only fetches wait for more. (A reader that is done may have left one behind, which
        ends with its connection or with its time.)"""
        for entry in machine.node.purgatory:
            if not isinstance(entry.operation, WaitingFetch):
                self._findings.add(
                    "I-40",
                    f"A request of {entry.operation.connection.client_host} is still parked at "
                    f"broker {machine.broker_id}",
                )
        for replica in machine.node.replicas:
            if replica.commits_waiting:
                self._findings.add(
                    "I-40",
                    f"{replica.commits_waiting} appends to {replica.topic_partition} on broker "
                    f"{machine.broker_id} still wait to be committed",
                    replica.topic_partition,
                )


def _summary(log: Log, model: LogModel | None, start: int) -> tuple[object, ...]:
    """The part of a log, from that start on, that must be equal on all replicas."""
    ends = (log.high_watermark, log.log_end_offset)
    if model is None or model.is_compacted:
        # Each replica is compacted by itself; what is left is compared key by key (I-36).
        return ends
    first = model.index_at(start)
    newest = model.batches[-1] if len(model.batches) > first else None
    epochs = log.leader_epochs.entries_in_range(Offset(start), log.log_end_offset)
    return (*ends, newest, tuple(map(tuple, epochs)))
