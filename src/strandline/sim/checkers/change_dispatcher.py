"""Runs the checks of a replica after each event that has touched it.

The fingerprints before and after say what has changed; each change has its questions, in an order
that matters: first the model follows the log, then the log is judged by itself, then leadership,
then what is committed, since each of these looks at what the one before has settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from strandline.sim.checkers.batches import Batch
from strandline.sim.checkers.hosting import Hosted, Hosting
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
    LEADER_ID,
    LOG_START,
    RECOVERY_POINT,
    SEGMENTS,
    Mark,
)
from strandline.sim.checkers.rules import Rules

if TYPE_CHECKING:
    from strandline.node.node import Node


class ChangeDispatcher:
    """See the module."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def touched(self, hosting: Hosting, hosted: Hosted, mark: Mark) -> None:
        """A replica has another fingerprint than before."""
        model = hosted[0]
        before, model.mark = model.mark, mark
        replica = model.replica
        if replica is None:
            return
        has_content = _has_content(model, before)
        if has_content:
            self._follow(hosting, hosted, before)
        if mark[LEADER] is not before[LEADER] or mark[IN_SYNC] is not before[IN_SYNC]:
            self._check_leadership(hosting, hosted, before)
        if mark[HIGH_WATERMARK] > before[HIGH_WATERMARK] and (
            has_content or _can_still_commit(model, before)
        ):
            self._risen(hosted)
        if (
            mark[LEADER_ID] != before[LEADER_ID]
            or mark[LEADER_EPOCH] != before[LEADER_EPOCH]
            or mark[LEADER] is not before[LEADER]
        ):
            model.rounds = 0
        hosting.unsettled[replica] = None

    def settled(self, hosting: Hosting, node: Node) -> None:
        """A turn has ended: nothing that waits for what was touched may be left."""
        rules = self._rules.node
        rules.check(node, hosting.unsettled)
        hosting.unsettled.clear()
        if len(node.purgatory):
            rules.check_fetches(node, hosting.seen)

    # -- The log -----------------------------------------------------------------------------

    def moved(self, hosting: Hosting, hosted: Hosted, mark: Mark) -> None:
        """A log lies in another directory of its broker: it has what it had, and whatever is
        appended from now on. What is counted anew for its files tells nothing else."""
        model = hosted[0]
        self._rules.findings.counters["log moves"] += 1
        for batch in model.moved()[:1]:
            self._rules.findings.add(
                "I-10",
                f"{model} has lost {batch} on its way to {model.log.directory}, on broker "
                f"{hosting.machine.broker_id}",
                model.at,
            )
        before = list(model.mark)
        for place in (CUTS, SEGMENTS, FIRST_BASE):
            before[place] = mark[place]
        model.mark = tuple(before)

    def _follow(self, hosting: Hosting, hosted: Hosted, before: Mark) -> None:
        model, rules = hosted[0], self._rules.replica
        mark = model.mark
        added: Sequence[Batch] = ()
        if mark[CUTS] != before[CUTS]:
            self._cut(hosted, before)
            model.growth.begin(mark[END], hosting.machine.world.schedule.now_us)
        else:
            if mark[FIRST_BASE] != before[FIRST_BASE]:
                removed = model.drop_front()
                rules.check_retention(model, before, removed, hosting.acted_at_ms)
            if mark[END] != before[END]:
                added = model.extend()
                rules.check_appended(model, added)
                model.growth.note(mark[END], hosting.machine.world.schedule.now_us)
        rules.check_end(model)
        if mark[LOG_START] != before[LOG_START]:
            model.start_rose_us = hosting.machine.world.schedule.now_us
        if (
            mark[LATEST_EPOCH] != before[LATEST_EPOCH]
            or mark[LOG_START] != before[LOG_START]
            or mark[CUTS] != before[CUTS]
            or (added and added[0].leader_epoch != added[-1].leader_epoch)
        ):
            rules.check_epoch_table(model)
        if model.log.producers.transactions.first_unstable_offset is not None:
            rules.check_stable(model)
        if mark[RECOVERY_POINT] > before[RECOVERY_POINT]:
            rules.check_durable(model, hosting.machine, before[RECOVERY_POINT])
        if mark[LEADER] is not None and mark[LEADER] is before[LEADER]:
            rules.check_reign(hosted[1], model, before)

    def _cut(self, hosted: Hosted, before: Mark) -> None:
        model, partition = hosted
        self._rules.findings.counters["truncations"] += 1
        removed = model.cut()
        if model.leader is None:
            self._rules.replica.check_round(model, before)
            self._rules.commitment.cut(partition, model, removed)

    # -- Leading -----------------------------------------------------------------------------

    def _check_leadership(self, hosting: Hosting, hosted: Hosted, before: Mark) -> None:
        model, partition = hosted
        leader, commitment = model.leader, self._rules.commitment
        if leader is None:
            return
        if leader is before[LEADER]:
            commitment.check_quorum(partition, model, leader)
        else:
            model.note_leadership(hosting.machine.world.schedule.now_us)
            commitment.accepted(partition, model, leader, hosting.machine.life)
        commitment.check_members(partition, model)

    def _risen(self, hosted: Hosted) -> None:
        """The high watermark is higher than before."""
        model, partition = hosted
        leader, commitment = model.leader, self._rules.commitment
        if leader is None:
            commitment.follower_rose(partition, model)
        else:
            commitment.leader_rose(partition, model, leader)
            commitment.check_progress(partition, model, leader)


def _has_content(model: LogModel, before: Mark) -> bool:
    """Whether the log can be followed. One that fails is followed a last time: what it did in the
    same event before it failed counts, unless that was a truncation, which may be half done."""
    if model.log.failure is None:
        return True
    had_failed, model.has_failed = model.has_failed, True
    return not had_failed and model.mark[CUTS] == before[CUTS]


def _can_still_commit(model: LogModel, before: Mark) -> bool:
    """Whether a rise counts although the log has failed: its leader leads on (F-46).

    Nothing is appended to a log that has failed, and a leader does not cut, so the model still
    tells what is in it; and what all members of the in-sync set have got from it before is
    committed by the rise, and is found so at them.
    """
    mark = model.mark
    return (
        model.has_failed
        and mark[LEADER] is not None
        and mark[CUTS] == before[CUTS]
        and mark[END] == model.end
    )
