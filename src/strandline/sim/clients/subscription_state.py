"""Sends the requests of the client's `fetch_positions`, and reports violations in the answers.

What moves a position is reading, or one of three answers: where the log begins or ends, and where
the epoch of the last record that was read ends (KIP-320). What was read up to an offset was
committed; a log that ends before that is reported, unless the run may lose records. These questions
name the topic. Before anything is reported, the broker must confirm the topic's id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from strandline.client.backoff import ExponentialBackoff
from strandline.client.channel import RequestFailed
from strandline.client.fetch_positions import FetchPositions
from strandline.client.fetching import FetchSettings, Isolation
from strandline.client.metadata import PartitionInfo
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.sim.clients.client import SimClient
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.connection import Connection, Outcome
from strandline.sim.clients.fetch_position import EpochEnd, FetchPosition
from strandline.sim.clients.offsets import (
    EARLIEST,
    LATEST,
    list_offsets,
    only_partition,
)
from strandline.sim.clients.world import ClientWorld
from strandline.sim.history.operations import Assigned, StartSeen
from strandline.sim.plan import ClientSpec
from strandline.types import NO_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition

ANCHORS: Final = {"earliest": EARLIEST, "latest": LATEST}
ISOLATIONS: Final = ("uncommitted", "committed")

_Told: TypeAlias = Callable[[FetchPosition, PartitionInfo, Connection, Any], None]
_REPLICA_MS: Final = 5_000
"""For how long a recommended follower is asked before the leader is again."""


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
        self.core = FetchPositions(
            _fetch_settings(options, self.isolation),
            resets=True,
            wants_sessions=options.flag("sessions", default=True),
            replica_ms=_REPLICA_MS,
        )
        self.cluster.changed = self.pump

    def least_versions(self, options: ClientOptions) -> Mapping[ApiKey, int]:
        """See `SimClient`."""
        is_committed = options.one_of("isolation", ISOLATIONS) == "committed"
        return {ApiKey.LIST_OFFSETS: 2} if is_committed else {}

    def add_position(self, at: TopicPartition, start: int) -> None:
        """Read this partition too; see `FetchPosition.start`."""
        backoff = ExponentialBackoff(self.random)
        self.positions[at] = FetchPosition(at, backoff, start, self.core)

    def drop_positions(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no longer."""
        for at in list(partitions):
            del self.positions[at]
            self.core.drop([at])

    def has_valid_position(self, position: FetchPosition, leader: PartitionInfo) -> bool:
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
        elif self.checks_epochs and self.core.is_doubtful(position.at, leader):
            told = partial(self._epoch_told, position.offset, position.epoch)
            self._ask_leader(position, leader, ApiKey.OFFSET_FOR_LEADER_EPOCH, position.epoch, told)
        else:
            return True
        return False

    # -- questions about a position ----------------------------------------------------------

    def _ask_leader(
        self, position: FetchPosition, leader: PartitionInfo, key: ApiKey, which: int, told: _Told
    ) -> None:
        connection = self.cluster.connection(leader.leader)
        if connection is None:
            self.wake_at(self.cluster.closed_until_us(leader.leader))
            return
        request: object
        if key is ApiKey.LIST_OFFSETS:
            epoch = leader.leader_epoch if self.checks_epochs else NO_EPOCH
            request = list_offsets(position.at, which, epoch, self.isolation)
        else:
            request = self.core.check_request({position.at: leader})
        position.is_busy = True
        then = partial(self._told, position, position.topic_id, leader, connection, told)
        self.cluster.ask(connection, key, request, then)

    def _told(
        self,
        position: FetchPosition,
        topic_id: TopicId,
        leader: PartitionInfo,
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
            told(position, leader, connection, outcome)
        self.pump()

    def _end_told(
        self, position: FetchPosition, leader: PartitionInfo, connection: Connection, response: Any
    ) -> None:
        del leader, connection
        position.end = only_partition(response).offset

    def _start_told(
        self, position: FetchPosition, leader: PartitionInfo, connection: Connection, response: Any
    ) -> None:
        answer = only_partition(response)
        if position.start == EARLIEST:
            self.log_starts(position, answer.offset)
            lost = position.lost_offset
            is_comparable = self._starts_agree or leader.leader_epoch == position.lost_epoch
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
        self,
        offset: int,
        epoch: LeaderEpoch,
        position: FetchPosition,
        leader: PartitionInfo,
        connection: Connection,
        response: Any,
    ) -> None:
        """`offset` and `epoch` are those for which the leader was asked."""
        answer = only_partition(response)
        if answer.end_offset >= 0 and epoch < leader.leader_epoch:
            position.epoch_end = EpochEnd(leader.leader_epoch, epoch, answer.end_offset)
        now = position.offset
        is_lost = self.core.checked({position.at: leader}, response)
        if position.offset == now and not is_lost:
            return
        self.counters["truncation detected"] += 1
        self._suspect(
            position,
            connection,
            f"{self.name} had read up to {offset} in epoch {epoch}, which ends at "
            f"{answer.end_offset} (epoch {answer.leader_epoch}) for broker {leader.leader}, leader "
            f"in epoch {leader.leader_epoch}",
        )
        if is_lost:
            self.reset_to(position, self.reset)
        else:
            self._note_jump(position)

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
        self.core.seek(position.at, Offset(offset))
        self._note_jump(position)

    def _note_jump(self, position: FetchPosition) -> None:
        if position.offset is not None:
            self.world.history.append(Assigned(self.name, position.place, position.offset))

    def reset_to(self, position: FetchPosition, anchor: int) -> None:
        """Find the position out again."""
        self.core.drop([position.at])
        position.start = anchor

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
        self.core.unanswered([position.at])
        self.cluster.stale()
        self.pause_position(position)

    def pause_position(self, position: FetchPosition) -> None:
        """Leave a partition alone for a while."""
        position.not_before_us = self.now_us + 1000 * position.backoff.next_ms()
        self.wake_at(position.not_before_us)


def _fetch_settings(options: ClientOptions, isolation: int) -> FetchSettings:
    return FetchSettings(
        min_bytes=options.number("min-bytes", 1),
        max_bytes=options.number("max-bytes", 1_000_000, least=1),
        partition_max_bytes=options.number("partition-max-bytes", 100_000, least=1),
        isolation=Isolation(isolation),
        rack=options.text("rack", ""),
    )
