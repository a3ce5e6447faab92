"""The follower's side of a scenario: fetches by hand, and what their answers do.

This file knows in which order a follower asks the rules of `strandline.replication` (specification
1.5) and carries out what they say on its log.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.errors import CorruptRecords, ErrorCode
from strandline.records.batch import iterate_headers
from strandline.replication.follower import (
    Append,
    Asked,
    AskOffsets,
    BackOff,
    Followed,
    Ignore,
    Truncate,
    TruncateFully,
    Wait,
    follower_high_watermark,
    judge,
    out_of_range_step,
    restart_offset,
)
from strandline.replication.policies import TruncateBy
from strandline.sim.scenarios.leading import Leading
from strandline.sim.scenarios.messages import Fetch, Reply
from strandline.sim.scenarios.replica import WALL_MS, Replica
from strandline.types import NO_EPOCH, Offset


class Following(Leading):
    """The verbs for replicas that follow."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, Reply] = {}

    # -- The follower (1.5) ------------------------------------------------------------------

    def fetch(self, name: str, *, mode: str = "", one_batch: bool = False) -> None:
        """One fetch of a follower from the leader that it knows; `mode` says what goes wrong."""
        replica = self.replicas[name]
        if not replica.follows:
            self.events.append(f"{name} follows nobody")
            return
        log = replica.log
        request = Fetch(
            name,
            log.log_end_offset,
            replica.leader_epoch,
            log.leader_epochs.latest if replica.compares_epochs else NO_EPOCH,
            log.log_start_offset,
            replica.broker_epoch,
            one_batch,
        )
        source = self._source(request)
        if mode == "lose-request" or not source.is_running or source.is_cut or replica.is_cut:
            self.events.append("the request is lost")
            return
        reply = self._serve(source, request)
        if mode == "park" and not reply.records and reply.answer.error_code == ErrorCode.NONE:
            self._parked[name] = request
            self.events.append(f"{source.name} parks the fetch at {request.offset}")
            return
        self._say_reply(source.name, reply)
        if mode == "lose-reply":
            self.events.append("the reply is lost")
        elif mode == "hold-reply":
            self._held[name] = reply
        elif mode == "damage-reply":
            self._deliver(replica, replace(reply, records=damaged(reply.records)))
        else:
            self._deliver(replica, reply)

    def deliver(self, name: str) -> None:
        """A reply that was held back arrives."""
        self._deliver(self.replicas[name], self._held.pop(name))

    def has_held(self, name: str) -> bool:
        """Whether `deliver` has something to deliver."""
        return name in self._held

    def has_parked(self, name: str) -> bool:
        """Whether `expire_parked` has something to answer."""
        return name in self._parked

    def expire_parked(self, name: str) -> None:
        """A parked fetch has waited long enough, and is answered with what there is."""
        fetch = self._parked.pop(name)
        self._answer_again(self._source(fetch), fetch)

    def _deliver(self, replica: Replica, reply: Reply) -> None:
        log = replica.log
        action = judge(
            reply.answer,
            Asked(reply.fetch.offset, reply.fetch.leader_epoch),
            Followed(replica.leader_epoch, log.log_end_offset, log.high_watermark, log.reader),
            policies=self.policies,
        )
        match action:
            case Append():
                self._append(replica, reply, action)
            case Truncate(target):
                self.oracle.before_reconciling(replica)
                self._truncate(replica, target.offset)
                self.oracle.after_reconciling(replica)
                if self.policies.truncate_by is TruncateBy.LEADER_EPOCH_ONCE:
                    replica.compares_epochs = False
            case AskOffsets():
                self._reset_offset(replica, reply.fetch)
            case BackOff():
                self.events.append(f"{replica.name} backs off")
            case Wait():
                self.events.append(f"{replica.name} waits for newer metadata")
            case Ignore():
                self.events.append(f"{replica.name} ignores the answer")

    def _append(self, replica: Replica, reply: Reply, action: Append) -> None:
        log = replica.log
        if reply.records:
            self._make_room(replica, reply)
            try:
                log.appender.append_as_follower(
                    reply.records, WALL_MS + self.now_ms, leader_epoch=replica.leader_epoch
                )
            except CorruptRecords:
                self.events.append(f"{replica.name} finds damaged records, and backs off")
                return
        log.restore_high_watermark(
            follower_high_watermark(action.high_watermark, log.log_start_offset, log.log_end_offset)
        )
        log.retention.delete_records_to(min(action.log_start_offset, log.high_watermark))

    def _make_room(self, replica: Replica, reply: Reply) -> None:
        """Let a log start over where the first batch does, if the leader's start is inside it."""
        log, end = replica.log, replica.log.log_end_offset
        _, header = next(iter(iterate_headers(reply.records)))
        offset = restart_offset(
            header.base_offset,
            header.last_offset,
            log_start_offset=log.log_start_offset,
            log_end_offset=end,
            leader_start_offset=reply.answer.log_start_offset,
        )
        if offset is not None:
            self.events.append(f"{replica.name} starts over at {offset}")
            log.truncation.truncate_fully_and_start_at(
                offset, WALL_MS + self.now_ms, log_start_offset=end
            )

    def _truncate(self, replica: Replica, offset: Offset) -> None:
        self.oracle.truncates(replica, offset)
        self.events.append(f"{replica.name} truncates to {offset}")
        replica.log.truncation.truncate_to(offset, WALL_MS + self.now_ms)

    def _reset_offset(self, replica: Replica, fetch: Fetch) -> None:
        source = self._source(fetch)
        log = source.log
        step = out_of_range_step(
            log.log_end_offset, log.log_start_offset, replica.log.log_end_offset
        )
        match step:
            case Truncate(target):
                self._truncate(replica, target.offset)
            case TruncateFully(start_offset):
                self.events.append(f"{replica.name} drops everything and starts at {start_offset}")
                self.oracle.truncates(replica, start_offset)
                replica.log.truncation.truncate_fully_and_start_at(
                    start_offset, WALL_MS + self.now_ms
                )


def damaged(records: bytes) -> bytes:
    """The records with one bit of the last byte turned over."""
    return records[:-1] + bytes([records[-1] ^ 1])
