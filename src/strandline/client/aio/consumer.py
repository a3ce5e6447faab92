"""`strandline.AsyncConsumer`: records of groups and of named partitions, on an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from operator import index
from typing import Self

from strandline.client.aio.cluster import AsyncClusterClient
from strandline.client.aio.fetcher import AsyncFetcher
from strandline.client.aio.group_consumer import (
    AsyncGroupConsumer,
    AsyncRebalanceListener,
    Listener,
)
from strandline.client.api.consumer import ConsumerRecord, position_in, record_of, records_in
from strandline.client.api.refusals import (
    ConsumerUse,
    check_assigned,
    has_assignment,
    has_subscription,
    needed_group,
)
from strandline.client.api.settings import reading_of
from strandline.client.arguments import (
    a_time,
    an_offset,
    by_partition,
    several,
    several_partitions,
)
from strandline.client.group_members import check_pattern
from strandline.client.group_requests import Membership
from strandline.client.offsets import (
    EARLIEST,
    LATEST,
    commit_offsets,
    list_offsets,
    stored_positions,
)
from strandline.client.start import STARTS, Start, first_starts
from strandline.types import Offset, TopicPartition


class AsyncConsumer:
    """Reads records of any Kafka cluster, as a member of a group or of named partitions, on an
    event loop.

        settings = {"bootstrap.servers": "localhost:9092", "group.id": "billing"}
        async with strandline.AsyncConsumer(settings) as consumer:
            await consumer.subscribe(["orders"])
            async for record in consumer:
                print(record.partition, record.offset, record.value)

    - `settings`: by Kafka's names (see [clients](clients.md)); `bootstrap.servers` is needed.

    With `subscribe` it is a member of `group.id`: partitions are shared with the other members, of
    whatever client. Each call for records says that the program is alive; between them a task of
    the loop sends heartbeats, so the program may await what it likes, but not for longer than
    `max.poll.interval.ms`. With `assign` it reads partitions that the program names, all by itself;
    with `group.id` it begins at what the group has committed, and `commit` stores where it goes on.
    Records are asked for by one task at a time. Connects to nothing yet. Raises `InvalidSetting`
    for an unknown setting or value. A context manager that closes it.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        reading = reading_of(settings)
        connecting = reading.connecting
        self._cluster = AsyncClusterClient(connecting.bootstrap, connecting.client, what="consumer")
        self._group = reading.group
        self._reset = STARTS[reading.reset]
        self._isolation = reading.fetch.isolation
        self._fetcher = AsyncFetcher(
            self._cluster,
            reading.fetch,
            self._reset,
            None if self._group is None else self.committed,
        )
        self._member_settings = reading.member
        self._member: AsyncGroupConsumer | None = None
        self._use = ConsumerUse()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    # -- Partitions and positions ------------------------------------------------------------

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic. Raises `ProtocolError` if there is no such topic."""
        self._use.check_not_closed()
        found = await self._cluster.topic(topic)
        return [TopicPartition(topic, each) for each in sorted(found.partitions)]

    async def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Read these topics as a member of `group.id`, and no others.

        `pattern` adds all topics, those to come included, whose names match a regular expression
        (RE2) as a whole; it needs `group.protocol=consumer`, since coordinators apply it.
        The group is joined while records are asked for. The functions, `async` or not, are called
        there and in `close`: `on_assigned` when partitions come, `on_revoked` when they go to
        others and can still be committed, `on_lost` when that is too late. With
        `enable.auto.commit` (the default) each call for records commits now and then what came
        before it. Raises `InvalidSetting` without `group.id`, and for a pattern in the
        classic protocol; `TypeError` for one name that is not in a list.
        """
        wanted = several(topics, "Topics")
        self._use.check_open()
        needed_group(self._group)
        if self._member is None and self._fetcher.partitions:
            raise has_assignment()
        if self._member_settings is not None:
            check_pattern(self._member_settings, pattern)  # before it counts as a subscription
        if self._member is None and self._member_settings is not None:
            self._member = AsyncGroupConsumer(self._cluster, self._fetcher, self._member_settings)
        if self._member is not None:
            listener = AsyncRebalanceListener(
                assigned=on_assigned, revoked=on_revoked, lost=on_lost
            )
            self._member.subscribe(wanted, listener, pattern=pattern)
            self._use.reads = True

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions from now on, and no others. See `Consumer.assign`: one that is read
        already goes on where it is."""
        wanted = several_partitions(partitions)
        self._use.check_open()
        if self._member is not None:
            raise has_subscription()
        kept = set(wanted).intersection(self._fetcher.partitions)
        new = [each for each in wanted if each not in kept]
        committed = await self.committed(new) if self._group and new else {}
        await self._fetcher.change(first_starts(new, committed, self._reset), kept)
        self._use.reads = True

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return sorted(self._fetcher.partitions)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at an offset of an assigned partition. Raises as `Consumer.seek`."""
        await self._seek([partition], Start.at_offset(an_offset(offset)))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first offset of these partitions, or of all that are assigned."""
        await self._seek(partitions, Start.earliest())

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the end of these partitions, or of all that are assigned."""
        await self._seek(partitions, Start.latest())

    async def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on at the first record that is not older, or at the end if there is none.

        The time is in milliseconds since 1970. Raises `ValueError` for one below 0.
        """
        await self._seek(partitions, Start.at_time(a_time(timestamp_ms)))

    async def _seek(self, partitions: Iterable[TopicPartition], start: Start) -> None:
        self._use.check_not_closed()
        wanted = list(partitions) or self.assignment
        for partition in wanted:
            check_assigned(partition, self._fetcher.partitions)
        await self._fetcher.seek(dict.fromkeys(wanted, start))

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record. Raises as `Consumer.position`."""
        self._use.check_not_closed()
        reader = self._fetcher
        return position_in(reader.offsets, partition, reader.partitions, reader.refused)

    # -- Records -----------------------------------------------------------------------------

    async def poll(self, timeout_ms: int = 500) -> list[ConsumerRecord]:
        """The records that come first within the time, in the order of each partition; none if
        none come.

        Errors that a retry may mend are retried. Raises `ProtocolError` for others
        (OFFSET_OUT_OF_RANGE with `auto.offset.reset=none`, TOPIC_AUTHORIZATION_FAILED, ...) and
        `CorruptRecords`, a `StrandlineError`, for bytes that are not records; `TypeError` for a
        time that is no whole number: other clients count in seconds.
        """
        self._use.check_reading()
        reader = self._member or self._fetcher
        return records_in(await reader.poll(index(timeout_ms)))

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Records without an end, as they come. Raises what `poll` does.

        A record counts as read when the loop comes back for the next one, or is left: `position`
        and what is committed are behind that record, not behind all that has been fetched.
        """
        while True:
            self._use.check_reading()
            reader = self._member or self._fetcher
            partition, record = await reader.next_record()
            yield record_of(partition, record)

    # -- Offsets -----------------------------------------------------------------------------

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first offset of each log. Raises `ProtocolError`."""
        return await self._offsets(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each log ends for this reader: behind the last record that it may see."""
        return await self._offsets(partitions, LATEST)

    async def _offsets(
        self, partitions: Iterable[TopicPartition], which: int
    ) -> dict[TopicPartition, int]:
        self._use.check_not_closed()
        wanted = dict.fromkeys(several_partitions(partitions), which)
        found = await self._cluster.run(
            lambda cluster: list_offsets(cluster, wanted, self._isolation)
        )
        return {each: at.offset for each, at in found.items()}

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """What `group.id` has committed; partitions without an offset are absent.

        Waits while a transaction that stores offsets of these partitions is open (KIP-447).
        """
        self._use.check_not_closed()
        group, wanted = needed_group(self._group), several_partitions(partitions)
        return await self._cluster.run(lambda cluster: stored_positions(cluster, group, wanted))

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Store where to go on: the positions of all assigned partitions, or `offsets`.

        Raises as `Consumer.commit`.
        """
        self._use.check_not_closed()
        wanted = self._fetcher.offsets if offsets is None else offsets
        stored = by_partition(wanted)
        if self._member is not None:
            await self._member.commit(stored)
            return
        group = needed_group(self._group)
        await self._cluster.run(lambda cluster: commit_offsets(cluster, group, stored))

    @property
    def group_metadata(self) -> Membership:
        """As whom this consumer reads in `group.id`, for `AsyncProducer.send_offsets`.

        Raises `InvalidSetting` without `group.id`.
        """
        self._use.check_not_closed()
        if self._member is not None:
            return self._member.membership
        return Membership(needed_group(self._group), None)

    async def close(self) -> None:
        """Leave the group, committing with `enable.auto.commit`, and close all connections."""
        if self._use.is_closing or self._use.is_inherited:
            return
        self._use.is_closing = True
        try:
            if self._member is not None:  # `on_revoked` may still commit, as its member
                await self._member.close()
        finally:
            self._use.is_closed = True
            await self._fetcher.close()
            await self._cluster.close()
