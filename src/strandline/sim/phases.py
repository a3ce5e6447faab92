"""The phases of a run: build the cluster, work under faults, heal, judge.

    building ── the cluster starts, the topics are made
    safety   ── clients work while the plan's actions happen; every event is checked
    liveness ── all faults end, everything is started; it must come right within bounds (I-48..I-51)
    judging  ── everything is read once more, and the whole history is judged

Theory (two phases, as in TigerBeetle's simulator): during faults only safety can be asked for; that
a cluster also recovers is asked when the faults are over, within bounds that follow from settings.
What does not come right in time is a violation, and the rest is judged all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.cluster.topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS
from strandline.sim import settled
from strandline.sim.checkers.checkers import Checkers
from strandline.sim.checkers.violations import Violation
from strandline.sim.clients.client import place_of
from strandline.sim.clients.workload import Workload
from strandline.sim.faults.nemesis import Nemesis
from strandline.sim.faults.scene import Scene
from strandline.sim.forgotten import TransactionOperator
from strandline.sim.history.operations import Deleted, Partition, StartSeen, Value
from strandline.sim.history.report import LOSS_KINDS, AnomalyKind
from strandline.sim.history.transactions import ABORTED_READ, TransactionFinding
from strandline.sim.plan import Action, Options, Plan, TopicSpec
from strandline.sim.scenarios.script import format_us
from strandline.sim.sharing import group_settings, share_groups
from strandline.sim.world import World
from strandline.types import TopicPartition

_LOOK_US: Final = 20_000
"""How often it is looked whether something has come right."""
_SLACK_US: Final = 10_000_000
"""Added to bounds for what they do not speak of: restarts, retries, connections to be given up."""
_CLIENTS_US: Final = 70_000_000
"""A little more than a client's own patience, if that does not grow with what is left."""
_GOODBYE_US: Final = 1_000_000
"""Until brokers know that the last clients have gone."""
_BUILD_US: Final = 60_000_000
_OFFSETS_SEGMENT: Final = "offsets.topic.segment.bytes"
_IN_GROUPS: Final = ("group", "transactional", "copier", "share", "keeper")
"""Kinds of clients that have something stored for groups."""

Told = Callable[[str, int], None]


class _Enough(Exception):
    """Ends a run at its first violation; what follows from one violation says little."""


class Bounds:
    """How long what may take, from the settings of the plan. In microseconds."""

    def __init__(self, options: Options) -> None:
        session_us = int(options.settings.get("zookeeper.session.timeout.ms", "18000")) * 1000
        lag_us = int(options.settings.get("replica.lag.time.max.ms", "30000")) * 1000
        self.controller_us = min(2 * session_us + _SLACK_US, options.liveness_us)
        """I-48."""
        self.in_sync_us = min(2 * session_us + 3 * lag_us + 2 * _SLACK_US, options.liveness_us)
        """I-49."""
        self.repair_us = min(2 * session_us + lag_us + _SLACK_US // 2, options.liveness_us)
        """How long a crashed broker may need to be in sync again, unless it waits for others."""


class Course:
    """Takes one world through its phases."""

    def __init__(
        self,
        plan: Plan,
        world: World,
        *,
        told: Told | None = None,
        is_checked: bool = True,
        stops_at_violation: bool = False,
    ) -> None:
        """Without `is_checked`, nothing is judged but what the clients and the bounds say."""
        self.plan = plan
        self.world = world
        self.scene = scene = Scene(world, [spec.name for spec in plan.clients])
        self.checkers: Checkers | None = None
        if is_checked:
            self.checkers = Checkers(world, exceeds_budget=lambda: scene.budget.is_exceeded)
            scene.on_loss = self.checkers.note_lossy
            world.observers.append(self.checkers)
        told_of_deletion = None if self.checkers is None else self.checkers.note_records_deleted
        told_of_time = None if self.checkers is None else self.checkers.rules.times.check
        self.workload = Workload(
            world, plan.clients, on_deleted=told_of_deletion, on_time=told_of_time
        )
        self._found: list[Violation] = []
        """What did not come right, and what the clients' history says."""
        self.phases: list[tuple[str, int]] = []
        self._is_well = True
        """Whether everything has come right so far: what never did is not waited for again."""
        self._told = told
        self._stops = stops_at_violation
        self._bounds = Bounds(plan.options)

    def run(self, expect: Callable[[Action], None] | None = None) -> None:
        """All phases. `expect` is called for actions of that name."""
        try:
            if self._build():
                self._safety(expect)
                self._liveness()
                self._judge()
        except _Enough:
            self.world.note("this is enough")
        self._ended("end")

    @property
    def violations(self) -> list[Violation]:
        """Everything that was broken so far, in order."""
        checked = [] if self.checkers is None else self.checkers.violations
        return sorted((*checked, *self._found), key=lambda each: each.at_us)

    # -- phases ------------------------------------------------------------------------------

    def _build(self) -> bool:
        world = self.world
        world.start_all()
        is_up = self._within(_BUILD_US, self._are_all_there, "I-48", "the brokers come up")
        if is_up:
            for topic in self.plan.options.topics:
                self.workload.perform(self._creation(topic.name))
            self._create_offsets_topic()
            for group in share_groups(self.plan.clients):
                wishes = group_settings(self.plan.clients, group)
                wishes["within"] = format_us(_BUILD_US)
                self.workload.perform(Action(0, "alter-group", (group,), wishes))
            is_up = self._within(
                _BUILD_US,
                lambda: (
                    self._has_operated()
                    and len(world.image.topics) >= len(self.plan.options.topics)
                    and world.is_settled()
                ),
                "I-48",
                "the topics are made",
            )
        self._ended("building")
        return is_up

    def _safety(self, expect: Callable[[Action], None] | None) -> None:
        self.workload.start()
        Nemesis(self.scene, self.workload, expect).plan(self.plan.actions)
        self._let_pass(self.plan.options.safety_us)
        if self.checkers is not None:
            self.checkers.at_phase_end()
        self._maybe_stop()
        self._ended("safety")

    def _liveness(self) -> None:
        world, bounds = self.world, self._bounds
        self.scene.end_all()
        self._within(bounds.controller_us, self._has_controller, "I-48", "there is a controller")
        self._repair()
        self._is_well = self._within(
            bounds.in_sync_us, world.is_settled, "I-49", "all replicas are in sync"
        )
        operator = TransactionOperator(world, self.workload.perform, self._passes_until)
        may_hang = self.scene.budget.is_exceeded
        if may_hang:
            operator.end_forgotten(bounds.in_sync_us, _LOOK_US)
        self.workload.finish()
        if may_hang:
            self._passes_until(lambda: self.workload.is_done, _CLIENTS_US // 2)
            operator.end_open()
        if self._patience_us() > _CLIENTS_US:
            self._passes_until(lambda: self.workload.is_done, self._patience_us() - _CLIENTS_US)
        # A client may have heard meanwhile of more that it has to wait for, and have longer.
        clients_us = max(_CLIENTS_US, self._patience_us())
        self._within(clients_us, lambda: self.workload.is_done, "I-50", "all clients finish")
        self._within(bounds.in_sync_us, self._is_deletion_known, "I-51", "deletions are known")
        self._within(_CLIENTS_US, self._has_operated, "I-51", "all that was asked ends")
        self._level_out()
        self._ended("liveness")

    def _patience_us(self) -> int:
        """How long the most patient client may still take."""
        return self.workload.give_up_us + _SLACK_US - self.world.schedule.now_us

    def _judge(self) -> None:
        self.workload.read_everything(self._partitions())
        self._within(_CLIENTS_US, lambda: self.workload.is_done, "I-50", "everything can be read")
        self._let_pass(_GOODBYE_US)
        self._level_out()
        # Groups write when a member is gone for too long: that may be just now.
        if self._is_well:
            self._within(
                self._bounds.in_sync_us, self._is_all_committed, "I-50", "everything is committed"
            )
        if self.checkers is not None:
            self.checkers.at_end()
        present, may_lose = self._places(), self.scene.budget.is_exceeded
        # A damaged table may say that a log starts where it did once.
        is_undone = self.checkers is not None and not self.checkers.scope.has_promises
        kept = self.checkers.kept(self.world.history) if self.checkers else ()
        for anomaly in self.workload.report(kept).anomalies:
            place = str(anomaly.partition)
            if anomaly.kind in LOSS_KINDS and (may_lose or place not in present):
                continue  # deleted, and so is what was in it
            if anomaly.kind is AnomalyKind.RESURRECTED and is_undone:
                continue
            if anomaly.kind is AnomalyKind.POLL_SKIP and may_lose and self._has_markers:
                continue  # where a record was lost there may be a marker now, which no client reads
            number = INVARIANT_OF[anomaly.kind]
            what = f"{anomaly.kind}: {anomaly.sentence}"
            self._violated(number, what, place)
        for each in self._fractured(present, may_lose=may_lose):
            self._violated(each.invariant, each.sentence, str(each.partition))
        for finding in self.workload.findings:
            if may_lose and finding.invariant in _LOST_WITH_RECORDS:
                continue
            self._violated(finding.invariant, finding.what, finding.partition, finding.at_us)

    @property
    def _has_markers(self) -> bool:
        return any(each.kind in ("transactional", "copier") for each in self.plan.clients)

    def _fractured(self, present: set[str], *, may_lose: bool) -> list[TransactionFinding]:
        """What readers saw of transactions and cannot be (I-34, I-36, I-37). Where records are
        lost, with them may be the marker between an aborted transaction and a committed one."""
        scope = None if self.checkers is None else self.checkers.scope
        if may_lose or (scope is not None and scope.may_lose):
            return []
        starts: dict[str, int] = {}
        for event in self.world.history:
            if isinstance(event, StartSeen | Deleted):
                place = str(event.partition)
                starts[place] = max(starts.get(place, 0), event.offset)

        compacted = self._compacted()

        def may_be_gone(value: Value, partition: Partition) -> bool:
            del value
            place = str(partition)
            return place not in present or place in compacted or starts.get(place, 0) > 0

        found = self.workload.transaction_findings(may_be_gone)
        has_logs = scope is None or scope.has_logs
        return [each for each in found if has_logs or each.invariant == ABORTED_READ]

    # -- steps -------------------------------------------------------------------------------

    def _creation(self, name: str) -> Action:
        options = self.plan.options
        topic = next(each for each in options.topics if each.name == name)
        assignment = ",".join(
            ":".join(map(str, replicas)) for replicas in topic.assignment(options.brokers)
        )
        wishes = {"assignment": assignment, "within": format_us(_BUILD_US), **topic.configs}
        return Action(0, "create-topic", (name,), wishes)

    def _create_offsets_topic(self) -> None:
        """Make the log of groups by hand where its segments are to be smaller than clients may
        ask for: brokers would refuse to."""
        options = self.plan.options
        segment_bytes = options.settings.get(_OFFSETS_SEGMENT)
        if segment_bytes is None or not any(each.kind in _IN_GROUPS for each in self.plan.clients):
            return
        partitions = int(options.settings.get("offsets.topic.num.partitions", "1"))
        spec = TopicSpec(CONSUMER_OFFSETS, partitions, min(3, options.brokers))
        assignment = ",".join(":".join(map(str, each)) for each in spec.assignment(options.brokers))
        wishes = {"assignment": assignment, "within": format_us(_BUILD_US)}
        # The first is one that brokers accept, in place of their setting; the second counts.
        wishes |= {"segment.bytes": str(2**20), "internal.segment.bytes": segment_bytes}
        self.workload.perform(Action(0, "create-topic", (CONSUMER_OFFSETS,), wishes))

    def _repair(self) -> None:
        """Restart the brokers that need it, perhaps on new disks, one after the other.

        Each waits until the budget allows it. That may never be, if two wait for one another: then
        there is no other way, and the budget is exceeded.
        """
        scene, schedule = self.scene, self.world.schedule
        while scene.to_repair:
            end_us = schedule.now_us + self._bounds.repair_us
            machines = [self.world.machines[broker_id] for broker_id in scene.to_repair]
            while not any(map(scene.may_repair, machines)) and schedule.now_us < end_us:
                self._let_pass(_LOOK_US)
            chosen = next(filter(scene.may_repair, machines), machines[0])
            scene.carry_out_repair(chosen, _LOOK_US)

    def _places(self) -> set[str]:
        """How the history calls the partitions that are there."""
        topics = self.world.image.topics
        return {place_of(at, topics[at.topic].topic_id) for at in self._partitions()}

    def _compacted(self) -> set[str]:
        """How the history calls the partitions that are compacted, where older values of a key may
        be gone, and records without keys of one that was not compacted at first."""
        topics = self.world.image.topics
        return {
            place_of(at, topics[at.topic].topic_id)
            for at in self._partitions()
            if self.world.is_compacted(at)
        }

    def _level_out(self) -> None:
        """Wait until no replica has anything to learn any more."""
        if self._is_well:
            self._is_well = self._within(
                self._bounds.in_sync_us,
                lambda: self.world.is_settled() and settled.are_logs_level(self.world),
                "I-49",
                "all replicas hold the same",
            )

    def _is_all_committed(self) -> bool:
        return self.world.is_settled() and settled.are_logs_level(self.world, committed=True)

    def _is_deletion_known(self) -> bool:
        return not self._is_well or settled.are_deletions_known(self.world)

    def _has_operated(self) -> bool:
        return all(each.is_done for each in self.workload.operations)

    def _are_all_there(self) -> bool:
        return len(self.world.image.brokers) == len(self.world.machines) and self.world.is_settled()

    def _has_controller(self) -> bool:
        image = self.world.image
        return image.controller is not None and image.controller in image.brokers

    def _partitions(self) -> list[TopicPartition]:
        """Everything that clients may read and write."""
        return [
            TopicPartition(topic.name, number)
            for topic in sorted(self.world.image.topics.values(), key=lambda topic: topic.name)
            for number in sorted(topic.partitions)
            if topic.name not in INTERNAL_TOPICS
        ]

    # -- waiting and telling -----------------------------------------------------------------

    def _within(
        self, bound_us: int, condition: Callable[[], bool], invariant: str, what: str
    ) -> bool:
        if not self._passes_until(condition, bound_us):
            self._violated(invariant, f"In vain for {format_us(bound_us)}: {what}.")
            return False
        return True

    def _passes_until(self, condition: Callable[[], bool], bound_us: int) -> bool:
        """Let time pass until it holds, for so long at most. Returns whether it holds."""
        schedule = self.world.schedule
        end_us = schedule.now_us + bound_us
        while not condition():
            if schedule.now_us >= end_us:
                return False
            schedule.run_until(min(end_us, schedule.now_us + _LOOK_US))
            self._maybe_stop()
        return True

    def _let_pass(self, us: int) -> None:
        self._passes_until(lambda: False, us)

    def _maybe_stop(self) -> None:
        if self._stops and self.violations:
            raise _Enough

    def _violated(
        self, invariant: str, what: str, partition: str | None = None, at_us: int | None = None
    ) -> None:
        at_us = self.world.schedule.now_us if at_us is None else at_us
        self._found.append(Violation(invariant, what, at_us, partition))
        self.world.note(f"violated {invariant}: {what}")
        self._maybe_stop()

    def _ended(self, phase: str) -> None:
        now_us = self.world.schedule.now_us
        self.phases.append((phase, now_us))
        self.world.note(f"{phase} is over")
        if self._told is not None:
            self._told(phase, now_us)


_LOST_WITH_RECORDS: Final = frozenset({"I-25", "I-28", "I-29", "I-38", "I-39", "I-54", "I-59"})
"""What clients may find broken when records, and offsets of groups, were lost."""

INVARIANT_OF: Final = {
    AnomalyKind.LOST: "I-28",
    AnomalyKind.UNSEEN: "I-28",
    AnomalyKind.DUPLICATE: "I-30",
    AnomalyKind.INCONSISTENT_OFFSETS: "I-29",
    AnomalyKind.REORDERED: "I-30",
    AnomalyKind.POLL_SKIP: "I-35",
    AnomalyKind.NONMONOTONIC_POLL: "I-35",
    AnomalyKind.REFUSED_READ: "I-41",
    AnomalyKind.PHANTOM: "I-34",
    AnomalyKind.END_WENT_BACK: "I-38",
    AnomalyKind.RESURRECTED: "I-27",
}
"""Which invariant an anomaly of the clients' history breaks."""
