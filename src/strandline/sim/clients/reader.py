"""Reading partitions from positions on, and reporting all that no reader may ever see.

This file drives the client's `fetch_positions`: whom to ask (KIP-392), fetch sessions (KIP-227),
what becomes of the position, and which records are handed out, are decided there. Here every answer
is read a second time, by `reading`, with all that a reader can check; both must have found the same
records. These go into the history, with the point of the history at which they were asked for, and
the leader epoch that was asked: what was deleted before then must not be among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from strandline.client.channel import RequestFailed
from strandline.client.fetch_positions import Taken
from strandline.client.fetch_session import SESSION_LOST
from strandline.client.fetching import FetchedRecords, FetchFrom
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import FetchResponse, PartitionData
from strandline.sim.clients.batches import value_of
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.cluster import REQUEST_TIMEOUT_US
from strandline.sim.clients.connection import Connection, Outcome
from strandline.sim.clients.fetch_position import EpochEnd, FetchPosition
from strandline.sim.clients.reading import Read, read
from strandline.sim.clients.subscription_state import SubscriptionState
from strandline.sim.clients.world import ClientWorld
from strandline.sim.history.operations import Polled
from strandline.sim.plan import ClientSpec
from strandline.types import NO_EPOCH, BrokerId, LeaderEpoch, TopicPartition

EPOCHS_SINCE: Final = 9
"""From this version on a fetch says which leader it means."""
STARTS_WITH_EPOCHS_SINCE: Final = 4
"""The same of a question where a log begins (ListOffsets)."""


class _Asked(NamedTuple):
    """When a fetch was sent."""

    asked_at: int
    """How long the history was then."""
    led: Mapping[TopicPartition, LeaderEpoch]
    """The epochs in which the broker that is asked was taken for the leader."""


class Reader(SubscriptionState):
    """Reads what `positions` says. Which ones there are is its subclass's business."""

    def __init__(self, world: ClientWorld, spec: ClientSpec, options: ClientOptions) -> None:
        super().__init__(world, spec, options)
        self.pause_us = options.time_us("pause", "0ms")
        self._max_wait_ms = options.time_us("max-wait", "500ms") // 1000
        self._version = self.cluster.versions.of(ApiKey.FETCH)
        self._names_epochs = (
            self._version >= EPOCHS_SINCE
            and self.cluster.versions.of(ApiKey.LIST_OFFSETS) >= STARTS_WITH_EPOCHS_SINCE
        )
        """Whether refusals and log starts are those of the leader epoch that was asked for."""
        self._fetching: dict[BrokerId, dict[TopicPartition, FetchFrom]] = {}

    @property
    def may_read(self) -> bool:
        """Whether new requests may be sent."""
        raise NotImplementedError

    # -- what to do next ---------------------------------------------------------------------

    def pump(self) -> None:
        """Find out what must be found out, and fetch the rest."""
        if self.is_done or not self.may_read:
            return
        self.cluster.keep_fresh()
        wanted: dict[BrokerId, dict[TopicPartition, FetchFrom]] = {}
        for position in self.positions.values():
            self._look_at(position, wanted)
        for broker_id, partitions in wanted.items():
            if broker_id not in self._fetching:
                self._fetch(broker_id, partitions)

    def _look_at(
        self, position: FetchPosition, wanted: dict[BrokerId, dict[TopicPartition, FetchFrom]]
    ) -> None:
        view = self.cluster.view(position.at.topic)
        if position.is_busy or view is None:
            return
        if position.is_other_topic(view.topic_id):
            self.counters["position in a new topic"] += 1
        if position.not_before_us > self.now_us:
            self.wake_at(position.not_before_us)
            return
        leader = self.cluster.partition(position.at)
        if leader is None or not self.has_valid_position(position, leader):
            return
        alive = self.cluster.router.view.brokers
        broker_id = self.core.broker_for(position.at, leader, alive, self.now_ms)
        if not (self.checks_epochs and self._version >= EPOCHS_SINCE):
            leader = replace(leader, leader_epoch=NO_EPOCH)  # the request has no place for it
        asked = self.core.fetch_from(position.at, position.topic_id, leader)
        wanted.setdefault(broker_id, {})[position.at] = asked

    # -- fetching ----------------------------------------------------------------------------

    def _fetch(self, broker_id: BrokerId, partitions: dict[TopicPartition, FetchFrom]) -> None:
        connection = self.cluster.connection(broker_id)
        if connection is None:
            self.wake_at(self.cluster.closed_until_us(broker_id))
            return
        request = self.core.session(broker_id).request(
            partitions, self.core.settings, self._max_wait_ms, self._version
        )
        self._fetching[broker_id] = partitions
        asked = _Asked(len(self.world.history), self._led(broker_id, partitions))
        self.counters["fetch"] += 1
        self.cluster.ask(
            connection,
            ApiKey.FETCH,
            request,
            partial(self._fetched, connection, asked),
            timeout_us=REQUEST_TIMEOUT_US + self._max_wait_ms * 1000,
        )

    def _led(
        self, broker_id: BrokerId, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LeaderEpoch]:
        """Which of the partitions the broker leads, as far as is known, and in which epochs."""
        leaders = {at: self.cluster.leader(at) for at in partitions}
        return {
            at: leader.epoch
            for at, leader in leaders.items()
            if leader is not None and leader.broker_id == broker_id
        }

    def _fetched(self, connection: Connection, when: _Asked, outcome: Outcome) -> None:
        broker_id = connection.broker_id
        asked = self._fetching.pop(broker_id)
        if isinstance(outcome, RequestFailed):
            self.core.session(broker_id).failed()
            for position in self._still(asked):
                self.trouble(position, None)
        else:
            self._take(connection, asked, when, outcome)
        if self.pause_us and self.may_read:
            self.after(self.about(self.pause_us), self.pump)
        else:
            self.pump()

    def _still(self, asked: dict[TopicPartition, FetchFrom]) -> list[FetchPosition]:
        """The positions of what was asked, as far as they have not been given up since."""
        return [self.positions[at] for at in asked if at in self.positions]

    def _take(
        self,
        connection: Connection,
        asked: dict[TopicPartition, FetchFrom],
        when: _Asked,
        response: FetchResponse,
    ) -> None:
        names = {each.topic_id: at.topic for at, each in asked.items()}
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for at in (TopicPartition(name, each.partition_index) for each in topic.partitions):
                if at not in asked:
                    self.found("I-42", f"{self.name} was answered about what it did not ask", at)
        meant = {
            position.at: asked[position.at]
            for position in self._still(asked)
            if position.topic_id == asked[position.at].topic_id
        }
        taken = Taken()
        parts = self.core.take_in(connection.broker_id, meant, response, self.now_ms, taken)
        if response.error_code != ErrorCode.NONE:
            self._refused(asked, ErrorCode(response.error_code))
        fetched = {each.topic_partition: each for each in taken.fetched}
        for at, topic_id, data in parts:
            self.cluster.hint(at, topic_id, data.current_leader, response.node_endpoints)
            position = self.positions[at]
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._out_of_range(connection, position, meant[at], is_lost=at in taken.lost)
            elif data.error_code != ErrorCode.NONE:
                self.trouble(position, ErrorCode(data.error_code))
            else:
                self._take_one(connection, position, when, data, fetched.get(at))

    def _refused(self, asked: dict[TopicPartition, FetchFrom], code: ErrorCode) -> None:
        self.counters[f"fetch {code.name}"] += 1
        self.cluster.stale()
        for position in self._still(asked):
            if code in SESSION_LOST:
                self.pause_position(position)
            else:
                self.trouble(position, code)

    def _take_one(
        self,
        connection: Connection,
        position: FetchPosition,
        when: _Asked,
        data: PartitionData,
        fetched: FetchedRecords | None,
    ) -> None:
        """`fetched` is what the client hands out; None if it found the records corrupt."""
        position.backoff.reset()
        if data.preferred_read_replica >= 0:
            self.counters["preferred replica"] += 1
        found = read(data, position.offset or 0, isolation=self.isolation)
        if found.beyond is not None:
            self.found("I-26", f"{self.name} was sent {found.beyond}", position.at)
        if data.log_start_offset > position.log_start:
            self.log_starts(position, data.log_start_offset)
        if position.epoch_end is not None and position.epoch_end.leader_epoch == when.led.get(
            position.at
        ):
            self._compare_epochs(position, position.epoch_end, found, data.log_start_offset)
        if found.corrupt is not None:
            self.sent_corrupt(connection, found.corrupt, position.at)
            self.pause_position(position)
        self._check_client(position, found, fetched)
        if fetched is None:
            return
        if found.records:
            self.counters["records read"] += len(found.records)
            polled = Polled(self.name, position.place, found.records)
            epoch = when.led.get(position.at)
            if epoch is not None:
                polled = polled._replace(asked_at=when.asked_at, leader_epoch=epoch)
            self.world.history.append(polled)
        self.core.advance(fetched)

    def _check_client(
        self, position: FetchPosition, found: Read, fetched: FetchedRecords | None
    ) -> None:
        """I-47: the client hands out what is in the bytes, and nothing of corrupt ones."""
        if fetched is None or found.corrupt is not None:
            if fetched is not None or found.corrupt is None:
                self.found("I-47", f"{self.name}: the client and {found} disagree", position.at)
            return
        values = [(each.offset, value_of(each.value)) for each in fetched.records]
        handed_out = [(offset, value) for offset, value in values if value is not None]
        if (handed_out, fetched.next_offset) != (found.records, found.position):
            self.found("I-47", f"{self.name} got {handed_out} out of {found}", position.at)

    def _compare_epochs(
        self, position: FetchPosition, told: EpochEnd, found: Read, log_start: int
    ) -> None:
        """I-55: what is read from the leader that said where an epoch ends must agree with that.

        A batch may begin below the log start; what has its epochs only below is not told apart.
        """
        for offset, epoch in ((max(each, log_start), epoch) for each, epoch in found.epochs):
            if (offset < told.end) != (epoch <= told.asked):
                self.found(
                    "I-55",
                    f"{self.name} was told in leader epoch {told.leader_epoch} that epoch "
                    f"{told.asked} ends at {told.end}, but at {offset} lies a batch of epoch "
                    f"{epoch}",
                    position.at,
                )
                position.epoch_end = None
                return

    def _out_of_range(
        self, connection: Connection, position: FetchPosition, wanted: FetchFrom, *, is_lost: bool
    ) -> None:
        """The position is not in the log. A follower may only be behind: then the leader knows."""
        self.counters["out of range"] += 1
        if not is_lost:
            return
        self.pause_position(position)
        was_read = position.epoch != NO_EPOCH
        self.reset_to(position, self.reset)
        # Also a follower that is not recommended any more may answer late.
        is_of_leader = self.cluster.leader(position.at) == (
            connection.broker_id,
            wanted.leader_epoch,
        )
        if was_read and is_of_leader and self._names_epochs:
            position.lost_offset = wanted.offset
            position.lost_epoch = wanted.leader_epoch
