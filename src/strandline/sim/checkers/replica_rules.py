"""What must hold for one replica by itself: I-02, I-03, I-06, I-07, I-10, I-17, I-20, I-27, I-43.

Each rule compares the fingerprint of a replica before and after an event, and its model with what
its log says of itself. Other replicas are `commitment`'s affair.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from strandline.cluster.topic_names import SHARE_GROUP_STATE
from strandline.config.topic import TopicConfig
from strandline.replication.in_sync import Committed
from strandline.sim.checkers.batches import Batch, Dropped
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.marks import (
    CUTS,
    END,
    FIRST_BASE,
    HIGH_WATERMARK,
    IN_SYNC,
    LATEST_EPOCH,
    LEADER,
    LEADER_EPOCH,
    LOG_START,
    MIN_IN_SYNC,
    PARTITION_EPOCH,
    RECOVERY_POINT,
    Mark,
)
from strandline.sim.checkers.partition_model import PartitionModel
from strandline.sim.checkers.violations import Findings
from strandline.types import Offset

if TYPE_CHECKING:
    from strandline.sim.machine import Machine


class ReplicaRules:
    """See the module."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._stable: dict[LogModel, tuple[int, int]] = {}
        """Of leaders: the leader epoch, and the highest last stable offset seen in it."""

    # -- Offsets and batches -----------------------------------------------------------------

    def check_end(self, model: LogModel) -> None:
        """I-02: the log ends where its last batch does."""
        end = model.mark[END]
        last = model.batches[-1].next_offset if model.batches else end
        if last > end or (last < end and not model.is_compacted):
            self._findings.add(
                "I-02",
                f"{model} says that it ends at {end}, but its last batch is {model.batches[-1]}",
                model.at,
            )

    def check_appended(self, model: LogModel, added: Sequence[Batch]) -> None:
        """I-03: leader epochs never fall, and the replica that appends knows them."""
        leader_epoch = model.mark[LEADER_EPOCH]
        before = (
            model.batches[-len(added) - 1].leader_epoch if len(model.batches) > len(added) else -1
        )
        for batch in added:
            if not before <= batch.leader_epoch <= leader_epoch:
                self._findings.add(
                    "I-03",
                    f"{model} is in leader epoch {leader_epoch} and has appended {batch} behind "
                    f"a batch of epoch {before}",
                    model.at,
                )
            before = batch.leader_epoch

    def check_epoch_table(self, model: LogModel) -> None:
        """I-03: the table of leader epochs is what the batches say.

        One entry more may stand at the log's end, for an epoch in which nothing was written yet.
        The first entry may start anywhere from the first batch of its epoch to the log start; a log
        start that came back lower after a crash does not bring forgotten entries back.
        """
        log, start = model.log, model.log.log_start_offset
        if model.is_compacted:
            self._check_epochs_of_batches(model, start)
            return
        table = [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries]
        expected = model.epoch_starts(start)
        is_behind = not expected or not table or expected[-1][0] < table[-1][0]
        if table and is_behind and table[-1][1] == log.log_end_offset:
            table = table[:-1]
        if table == expected:
            return
        if table and model.start_fell:
            expected = [entry for entry in expected if entry[0] >= table[0][0]]
        if (
            table
            and expected
            and table[0][0] == expected[0][0]
            and (table[0][1] <= max(start, expected[0][1]) or model.start_fell)
        ):
            table, expected = table[1:], expected[1:]
        if table != expected:
            self._findings.add(
                "I-03",
                f"{model}, whose log goes from {start} to {log.log_end_offset}, has the leader "
                f"epochs {[tuple(entry) for entry in log.leader_epochs.entries]}, but its batches "
                f"say {model.epoch_starts(start)}",
                model.at,
            )

    def _check_epochs_of_batches(self, model: LogModel, start: int) -> None:
        """I-03 where compaction may have left nothing of an epoch that the table still has."""
        epochs = model.log.leader_epochs
        known_from = epochs.entries[0].start_offset if epochs.entries else model.log.log_end_offset
        for batch in model.batches:
            at = max(batch.base_offset, start)
            if batch.next_offset <= start or (model.start_fell and at < known_from):
                continue
            if epochs.epoch_for_offset(Offset(at)) != batch.leader_epoch:
                self._findings.add(
                    "I-03",
                    f"{model} has the leader epochs {[tuple(entry) for entry in epochs.entries]}, "
                    f"but {batch} at {at}",
                    model.at,
                )
                return

    def check_stable(self, model: LogModel) -> None:
        """I-06: nothing undecided lies below the last stable offset, which does not go back."""
        log = model.log
        stable, first_open = log.last_stable_offset, log.producers.first_undecided_offset
        if stable > log.high_watermark or (
            first_open is not None and max(first_open, log.log_start_offset) < stable
        ):
            self._findings.add(
                "I-06",
                f"{model} has the last stable offset {stable} and the high watermark "
                f"{log.high_watermark}, and a transaction is open since {first_open}",
                model.at,
            )
        if model.leader is None:
            self._stable.pop(model, None)
            return
        epoch = model.mark[LEADER_EPOCH]
        before = self._stable.get(model, (epoch, stable))
        if before[0] == epoch and stable < before[1]:
            self._findings.add(
                "I-06",
                f"{model} leads in epoch {epoch} and has the last stable offset {stable}, after "
                f"{before[1]}",
                model.at,
            )
        self._stable[model] = (epoch, stable)

    def check_durable(self, model: LogModel, machine: Machine, since: int) -> None:
        """I-07: what lies below the recovery point survives a power cut."""
        log, point = model.log, model.mark[RECOVERY_POINT]
        for segment in log.segments.since(min(since, point)):
            if segment.base_offset >= point:
                break
            first, stop = model.index_at(segment.base_offset), model.index_at(point)
            above = log.segments.above(segment.base_offset)
            if above:
                stop = min(stop, model.index_at(above[0].base_offset))
            needed = model.bytes_between(first, stop)
            durable = machine.disk.durable_end(segment.log.path) if needed else 0
            if durable < needed:
                self._findings.add(
                    "I-07",
                    f"{model} has the recovery point {point}, but of {segment.log.path} only "
                    f"{durable} of {needed} bytes are durable",
                    model.at,
                )

    # -- Leading -----------------------------------------------------------------------------

    def check_reign(self, partition: PartitionModel, model: LogModel, before: Mark) -> None:
        """I-10, I-17 and I-27, between two moments of one leadership."""
        mark = model.mark
        if mark[CUTS] != before[CUTS] or mark[END] < before[END]:
            self._findings.add(
                "I-10",
                f"{model} leads in epoch {mark[LEADER_EPOCH]} and has truncated its log from "
                f"{before[END]} to {mark[END]}",
                model.at,
            )
        if mark[HIGH_WATERMARK] < before[HIGH_WATERMARK]:
            self._findings.add(
                "I-10",
                f"{model} leads in epoch {mark[LEADER_EPOCH]} and has lowered its high watermark "
                f"from {before[HIGH_WATERMARK]} to {mark[HIGH_WATERMARK]}",
                model.at,
            )
        if mark[LOG_START] < before[LOG_START]:
            self._findings.add(
                "I-27",
                f"{model} leads in epoch {mark[LEADER_EPOCH]} and has lowered its log start from "
                f"{before[LOG_START]} to {mark[LOG_START]}",
                model.at,
            )
        if (
            mark[HIGH_WATERMARK] > before[HIGH_WATERMARK]
            and mark[LOG_START] <= before[HIGH_WATERMARK]
        ):
            self._check_minimum(model, before)
            self._check_promise(partition, model, before)

    def _check_promise(self, partition: PartitionModel, model: LogModel, before: Mark) -> None:
        """I-17 by what the metadata promise, whatever the leader's settings are: who is eligible in
        the state that it goes by has everything that is committed."""
        known = {mark[PARTITION_EPOCH] for mark in (before, model.mark)}
        if known <= partition.with_eligible:
            self._findings.add(
                "I-17",
                f"{model} leads in epoch {model.mark[LEADER_EPOCH]}, knows partition epoch "
                f"{model.mark[PARTITION_EPOCH]}, in which others are eligible, and has raised its "
                f"high watermark from {before[HIGH_WATERMARK]} to {model.mark[HIGH_WATERMARK]}",
                model.at,
            )

    def _check_minimum(self, model: LogModel, before: Mark) -> None:
        leader = model.mark[LEADER]
        replicas = len(leader.replicas)
        held = [
            isinstance(mark[IN_SYNC], Committed)
            and len(mark[IN_SYNC].members) < min(mark[MIN_IN_SYNC], replicas)
            for mark in (before, model.mark)
        ]
        if all(held):
            self._findings.add(
                "I-17",
                f"{model} leads in epoch {leader.leader_epoch} with only "
                f"{sorted(leader.in_sync.members)} in sync, where {leader.effective_min_in_sync} "
                f"must be, and has raised its high watermark from {before[HIGH_WATERMARK]} to "
                f"{model.mark[HIGH_WATERMARK]}",
                model.at,
            )

    # -- Following ---------------------------------------------------------------------------

    def check_round(self, model: LogModel, before: Mark) -> None:
        """I-20: a truncation brings the follower nearer; there are not more than it has epochs."""
        mark = model.mark
        if mark[LOG_START] >= before[END]:
            return  # it begins again where its leader's log starts
        if model.rounds == 0:
            model.epochs_at_round_start = len(model.log.leader_epochs.entries) + 1
        model.rounds += 1
        after = (mark[LATEST_EPOCH], mark[END])
        if not after < (before[LATEST_EPOCH], before[END]):
            self._findings.add(
                "I-20",
                f"{model} was truncated, but went from (epoch, end) "
                f"({before[LATEST_EPOCH]}, {before[END]}) to {after}",
                model.at,
            )
        if model.rounds > model.epochs_at_round_start + 1:
            self._findings.add(
                "I-20",
                f"{model} was truncated {model.rounds} times in leader epoch "
                f"{mark[LEADER_EPOCH]}, but had only {model.epochs_at_round_start} epochs",
                model.at,
            )

    # -- Retention ---------------------------------------------------------------------------

    def check_retention(
        self, model: LogModel, before: Mark, removed: Sequence[Dropped], now_ms: int
    ) -> None:
        """I-43: only replicated segments go, and only those that a setting does not keep.

        Each segment needs a reason of its own: one goes because enough bytes are left without it,
        and the next, which may hold records of old, because of its age. What the coordinator of
        share groups deletes by itself may go in the same step, when two timers ring together.
        """
        is_pruned = model.at.topic == SHARE_GROUP_STATE
        start = model.mark[LOG_START] if is_pruned else before[LOG_START]
        first = model.mark[FIRST_BASE]
        config = model.log.config
        if first > model.mark[HIGH_WATERMARK]:
            self._findings.add(
                "I-43",
                f"{model} has dropped segments up to {first}, beyond its high watermark "
                f"{model.mark[HIGH_WATERMARK]}",
                model.at,
            )
        left = model.log.segments.size_bytes
        for segment in reversed(_segments_of(model, removed)):
            last = segment[-1].batch
            if last.next_offset > start:
                problem = _reason_to_keep(config, segment, left, now_ms)
                if problem is not None:
                    self._findings.add(
                        "I-43", f"{model} has dropped {last}, but {problem}", model.at
                    )
                    return
            left += sum(each.size for each in segment)


def _segments_of(model: LogModel, removed: Sequence[Dropped]) -> list[list[Dropped]]:
    """Batches that were dropped, segment by segment, as the segments that are still to be removed
    from the disk tell.

    A segment may begin in front of its first batch, where compaction has left nothing. Those that
    were compacted into others count as well: of a segment that may go, each part may.
    """
    removals = model.log.segments.removals
    bases = sorted({each.segment.base_offset for each in removals if each.segment is not None})
    found: dict[int, list[Dropped]] = {}
    for each in removed:
        found.setdefault(bisect_right(bases, each.batch.base_offset), []).append(each)
    return list(found.values())


def _reason_to_keep(
    config: TopicConfig, segment: Sequence[Dropped], left: int, now_ms: int
) -> str | None:
    """Why a segment should not have been dropped, when `left` bytes were behind it."""
    if not config.deletes_old_segments:
        return "its cleanup policy does not delete"
    if 0 <= config.retention_bytes <= left:
        return None
    if config.retention_ms < 0:
        return f"only {left} bytes are left of retention.bytes={config.retention_bytes}"
    newest = max(each.max_timestamp for each in segment)
    if newest < 0 or now_ms - newest > config.retention_ms:
        return None
    return (
        f"{left} bytes are left of retention.bytes={config.retention_bytes}, and the newest record "
        f"is {now_ms - newest} ms old with retention.ms={config.retention_ms}"
    )
