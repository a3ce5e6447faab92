"""All checkers of a world behind one observer: who is asked what, and when.

After every event a fingerprint of each replica that the node hosts tells what was touched; only
that is looked at, so that a quiet replica costs less than a microsecond. What the fingerprint does
not show, or what changes without an event, is looked at every `SWEEP_STEPS` steps, and in full at
the ends of phases. `node_acted` is the hot path: it runs after each of a hundred thousand events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes
from strandline.node.effects import Chunk, ConnectionId
from strandline.node.fetch_sessions import FetchKey
from strandline.sim.checkers.batches import Batch
from strandline.sim.checkers.cluster import Cluster
from strandline.sim.checkers.commitment import Commitment
from strandline.sim.checkers.ending_rules import EndingRules
from strandline.sim.checkers.invariants import BUG
from strandline.sim.checkers.metadata_watch import MetadataWatch
from strandline.sim.checkers.peeking import is_turn_over
from strandline.sim.checkers.recovery_rules import LastWords, RecoveryRules, is_touched
from strandline.sim.checkers.rehearsal import Rehearsal
from strandline.sim.checkers.replica_rules import ReplicaRules
from strandline.sim.checkers.serving_rules import ServingRules
from strandline.sim.checkers.shadow import (
    CUTS,
    END,
    FIRST_BASE,
    HIGH_WATERMARK,
    IN_SYNC,
    LATEST_EPOCH,
    LEADER,
    LEADER_EPOCH,
    LEADER_ID,
    LOG_START,
    NO_ROLE,
    RECOVERY_POINT,
    Mark,
    Shadow,
)
from strandline.sim.checkers.storage_rules import StorageRules
from strandline.sim.checkers.truth import PartitionTruth
from strandline.sim.checkers.truths import Truths
from strandline.sim.checkers.violations import Findings, Violation
from strandline.sim.checkers.waiting_rules import WaitingRules
from strandline.types import NO_TOPIC_ID, BrokerId, TopicPartition

if TYPE_CHECKING:
    from strandline.node.node import Node
    from strandline.node.replica import Replica
    from strandline.sim.machine import Machine
    from strandline.sim.observer import Ending
    from strandline.sim.world import World
    from strandline.storage.log import Log

SWEEP_STEPS: Final = 500

Hosted = tuple[Shadow, PartitionTruth]


class _Watched:
    """What is known of one process: its replicas and its logs."""

    __slots__ = ("by_directory", "by_key", "by_log", "machine", "seen", "unsettled")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.seen: dict[Replica, Hosted] = {}
        self.by_log: dict[Log, Hosted] = {}
        self.by_directory: dict[str, Hosted] = {}
        self.by_key: dict[FetchKey, Shadow] = {}
        """The hosted ones, by id and by name, as fetches name them."""
        self.unsettled: dict[Replica, None] = {}
        """Replicas that were touched since a turn ended."""


class Checkers:
    """See the module. An observer of a world, from before its machines start."""

    def __init__(self, world: World, *, allows_loss: Callable[[], bool] = lambda: False) -> None:
        """`allows_loss` says whether the run as a whole may lose what was acknowledged; what the
        faults excuse partition by partition is worked out here."""
        self._findings = Findings(lambda: world.schedule.now_us, world.note)
        self._cluster = Cluster(world.machines)
        self._world = world
        self._truths = Truths(self._findings)
        self._commitment = Commitment(self._cluster, self._findings, allows_loss)
        self._metadata = MetadataWatch(
            self._cluster,
            self._findings,
            self._truths,
            self._commitment,
            lambda: world.schedule.now_us,
        )
        self._replica_rules = ReplicaRules(self._findings)
        self._recovery = RecoveryRules(self._findings)
        self._serving = ServingRules(self._findings)
        self._waiting = WaitingRules(self._findings)
        self._storage = StorageRules(self._findings)
        self._watched: dict[BrokerId, _Watched] = {}
        self._last_words: dict[BrokerId, dict[PartitionTruth, LastWords]] = {}
        self._steps = 0
        self._sweeps = 0

    # -- Results -----------------------------------------------------------------------------

    @property
    def violations(self) -> list[Violation]:
        """What was found, in the order in which it was."""
        return self._findings.violations

    @property
    def counters(self) -> Counter[str]:
        """How often what was checked, and how much loss was excused."""
        return self._findings.counters

    def allows_loss(self, topic: str, partition: int) -> bool:
        """Whether the faults so far excuse the loss of acknowledged records of that partition."""
        truths = self._truths.named(TopicPartition(topic, partition))
        return any(
            self._commitment.may_lose(truth) or truth.forgiven or truth.unclean_epoch >= 0
            for truth in truths
        )

    def note_lossy(self, broker: int) -> None:
        """A machine without a process has lost something, in whatever way: nothing is asked of
        what its next process finds."""
        for truth in self._truths:
            truth.lost(BrokerId(broker))
        self._last_words.pop(BrokerId(broker), None)

    def note_records_deleted(self, at: TopicPartition, low_watermark: int) -> None:
        """A client was told that the records below are gone for good (I-27)."""
        truth = self._truths.newest(at)
        if truth is not None and low_watermark > truth.deleted_to:
            truth.deleted_to = low_watermark
            truth.kept_deletion = dict.fromkeys(truth.members)
            truth.crashed_since_deletion = 0

    # -- Events ------------------------------------------------------------------------------

    def node_acted(self, machine: Machine) -> None:
        """A node has handled an event or ended a turn: look at what that has touched."""
        watched = self._watched[machine.broker_id]
        seen = watched.seen
        node = machine.node
        count = 0
        for replica in node.replicas:
            count += 1
            hosted = seen.get(replica)
            if hosted is None:
                hosted = self._enter(watched, replica)
            log = replica.log
            leader = replica.leader
            bases = log.segments.base_offsets
            mark = (
                log.log_end_offset,
                log.high_watermark,
                log.log_start_offset,
                log.cuts,
                log.recovery_point,
                len(bases),
                log.leader_epochs.latest,
                bases[0],
                leader,
                replica.leader_epoch,
                replica.leader_id,
                None if leader is None else leader.in_sync,
                0 if leader is None else leader.min_in_sync,
            )
            if mark != hosted[0].mark:
                self._touched(watched, hosted, mark)
        if count != len(seen):
            self._leave(watched)
        if watched.unsettled and is_turn_over(node.purgatory):
            self._settled(watched, node)
        self._steps += 1
        if self._steps >= SWEEP_STEPS:
            self._steps = 0
            self._sweep()

    def started(self, machine: Machine) -> None:
        """A process has loaded its logs: compare them with those of the process before."""
        watched = self._watched[machine.broker_id] = _Watched(machine)
        self._findings.counters["starts"] += 1
        before = self._last_words.setdefault(machine.broker_id, {})
        for directory in machine.node.replicas.directories:
            if directory.offline_reason is not None:
                continue
            for log in directory.logs.values():
                shadow, truth = self._take_in(watched, log)
                words = before.pop(truth, None)
                if words is not None:
                    self._recovery.check_recovered(truth, shadow, words)
                self._commitment.follower_rose(truth, shadow, -1)
                self._recovery.check_producers(shadow, machine.clock.now.wall_ms)
        for truth, words in list(before.items()):
            if not self._recovery.check_missing(truth, words, machine):
                del before[truth]

    def ended(self, machine: Machine, how: Ending, *, lossy: bool) -> None:
        """A process is over: remember what it had."""
        broker = machine.broker_id
        before = self._last_words.setdefault(broker, {})
        for words in before.values():
            words.worsen(how)
        watched = self._watched.pop(broker, None)
        hosted = () if watched is None else watched.by_log.values()
        for shadow, truth in hosted:
            if shadow.is_live:
                shadow.is_live = False
                before[truth] = LastWords(shadow, how)
        if lossy:
            for truth in before:
                truth.lost(broker)
        if how != "stop":
            for truth in self._truths:
                if broker in truth.kept_deletion:
                    del truth.kept_deletion[broker]
                    truth.crashed_since_deletion += 1

    def metadata_changed(self, changes: Changes, image: ClusterImage) -> None:
        """The store's truth has moved."""
        del changes
        self._metadata.follow(image)

    def sent(self, machine: Machine, connection: ConnectionId, chunks: Sequence[Chunk]) -> None:
        """A client is sent an answer."""
        del connection
        if len(chunks) > 1:
            watched = self._watched.get(machine.broker_id)
            if watched is not None:
                self._serving.check_sent(chunks, watched.by_directory)

    def bug(self, machine: Machine | None, sentence: str) -> None:
        """Part of a broker failed in a way that it does not expect."""
        where = None if machine is None else f"broker {machine.broker_id}"
        self._findings.add(BUG, sentence if where is None else f"{where}: {sentence}", where)

    # -- Replicas come and go ----------------------------------------------------------------

    def _take_in(self, watched: _Watched, log: Log) -> Hosted:
        """A log that was not known yet."""
        broker = watched.machine.broker_id
        truth = self._truths.of(log.topic_partition, log.topic_id)
        shadow = Shadow(broker, log, truth.batches, self._findings)
        shadow.was_damaged = is_touched(watched.machine, log.directory)
        shadow.read_anew()
        shadow.mark = _mark_without_role(log)
        truth.shadows[broker] = shadow
        self._replica_rules.check_offsets(shadow)
        self._replica_rules.check_epoch_table(shadow)
        hosted = watched.by_log[log] = watched.by_directory[log.directory] = (shadow, truth)
        return hosted

    def _enter(self, watched: _Watched, replica: Replica) -> Hosted:
        hosted = watched.by_log.get(replica.log)
        if hosted is None:
            hosted = self._take_in(watched, replica.log)
        shadow, truth = hosted
        shadow.replica = replica
        shadow.is_live = True
        shadow.mark = (*shadow.mark[:LEADER], *NO_ROLE)
        watched.seen[replica] = hosted
        for key in _keys_of(replica):
            watched.by_key[key] = shadow
        self._metadata.meet(truth)
        return hosted

    def _leave(self, watched: _Watched) -> None:
        """Replicas are not hosted any more: moved away, deleted, or their disk fails."""
        present = set(watched.machine.node.replicas)
        for replica in [each for each in watched.seen if each not in present]:
            shadow, truth = watched.seen.pop(replica)
            watched.unsettled.pop(replica, None)
            for key in _keys_of(replica):
                if watched.by_key.get(key) is shadow:
                    del watched.by_key[key]
            shadow.replica = None
            if replica.log.closed:
                shadow.is_live = False
                watched.by_log.pop(replica.log, None)
                if truth.shadows.get(shadow.broker_id) is shadow:
                    del truth.shadows[shadow.broker_id]
                    truth.made_good(shadow.broker_id)

    # -- What was touched --------------------------------------------------------------------

    def _touched(self, watched: _Watched, hosted: Hosted, mark: Mark) -> None:
        shadow, truth = hosted
        before, shadow.mark = shadow.mark, mark
        replica = shadow.replica
        if replica is None:
            return
        rules = self._replica_rules
        has_content = shadow.log.failure is None
        added: Sequence[Batch] = ()
        if has_content:
            if mark[CUTS] != before[CUTS]:
                self._cut(hosted, before)
            else:
                if mark[FIRST_BASE] != before[FIRST_BASE]:
                    removed = shadow.drop_front()
                    rules.check_retention(shadow, before, removed, watched.machine.now.wall_ms)
                if mark[END] != before[END]:
                    added = shadow.extend()
                    rules.check_appended(shadow, added)
            self._check_tables(watched, shadow, before, added)
        leader = mark[LEADER]
        is_same_reign = leader is before[LEADER] and leader is not None
        if is_same_reign and has_content:
            rules.check_reign(shadow, before)
        if leader is not None and not is_same_reign:
            self._accepted(watched, hosted)
        elif leader is not None and mark[IN_SYNC] is not before[IN_SYNC]:
            self._commitment.check_quorum(truth, shadow, leader)
            self._commitment.check_members(truth, shadow)
        if mark[HIGH_WATERMARK] > before[HIGH_WATERMARK] and has_content:
            if leader is not None:
                self._commitment.leader_rose(truth, shadow, leader)
            else:
                self._commitment.follower_rose(truth, shadow, replica.leader_epoch)
        if leader is not None:
            self._commitment.check_progress(truth, shadow, leader)
        if mark[LEADER_ID] != before[LEADER_ID] or mark[LEADER_EPOCH] != before[LEADER_EPOCH]:
            shadow.rounds = 0
            self._waiting.check_role(watched.machine.node, shadow)
        elif not is_same_reign and leader is not before[LEADER]:
            self._waiting.check_role(watched.machine.node, shadow)
        watched.unsettled[replica] = None

    def _check_tables(
        self, watched: _Watched, shadow: Shadow, before: Mark, added: Sequence[Batch]
    ) -> None:
        """Offsets, epochs, transactions, durability."""
        mark, rules = shadow.mark, self._replica_rules
        rules.check_offsets(shadow)
        if (
            mark[LATEST_EPOCH] != before[LATEST_EPOCH]
            or mark[LOG_START] != before[LOG_START]
            or mark[CUTS] != before[CUTS]
            or (added and added[0].leader_epoch != added[-1].leader_epoch)
        ):
            rules.check_epoch_table(shadow)
        if shadow.log.producers.first_unstable_offset is not None:
            rules.check_stable(shadow)
        if mark[RECOVERY_POINT] > before[RECOVERY_POINT]:
            rules.check_durable(shadow, watched.machine, before[RECOVERY_POINT])

    def _cut(self, hosted: Hosted, before: Mark) -> None:
        shadow, truth = hosted
        self._findings.counters["truncations"] += 1
        removed = shadow.cut()
        if shadow.mark[LEADER] is None:
            self._replica_rules.check_round(shadow, before)
            self._commitment.cut(truth, shadow, removed)

    def _accepted(self, watched: _Watched, hosted: Hosted) -> None:
        shadow, truth = hosted
        leader = shadow.leader
        if leader is None:
            return
        self._commitment.accepted(truth, shadow, leader, watched.machine.life)
        if shadow.log_start < truth.deleted_to and leader.leader_epoch >= truth.newest_epoch:
            self._check_deletion(hosted)
        self._commitment.check_members(truth, shadow)

    def _check_deletion(self, hosted: Hosted) -> None:
        """I-27: a new leader shows records again that a client was told are gone."""
        shadow, truth = hosted
        is_excused = (
            truth.crashed_since_deletion >= truth.weakest
            or not truth.kept_deletion
            or self._commitment.may_lose(truth)
            or truth.unclean_epoch >= 0
        )
        if not is_excused:
            self._findings.add(
                "I-27",
                f"{shadow} leads in epoch {shadow.mark[LEADER_EPOCH]} and its log starts at "
                f"{shadow.log_start}, but a client was told that everything below "
                f"{truth.deleted_to} is deleted",
                truth.at,
            )
        truth.deleted_to = shadow.log_start

    def _settled(self, watched: _Watched, node: Node) -> None:
        """A turn has ended: nobody who waits for what was touched may be left."""
        for replica in watched.unsettled:
            hosted = watched.seen.get(replica)
            if hosted is not None:
                self._waiting.check_commits(node, hosted[0])
        watched.unsettled.clear()
        if len(node.purgatory):
            self._waiting.check_parked(node, watched.by_key)

    # -- Sweeps ------------------------------------------------------------------------------

    def _sweep(self) -> None:
        """A look at everything that is cheap, and at one log on disk."""
        self._sweeps += 1
        for watched in self._watched.values():
            machine = watched.machine
            if not machine.is_up:
                continue
            self._waiting.check_sessions(machine.node, machine.life)
            if is_turn_over(machine.node.purgatory):
                self._waiting.check_parked(machine.node, watched.by_key)
            for shadow, truth in watched.seen.values():
                self._storage.check_state(shadow)
                self._replica_rules.check_epoch_table(shadow)
                if shadow.leader is not None:
                    self._commitment.check_progress(truth, shadow, shadow.leader)
        hosted = [
            (watched.machine, shadow)
            for watched in self._watched.values()
            if watched.machine.is_up
            for shadow, _ in watched.seen.values()
        ]
        if hosted:
            machine, shadow = hosted[self._sweeps % len(hosted)]
            self._storage.check_log(machine, shadow, is_full=False)
            self._storage.check_partition_files(machine, shadow)

    def _full_sweep(self) -> None:
        for watched in self._watched.values():
            machine = watched.machine
            if not machine.is_up:
                continue
            self._waiting.check_sessions(machine.node, machine.life)
            self._storage.check_directories(machine)
            for shadow, truth in watched.seen.values():
                self._check_everything(machine, shadow, truth)

    def _check_everything(self, machine: Machine, shadow: Shadow, truth: PartitionTruth) -> None:
        if shadow.log.failure is not None:
            return
        self._replica_rules.check_offsets(shadow)
        self._replica_rules.check_epoch_table(shadow)
        self._replica_rules.check_stable(shadow)
        self._replica_rules.check_durable(shadow, machine, 0)
        self._storage.check_state(shadow)
        self._storage.check_log(machine, shadow, is_full=True)
        self._storage.check_partition_files(machine, shadow)
        self._recovery.check_producers(shadow, machine.clock.now.wall_ms)
        self._waiting.check_role(machine.node, shadow)
        if shadow.leader is not None:
            self._commitment.check_quorum(truth, shadow, shadow.leader)
            self._commitment.check_members(truth, shadow)
            self._commitment.check_progress(truth, shadow, shadow.leader)

    def at_phase_end(self) -> None:
        """The phase of faults is over: look at everything, whatever state it is in."""
        self._full_sweep()

    def at_end(self) -> None:
        """All is healed, settled and done: look at everything, and at what must have come right."""
        self._full_sweep()
        EndingRules(self._world, self._findings).check(self._hosted())
        rehearsal = Rehearsal(self._findings, self._world.streams("rehearsal"))
        for watched in self._watched.values():
            if watched.machine.is_up:
                rehearsal.check(watched.machine, list(watched.seen.values()))

    def _hosted(self) -> Iterable[tuple[Machine, Shadow]]:
        return [
            (watched.machine, shadow)
            for watched in self._watched.values()
            if watched.machine.is_up
            for shadow, _ in watched.seen.values()
        ]


def _keys_of(replica: Replica) -> tuple[FetchKey, FetchKey]:
    topic, number = replica.topic_partition
    return FetchKey(None, replica.topic_id, number), FetchKey(topic, NO_TOPIC_ID, number)


def _mark_without_role(log: Log) -> Mark:
    """The fingerprint of a log that has no role yet."""
    bases = log.segments.base_offsets
    return (
        log.log_end_offset,
        log.high_watermark,
        log.log_start_offset,
        log.cuts,
        log.recovery_point,
        len(bases),
        log.leader_epochs.latest,
        bases[0],
        *NO_ROLE,
    )
