"""Committed records stay on every replica: I-11, I-13 to I-15, I-22 to I-25, I-27, I-32.

The checks that need all replicas of a partition at once. Each is asked at the moment at which it
could become false: when leadership is accepted, when a high watermark rises, when a log is cut,
when the in-sync set changes. Where loss is permitted (`scope`), only I-11, I-13 and I-15 are asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.replication.leader import Leader
from strandline.replication.progress import NO_BROKER_EPOCH, Progress
from strandline.sim.checkers.batches import Batch
from strandline.sim.checkers.cluster import Cluster
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.partition_model import PartitionModel
from strandline.sim.checkers.scope import Scope
from strandline.sim.checkers.violations import Findings
from strandline.types import BrokerId


class Commitment:
    """See the module."""

    def __init__(self, cluster: Cluster, findings: Findings, scope: Scope) -> None:
        self._cluster = cluster
        self._findings = findings
        self._scope = scope

    # -- Leaders -----------------------------------------------------------------------------

    def accepted(
        self, partition: PartitionModel, model: LogModel, leader: Leader, life: int
    ) -> None:
        """A replica has accepted leadership in an epoch (I-11, I-23)."""
        epoch, broker = leader.leader_epoch, model.broker_id
        holder = partition.leaders.setdefault(epoch, (broker, life))
        if holder != (broker, life):
            self._findings.add(
                "I-11",
                f"{partition.at}: brokers {holder[0]} (life {holder[1]}) and {broker} "
                f"(life {life}) both lead in epoch {epoch}",
                partition.at,
            )
        self._findings.counters["leaderships"] += 1
        if epoch >= partition.newest_epoch:
            partition.newest_epoch = epoch
            if self._scope.has_promises:
                self._check_complete(partition, model, epoch)
        self.check_quorum(partition, model, leader)

    def _check_complete(self, partition: PartitionModel, model: LogModel, epoch: int) -> None:
        """I-23 and I-27 of a leader in the newest epoch."""
        last = partition.last_committed
        if last is not None and last.next_offset > model.log_start and not model.holds(last):
            self._findings.add(
                "I-23",
                f"{partition.at}: broker {model.broker_id} leads in epoch {epoch}, but its log, "
                f"which ends at {model.end}, lacks {last}, which is committed",
                partition.at,
            )
        if model.log_start < partition.deleted_to:
            self._findings.add(
                "I-27",
                f"{model} leads in epoch {epoch} and its log starts at {model.log_start}, but a "
                f"client was told that everything below {partition.deleted_to} is deleted",
                partition.at,
            )

    def check_quorum(self, partition: PartitionModel, model: LogModel, leader: Leader) -> None:
        """I-13: a leader waits for itself and for all whom the metadata calls in sync."""
        in_sync, state = leader.in_sync, partition.state
        if state is None or state.leader_epoch != leader.leader_epoch:
            return
        counted = {b for b, progress in leader.progress.items() if progress.is_counted}
        counted = (counted | {leader.broker_id}) & in_sync.maximal
        if any(b not in counted for b in state.in_sync_replicas):
            self._findings.add(
                "I-13",
                f"{partition.at}: broker {model.broker_id} leads in epoch {leader.leader_epoch} "
                f"and waits for {sorted(counted)}, but the in-sync set is "
                f"{state.in_sync_replicas} (partition epoch {state.partition_epoch})",
                partition.at,
            )

    def check_progress(self, partition: PartitionModel, model: LogModel, leader: Leader) -> None:
        """I-15, and I-27: no follower is believed to have, or to have deleted, more than it has."""
        replica, low = model.replica, None
        for broker, progress in leader.progress.items():
            follower = partition.models.get(broker)
            if follower is None or not self._is_known(follower, progress, leader):
                continue
            log = follower.log
            # What the leader has deleted itself, the follower gives up for a log that begins there:
            # if that fails half-way, it has less until it tries again.
            if max(log.log_end_offset, model.log.log_start_offset) < progress.log_end_offset:
                self._findings.add(
                    "I-15",
                    f"{partition.at}: broker {model.broker_id}, which leads in epoch "
                    f"{leader.leader_epoch}, believes that broker {broker} has everything below "
                    f"{progress.log_end_offset}, but its log ends at {log.log_end_offset}",
                    partition.at,
                )
            if broker not in leader.in_sync.maximal or replica is None or self._scope.may_lose:
                continue
            if replica.leading is None:
                return  # it failed in the turn that is not over yet
            low = replica.leading.low_watermark if low is None else low
            if low > log.log_start_offset:
                self._findings.add(
                    "I-27",
                    f"{partition.at}: broker {model.broker_id}, which leads in epoch "
                    f"{leader.leader_epoch}, has the low watermark {low}, but the log of broker "
                    f"{broker} starts at {log.log_start_offset}",
                    partition.at,
                )

    def _is_known(self, follower: LogModel, progress: Progress, leader: Leader) -> bool:
        """Whether what a leader believes is about what the follower's process has now."""
        return (
            follower.replica is not None
            and follower.is_live
            and progress.broker_epoch != NO_BROKER_EPOCH
            and progress.broker_epoch == self._cluster.broker_epoch(follower.broker_id)
            and follower.replica.leader_epoch <= leader.leader_epoch
        )

    # -- High watermarks ---------------------------------------------------------------------

    def leader_rose(self, partition: PartitionModel, model: LogModel, leader: Leader) -> None:
        """A leader's high watermark is higher than before (I-25, I-14)."""
        if not self._scope.has_promises:
            return
        contradicted = partition.commit(model, model.high_watermark)
        self._findings.counters["commits"] += 1
        if contradicted is not None:
            self._findings.add(
                "I-25",
                f"{partition.at}: broker {model.broker_id}, which leads in epoch "
                f"{leader.leader_epoch}, calls everything below {model.high_watermark} committed, "
                f"but its log lacks {contradicted}, which is committed",
                partition.at,
            )
        self.check_members(partition, model)

    def follower_rose(self, partition: PartitionModel, model: LogModel) -> None:
        """A follower's high watermark is higher than before, or is known again (I-22)."""
        newest = model.below(model.high_watermark)
        if (
            newest is not None
            and newest.next_offset > model.log_start
            and self._scope.has_promises
            and not partition.is_committed(newest)
        ):
            self._findings.add(
                "I-22",
                f"{model} has the high watermark {model.high_watermark}, but {newest} is not "
                f"what is committed there (which ends at {partition.committed_end})",
                partition.at,
            )

    # -- The in-sync set ---------------------------------------------------------------------

    def check_all_leaders(self, partition: PartitionModel) -> None:
        """The in-sync set has changed: each replica that believes to lead must agree with it."""
        for model in partition.models.values():
            leader = model.leader
            if model.is_live and leader is not None:
                self.check_quorum(partition, model, leader)
                self.check_members(partition, model)

    def check_members(self, partition: PartitionModel, model: LogModel) -> None:
        """I-14 and I-32: in-sync and eligible replicas have all that this leader commits."""
        state, leader = partition.state, model.leader
        if state is None or leader is None or not self._scope.has_promises:
            return
        newest = model.below(model.high_watermark)
        if newest is None or newest.next_offset <= model.log_start:
            return
        for broker in state.in_sync_replicas:
            if broker != model.broker_id:
                self._check_member("I-14", partition, model, broker, newest)
        for broker in state.elr:
            self._check_member("I-32", partition, model, broker, newest)

    def _check_member(
        self,
        invariant: str,
        partition: PartitionModel,
        model: LogModel,
        broker: BrokerId,
        newest: Batch,
    ) -> None:
        member, state = partition.models.get(broker), partition.state
        if (
            member is None
            or state is None
            or not member.is_live
            or member.holds(newest)
            or member.log.log_start_offset >= newest.next_offset
            or member.log.failure is not None
            or not self._cluster.is_meant(broker, state.in_sync_epochs.get(broker))
        ):
            return
        what = "in sync" if invariant == "I-14" else "an eligible leader"
        self._findings.add(
            invariant,
            f"{partition.at}: broker {broker} is {what}, but its log, which ends at {member.end}, "
            f"lacks {newest}, and broker {model.broker_id}, which leads in epoch "
            f"{model.leader.leader_epoch if model.leader else -1}, has the high watermark "
            f"{model.high_watermark}",
            partition.at,
        )

    # -- Truncation --------------------------------------------------------------------------

    def cut(self, partition: PartitionModel, model: LogModel, removed: Sequence[Batch]) -> None:
        """A log has lost batches at its end (I-24)."""
        state = partition.state
        if state is None or model.broker_id not in state.in_sync_replicas:
            return
        recorded = state.in_sync_epochs.get(model.broker_id)
        if not self._scope.has_promises or not self._cluster.is_meant(model.broker_id, recorded):
            return
        for batch in removed:
            if batch.next_offset > model.log_start and partition.is_committed(batch):
                self._findings.add(
                    "I-24",
                    f"{model} is in sync and has truncated {batch}, which is committed",
                    partition.at,
                )
                return
