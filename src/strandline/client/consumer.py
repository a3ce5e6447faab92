"""Reading assigned partitions from given positions, without a group.

    consumer = Consumer(cluster)
    consumer.assign({TopicPartition("orders", 0): Start.earliest()})
    for fetched in consumer.poll(500):
        ...fetched.records...

This file keeps positions and says which broker is asked for what; `fetching.py` knows requests and
records. Assignment is the caller's: no group is joined. A group's offsets can be read and stored
(`offsets.py`) by whoever is its only reader.

Theory: one fetch per leader is on the way at a time. A position moves only when records are handed
out, so what the caller holds and the positions always agree.
"""

from __future__ import annotations

import select
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

from strandline.client.cluster import ClusterClient, void
from strandline.client.connection import Connection, Pending
from strandline.client.fetch_session import FetchSession
from strandline.client.fetching import (
    FetchedRecords,
    FetchFrom,
    FetchSettings,
    answers_by_partition,
    highest_version,
    records_of,
)
from strandline.client.offsets import EARLIEST, LATEST, list_offsets
from strandline.client.refusal import check
from strandline.client.retry import is_worth_waiting_for
from strandline.errors import CorruptRecords, ErrorCode, MalformedFrame, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import FetchResponse, PartitionData
from strandline.types import BrokerId, Offset, TopicPartition

_MAX_WAIT_MS_MAX = 5000
_SILENCE_MS = 3000
"""So much later than it was to come an answer is missed."""


class _Anchor(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin in a partition."""

    anchor: _Anchor
    value: int = 0

    @classmethod
    def earliest(cls, plus: int = 0) -> Start:
        """The log's first offset, or so many after it."""
        return cls(_Anchor.EARLIEST, plus)

    @classmethod
    def latest(cls, minus: int = 0) -> Start:
        """The end of the log, or so many offsets before it but not before its start."""
        return cls(_Anchor.LATEST, minus)

    @classmethod
    def at_offset(cls, offset: int) -> Start:
        """Exactly there."""
        return cls(_Anchor.OFFSET, offset)

    @classmethod
    def at_time(cls, timestamp_ms: int) -> Start:
        """The first record at or after a time; the end of the log if there is none."""
        return cls(_Anchor.TIME, timestamp_ms)


@dataclass(frozen=True, slots=True, eq=False)
class _InFlight:
    connection: Connection
    pending: Pending
    session: FetchSession
    asked: dict[TopicPartition, FetchFrom]
    wait_ms: int
    """How long the broker may wait for records."""


class Consumer:
    """See the module."""

    def __init__(
        self,
        cluster: ClusterClient,
        settings: FetchSettings | None = None,
        *,
        reset: Start | None = None,
    ) -> None:
        """`reset` is where to go on when a position is no longer in the log; None raises."""
        self._cluster = cluster
        self._settings = settings or FetchSettings()
        self.trouble: ProtocolError | None = None
        """The error that is being retried, if the last fetch met one."""
        self._reset = reset
        self._positions: dict[TopicPartition, Offset] = {}
        self._ends: dict[TopicPartition, Offset] = {}
        self._in_flight: list[_InFlight] = []
        self._sessions: dict[BrokerId, FetchSession] = {}

    # -- Positions ---------------------------------------------------------------------------

    @property
    def positions(self) -> Mapping[TopicPartition, Offset]:
        """The offset of the next record of each assigned partition."""
        return self._positions

    def assign(self, starts: Mapping[TopicPartition, Start]) -> None:
        """Read these partitions from now on, and no others. Raises `ProtocolError`."""
        positions = self.resolve(starts)
        self._drop_in_flight()
        self._positions = positions
        self._ends = {}
        for session in self._sessions.values():
            session.failed()  # the next answers are to tell the ends of all partitions

    def seek(self, partition: TopicPartition, start: Start) -> None:
        """Go on elsewhere in an assigned partition."""
        found = self.resolve({partition: start})[partition]
        self._drop_in_flight()
        self._positions[partition] = found

    def resolve(self, starts: Mapping[TopicPartition, Start]) -> dict[TopicPartition, Offset]:
        """The offsets that places stand for at the moment."""
        self._cluster.retry_on_topics(
            lambda: void(self._cluster.by_leader(starts)), {each.topic for each in starts}
        )
        earliest = self._ask(
            {each: EARLIEST for each, start in starts.items() if _needs_start(start)}
        )
        latest = self._ask({each: LATEST for each, start in starts.items() if _needs_end(start)})
        timed = self._ask(
            {each: start.value for each, start in starts.items() if start.anchor is _Anchor.TIME}
        )
        found: dict[TopicPartition, Offset] = {}
        for partition, start in starts.items():
            match start.anchor:
                case _Anchor.EARLIEST:
                    offset = earliest[partition] + start.value
                case _Anchor.LATEST:
                    offset = latest[partition] - start.value
                    if start.value:
                        offset = max(offset, earliest[partition])
                case _Anchor.OFFSET:
                    offset = start.value
                case _Anchor.TIME:
                    offset = timed[partition]
                    if offset < 0:
                        offset = latest[partition]
            found[partition] = Offset(offset)
        return found

    def end_offsets(self) -> dict[TopicPartition, Offset]:
        """Where the assigned partitions end at the moment for this reader."""
        ends = self._ask(dict.fromkeys(self._positions, LATEST))
        return {each: Offset(offset) for each, offset in ends.items()}

    def lag(self) -> dict[TopicPartition, int]:
        """How far each position is behind the end that the last fetch told; unknown ones absent."""
        return {
            each: max(0, end - self._positions[each])
            for each, end in self._ends.items()
            if each in self._positions
        }

    def _ask(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        found = list_offsets(self._cluster, wanted, self._settings.isolation)
        return {each: at.offset for each, at in found.items()}

    # -- Fetching ----------------------------------------------------------------------------

    def poll(self, timeout_ms: int) -> list[FetchedRecords]:
        """What comes first from any leader within the time; empty if nothing does.

        Entries may hold no records (only skipped ones); positions are behind each entry when this
        returns. Errors that a retry may mend are retried in the next call. Raises `ProtocolError`
        for others (OFFSET_OUT_OF_RANGE without `reset`), and `CorruptRecords`.
        """
        deadline_ms = self._cluster.clock.monotonic_ms() + timeout_ms
        backoff = self._cluster.backoff(timeout_ms)
        while True:
            left_ms = max(0, deadline_ms - self._cluster.clock.monotonic_ms())
            try:
                self._send_fetches(left_ms)
                fetched = self._take_in_all(self._wait(left_ms))
            except ProtocolError as error:
                if not is_worth_waiting_for(error):
                    raise
                self.trouble = error
                self._cluster.forget({each.topic for each in self._positions})
                if not backoff.maybe_wait():
                    return []
                continue
            if fetched:
                self.trouble = None
            for each in fetched:
                self._positions[each.topic_partition] = each.next_offset
                self._ends[each.topic_partition] = each.end_offset
            if any(each.records for each in fetched):
                return fetched
            if self._cluster.clock.monotonic_ms() >= deadline_ms:
                return fetched

    def _send_fetches(self, max_wait_ms: int) -> None:
        """Send a fetch to each leader that is not working on one."""
        busy = {partition for request in self._in_flight for partition in request.asked}
        idle = [each for each in self._positions if each not in busy]
        for leader, partitions in self._cluster.by_leader(idle).items():
            connection = self._cluster.connection_to(leader)
            if any(request.connection is connection for request in self._in_flight):
                continue
            asked = {each: self._from(each) for each in partitions}
            wait_ms = min(max_wait_ms, _MAX_WAIT_MS_MAX)
            session = self._sessions.setdefault(leader, FetchSession(wants_session=True))
            request = partial(session.request, asked, self._settings, wait_ms)
            try:
                pending = connection.send(
                    ApiKey.FETCH, request, highest=highest_version(list(asked.values()))
                )
            except ProtocolError:
                session.failed()
                raise
            self._in_flight.append(_InFlight(connection, pending, session, asked, wait_ms))
            # Brokers fill answers in the order of the request: whoever was first goes last now.
            first = partitions[0]
            self._positions[first] = self._positions.pop(first)

    def _from(self, partition: TopicPartition) -> FetchFrom:
        return FetchFrom(
            partition,
            self._cluster.topic(partition.topic).topic_id,
            self._positions[partition],
            self._cluster.partition(partition).leader_epoch,
        )

    def _wait(self, timeout_ms: int) -> list[_InFlight]:
        """Take the requests that are answered; waits for the first one."""
        poller = select.poll()
        for request in self._in_flight:
            if not request.connection.closed:
                poller.register(request.connection, select.POLLIN)
        if self._in_flight and not any(request.pending.is_done for request in self._in_flight):
            # A broker may take a little longer than it was told to wait.
            poller.poll(timeout_ms + 100)
        done: list[_InFlight] = []
        now_ms = self._cluster.clock.monotonic_ms()
        for request in list(self._in_flight):
            pending = request.pending
            if not pending.is_done:
                request.connection.take_arrived()
            if pending.is_done or now_ms > pending.deadline:
                self._in_flight.remove(request)
                done.append(request)
            elif now_ms - pending.sent_ms > request.wait_ms + _SILENCE_MS:
                self.trouble = request.connection.silence(pending)
        return done

    def _take_in_all(self, arrived: list[_InFlight]) -> list[FetchedRecords]:
        """What the answers hold; their first error is raised only if they hold nothing else.

        The position of a partition that failed does not move, so it will fail again by itself.
        """
        fetched: list[FetchedRecords] = []
        failed: ProtocolError | CorruptRecords | None = None
        for request in arrived:
            try:
                answers = self._answers(request)
            except ProtocolError as error:
                failed = failed or error
                continue
            for asked, data in answers:
                try:
                    fetched += self._records(asked, data)
                except (ProtocolError, CorruptRecords) as error:
                    failed = failed or error
                    self._cluster.forget([asked.partition.topic])
        if failed is not None and not any(each.records for each in fetched):
            raise failed
        return fetched

    def _answers(self, request: _InFlight) -> list[tuple[FetchFrom, PartitionData]]:
        """The parts of an answer that are about present positions."""
        try:
            response = request.connection.result(request.pending, FetchResponse)
        except ProtocolError:
            request.session.failed()
            raise
        except MalformedFrame as error:
            request.session.failed()
            raise ProtocolError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        if response.error_code != ErrorCode.NONE:
            request.session.failed(ErrorCode(response.error_code))
        check(response.error_code, None, "the fetch")
        request.session.answered(response.session_id)
        names = {each.topic_id: partition.topic for partition, each in request.asked.items()}
        answers: list[tuple[FetchFrom, PartitionData]] = []
        for partition, data in answers_by_partition(response, names):
            asked = request.asked.get(partition)
            if asked is not None and self._positions.get(partition) == asked.offset:
                self._cluster.hint(partition, data.current_leader, response.node_endpoints)
                answers.append((asked, data))
        return answers

    def _records(self, asked: FetchFrom, data: PartitionData) -> list[FetchedRecords]:
        partition = asked.partition
        what = f"partition {partition}"
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._reset is not None:
                self._positions[partition] = self.resolve({partition: self._reset})[partition]
                return []
            what = f"the log of partition {partition}, which has no offset {asked.offset}"
        check(data.error_code, None, what)
        return [records_of(asked, data, self._settings)]

    def _drop_in_flight(self) -> None:
        """Answers still to come are about old positions: their connections are given up."""
        for request in self._in_flight:
            request.connection.close()
            request.session.failed()
        self._in_flight = []


def _needs_start(start: Start) -> bool:
    return start.anchor is _Anchor.EARLIEST or (start.anchor is _Anchor.LATEST and start.value > 0)


def _needs_end(start: Start) -> bool:
    return start.anchor in (_Anchor.LATEST, _Anchor.TIME)
