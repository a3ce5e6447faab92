"""A replica's log, and what a follower does to it: carried out as `node` does, on a list of epochs.

The decisions are those of the real `judge`, `truncation_target`, `divergence` and of the functions
of the real table of leader epochs. What `storage.log` does with records is repeated here, as far as
epochs and offsets go; a test compares the two over random operations.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.errors import ErrorCode, ProtocolError
from strandline.replication.follower import (
    Append,
    Asked,
    FetchAnswer,
    Followed,
    Truncate,
    follower_high_watermark,
    judge,
    out_of_range_step,
)
from strandline.replication.policies import TruncateBy
from strandline.replication.truncation import EpochEnd, divergence, first_truncation
from strandline.storage.leader_epochs import EpochEntry, LeaderEpochs, up_to_end, with_entry
from strandline.storage.memory_files import MemoryFiles
from strandline.types import NO_EPOCH, LeaderEpoch, Offset
from tests.sim.modelcheck.rules import Rules
from tests.sim.modelcheck.values import Entries, Replica


class Answer(NamedTuple):
    """What a leader answers to a fetch. `record` is the epoch of the one record that it sends."""

    code: ErrorCode
    mark: int
    end: int
    diverging: EpochEnd | None = None
    record: int | None = None


class History:
    """The leader epochs of a replica's log, as the real table answers for them."""

    def __init__(self, entries: Entries, end: int) -> None:
        self._end = Offset(end)
        self._epochs = LeaderEpochs(MemoryFiles(), "/leader-epoch-checkpoint")
        for epoch, start in entries:
            self._epochs.assign(LeaderEpoch(epoch), Offset(start))

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """See `truncation.EpochHistory`."""
        return self._epochs.end_offset_for(epoch, self._end)


class Following:
    """See the module."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._policies = rules.policies

    # -- The leader's side of a fetch ---------------------------------------------------------

    def answer(self, leader: Replica, offset: int, last_epoch: int) -> Answer:
        """What the leader's log says to a fetch, before it is counted."""
        end = len(leader.log)
        diverging = None
        if self._rules.compares_logs:
            try:
                diverging = divergence(
                    LeaderEpoch(last_epoch),
                    Offset(offset),
                    log_start_offset=Offset(0),
                    history=History(leader.entries, end),
                )
            except ProtocolError as error:
                return Answer(error.code, leader.mark, end)
        if diverging is not None:
            return Answer(ErrorCode.NONE, leader.mark, end, diverging)
        if offset > end:
            return Answer(ErrorCode.OFFSET_OUT_OF_RANGE, leader.mark, end)
        record = leader.log[offset] if offset < end else None
        return Answer(ErrorCode.NONE, leader.mark, end, None, record)

    # -- The follower's side ------------------------------------------------------------------

    def last_epoch(self, replica: Replica) -> int:
        """The epoch that its fetch names."""
        return latest(replica.entries) if replica.compares else NO_EPOCH

    def begins(self, replica: Replica, epoch: int) -> Replica:
        """Follow in a new epoch: cut what cannot be compared with the leader's log."""
        truncate_by = self._policies.truncate_by
        replica = replica._replace(
            epoch=epoch, reign=(), compares=truncate_by is not TruncateBy.HIGH_WATERMARK
        )
        target = first_truncation(
            LeaderEpoch(latest(replica.entries)),
            high_watermark=Offset(replica.mark),
            log_end_offset=Offset(len(replica.log)),
            policies=self._policies,
        )
        return replica if target is None else truncated(replica, target.offset)

    def takes(self, replica: Replica, answer: Answer) -> Replica:
        """An answer to what the follower would ask for now."""
        end = Offset(len(replica.log))
        action = judge(
            FetchAnswer(
                answer.code,
                Offset(answer.mark),
                Offset(0),
                answer.diverging,
                answer.record is not None,
            ),
            Asked(end, LeaderEpoch(replica.epoch)),
            Followed(
                LeaderEpoch(replica.epoch),
                LeaderEpoch(latest(replica.entries)),
                end,
                Offset(replica.mark),
                History(replica.entries, end),
            ),
            policies=self._policies,
        )
        if isinstance(action, Append):
            return _followed_to(_appended(replica, answer.record), action.high_watermark)
        if isinstance(action, Truncate):
            if not self._rules.diverging_answer_moves_no_mark:
                early = _followed_to(replica, answer.mark)
                if early != replica:
                    return early  # as if the log was cut with the next answer only
            after = truncated(replica, action.target.offset)
            if self._policies.truncate_by is TruncateBy.LEADER_EPOCH_ONCE:
                # It asks once, and believes that its log agrees from then on.
                after = after._replace(compares=False)
            return after
        if answer.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            step = out_of_range_step(Offset(answer.end), Offset(0), end)
            if isinstance(step, Truncate):
                return truncated(replica, step.target.offset)
        return replica


def latest(entries: Entries) -> int:
    """The newest epoch of a table."""
    return entries[-1][0] if entries else NO_EPOCH


def assigned(entries: Entries, epoch: int, start: int) -> Entries:
    """The table when an epoch begins at an offset, as the real one does it."""
    changed = with_entry(_real(entries), EpochEntry(LeaderEpoch(epoch), Offset(start)))
    return entries if changed is None else tuple((e, s) for e, s in changed)


def truncated(replica: Replica, offset: int) -> Replica:
    """The replica when its log ends at an offset, or where it ends if that is before."""
    log = replica.log[:offset]
    entries = tuple((e, s) for e, s in up_to_end(_real(replica.entries), Offset(len(log))))
    return replica._replace(log=log, entries=entries, mark=min(replica.mark, len(log)))


def written(replica: Replica) -> Replica:
    """The leader appends a record of its epoch."""
    entries = replica.entries
    if replica.epoch != latest(entries):
        entries = assigned(entries, replica.epoch, len(replica.log))
    return replica._replace(log=(*replica.log, replica.epoch), entries=entries)


def _appended(replica: Replica, record: int | None) -> Replica:
    if record is None:
        return replica
    newest = latest(replica.entries)
    if record > replica.epoch or record < newest:
        return replica  # such records are refused, and nothing of the answer is used
    entries = replica.entries
    if record != newest:
        entries = assigned(entries, record, len(replica.log))
    return replica._replace(log=(*replica.log, record), entries=entries)


def _followed_to(replica: Replica, mark: int) -> Replica:
    own = follower_high_watermark(Offset(mark), Offset(0), Offset(len(replica.log)))
    return replica._replace(mark=own)


def _real(entries: Entries) -> list[EpochEntry]:
    return [EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in entries]
