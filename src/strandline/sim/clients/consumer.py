"""Consumers that read assigned partitions, and report all that no reader may ever see.

`client consumer c1 topic=t partition=0,1 from=earliest isolation=committed rack=a`

A consumer asks the leader of each partition, or the follower that the leader recommends for its
rack (KIP-392), with incremental sessions (KIP-227) or without. When the leader changes it checks
that the log still holds what it has read (KIP-320). Positions and their care are in `seats`, the
bytes in `reading`. What it was given goes into the history, with the point of the history at which
it asked: what was deleted or acknowledged before then must show.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Final

from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import FetchResponse, PartitionData
from strandline.sim.clients.client import NO_TOPIC_US, PATIENCE_US, SimClient
from strandline.sim.clients.cluster import REQUEST_TIMEOUT_US, Leader
from strandline.sim.clients.connection import Connection, Lost, Outcome
from strandline.sim.clients.fetch_session import FetchFrom, FetchSession, Limits
from strandline.sim.clients.offsets import (
    EARLIEST,
    LATEST,
    list_offsets,
    offset_for_epoch,
    only_partition,
)
from strandline.sim.clients.reading import read
from strandline.sim.clients.seats import Seat, seats_of
from strandline.sim.clients.versions import IDS_SINCE
from strandline.sim.clients.wishes import Wishes
from strandline.sim.clients.world import ClientWorld
from strandline.sim.history.operations import Assigned, Polled, StartSeen
from strandline.sim.plan import ClientSpec
from strandline.sim.scenarios.script import BadScript
from strandline.types import NO_EPOCH, BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition

_ANCHORS: Final = {"earliest": EARLIEST, "latest": LATEST}
_REPLICA_US: Final = 5_000_000
"""For how long a recommended follower is asked before the leader is again."""
_SESSION_LOST: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


class Consumer(SimClient):
    """See the module. With `stops_at_end`, it is done when it has read everything."""

    kind: ClassVar[str] = "consumer"

    def __init__(self, world: ClientWorld, spec: ClientSpec, wishes: Wishes) -> None:
        super().__init__(world, spec, wishes)
        self.stops_at_end = wishes.flag("to-end")
        self._pause_us = wishes.time_us("pause", "0ms")
        self._checks_epochs = wishes.flag("check-epochs", default=True)
        self._reset = _ANCHORS[wishes.one_of("reset", ("earliest", "latest"))]
        self._limits = _limits(wishes)
        self._wants_sessions = wishes.flag("sessions", default=True)
        self._version = self.cluster.versions.of(ApiKey.FETCH)
        self._epochs_by_id = self.names_by == "id"
        self.seats = seats_of(wishes.partitions(), _start(wishes), self.random)
        self._sessions: dict[BrokerId, FetchSession] = {}
        self._fetching: dict[BrokerId, dict[TopicPartition, FetchFrom]] = {}
        self._alarm_us: int | None = None
        self.cluster.topics = [wishes.text("topic")]
        self.cluster.changed = self.pump

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """See `SimClient`."""
        self.cluster.stale()
        if self.stops_at_end:
            self.is_finishing = True
            self.give_up_us = self.now_us + PATIENCE_US
            self.after(PATIENCE_US, self._give_up)
            self.after(NO_TOPIC_US, self._maybe_done)

    def finishing(self) -> None:
        """See `SimClient`."""
        self.pump()
        self._maybe_done()

    def _maybe_done(self) -> None:
        if not self.is_finishing or self.is_done:
            return
        if self.stops_at_end:
            is_late = self.now_us >= self.give_up_us - PATIENCE_US + NO_TOPIC_US
            if all(self._is_through(seat, is_late=is_late) for seat in self.seats.values()):
                self.done()
        elif not self.outstanding:
            self.done()

    def _is_through(self, seat: Seat, *, is_late: bool) -> bool:
        if is_late and self.cluster.view(seat.at.topic) is None:
            return True
        return seat.end is not None and seat.position is not None and seat.position >= seat.end

    def _give_up(self) -> None:
        for seat in self.seats.values():
            if not self._is_through(seat, is_late=True):
                self.found(
                    "I-50",
                    f"{self.name} could not read to the end: it stands at {seat.position} of "
                    f"{seat.end}",
                    seat.at,
                )
        self.done()

    # -- what to do next ---------------------------------------------------------------------

    def pump(self) -> None:
        """Find out what must be found out, and fetch the rest."""
        if self.is_done or (self.is_finishing and not self.stops_at_end):
            return
        self.cluster.keep_fresh()
        wanted: dict[BrokerId, dict[TopicPartition, FetchFrom]] = {}
        for seat in self.seats.values():
            self._look_at(seat, wanted)
        for broker_id, partitions in wanted.items():
            if broker_id not in self._fetching:
                self._fetch(broker_id, partitions)
        self._maybe_done()

    def _look_at(self, seat: Seat, wanted: dict[BrokerId, dict[TopicPartition, FetchFrom]]) -> None:
        view = self.cluster.view(seat.at.topic)
        if seat.is_busy or view is None:
            return
        if seat.is_other_topic(view.topic_id):
            self.counters["seat in a new topic"] += 1
        if seat.not_before_us > self.now_us:
            self._wake_at(seat.not_before_us)
            return
        leader = self.cluster.leader(seat.at)
        if leader is None:
            return
        if self.stops_at_end and seat.end is None:
            self._ask_leader(seat, leader, ApiKey.LIST_OFFSETS, LATEST, self._end_told)
        elif seat.position is None and seat.start >= 0:
            self._stand(seat, seat.start)
            self._look_at(seat, wanted)
        elif seat.position is None:
            self._ask_leader(seat, leader, ApiKey.LIST_OFFSETS, seat.start, self._start_told)
        elif self._is_doubtful(seat, leader):
            self._ask_leader(
                seat, leader, ApiKey.OFFSET_FOR_LEADER_EPOCH, seat.epoch, self._epoch_told
            )
        else:
            broker_id = leader.broker_id
            if seat.replica is not None and self.now_us < seat.replica_until_us:
                broker_id = seat.replica
            epoch = leader.epoch if self._checks_epochs else NO_EPOCH
            wanted.setdefault(broker_id, {})[seat.at] = FetchFrom(
                seat.topic_id, Offset(seat.position), epoch
            )

    def _is_doubtful(self, seat: Seat, leader: Leader) -> bool:
        """Whether another one leads now than when the position was known to be in the log."""
        if not self._checks_epochs or seat.epoch == NO_EPOCH:
            return False
        return leader.epoch > seat.checked_epoch

    # -- questions about a position ----------------------------------------------------------

    def _ask_leader(self, seat: Seat, leader: Leader, key: ApiKey, which: int, told: Any) -> None:
        connection = self.cluster.connection(leader.broker_id)
        if connection is None:
            self._wake_at(self.cluster.closed_until_us(leader.broker_id))
            return
        epoch = leader.epoch if self._checks_epochs else NO_EPOCH
        request: object
        if key is ApiKey.LIST_OFFSETS:
            request = list_offsets(seat.at, which, epoch, self._limits.isolation)
        else:
            request = offset_for_epoch(seat.at, LeaderEpoch(which), epoch)
        seat.is_busy = True
        then = partial(self._told, seat, seat.topic_id, leader, told)
        self.cluster.ask(connection, key, request, then)

    def _told(
        self, seat: Seat, topic_id: TopicId, leader: Leader, told: Any, outcome: Outcome
    ) -> None:
        seat.is_busy = False
        answer = None if isinstance(outcome, Lost) else only_partition(outcome)
        if answer is None:
            self._trouble(seat, None)
        elif answer.error_code != ErrorCode.NONE:
            self._trouble(seat, ErrorCode(answer.error_code))
        elif topic_id == seat.topic_id:
            seat.backoff.worked()
            told(seat, leader, answer)
        self.pump()

    def _end_told(self, seat: Seat, leader: Leader, answer: Any) -> None:
        del leader
        seat.end = answer.offset

    def _start_told(self, seat: Seat, leader: Leader, answer: Any) -> None:
        del leader
        if seat.start == EARLIEST:
            self._log_starts(seat, answer.offset)
        self._stand(seat, answer.offset)

    def _epoch_told(self, seat: Seat, leader: Leader, answer: Any) -> None:
        position = seat.position
        if position is None:
            return
        if answer.end_offset >= position and answer.leader_epoch >= 0:
            seat.checked_epoch = leader.epoch
            return
        self.counters["truncation detected"] += 1
        if not self._epochs_by_id and not self.world.options.allows_loss:
            self.found(
                "I-25",
                f"{self.name} had read up to {position} in epoch {seat.epoch}, which ends at "
                f"{answer.end_offset} (epoch {answer.leader_epoch}) for leader {leader}",
                seat.at,
            )
        if answer.end_offset < 0 or answer.leader_epoch < 0:
            self._reset_to(seat, self._reset)
            return
        seat.epoch = LeaderEpoch(answer.leader_epoch)
        seat.checked_epoch = leader.epoch
        self._stand(seat, min(position, answer.end_offset))

    def _stand(self, seat: Seat, offset: int) -> None:
        """Read on from there, whatever lies before."""
        seat.position = offset
        self.world.history.append(Assigned(self.name, seat.place, offset))

    def _reset_to(self, seat: Seat, anchor: int) -> None:
        seat.position = None
        seat.start = anchor
        seat.epoch = seat.checked_epoch = NO_EPOCH

    def _log_starts(self, seat: Seat, offset: int) -> None:
        if offset > seat.log_start:
            seat.log_start = offset
            self.world.history.append(StartSeen(self.name, seat.place, offset))

    # -- fetching ----------------------------------------------------------------------------

    def _fetch(self, broker_id: BrokerId, partitions: dict[TopicPartition, FetchFrom]) -> None:
        connection = self.cluster.connection(broker_id)
        if connection is None:
            self._wake_at(self.cluster.closed_until_us(broker_id))
            return
        session = self._sessions.get(broker_id)
        if session is None:
            session = FetchSession(wants_session=self._wants_sessions)
            self._sessions[broker_id] = session
        request = session.request(partitions, self._limits, self._version)
        self._fetching[broker_id] = partitions
        self.counters["fetch"] += 1
        self.cluster.ask(
            connection,
            ApiKey.FETCH,
            request,
            partial(self._fetched, connection, session, len(self.world.history)),
            timeout_us=REQUEST_TIMEOUT_US + self._limits.max_wait_ms * 1000,
        )

    def _fetched(
        self, connection: Connection, session: FetchSession, asked_at: int, outcome: Outcome
    ) -> None:
        broker_id = connection.broker_id
        asked = self._fetching.pop(broker_id)
        if isinstance(outcome, Lost):
            session.failed(is_gone=False)
            for at in asked:
                self._trouble(self.seats[at], None)
        elif outcome.error_code != ErrorCode.NONE:
            code = ErrorCode(outcome.error_code)
            self.counters[f"fetch {code.name}"] += 1
            session.failed(is_gone=code in _SESSION_LOST)
            self.cluster.stale()
            if code not in _SESSION_LOST:
                for at in asked:
                    self._trouble(self.seats[at], code)
            else:
                for at in asked:
                    self._pause_seat(self.seats[at])
        else:
            session.answered(outcome.session_id)
            self._take(connection, asked, asked_at, outcome)
        if self._pause_us and not self.is_finishing:
            self.after(self.about(self._pause_us), self.pump)
        else:
            self.pump()
        self._maybe_done()

    def _take(
        self,
        connection: Connection,
        asked: dict[TopicPartition, FetchFrom],
        asked_at: int,
        response: FetchResponse,
    ) -> None:
        names = {each.topic_id: at.topic for at, each in asked.items()}
        for topic in response.responses:
            name = names.get(topic.topic_id, "") if self._version >= IDS_SINCE else topic.topic
            for data in topic.partitions:
                at = TopicPartition(name, data.partition_index)
                wanted = asked.get(at)
                if wanted is None:
                    self.found("I-42", f"{self.name} was answered about what it did not ask", at)
                    continue
                seat = self.seats[at]
                if seat.topic_id == wanted.topic_id and seat.position == wanted.offset:
                    self._take_one(connection, seat, asked_at, data)

    def _take_one(
        self, connection: Connection, seat: Seat, asked_at: int, data: PartitionData
    ) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(connection, seat)
            return
        if data.error_code != ErrorCode.NONE:
            hint = data.current_leader
            if hint is not None:
                self.cluster.hint(seat.at, hint.leader_id, hint.leader_epoch)
            self._trouble(seat, ErrorCode(data.error_code))
            return
        seat.backoff.worked()
        if data.preferred_read_replica >= 0:
            self.counters["preferred replica"] += 1
            seat.replica = BrokerId(data.preferred_read_replica)
            seat.replica_until_us = self.now_us + _REPLICA_US
        position = seat.position or 0
        found = read(data, position, isolation=self._limits.isolation)
        if found.corrupt is not None:
            self._corrupt(connection, seat, found.corrupt)
        if found.beyond is not None:
            self.found("I-26", f"{self.name} was sent {found.beyond}", seat.at)
        if data.log_start_offset > seat.log_start:
            self._log_starts(seat, data.log_start_offset)
        if found.records:
            self.counters["records read"] += len(found.records)
            self.world.history.append(Polled(self.name, seat.place, found.records, asked_at))
        if found.position > position:
            seat.position = found.position
            seat.epoch = found.epoch
            leader = self.cluster.leader(seat.at)
            if leader is not None and seat.checked_epoch == NO_EPOCH:
                seat.checked_epoch = min(leader.epoch, found.epoch)

    def _corrupt(self, connection: Connection, seat: Seat, what: str) -> None:
        if connection.is_damaged:
            self.counters["damaged records"] += 1
            connection.close("damaged records")
        else:
            self.found("I-47", f"Broker {connection.broker_id} sent {self.name}: {what}", seat.at)
        self._pause_seat(seat)

    def _out_of_range(self, connection: Connection, seat: Seat) -> None:
        """The position is not in the log. A follower may only be behind: then the leader knows."""
        self.counters["out of range"] += 1
        if seat.replica == connection.broker_id:
            seat.replica = None
            return
        self._pause_seat(seat)
        self._reset_to(seat, self._reset)

    # -- trouble -----------------------------------------------------------------------------

    def _trouble(self, seat: Seat, code: ErrorCode | None) -> None:
        """Something did not work: look around, and try again later."""
        if code is not None:
            self.counters[f"read {code.name}"] += 1
        seat.replica = None
        self.cluster.stale()
        self._pause_seat(seat)

    def _pause_seat(self, seat: Seat) -> None:
        seat.not_before_us = self.now_us + seat.backoff.next_us()
        self._wake_at(seat.not_before_us)

    def _wake_at(self, at_us: int) -> None:
        if self._alarm_us is not None and self.now_us < self._alarm_us <= at_us:
            return
        self._alarm_us = at_us = max(at_us, self.now_us + 1)
        self.after(at_us - self.now_us, self._woken)

    def _woken(self) -> None:
        if self._alarm_us is not None and self._alarm_us <= self.now_us:
            self._alarm_us = None
            self.pump()


def _limits(wishes: Wishes) -> Limits:
    return Limits(
        max_wait_ms=wishes.time_us("max-wait", "500ms") // 1000,
        min_bytes=wishes.number("min-bytes", 1),
        max_bytes=wishes.number("max-bytes", 1_000_000, least=1),
        partition_max_bytes=wishes.number("partition-max-bytes", 100_000, least=1),
        isolation=("uncommitted", "committed").index(
            wishes.one_of("isolation", ("uncommitted", "committed"))
        ),
        rack=wishes.text("rack", ""),
    )


def _start(wishes: Wishes) -> int:
    """`from=earliest`, `from=latest` or `from=17`."""
    text = wishes.text("from", "earliest")
    if text in _ANCHORS:
        return _ANCHORS[text]
    if not text.isdecimal():
        raise BadScript(f"from={text} is neither earliest nor latest nor an offset.")
    return int(text)
