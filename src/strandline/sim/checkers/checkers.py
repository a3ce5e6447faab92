"""All checkers of a world behind one observer, which decides when each of them runs.

After every event a fingerprint of each replica that the node hosts tells what was touched; only
that is looked at, so that a quiet replica costs less than a microsecond. What the fingerprint does
not show, or what changes without an event, is looked at every `SWEEP_STEPS` steps, and in full at
the ends of phases. `node_acted` is the hot path: it runs after each of a hundred thousand events.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes
from strandline.errors import StrandlineError
from strandline.node.effects import Chunk, ConnectionId
from strandline.sim.checkers.change_dispatcher import ChangeDispatcher
from strandline.sim.checkers.compaction_rules import content_of
from strandline.sim.checkers.coordinator_rules import CoordinatorRules
from strandline.sim.checkers.crash_recovery_check import CrashRecoveryCheck
from strandline.sim.checkers.ending_rules import EndingRules
from strandline.sim.checkers.hosting import Hosting
from strandline.sim.checkers.invariants import BUG
from strandline.sim.checkers.lag_rules import GAP_US, LOOK_US, LagRules
from strandline.sim.checkers.marks import mark_of
from strandline.sim.checkers.partition_model import PartitionModel
from strandline.sim.checkers.recovery_rules import LastKnownState
from strandline.sim.checkers.rules import Rules
from strandline.sim.checkers.scope import Scope
from strandline.sim.checkers.sweeps import Sweeps
from strandline.sim.checkers.violations import Violation
from strandline.sim.clients.client import place_of
from strandline.sim.history.operations import Acknowledged, Event, Value
from strandline.types import NO_TOPIC_ID, BrokerId, TopicId, TopicPartition

if TYPE_CHECKING:
    from strandline.node.logs import Directory
    from strandline.node.replica import Replica
    from strandline.sim.checkers.log_model import LogModel
    from strandline.sim.machine import Machine
    from strandline.sim.observer import Ending
    from strandline.sim.world import World
    from strandline.storage.compaction.plan import CleaningResult
    from strandline.storage.log import Log

SWEEP_STEPS: Final = 500


class Checkers:
    """See the module. An observer of a world, from before its machines start."""

    def __init__(self, world: World, *, exceeds_budget: Callable[[], bool] = lambda: False) -> None:
        """`exceeds_budget` says whether the faults so far were more than acks=all survives."""
        self.rules = Rules.of(world, exceeds_budget)
        self._lag = LagRules(world, self.rules.findings)
        self._world = world
        for machine in world.machines.values():
            machine.disk.on_damage = self.note_damage
        self._dispatcher = ChangeDispatcher(self.rules)
        self._sweeps = Sweeps(self.rules)
        self._hostings: dict[BrokerId, Hosting] = {}
        self._last_known: dict[BrokerId, dict[PartitionModel, LastKnownState]] = {}
        self._failed: dict[BrokerId, set[str]] = defaultdict(set)
        """The log directories that have ever failed under a process."""
        self._steps = 0

    # -- Results -----------------------------------------------------------------------------

    @property
    def violations(self) -> list[Violation]:
        """The violations, in the order in which they were found."""
        return self.rules.findings.violations

    @property
    def counters(self) -> Counter[str]:
        """How often what was checked."""
        return self.rules.findings.counters

    @property
    def scope(self) -> Scope:
        """The checks that still apply to the run."""
        return self.rules.scope

    def kept(self, history: Iterable[Event]) -> set[Value]:
        """What leaders have acknowledged alone (acks=1) and must be there all the same, as none of
        them lost its leadership before the others had it (I-28)."""
        if not self.scope.has_promises:
            return set()
        partitions = {
            place_of(partition.at, partition.topic_id): partition
            for partition in self.rules.partitions
        }
        found: set[Value] = set()
        for event in history:
            if not isinstance(event, Acknowledged) or event.leader_epoch < 0:
                continue
            partition = partitions.get(str(event.partition))
            if (
                partition is not None
                and event.offset is not None
                and partition.is_kept(event.offset, event.leader_epoch)
            ):
                found.add(event.value)
        self.counters["acks=1 kept"] += len(found)
        return found

    # -- What others know --------------------------------------------------------------------

    def note_lossy(self, broker: int) -> None:
        """A machine without a process has lost something, in whatever way: nothing is asked of
        what its next process finds."""
        self._last_known.pop(BrokerId(broker), None)

    def note_damage(self) -> None:
        """A disk has changed a file behind its broker's back: logs are not judged any more."""
        self.scope.note_damage()
        self._hostings.clear()
        self._last_known.clear()
        for partition in self.rules.partitions:
            partition.models.clear()

    def note_records_deleted(
        self, at: TopicPartition, topic_id: TopicId, low_watermark: int
    ) -> None:
        """A client got the answer that the records of this topic below are deleted (I-27)."""
        self.rules.partitions.of(at, topic_id).deleted(low_watermark)

    # -- Events ------------------------------------------------------------------------------

    def node_acted(self, machine: Machine) -> None:
        """A node has handled an event or ended a turn: look at what that has touched."""
        self._steps += 1
        if self._steps >= SWEEP_STEPS:
            self.sweep()
        elif self._world.schedule.now_us - self._lag.looked_us >= LOOK_US:
            self._lag.check(self._hostings)
        hosting = self._hostings.get(machine.broker_id)
        if hosting is not None:
            self._look(machine, hosting)

    def _look(self, machine: Machine, hosting: Hosting) -> None:
        seen = hosting.seen
        node = machine.node
        now_us = self._world.schedule.now_us
        if now_us - hosting.acted_us > GAP_US:
            hosting.busy_until_us = now_us
        hosting.acted_us = now_us
        self._note_time(hosting)
        count = 0
        for replica in node.replicas:
            count += 1
            hosted = seen.get(replica)
            if hosted is None:
                hosted = hosting.enter(replica)
            leading = replica.leading
            leader = None if leading is None else leading.state
            mark = mark_of(
                replica.log,
                leader,
                replica.leader_epoch,
                replica.leader_id,
                None if leader is None else leader.in_sync,
                0 if leader is None else leader.min_in_sync,
            )
            if mark != hosted[0].mark:
                if hosting.has_moved(hosted) and hosted[0].is_followed:
                    self._dispatcher.moved(hosting, hosted, mark)
                self._dispatcher.touched(hosting, hosted, mark)
        if count != len(seen):
            hosting.drop_missing()
        if hosting.unsettled and node.purgatory.is_settled:
            self._dispatcher.settled(hosting, node)

    def started(self, machine: Machine) -> None:
        """A process has loaded its logs: compare them with those of the process before."""
        rules, broker = self.rules, machine.broker_id
        rules.findings.counters["starts"] += 1
        if not self.scope.has_logs:
            return
        hosting = self._hostings[broker] = Hosting(machine, rules)
        self._note_time(hosting)
        before = self._last_known.setdefault(broker, {})
        for directory in machine.node.replicas.logs.directories:
            if directory.offline_reason is not None:
                continue
            for log in directory.logs.values():
                model, partition = hosting.take_in(log, _topic_of(log, before))
                last_known = before.pop(partition, None)
                is_left = directory.path in self._failed[broker] and (
                    last_known is not None and last_known.model.log.directory != log.directory
                )
                # A disk that failed, and is healed, may have a log of the partition from before it
                # was moved away and back. The one that is further on is taken.
                if last_known is not None and not is_left:
                    rules.recovery.check_recovered(partition, model, last_known)
                rules.commitment.follower_rose(partition, model)
                rules.recovery.check_producers(model)
                rules.storage.check_aborts(machine, model)
        for partition, last_known in list(before.items()):
            if not rules.recovery.check_missing(partition, last_known, machine):
                del before[partition]

    def ended(self, machine: Machine, how: Ending, *, lossy: bool) -> None:
        """A process is over, or a machine without one has lost its power: remember what it had."""
        del lossy
        broker = machine.broker_id
        before = self._last_known.setdefault(broker, {})
        for last_known in before.values():
            last_known.worsen(how)
        last, hosting = machine.last_node, self._hostings.pop(broker, None)
        for directory in last.replicas.logs.directories if last is not None else ():
            if directory.offline_reason is not None:
                self._failed[broker].add(directory.path)
                if how != "stop" and hosting is not None and directory.path not in hosting.unread:
                    self._check_offline(machine, directory)
        for model, partition in () if hosting is None else hosting.by_log.values():
            if model.is_live:
                model.is_live = False
                before[partition] = LastKnownState(model, how)

    def _check_offline(self, machine: Machine, directory: Directory) -> None:
        """A directory was given up before its process stopped: its disk must have failed. A start
        gives it up for want of handles, too."""
        if self.scope.has_logs and machine.disk.is_sound:
            self.bug(
                machine.broker_id,
                f"{directory.path} went offline, though its disk is sound: "
                f"{directory.offline_reason}",
            )

    def _note_time(self, hosting: Hosting) -> None:
        latest, broker_id = self.rules.recovery.latest_ms, hosting.machine.broker_id
        now_ms = hosting.note_time()
        if now_ms >= latest.get(broker_id, 0):
            latest[broker_id] = now_ms

    def metadata_changed(self, changes: Changes, image: ClusterImage) -> None:
        """The store's truth has moved."""
        del changes
        self.rules.metadata.follow(image)

    def sent(self, machine: Machine, connection: ConnectionId, chunks: Sequence[Chunk]) -> None:
        """A client is sent an answer."""
        del connection
        if len(chunks) > 1:
            hosting = self._hostings.get(machine.broker_id)
            if hosting is not None:
                self.rules.serving.check_sent(chunks, hosting.by_directory)

    def round_ended(self, machine: Machine, error: StrandlineError | None) -> None:
        """A round of compaction is over: each of its segments was looked at."""

    def cleaned(self, machine: Machine, result: CleaningResult) -> None:
        """A compacted segment has perhaps taken its place in a log: compare it with what was."""
        hosting = self._hostings.get(machine.broker_id)
        if hosting is None:
            return
        self._note_time(hosting)
        latest_ms = self.rules.recovery.latest_ms[machine.broker_id]
        for model, partition in hosting.by_log.values():
            if model.at != result.topic_partition or not model.is_live:
                continue
            if model.log.failure is not None:
                # Of a swap that has failed half of the segments may be out and none in. The next
                # start finishes it; until then the log has, for all others, what it had.
                model.has_failed = True
                continue
            is_current, before = model.is_current, content_of(model)
            model.read_anew()
            if is_current and self.scope.has_promises:
                self.rules.compaction.check_swap(model, before, latest_ms, partition.is_committed)
            else:
                # A turn that waits for its disk has changed the log as well; or the high watermark
                # has fallen by permission.
                self.rules.compaction.note_gone(model, before, model.log.high_watermark)

    def bug(self, broker_id: BrokerId | None, sentence: str) -> None:
        """Part of a broker failed in a way that it does not expect."""
        where = None if broker_id is None else f"broker {broker_id}"
        self.rules.findings.add(BUG, sentence if where is None else f"{where}: {sentence}", where)

    # -- Looks at everything -----------------------------------------------------------------

    def sweep(self) -> None:
        """A light look at everything."""
        self._steps = 0
        self._sweeps.light(self._hostings.values())
        self._check_nodes()
        self._lag.check(self._hostings)

    def _check_nodes(self) -> None:
        for machine in self._world.machines.values():
            if machine.is_up and machine.node.purgatory.is_settled:
                self.rules.node.check_all(machine.node)

    def at_phase_end(self) -> None:
        """The phase of faults is over: look at everything, whatever state it is in."""
        self._sweeps.full(self._hostings.values())
        self._check_nodes()

    def at_end(self) -> None:
        """All is healed, settled and done: look at everything, and at what must have come right."""
        self.at_phase_end()
        rules, findings = self.rules, self.rules.findings
        models: dict[Replica, LogModel] = {}
        for hosting in self._hostings.values():
            for replica, (model, partition) in hosting.seen.items():
                models[replica] = model
                if model.is_compacted and model.is_followed and self.scope.has_promises:
                    rules.compaction.check_history(partition, model)
        EndingRules(self._world, findings).check(models)
        if self.scope.has_logs:
            machines = self._world.machines.values()
            CoordinatorRules(findings).check(self._world.image, machines)
        random = self._world.streams("rehearsal")
        candidates = [each for each in self._hostings.values() if each.machine.is_up]
        if candidates:
            hosting = random.choice(candidates)
            CrashRecoveryCheck(findings, random).check(hosting.machine, list(hosting.seen.values()))


def _topic_of(log: Log, before: Iterable[PartitionModel]) -> TopicId:
    """The topic of a log. A crash may have lost the file with it; then it is the last known one."""
    if log.topic_id != NO_TOPIC_ID:
        return log.topic_id
    known = (partition.topic_id for partition in before if partition.at == log.topic_partition)
    return next(known, NO_TOPIC_ID)
