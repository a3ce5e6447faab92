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
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.cluster import Leader
from strandline.sim.clients.connection import Connection, Outcome
from strandline.sim.clients.fetch_position import EpochEnd, FetchPosition
from strandline.sim.clients.offsets import (
    EARLIEST,
    LATEST,
    list_offsets,
    offset_for_epoch,
    only_partition,
)
from strandline.sim.clients.world import ClientWorld
from strandline.sim.history.operations import Assigned, StartSeen
from strandline.sim.plan import ClientSpec
from strandline.types import NO_EPOCH, LeaderEpoch, TopicId, TopicPartition

ANCHORS: Final = {"earliest": EARLIEST, "latest": LATEST}
ISOLATIONS: Final = ("uncommitted", "committed")

_Told: TypeAlias = Callable[[FetchPosition, Leader, Connection, Any], None]


class SubscriptionState(SimClient):
    """Has fetch positions and keeps them true. `pump` is what goes on when an answer came."""

    def __init__(self, world: ClientWorld, spec: ClientSpec, options: ClientOptions) -> None:
        super().__init__(world, spec, options)
        self.positions: dict[TopicPartition, FetchPosition] = {}
        self.needs_end = False
        """Whether the ends of the logs are to be found out first."""
        self.reset = ANCHORS[options.one_of("reset", ("earliest", "latest"))]
        self.checks_epochs = options.flag("check-epochs", default=True)
        self._starts_agree = options.flag("starts-agree")
        """Whether nothing is ever deleted, so that all leaders begin where the first one did."""
        self.isolation = ISOLATIONS.index(options.one_of("isolation", ISOLATIONS))
        self.cluster.changed = self.pump

    def least_versions(self, options: ClientOptions) -> Mapping[ApiKey, int]:
        """See `SimClient`."""
        is_committed = options.one_of("isolation", ISOLATIONS) == "committed"
        return {ApiKey.LIST_OFFSETS: 2} if is_committed else {}

    def has_valid_position(self, position: FetchPosition, leader: Leader) -> bool:
        """Whether its position is known and beyond doubt; otherwise it is being found out."""
        if self.needs_end and position.end is None:
            self._ask_leader(position, leader, ApiKey.LIST_OFFSETS, LATEST, self._end_told)
        elif position.offset is None and position.start >= 0:
            self._go_on_at(position, position.start)
            return True
        elif position.offset is None:
            self._ask_leader(
                position, leader, ApiKey.LIST_OFFSETS, position.start, self._start_told
            )
        elif self._is_doubtful(position, leader):
            self._ask_leader(
                position, leader, ApiKey.OFFSET_FOR_LEADER_EPOCH, position.epoch, self._epoch_told
            )
        else:
            return True
        return False

    def _is_doubtful(self, position: FetchPosition, leader: Leader) -> bool:
        """Whether another one leads now than when the position was known to be in the log."""
        if not self.checks_epochs or position.epoch == NO_EPOCH:
            return False
        return leader.epoch > position.checked_epoch

    # -- questions about a position ----------------------------------------------------------

    def _ask_leader(
        self, position: FetchPosition, leader: Leader, key: ApiKey, which: int, told: _Told
    ) -> None:
        connection = self.cluster.connection(leader.broker_id)
        if connection is None:
            self.wake_at(self.cluster.closed_until_us(leader.broker_id))
            return
        epoch = leader.epoch if self.checks_epochs else NO_EPOCH
        request: object
        if key is ApiKey.LIST_OFFSETS:
            request = list_offsets(position.at, which, epoch, self.isolation)
        else:
            request = offset_for_epoch(position.at, LeaderEpoch(which), epoch)
        position.is_busy = True
        then = partial(self._told, position, position.topic_id, leader, connection, told)
        self.cluster.ask(connection, key, request, then)

    def _told(
        self,
        position: FetchPosition,
        topic_id: TopicId,
        leader: Leader,
        connection: Connection,
        told: _Told,
        outcome: Outcome,
    ) -> None:
        position.is_busy = False
        answer = None if isinstance(outcome, RequestFailed) else only_partition(outcome)
        if answer is None:
            self.trouble(position, None)
        elif answer.error_code != ErrorCode.NONE:
            self.trouble(position, ErrorCode(answer.error_code))
        elif topic_id == position.topic_id:
            position.backoff.reset()
            told(position, leader, connection, answer)
        self.pump()

    def _end_told(
        self, position: FetchPosition, leader: Leader, connection: Connection, answer: Any
    ) -> None:
        del leader, connection
        position.end = answer.offset

    def _start_told(
        self, position: FetchPosition, leader: Leader, connection: Connection, answer: Any
    ) -> None:
        if position.start == EARLIEST:
            self.log_starts(position, answer.offset)
            lost = position.lost_offset
            is_comparable = self._starts_agree or leader.epoch == position.lost_epoch
            if lost is not None and answer.offset <= lost and is_comparable:
                # Out of range, and yet not before the log: so it was behind its end. Of two leaders
                # the second may begin earlier: it has not heard of what the first has deleted yet.
                self._suspect(
                    position,
                    connection,
                    f"{self.name} had read up to {lost} and was told that this is out of range, "
                    f"but the log begins at {answer.offset}",
                )
        position.lost_offset = None
        self._go_on_at(position, answer.offset)

    def _epoch_told(
        self, position: FetchPosition, leader: Leader, connection: Connection, answer: Any
    ) -> None:
        offset = position.offset
        if offset is None:
            return
        if answer.end_offset >= 0 and position.epoch < leader.epoch:
            position.epoch_end = EpochEnd(leader.epoch, position.epoch, answer.end_offset)
        if answer.end_offset >= offset and answer.leader_epoch >= 0:
            position.checked_epoch = leader.epoch
            return
        self.counters["truncation detected"] += 1
        self._suspect(
            position,
            connection,
            f"{self.name} had read up to {offset} in epoch {position.epoch}, which ends at "
            f"{answer.end_offset} (epoch {answer.leader_epoch}) for {leader}",
        )
        if answer.end_offset < 0 or answer.leader_epoch < 0:
            self.reset_to(position, self.reset)
            return
        position.epoch = LeaderEpoch(answer.leader_epoch)
        position.checked_epoch = leader.epoch
        self._go_on_at(position, min(offset, answer.end_offset))

    def _suspect(self, position: FetchPosition, connection: Connection, what: str) -> None:
        """Committed records seem to be gone: report it, if it is this topic that was spoken of."""
        if self.world.options.allows_loss or connection.is_over:
            return
        meant = position.topic_id

        def told(topic_id: TopicId | None) -> None:
            if topic_id == meant:
                self.found("I-25", what, position.at)

        self.cluster.ask_topic_id(connection, position.at.topic, told)

    def _go_on_at(self, position: FetchPosition, offset: int) -> None:
        """Read on from there, whatever lies before."""
        position.offset = offset
        self.world.history.append(Assigned(self.name, position.place, offset))

    def reset_to(self, position: FetchPosition, anchor: int) -> None:
        """Find the position out again."""
        position.offset = None
        position.start = anchor
        position.epoch = position.checked_epoch = NO_EPOCH

    def log_starts(self, position: FetchPosition, offset: int) -> None:
        """A broker said where the log begins."""
        if offset > position.log_start:
            position.log_start = offset
            self.world.history.append(StartSeen(self.name, position.place, offset))

    # -- trouble -----------------------------------------------------------------------------

    def trouble(self, position: FetchPosition, code: ErrorCode | None) -> None:
        """Something did not work: look around, and try again later."""
        if code is not None:
            self.counters[f"read {code.name}"] += 1
        position.replica = None
        self.cluster.stale()
        self.pause_position(position)

    def pause_position(self, position: FetchPosition) -> None:
        """Leave a partition alone for a while."""
        position.not_before_us = self.now_us + 1000 * position.backoff.next_ms()
        self.wake_at(position.not_before_us)
