"""Reading assigned partitions from given positions, without a group.

    consumer = Consumer(cluster)
    consumer.assign({TopicPartition("orders", 0): Start.earliest()})
    for fetched in consumer.poll(500):
        ...fetched.records...

This file drives `fetch_positions` by blocking connections: it finds leaders, sends requests and
waits. Assignment is the caller's: no group is joined. A group's offsets can be read and stored
(`offsets.py`) by its only reader.

Theory: one fetch per broker is on the way at a time. A position moves only when records are handed
out, all that have come or one by one, so what the caller holds and the positions always agree. A
partition without a leader, or whose broker cannot be reached, is put off, and stops no other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TypeAlias

from strandline.client.beginnings import Beginnings
from strandline.client.cluster import ClusterClient
from strandline.client.fetch_positions import CHECKS_SINCE, FetchPositions, Taken
from strandline.client.fetches_in_flight import FetchesInFlight, FetchInFlight
from strandline.client.fetching import (
    FetchedRecords,
    FetchFrom,
    FetchSettings,
    highest_version,
)
from strandline.client.metadata import PartitionInfo
from strandline.client.offsets import LATEST, list_offsets
from strandline.client.resolving import resolve, resolve_now
from strandline.client.retry import Absences
from strandline.client.start import Start
from strandline.client.unread_records import UnreadRecords
from strandline.errors import ErrorCode, MalformedFrame, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import FetchResponse
from strandline.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from strandline.records.record import Record
from strandline.types import BrokerId, Offset, TopicPartition

FindCommitted: TypeAlias = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Offset]]
"""What a group has stored of partitions; may raise `ProtocolError`."""

_MAX_WAIT_MS_MAX = 5000
_LEAST_MS = 100
"""So long brokers are waited for that are to say whom to ask, also in a shorter call."""


class Consumer:
    """See the module."""

    def __init__(
        self,
        cluster: ClusterClient,
        settings: FetchSettings | None = None,
        *,
        reset: Start | None = None,
        outlives_topics: bool = False,
        find_committed: FindCommitted | None = None,
    ) -> None:
        """`reset` is where to go on when a position is no longer in the log; None raises. With
        `outlives_topics` partitions of topics that are gone are skipped, until they are dropped.
        `find_committed` is asked where to begin in partitions of which nothing says that."""
        self._cluster = cluster
        self._settings = settings = settings or FetchSettings()
        self.trouble: ProtocolError | None = None
        """The error that is being retried, if the last fetch met one."""
        self._reset = reset
        self._positions = FetchPositions(settings, resets=reset is not None)
        self._unread = UnreadRecords(self._positions)
        self._in_flight = FetchesInFlight(cluster.clock.monotonic_ms)
        self._absences = Absences(cluster.settings, cluster.random, outlives_topics=outlives_topics)
        self._find_committed = find_committed
        self._beginnings = Beginnings()

    # -- Positions ---------------------------------------------------------------------------

    @property
    def positions(self) -> Mapping[TopicPartition, Offset]:
        """The offset of the next record of each assigned partition."""
        return self._positions.offsets

    @property
    def partitions(self) -> list[TopicPartition]:
        """All assigned partitions, those without a position yet (see `add`) included."""
        return [*self.positions, *self._beginnings.partitions]

    @property
    def refused(self) -> Mapping[TopicPartition, ProtocolError]:
        """The partitions of which nothing says where to begin, and why."""
        return self._beginnings.refused

    def assign(self, starts: Mapping[TopicPartition, Start]) -> None:
        """Read these partitions from now on, and no others. Raises `ProtocolError`."""
        positions = self.resolve(starts)
        self._in_flight.give_up()
        self._unread.drop(self.positions)
        self._absences.put_off.end(self.partitions)
        self._beginnings = Beginnings()
        self._positions.assign(positions)

    def change(
        self, starts: Mapping[TopicPartition, Start | None], kept: Collection[TopicPartition]
    ) -> None:
        """Read these partitions from now on, and of the present ones those that are `kept`, from
        where they are. `poll` raises while a start is None. Raises as `assign`."""
        positions = self.resolve({at: each for at, each in starts.items() if each is not None})
        self._in_flight.give_up()
        self.drop([at for at in self.partitions if at not in kept])
        self._beginnings.put({at: None for at, each in starts.items() if each is None})
        self._positions.add(positions)

    def add(self, starts: Mapping[TopicPartition, Start | None]) -> None:
        """Read these partitions too. Where no broker tells at the moment which offset a start is,
        that is found out later, in `poll`, which raises while one is None. Raises `ProtocolError`
        for what no wait can mend."""
        self._beginnings.put({at: starts[at] for at in starts if at not in self.positions})
        self._find_starts()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions no longer."""
        dropped = list(partitions)
        self._unread.drop(dropped)
        self._positions.drop(dropped)
        self._absences.put_off.end(dropped)
        self._beginnings.drop(dropped)

    def seek(self, partition: TopicPartition, start: Start) -> None:
        """Go on elsewhere in an assigned partition."""
        found = self.resolve({partition: start})[partition]
        self._in_flight.give_up()
        self._unread.drop([partition])
        self._beginnings.drop([partition])
        self._positions.seek(partition, found)

    def resolve(self, starts: Mapping[TopicPartition, Start]) -> dict[TopicPartition, Offset]:
        """The offsets that places stand for at the moment."""
        return resolve(self._cluster, starts, self._settings.isolation)

    def _resolve_now(
        self, starts: Mapping[TopicPartition, Start]
    ) -> tuple[dict[TopicPartition, Offset], dict[TopicPartition, ProtocolError]]:
        return resolve_now(self._cluster, starts, self._settings.isolation)

    def end_offsets(self) -> dict[TopicPartition, Offset]:
        """Where the assigned partitions end at the moment for this reader."""
        partitions = self.partitions
        if not partitions:
            return {}
        ends = list_offsets(
            self._cluster, dict.fromkeys(partitions, LATEST), self._settings.isolation
        )
        return {each: at.offset for each, at in ends.items()}

    def lag(self) -> dict[TopicPartition, int]:
        """How far each position is behind the end that the last fetch told; unknown ones absent."""
        return self._positions.lag()

    # -- Fetching ----------------------------------------------------------------------------

    def poll(self, timeout_ms: int) -> list[FetchedRecords]:
        """What comes first from any leader within the time; empty if nothing does. What
        `next_record` has left comes before.

        Entries may hold no records (only skipped ones); positions are behind each entry when this
        returns. Errors that a retry may mend are retried in the next call. Raises `ProtocolError`
        for others (OFFSET_OUT_OF_RANGE without `reset`, and while there is a partition of which
        nothing says where to begin), and `CorruptRecords`.
        """
        if self._unread:
            return self._unread.rest()
        fetched = self._fetch(timeout_ms)
        for each in fetched:
            self._positions.advance(each)
        return fetched

    def next_record(self, timeout_ms: int) -> tuple[TopicPartition, Record] | None:
        """The record that comes first within the time; None if none does. Raises as `poll`."""
        if not self._unread:
            self._unread.put(self._fetch(timeout_ms))
        return self._unread.next()

    def _fetch(self, timeout_ms: int) -> list[FetchedRecords]:
        deadline_ms = self._cluster.clock.monotonic_ms() + timeout_ms
        backoff = self._cluster.backoff(timeout_ms)
        while True:
            self._check_beginnings()
            left_ms = max(0, deadline_ms - self._cluster.clock.monotonic_ms())
            try:
                with self._cluster.within(max(left_ms, _LEAST_MS)):
                    self._find_starts()
                    idle = self._idle()
                    if not idle and not self._in_flight and not backoff.maybe_wait():
                        return []
                    self._check_positions(idle)
                    self._send_fetches(idle, left_ms)
                now_ms = self._cluster.clock.monotonic_ms()
                wait_ms = self._absences.put_off.wait_ms(now_ms, max(0, deadline_ms - now_ms))
                fetched = self._take_in_all(self._in_flight.take_answered(wait_ms, self._silent))
            except ProtocolError as error:
                if not self._absences.may_end(error):
                    raise
                self.trouble = error
                self._cluster.forget({each.topic for each in self.positions})
                if not backoff.maybe_wait():
                    return []
                continue
            if fetched and not self._absences.put_off:
                self.trouble = None
            if any(each.records for each in fetched):
                return fetched
            if self._cluster.clock.monotonic_ms() >= deadline_ms:
                return fetched
            for each in fetched:
                self._positions.advance(each)

    def _idle(self) -> dict[TopicPartition, PartitionInfo]:
        """The partitions of which nothing is on its way, with their leaders."""
        busy = self._in_flight.partitions()
        idle: dict[TopicPartition, PartitionInfo] = {}
        now_ms = self._cluster.clock.monotonic_ms()
        for each in self.positions:
            if each in busy or not self._absences.is_due(each, now_ms):
                continue
            try:
                idle[each] = self._cluster.partition(each)
            except ProtocolError as error:
                if not self._absences.is_of_one(error):
                    raise
                self._do_without([each], error, now_ms)
        former = self._former(idle)
        if former:
            self._begin_anew(former)
            still = self._former(former)
            idle = {at: info for at, info in idle.items() if at not in still}
        return idle

    def _former(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those whose topics are other ones now: what was read is no place in them."""
        view = self._cluster.view
        return [at for at in partitions if self._positions.is_of_former(at, view.topic_id(at))]

    def _begin_anew(self, former: list[TopicPartition]) -> None:
        if self._reset is None:
            self.drop(former)
            self._beginnings.refuse_former(former)
            self._beginnings.check()
        self._find_anew(former)

    def _do_without(
        self, partitions: Iterable[TopicPartition], error: ProtocolError, began_ms: int
    ) -> None:
        """No broker gives these at the moment: they are tried again later, and the others are read
        meanwhile. Raises an error that no wait can mend."""
        now_ms = self._cluster.clock.monotonic_ms()
        self._cluster.forget(self._absences.begin(partitions, error, began_ms, now_ms))
        self.trouble = error

    def _check_beginnings(self) -> None:
        """Raise what nothing says of partitions, after another look at what the group has."""
        lacking = self._beginnings.lacking
        if lacking and self._find_committed is not None:
            self._beginnings.committed(self._find_committed(lacking))
        self._beginnings.check()

    def _find_starts(self) -> None:
        """Find the offsets where to begin that no broker has told yet."""
        began_ms = self._cluster.clock.monotonic_ms()
        due = {
            each: start
            for each, start in self._beginnings.starts.items()
            if self._absences.is_due(each, began_ms)
        }
        if not due:
            return
        found, refused = self._resolve_now(due)
        self._beginnings.drop(found)
        self._positions.add(found)
        self._absences.put_off.end(found)
        for partition, error in refused.items():
            self._do_without([partition], error, began_ms)

    def _check_positions(self, idle: Mapping[TopicPartition, PartitionInfo]) -> None:
        """Ask new leaders whether they have what was read."""
        doubtful: dict[BrokerId, dict[TopicPartition, PartitionInfo]] = {}
        for partition, info in idle.items():
            if self._positions.is_doubtful(partition, info):
                doubtful.setdefault(info.leader, {})[partition] = info
        for leader, partitions in doubtful.items():
            began_ms = self._cluster.clock.monotonic_ms()
            try:
                self._check_with(leader, partitions)
            except ProtocolError as error:
                still = [at for at in partitions if self._positions.is_doubtful(at, partitions[at])]
                self._do_without(still, error, began_ms)

    def _check_with(
        self, leader: BrokerId, partitions: Mapping[TopicPartition, PartitionInfo]
    ) -> None:
        connection = self._cluster.connection_to(leader)
        key = ApiKey.OFFSET_FOR_LEADER_EPOCH
        if not connection.serves(key) or connection.version_for(key) < CHECKS_SINCE:
            self._positions.unchecked(partitions)
            return
        request = self._positions.check_request(partitions)
        response = connection.call(key, OffsetForLeaderEpochResponse, request)
        self._find_anew(self._positions.checked(partitions, response))

    def _send_fetches(self, idle: Mapping[TopicPartition, PartitionInfo], max_wait_ms: int) -> None:
        """Send a fetch to each broker that is not working on one."""
        wanted: dict[BrokerId, dict[TopicPartition, FetchFrom]] = {}
        now_ms = self._cluster.clock.monotonic_ms()
        for partition, info in idle.items():
            if not self._absences.is_due(partition, now_ms):
                continue  # its leader has just failed to answer
            broker = self._positions.broker_for(partition, info, self._cluster.view.brokers, now_ms)
            told = self._cluster.topic(partition.topic).topic_id
            topic_id = self._positions.topic_of(partition, told)
            asked = self._positions.fetch_from(partition, topic_id, info)
            wanted.setdefault(broker, {})[partition] = asked
        # A connection that must be opened may take its time: the others work meanwhile.
        for broker in sorted(wanted, key=self._cluster.has_connection_to, reverse=True):
            began_ms = self._cluster.clock.monotonic_ms()
            try:
                self._send_fetch(broker, wanted[broker], min(max_wait_ms, _MAX_WAIT_MS_MAX))
            except ProtocolError as error:
                self._positions.unanswered(wanted[broker])
                self._do_without(wanted[broker], error, began_ms)

    def _send_fetch(
        self, broker: BrokerId, asked: dict[TopicPartition, FetchFrom], wait_ms: int
    ) -> None:
        connection = self._cluster.connection_to(broker)
        if self._in_flight.uses(connection):
            return
        session = self._positions.session(broker)
        request = partial(session.request, asked, self._settings, wait_ms)
        try:
            pending = connection.send(
                ApiKey.FETCH, request, highest=highest_version(list(asked.values()))
            )
        except ProtocolError:
            session.failed()
            raise
        self._in_flight.add(FetchInFlight(broker, connection, pending, session, asked, wait_ms))
        self._positions.asked(next(iter(asked)))

    def _silent(self, trouble: ProtocolError) -> None:
        self.trouble = trouble

    def _take_in_all(self, arrived: list[FetchInFlight]) -> list[FetchedRecords]:
        """What the answers hold; their first error is raised only if they hold nothing else."""
        taken = Taken()
        for request in arrived:
            try:
                response = self._answer(request)
            except ProtocolError as error:
                self._positions.unanswered(request.asked)
                taken.failed = taken.failed or error
                continue
            self._absences.put_off.end(request.asked)
            now_ms = self._cluster.clock.monotonic_ms()
            parts = self._positions.take_in(request.broker, request.asked, response, now_ms, taken)
            for partition, topic_id, data in parts:
                self._cluster.hint(
                    partition, topic_id, data.current_leader, response.node_endpoints
                )
        self._cluster.forget(taken.stale)
        self._find_anew(taken.lost)
        if taken.failed is not None and not any(each.records for each in taken.fetched):
            raise taken.failed
        return taken.fetched

    def _answer(self, request: FetchInFlight) -> FetchResponse:
        try:
            return request.connection.result(request.pending, FetchResponse)
        except ProtocolError:
            request.session.failed()
            raise
        except MalformedFrame as error:
            request.session.failed()
            raise ProtocolError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error

    def _find_anew(self, lost: list[TopicPartition]) -> None:
        """Go on where the reset says."""
        if not lost or self._reset is None:
            return
        began_ms = self._cluster.clock.monotonic_ms()
        found, refused = self._resolve_now(dict.fromkeys(lost, self._reset))
        for partition, offset in found.items():
            self._positions.seek(partition, offset)
        for partition, error in refused.items():
            self._do_without([partition], error, began_ms)
