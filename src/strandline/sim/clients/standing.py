"""Keeping a reader's positions true: finding them out, doubting them, and moving them honestly.

What moves a position is reading, or one of three answers: where the log begins or ends, and where
the epoch of the last record that was read ends (KIP-320). Whoever has read up to an offset has read
committed records; a log that ends before that is reported, unless the run may lose records. These
questions name the topic. Before anything is reported, the broker must confirm the topic's id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from strandline.client.channel import RequestFailed
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.sim.clients.client import SimClient
from strandline.sim.clients.cluster import Leader
from strandline.sim.clients.connection import Connection, Outcome
from strandline.sim.clients.offsets import (
    EARLIEST,
    LATEST,
    list_offsets,
    offset_for_epoch,
    only_partition,
)
from strandline.sim.clients.seats import EpochEnd, Seat
from strandline.sim.clients.wishes import Wishes
from strandline.sim.clients.world import ClientWorld
from strandline.sim.history.operations import Assigned, StartSeen
from strandline.sim.plan import ClientSpec
from strandline.types import NO_EPOCH, LeaderEpoch, TopicId, TopicPartition

ANCHORS: Final = {"earliest": EARLIEST, "latest": LATEST}
ISOLATIONS: Final = ("uncommitted", "committed")

_Told: TypeAlias = Callable[[Seat, Leader, Connection, Any], None]


class Stander(SimClient):
    """Has seats, and keeps their positions true. `pump` is what goes on when an answer came."""

    def __init__(self, world: ClientWorld, spec: ClientSpec, wishes: Wishes) -> None:
        super().__init__(world, spec, wishes)
        self.seats: dict[TopicPartition, Seat] = {}
        self.needs_end = False
        """Whether the ends of the logs are to be found out first."""
        self.reset = ANCHORS[wishes.one_of("reset", ("earliest", "latest"))]
        self.checks_epochs = wishes.flag("check-epochs", default=True)
        self._starts_agree = wishes.flag("starts-agree")
        """Whether nothing is ever deleted, so that all leaders begin where the first one did."""
        self.isolation = ISOLATIONS.index(wishes.one_of("isolation", ISOLATIONS))
        self._alarm_us: int | None = None
        self.cluster.changed = self.pump

    def least_versions(self, wishes: Wishes) -> Mapping[ApiKey, int]:
        """See `SimClient`."""
        is_committed = wishes.one_of("isolation", ISOLATIONS) == "committed"
        return {ApiKey.LIST_OFFSETS: 2} if is_committed else {}

    def pump(self) -> None:
        """Do what can be done."""
        raise NotImplementedError

    def is_standing(self, seat: Seat, leader: Leader) -> bool:
        """Whether its position is known and beyond doubt; otherwise it is being found out."""
        if self.needs_end and seat.end is None:
            self._ask_leader(seat, leader, ApiKey.LIST_OFFSETS, LATEST, self._end_told)
        elif seat.position is None and seat.start >= 0:
            self._stand(seat, seat.start)
            return True
        elif seat.position is None:
            self._ask_leader(seat, leader, ApiKey.LIST_OFFSETS, seat.start, self._start_told)
        elif self._is_doubtful(seat, leader):
            self._ask_leader(
                seat, leader, ApiKey.OFFSET_FOR_LEADER_EPOCH, seat.epoch, self._epoch_told
            )
        else:
            return True
        return False

    def _is_doubtful(self, seat: Seat, leader: Leader) -> bool:
        """Whether another one leads now than when the position was known to be in the log."""
        if not self.checks_epochs or seat.epoch == NO_EPOCH:
            return False
        return leader.epoch > seat.checked_epoch

    # -- questions about a position ----------------------------------------------------------

    def _ask_leader(self, seat: Seat, leader: Leader, key: ApiKey, which: int, told: _Told) -> None:
        connection = self.cluster.connection(leader.broker_id)
        if connection is None:
            self.wake_at(self.cluster.closed_until_us(leader.broker_id))
            return
        epoch = leader.epoch if self.checks_epochs else NO_EPOCH
        request: object
        if key is ApiKey.LIST_OFFSETS:
            request = list_offsets(seat.at, which, epoch, self.isolation)
        else:
            request = offset_for_epoch(seat.at, LeaderEpoch(which), epoch)
        seat.is_busy = True
        then = partial(self._told, seat, seat.topic_id, leader, connection, told)
        self.cluster.ask(connection, key, request, then)

    def _told(
        self,
        seat: Seat,
        topic_id: TopicId,
        leader: Leader,
        connection: Connection,
        told: _Told,
        outcome: Outcome,
    ) -> None:
        seat.is_busy = False
        answer = None if isinstance(outcome, RequestFailed) else only_partition(outcome)
        if answer is None:
            self.trouble(seat, None)
        elif answer.error_code != ErrorCode.NONE:
            self.trouble(seat, ErrorCode(answer.error_code))
        elif topic_id == seat.topic_id:
            seat.backoff.reset()
            told(seat, leader, connection, answer)
        self.pump()

    def _end_told(self, seat: Seat, leader: Leader, connection: Connection, answer: Any) -> None:
        del leader, connection
        seat.end = answer.offset

    def _start_told(self, seat: Seat, leader: Leader, connection: Connection, answer: Any) -> None:
        if seat.start == EARLIEST:
            self.log_starts(seat, answer.offset)
            lost = seat.lost_position
            is_comparable = self._starts_agree or leader.epoch == seat.lost_epoch
            if lost is not None and answer.offset <= lost and is_comparable:
                # Out of range, and yet not before the log: so it was behind its end. Of two leaders
                # the second may begin earlier: it has not heard of what the first has deleted yet.
                self._suspect(
                    seat,
                    connection,
                    f"{self.name} had read up to {lost} and was told that this is out of range, "
                    f"but the log begins at {answer.offset}",
                )
        seat.lost_position = None
        self._stand(seat, answer.offset)

    def _epoch_told(self, seat: Seat, leader: Leader, connection: Connection, answer: Any) -> None:
        position = seat.position
        if position is None:
            return
        if answer.end_offset >= 0 and seat.epoch < leader.epoch:
            seat.epoch_end = EpochEnd(leader.epoch, seat.epoch, answer.end_offset)
        if answer.end_offset >= position and answer.leader_epoch >= 0:
            seat.checked_epoch = leader.epoch
            return
        self.counters["truncation detected"] += 1
        self._suspect(
            seat,
            connection,
            f"{self.name} had read up to {position} in epoch {seat.epoch}, which ends at "
            f"{answer.end_offset} (epoch {answer.leader_epoch}) for {leader}",
        )
        if answer.end_offset < 0 or answer.leader_epoch < 0:
            self.reset_to(seat, self.reset)
            return
        seat.epoch = LeaderEpoch(answer.leader_epoch)
        seat.checked_epoch = leader.epoch
        self._stand(seat, min(position, answer.end_offset))

    def _suspect(self, seat: Seat, connection: Connection, what: str) -> None:
        """Committed records seem to be gone: report it, if it is this topic that was spoken of."""
        if self.world.options.allows_loss or connection.is_over:
            return
        meant = seat.topic_id

        def told(topic_id: TopicId | None) -> None:
            if topic_id == meant:
                self.found("I-25", what, seat.at)

        self.cluster.ask_topic_id(connection, seat.at.topic, told)

    def _stand(self, seat: Seat, offset: int) -> None:
        """Read on from there, whatever lies before."""
        seat.position = offset
        self.world.history.append(Assigned(self.name, seat.place, offset))

    def reset_to(self, seat: Seat, anchor: int) -> None:
        """Find the position out again."""
        seat.position = None
        seat.start = anchor
        seat.epoch = seat.checked_epoch = NO_EPOCH

    def log_starts(self, seat: Seat, offset: int) -> None:
        """A broker said where the log begins."""
        if offset > seat.log_start:
            seat.log_start = offset
            self.world.history.append(StartSeen(self.name, seat.place, offset))

    # -- trouble -----------------------------------------------------------------------------

    def trouble(self, seat: Seat, code: ErrorCode | None) -> None:
        """Something did not work: look around, and try again later."""
        if code is not None:
            self.counters[f"read {code.name}"] += 1
        seat.replica = None
        self.cluster.stale()
        self.pause_seat(seat)

    def pause_seat(self, seat: Seat) -> None:
        """Leave a partition alone for a while."""
        seat.not_before_us = self.now_us + 1000 * seat.backoff.next_ms()
        self.wake_at(seat.not_before_us)

    def wake_at(self, at_us: int) -> None:
        """Look again then."""
        if self._alarm_us is not None and self.now_us < self._alarm_us <= at_us:
            return
        self._alarm_us = at_us = max(at_us, self.now_us + 1)
        self.after(at_us - self.now_us, self._woken)

    def _woken(self) -> None:
        if self._alarm_us is not None and self._alarm_us <= self.now_us:
            self._alarm_us = None
            self.pump()
