"""Reading assigned partitions on an event loop: `fetch_positions`, driven without blocking.

Theory: as `consumer`: one fetch per broker is on the way at a time, and a position moves only when
records are handed out, all that have come (`poll`) or one by one (`fetch` and `unread`). What no
broker gives is put off, and stops nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias

from strandline.client.aio.cluster import AsyncClusterClient
from strandline.client.aio.connection import Connection, now_ms
from strandline.client.aio.fetches_in_flight import FetchInFlight
from strandline.client.aio.finding import Finding
from strandline.client.beginnings import Beginnings
from strandline.client.fetch_positions import CHECKS_SINCE, FetchPositions, Taken
from strandline.client.fetching import FetchedRecords, FetchFrom, FetchSettings, highest_version
from strandline.client.metadata import PartitionInfo
from strandline.client.resolving import resolve, resolve_now
from strandline.client.retry import Absences
from strandline.client.start import Start
from strandline.client.unread_records import UnreadRecords
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from strandline.records.record import Record
from strandline.types import BrokerId, Offset, TopicPartition

FindCommitted: TypeAlias = Callable[
    [Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, Offset]]
]
"""What a group has stored of partitions; may raise `ProtocolError`."""

_MAX_WAIT_MS_MAX: Final = 5000
_OPENING_MS: Final = 250
"""For so long all wait for a new connection; after that it is made while the others are read."""


class AsyncFetcher:
    """See the module."""

    def __init__(
        self,
        cluster: AsyncClusterClient,
        settings: FetchSettings,
        reset: Start | None,
        find_committed: FindCommitted | None = None,
    ) -> None:
        """`reset` is where to go on when a position is no longer in the log; None raises.
        `find_committed` is asked where to begin in partitions of which nothing says that."""
        self._cluster = cluster
        self._settings = settings
        self._reset = reset
        self._positions = FetchPositions(settings, resets=reset is not None)
        self.unread = UnreadRecords(self._positions)
        self._in_flight: list[FetchInFlight] = []
        self._absences = Absences(cluster.settings, cluster.random, outlives_topics=False)
        self._finding = Finding(self._find_out)
        """Whom to ask."""
        self._find_committed = find_committed
        self._beginnings = Beginnings()

    def outlive_topics(self) -> None:
        """Skip partitions of topics that are gone, until they are dropped."""
        self._absences.outlive_topics()

    @property
    def offsets(self) -> Mapping[TopicPartition, Offset]:
        """The offset of the next record of each assigned partition."""
        return self._positions.offsets

    @property
    def partitions(self) -> list[TopicPartition]:
        """All assigned partitions, those without a position yet (see `add`) included."""
        return [*self.offsets, *self._beginnings.partitions]

    @property
    def refused(self) -> Mapping[TopicPartition, ProtocolError]:
        """The partitions of which nothing says where to begin, and why."""
        return self._beginnings.refused

    async def change(
        self, starts: Mapping[TopicPartition, Start | None], kept: Collection[TopicPartition]
    ) -> None:
        """Read other partitions, as `consumer.Consumer.change`. Raises `ProtocolError`."""
        offsets = await self._resolve({at: each for at, each in starts.items() if each is not None})
        self._drop_in_flight()
        self.drop([at for at in self.partitions if at not in kept])
        self._beginnings.put({at: None for at, each in starts.items() if each is None})
        self._positions.add(offsets)

    async def add(self, starts: Mapping[TopicPartition, Start | None]) -> None:
        """Read these partitions too, as `consumer.Consumer.add`."""
        self._beginnings.put({at: starts[at] for at in starts if at not in self.offsets})
        await self._find_starts()

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions no longer."""
        self._finding.stop()
        self._leave(partitions)

    def _leave(self, partitions: Collection[TopicPartition]) -> None:
        self.unread.drop(partitions)
        self._positions.drop(partitions)
        self._absences.put_off.end(partitions)
        self._beginnings.drop(partitions)

    async def seek(self, starts: Mapping[TopicPartition, Start]) -> None:
        """Go on elsewhere in assigned partitions."""
        offsets = await self._resolve(starts)
        self._drop_in_flight()
        self._finding.stop()
        self.unread.drop(offsets)
        self._beginnings.drop(offsets)
        self._positions.add(offsets)

    async def close(self) -> None:
        """Find nothing out any more."""
        await self._finding.close()

    async def _resolve(
        self, starts: Mapping[TopicPartition, Start]
    ) -> dict[TopicPartition, Offset]:
        return await self._cluster.run(
            lambda cluster: resolve(cluster, starts, self._settings.isolation)
        )

    async def _resolve_now(
        self, starts: Mapping[TopicPartition, Start]
    ) -> tuple[dict[TopicPartition, Offset], dict[TopicPartition, ProtocolError]]:
        return await self._cluster.run(
            lambda cluster: resolve_now(cluster, starts, self._settings.isolation)
        )

    async def poll(self, timeout_ms: int) -> list[FetchedRecords]:
        """As `consumer.Consumer.poll`. What `fetch` left comes first."""
        if not self.unread:
            await self.fetch(timeout_ms)
        return self.unread.rest()

    async def next_record(self) -> tuple[TopicPartition, Record]:
        """The next record, however long that takes. Raises as `poll`."""
        while (found := self.unread.next()) is None:
            await self.fetch(_MAX_WAIT_MS_MAX)
        return found

    async def fetch(self, timeout_ms: int) -> None:
        """Have `unread` filled with what comes first within the time. Raises as `poll`."""
        deadline_ms = now_ms() + timeout_ms
        backoff = self._cluster.backoff(timeout_ms)
        while True:
            await self._check_beginnings()
            self._cluster.check_open()  # another task may have closed it
            left_ms = max(0, deadline_ms - now_ms())
            try:
                answers = [request.answer for request in self._in_flight]
                idle = await self._finding.result(left_ms, answers) or {}
                left_ms = max(0, deadline_ms - now_ms())
                await self._send_fetches(idle, left_ms)
                wait_ms = self._absences.put_off.wait_ms(now_ms(), left_ms)
                fetched = await self._take_in_all(await self._arrived(wait_ms))
            except ProtocolError as error:
                if not self._absences.may_end(error):
                    raise
                self._cluster.forget({each.topic for each in self.offsets})
                if not await backoff.maybe_wait():
                    return
                continue
            self.unread.put(fetched)
            if self.unread or now_ms() >= deadline_ms:
                return

    async def _find_out(self) -> dict[TopicPartition, PartitionInfo]:
        """The partitions that can be asked for, with their leaders."""
        await self._find_starts()
        idle = await self._idle()
        await self._check_positions(idle)
        return idle

    async def _idle(self) -> dict[TopicPartition, PartitionInfo]:
        """The partitions of which nothing is on its way, with their leaders."""
        busy = {partition for request in self._in_flight for partition in request.asked}
        idle: dict[TopicPartition, PartitionInfo] = {}
        for each in list(self.offsets):
            if each in busy or not self._absences.is_due(each, now_ms()):
                continue
            began_ms = now_ms()
            try:
                idle[each] = await self._cluster.partition(each)
            except ProtocolError as error:
                if not self._absences.is_of_one(error):
                    raise
                self._do_without([each], error, began_ms)
        former = self._former(idle)
        if former:
            await self._begin_anew(former)
            still = self._former(former)
            idle = {at: info for at, info in idle.items() if at not in still}
        return idle

    def _former(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those whose topics are other ones now: what was read is no place in them."""
        view = self._cluster.view
        return [at for at in partitions if self._positions.is_of_former(at, view.topic_id(at))]

    async def _begin_anew(self, former: list[TopicPartition]) -> None:
        if self._reset is None:
            self._leave(former)
            self._beginnings.refuse_former(former)
            self._beginnings.check()
        await self._find_anew(former)

    def _do_without(
        self, partitions: Iterable[TopicPartition], error: ProtocolError, began_ms: int
    ) -> None:
        """No broker gives these at the moment: they are tried again later, and the others are read
        meanwhile. Raises an error that no wait can mend."""
        self._cluster.forget(self._absences.begin(partitions, error, began_ms, now_ms()))

    async def _check_beginnings(self) -> None:
        """Raise what nothing says of partitions, after another look at what the group has."""
        lacking = self._beginnings.lacking
        if lacking and self._find_committed is not None:
            self._beginnings.committed(await self._find_committed(lacking))
        self._beginnings.check()

    async def _find_starts(self) -> None:
        """Find the offsets where to begin that no broker has told yet."""
        began_ms = now_ms()
        due = {
            each: start
            for each, start in self._beginnings.starts.items()
            if self._absences.is_due(each, began_ms)
        }
        if not due:
            return
        found, refused = await self._resolve_now(due)
        for partition, offset in found.items():
            if self._beginnings.starts.pop(partition, None) is not None:
                self._positions.seek(partition, offset)
        self._absences.put_off.end(found)
        for partition, error in refused.items():
            self._do_without([partition], error, began_ms)

    async def _check_positions(self, idle: Mapping[TopicPartition, PartitionInfo]) -> None:
        """Ask new leaders whether they have what was read."""
        doubtful: dict[BrokerId, dict[TopicPartition, PartitionInfo]] = {}
        for partition, info in idle.items():
            if self._positions.is_doubtful(partition, info):
                doubtful.setdefault(info.leader, {})[partition] = info
        for leader, partitions in doubtful.items():
            began_ms = now_ms()
            try:
                await self._check_with(leader, partitions)
            except ProtocolError as error:
                still = [at for at in partitions if self._positions.is_doubtful(at, partitions[at])]
                self._do_without(still, error, began_ms)

    async def _check_with(
        self, leader: BrokerId, partitions: Mapping[TopicPartition, PartitionInfo]
    ) -> None:
        connection = await self._cluster.connection_to(leader)
        key = ApiKey.OFFSET_FOR_LEADER_EPOCH
        served = connection.served
        if not served.serves(key) or served.newest(key) < CHECKS_SINCE:
            self._positions.unchecked(partitions)
            return
        request = self._positions.check_request(partitions)
        response = await connection.call(key, OffsetForLeaderEpochResponse, request)
        await self._find_anew(self._positions.checked(partitions, response))

    async def _send_fetches(
        self, idle: Mapping[TopicPartition, PartitionInfo], max_wait_ms: int
    ) -> None:
        """Send a fetch to each broker that is not working on one."""
        wanted: dict[BrokerId, dict[TopicPartition, FetchFrom]] = {}
        for partition, info in idle.items():
            if not self._absences.is_due(partition, now_ms()):
                continue  # its leader has just failed to answer
            view = self._cluster.view
            topic = view.topics.get(partition.topic)
            if topic is None:
                continue  # it has gone since
            broker = self._positions.broker_for(partition, info, view.brokers, now_ms())
            topic_id = self._positions.topic_of(partition, topic.topic_id)
            asked = self._positions.fetch_from(partition, topic_id, info)
            wanted.setdefault(broker, {})[partition] = asked
        wait_ms = min(max_wait_ms, _MAX_WAIT_MS_MAX)
        for broker, partitions in wanted.items():
            try:
                connection = await self._connection_to(broker)
                if not any(request.connection is connection for request in self._in_flight):
                    self._send_fetch(broker, connection, partitions, wait_ms)
            except ProtocolError as error:
                self._positions.unanswered(partitions)
                self._do_without(partitions, error, now_ms())

    async def _connection_to(self, broker: BrokerId) -> Connection:
        """A connection that is there soon. If it is not it is made on, for the next call."""
        try:
            async with asyncio.timeout(_OPENING_MS / 1000):
                return await self._cluster.connection_to(broker)
        except TimeoutError:
            raise ProtocolError(
                ErrorCode.NETWORK_EXCEPTION, f"Broker {broker} has not been connected to yet."
            ) from None

    def _send_fetch(
        self,
        broker: BrokerId,
        connection: Connection,
        asked: dict[TopicPartition, FetchFrom],
        wait_ms: int,
    ) -> None:
        session = self._positions.session(broker)
        request = partial(session.request, asked, self._settings, wait_ms)
        try:
            answer = connection.send(
                ApiKey.FETCH, request, highest=highest_version(list(asked.values()))
            )
        except ProtocolError:
            session.failed()
            raise
        self._in_flight.append(FetchInFlight(broker, connection, answer, session, asked))
        self._positions.asked(next(iter(asked)))

    async def _arrived(self, timeout_ms: int) -> list[FetchInFlight]:
        """Take the requests that are answered; waits for the first one."""
        if not self._in_flight:
            await self._cluster.pause(timeout_ms)
            return []
        # A broker may take a little longer than it was told to wait.
        await asyncio.wait(
            [request.answer for request in self._in_flight],
            timeout=(timeout_ms + 100) / 1000,
            return_when=asyncio.FIRST_COMPLETED,
        )
        done = [request for request in self._in_flight if request.answer.done()]
        self._in_flight = [each for each in self._in_flight if not each.answer.done()]
        return done

    async def _take_in_all(self, arrived: list[FetchInFlight]) -> list[FetchedRecords]:
        """What the answers hold; their first error is raised only if they hold nothing else."""
        taken = Taken()
        for request in arrived:
            try:
                response = request.response()
            except ProtocolError as error:
                request.session.failed()
                self._positions.unanswered(request.asked)
                taken.failed = taken.failed or error
                continue
            self._absences.put_off.end(request.asked)
            parts = self._positions.take_in(
                request.broker, request.asked, response, now_ms(), taken
            )
            for partition, topic_id, data in parts:
                self._cluster.hint(
                    partition, topic_id, data.current_leader, response.node_endpoints
                )
        self._cluster.forget(taken.stale)
        await self._find_anew(taken.lost)
        if taken.failed is not None and not any(each.records for each in taken.fetched):
            raise taken.failed
        return taken.fetched

    async def _find_anew(self, lost: list[TopicPartition]) -> None:
        """Go on where the reset says."""
        if not lost or self._reset is None:
            return
        began_ms = now_ms()
        found, refused = await self._resolve_now(dict.fromkeys(lost, self._reset))
        for partition, offset in found.items():
            self._positions.seek(partition, offset)
        for partition, error in refused.items():
            self._do_without([partition], error, began_ms)

    def _drop_in_flight(self) -> None:
        """Answers still to come are about old positions: their connections are given up."""
        for request in self._in_flight:
            request.connection.close()
            request.session.failed()
        self._in_flight = []
