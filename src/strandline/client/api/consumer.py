"""`strandline.Consumer`: records of a group's part of topics, or of partitions by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import Final, NamedTuple, Self

from strandline.client.api.one_thread import alone, one_thread
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
from strandline.client.cluster import ClusterClient
from strandline.client.consumer import Consumer as PartitionConsumer
from strandline.client.fetching import FetchedRecords
from strandline.client.group_consumer import GroupConsumer, RebalanceListener
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
from strandline.errors import ErrorCode, ProtocolError
from strandline.records.record import Record
from strandline.types import Offset, TopicPartition

_ITERATION_MS: Final = 500
"""So long a loop over records waits before it asks again."""


class ConsumerRecord(NamedTuple):
    """A record that was read. `timestamp_ms` is in milliseconds since 1970, -1 for none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def records_in(fetched: Iterable[FetchedRecords]) -> list[ConsumerRecord]:
    """The records of several partitions in one list, those of each in their order."""
    return [record_of(each.topic_partition, record) for each in fetched for record in each.records]


def record_of(partition: TopicPartition, record: Record) -> ConsumerRecord:
    """A record as the program gets it."""
    offset, timestamp, key, value, headers = record
    return ConsumerRecord(*partition, offset, timestamp, key, value, headers)


def nothing(partitions: Sequence[TopicPartition]) -> None:
    """For programs that need not know of a rebalance."""
    del partitions


def position_in(
    positions: Mapping[TopicPartition, Offset],
    partition: TopicPartition,
    assignment: Iterable[TopicPartition],
    refused: Mapping[TopicPartition, ProtocolError],
) -> Offset:
    """The position of an assigned partition. Raises `ProtocolError` for another, for one of which
    no broker has told yet where to begin, and for one of which nothing says that (`refused`)."""
    found = positions.get(partition)
    if found is None:
        check_assigned(partition, assignment)
        if partition in refused:
            raise refused[partition]
        raise ProtocolError(
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"Partition {partition} has no position yet: its leader has not told where to begin.",
        )
    return found


@one_thread
class Consumer:
    """Reads records of any Kafka cluster, as a member of a group or of named partitions.

        settings = {"bootstrap.servers": "localhost:9092", "auto.offset.reset": "earliest"}
        with strandline.Consumer(settings) as consumer:
            consumer.assign(consumer.partitions_for("orders"))
            for record in consumer.poll(timeout_ms=1000):
                print(record.partition, record.offset, record.value)

    - `settings`: by Kafka's names (see [clients](clients.md)); `bootstrap.servers` is needed.

    With `subscribe` it is a member of `group.id`: partitions are shared with the other members, of
    whatever client, and `poll` says that it is alive. With `assign` it reads partitions that the
    program names, all by itself; with `group.id` it begins at what the group has committed, and
    `commit` stores where it goes on. It belongs to one thread; as a member it has another one, for
    heartbeats. Connects to nothing yet. Raises `InvalidSetting` for an unknown setting or value. A
    context manager that closes it.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        reading = reading_of(settings)
        self._cluster = ClusterClient(reading.connecting.bootstrap, reading.connecting.client)
        self._group = reading.group
        self._reset = STARTS[reading.reset]
        self._isolation = reading.fetch.isolation
        self._consumer = PartitionConsumer(
            self._cluster,
            reading.fetch,
            reset=self._reset,
            find_committed=None if self._group is None else self.committed,
        )
        self._fetch = reading.fetch
        self._member_settings = reading.member
        self._member: GroupConsumer | None = None
        self._use = ConsumerUse()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- Partitions and positions ------------------------------------------------------------

    def partitions_for(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic. Raises `ProtocolError` if there is no such topic."""
        self._use.check_not_closed()
        return [
            TopicPartition(topic, each) for each in sorted(self._cluster.topic(topic).partitions)
        ]

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: Callable[[Sequence[TopicPartition]], None] | None = None,
        on_revoked: Callable[[Sequence[TopicPartition]], None] | None = None,
        on_lost: Callable[[Sequence[TopicPartition]], None] | None = None,
    ) -> None:
        """Read these topics as a member of `group.id`, and no others. `poll` does the rest.

        `pattern` adds all topics, those to come included, whose names match a regular expression
        (RE2) as a whole; it needs `group.protocol=consumer`, since coordinators apply it.
        The functions are called within `poll` and `close`: `on_assigned` when partitions come,
        `on_revoked` when they go to others and can still be committed, `on_lost` when that is too
        late. With `enable.auto.commit` (the default) `poll` commits what earlier calls returned.
        Raises `InvalidSetting` without `group.id`, and for a pattern in the classic protocol;
        `TypeError` for one name that is not in a list.
        """
        wanted = several(topics, "Topics")
        self._use.check_open()
        needed_group(self._group)
        if self._consumer.partitions:
            raise has_assignment()
        if self._member_settings is not None:
            check_pattern(self._member_settings, pattern)  # before it counts as a subscription
        if self._member is None and self._member_settings is not None:
            self._member = GroupConsumer(self._cluster, self._member_settings, self._fetch)
        if self._member is not None:
            listener = RebalanceListener(
                assigned=on_assigned or nothing,
                revoked=on_revoked or nothing,
                lost=on_lost or nothing,
            )
            self._member.subscribe(wanted, listener, pattern=pattern)
            self._use.reads = True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions from now on, and no others.

        One that is read already goes on where it is. Each other one begins at the committed offset
        of `group.id`, or else where `auto.offset.reset` says. If that is `none` it has no position
        until the program seeks in it, or commits an offset: `poll` raises OFFSET_OUT_OF_RANGE
        before. Raises `ProtocolError`.
        """
        wanted = several_partitions(partitions)
        self._use.check_open()
        if self._member is not None:
            raise has_subscription()
        kept = set(wanted).intersection(self._consumer.partitions)
        new = [each for each in wanted if each not in kept]
        committed = self.committed(new) if self._group and new else {}
        self._consumer.change(first_starts(new, committed, self._reset), kept)
        self._use.reads = True

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return sorted(self._reader.partitions)

    @property
    def _reader(self) -> PartitionConsumer | GroupConsumer:
        return self._member or self._consumer

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at an offset of an assigned partition. Raises `ProtocolError` for another one, and
        `ValueError` for an offset below 0 or above 2**63 - 1."""
        self._seek([partition], Start.at_offset(an_offset(offset)))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first offset of these partitions, or of all that are assigned."""
        self._seek(partitions, Start.earliest())

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the end of these partitions, or of all that are assigned."""
        self._seek(partitions, Start.latest())

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on at the first record that is not older, or at the end if there is none.

        The time is in milliseconds since 1970. Raises `ValueError` for one below 0.
        """
        self._seek(partitions, Start.at_time(a_time(timestamp_ms)))

    def _seek(self, partitions: Iterable[TopicPartition], start: Start) -> None:
        self._use.check_not_closed()
        for partition in list(partitions) or self.assignment:
            check_assigned(partition, self._reader.partitions)
            self._reader.seek(partition, start)

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record. Raises `ProtocolError` unless it is assigned,
        LEADER_NOT_AVAILABLE where a member is to begin but no broker has told yet, and
        OFFSET_OUT_OF_RANGE if nothing says where, as `poll`."""
        self._use.check_not_closed()
        reader = self._reader
        return position_in(reader.positions, partition, reader.partitions, reader.refused)

    # -- Records -----------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 500) -> list[ConsumerRecord]:
        """The records that come first within the time, in the order of each partition; none if
        none come.

        Errors that a retry may mend are retried. Raises `ProtocolError` for others
        (OFFSET_OUT_OF_RANGE with `auto.offset.reset=none`, TOPIC_AUTHORIZATION_FAILED, ...) and
        `CorruptRecords`, a `StrandlineError`, for bytes that are not records; `TypeError` for a
        time that is no whole number: other clients count in seconds.
        """
        self._use.check_reading()
        return records_in(self._reader.poll(index(timeout_ms)))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records without an end, as they come. Raises what `poll` does.

            consumer.subscribe(["orders"])
            for record in consumer:
                print(record.partition, record.offset, record.value)

        A record counts as read when the loop comes back for the next one, or is left: `position`
        and what is committed are behind that record, not behind all that has been fetched.
        """
        while True:
            found = self._next_record()
            if found is not None:
                yield found

    @alone
    def _next_record(self) -> ConsumerRecord | None:
        self._use.check_reading()
        found = self._reader.next_record(_ITERATION_MS)
        return None if found is None else record_of(*found)

    # -- Offsets -----------------------------------------------------------------------------

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each log. Raises `ProtocolError`."""
        return self._offsets(partitions, EARLIEST)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each log ends for this reader: behind the last record that it may see."""
        return self._offsets(partitions, LATEST)

    def _offsets(
        self, partitions: Iterable[TopicPartition], which: int
    ) -> dict[TopicPartition, int]:
        self._use.check_not_closed()
        wanted = several_partitions(partitions)
        found = list_offsets(self._cluster, dict.fromkeys(wanted, which), self._isolation)
        return {each: at.offset for each, at in found.items()}

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """What `group.id` has committed; partitions without an offset are absent.

        Waits while a transaction that stores offsets of these partitions is open (KIP-447).
        """
        self._use.check_not_closed()
        group = needed_group(self._group)
        wanted = several_partitions(partitions)
        return stored_positions(self._cluster, group, wanted)

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Store where to go on: the positions of all assigned partitions, or `offsets`.

        Raises `ProtocolError`: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION or STALE_MEMBER_EPOCH if the
        group has given the partitions to others, or for `assign` while it has members;
        REBALANCE_IN_PROGRESS while it is not known who gets them: `poll`, then commit what is still
        assigned. Raises `ValueError` for an offset below 0 or above 2**63 - 1.
        """
        self._use.check_not_closed()
        wanted = self._reader.positions if offsets is None else offsets
        stored = by_partition(wanted)
        if self._member is not None:
            self._member.commit(stored)
            return
        commit_offsets(self._cluster, needed_group(self._group), stored)

    @property
    def group_metadata(self) -> Membership:
        """As whom this consumer reads in `group.id`, for `Producer.send_offsets`.

        With `assign` that is the group alone. Raises `InvalidSetting` without `group.id`.
        """
        self._use.check_not_closed()
        group = needed_group(self._group)
        return Membership(group, None) if self._member is None else self._member.membership

    def close(self) -> None:
        """Leave the group, committing with `enable.auto.commit`, and close all connections."""
        if self._use.is_closing:
            return
        self._use.is_closing = True
        try:
            if self._member is not None and not self._use.is_inherited:
                self._member.close()  # `on_revoked` may still commit, as its member
        finally:
            self._use.is_closed = True
            self._member = None
            self._cluster.close()
