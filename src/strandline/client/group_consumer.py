"""Reading topics as a member of a consumer group.

    with GroupConsumer(cluster, GroupSettings(group="g")) as consumer:
        consumer.subscribe(["orders"])
        while ...:
            for fetched in consumer.poll(500):
                ...fetched.records...

This file joins what the group says (`group_thread`) to what is read (`consumer`). All that concerns
the program happens inside of its own calls, as in Kafka: partitions come and go in `poll`, and only
there are the listener's functions called.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from strandline.client.cluster import ClusterClient
from strandline.client.consumer import Consumer
from strandline.client.fetching import FetchedRecords, FetchSettings
from strandline.client.group_events import (
    GenerationJoined,
    MemberFailed,
    PartitionsAssigned,
    PartitionsRevoked,
)
from strandline.client.group_members import check_pattern
from strandline.client.group_progress import GroupProgress, not_subscribed
from strandline.client.group_requests import Committed, Membership
from strandline.client.group_settings import GroupSettings
from strandline.client.group_thread import GroupThread
from strandline.client.offsets import stored_positions
from strandline.client.start import STARTS, Start
from strandline.errors import ProtocolError
from strandline.records.record import Record
from strandline.types import Offset, TopicPartition

T = TypeVar("T")

_SLICE_MS: Final = 250
"""So long at most records are waited for before the group is looked at again."""


def _nothing(partitions: Sequence[TopicPartition]) -> None:
    """For programs that need not know."""
    del partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceListener:
    """What a program does when partitions come and go; called inside of `poll` and `close`."""

    assigned: Callable[[Sequence[TopicPartition]], None] = _nothing
    """These are read from now on. It may `seek` in them."""
    revoked: Callable[[Sequence[TopicPartition]], None] = _nothing
    """These are to go to others. It may `commit` them still."""
    lost: Callable[[Sequence[TopicPartition]], None] = _nothing
    """These may be read by others already: a commit would be refused."""


class GroupConsumer:
    """See the module. It belongs to one thread; a context manager that closes it."""

    def __init__(
        self,
        cluster: ClusterClient,
        settings: GroupSettings,
        fetch: FetchSettings | None = None,
    ) -> None:
        """Connects to nothing yet. `cluster` stays the caller's to close."""
        self._cluster = cluster
        self._settings = settings
        self._consumer = Consumer(
            cluster,
            fetch,
            reset=STARTS[settings.auto_offset_reset],
            outlives_topics=True,
            find_committed=lambda at: stored_positions(cluster, settings.group, at),
        )
        self._listener = RebalanceListener()
        self._thread: GroupThread | None = None
        self._progress = GroupProgress(settings, cluster.clock.monotonic_ms())

    def __enter__(self) -> GroupConsumer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- The group ---------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str],
        listener: RebalanceListener | None = None,
        *,
        pattern: str | None = None,
    ) -> None:
        """Read these topics, and those that match the pattern, as a member of the group, and no
        others; `poll` does the rest. Raises `InvalidSetting` for a pattern in the classic
        protocol."""
        check_pattern(self._settings, pattern)
        self._listener = listener or RebalanceListener()
        if self._thread is None:
            self._thread = GroupThread(self._cluster, self._settings)
            # A consumer that is dropped and not closed gives its partitions to others.
            weakref.finalize(self, self._thread.abandon).atexit = False
        self._thread.subscribe(topics, pattern)

    @property
    def generation(self) -> GenerationJoined | None:
        """The generation in which the member is, and what it was given there; None before the
        first one, and while partitions are given up."""
        return self._progress.generation

    @property
    def membership(self) -> Membership:
        """As whom the partitions are read that are read now, or were last: also a member that the
        group has taken out since is refused by this, and not taken for a stranger."""
        return self._progress.membership

    @property
    def positions(self) -> Mapping[TopicPartition, Offset]:
        """The offset of the next record of each partition that is read now."""
        return self._consumer.positions

    @property
    def partitions(self) -> list[TopicPartition]:
        """All partitions that the group has given, those without a position yet included: their
        leaders are away, and the group has stored no offset of theirs."""
        return self._consumer.partitions

    @property
    def refused(self) -> Mapping[TopicPartition, ProtocolError]:
        """The partitions of which nothing says where to begin, and why: `poll` raises until the
        program has sought in them, or the group has stored an offset."""
        return self._consumer.refused

    @property
    def trouble(self) -> ProtocolError | None:
        """What is wrong at the moment and is tried again: with the group, or with reading."""
        trouble = None if self._thread is None else self._thread.trouble
        return trouble or self._consumer.trouble

    def end_offsets(self) -> dict[TopicPartition, Offset]:
        """Where the partitions that are read now end at the moment. Raises `ProtocolError`."""
        return self._consumer.end_offsets()

    def lag(self) -> dict[TopicPartition, int]:
        """How far each position is behind the end that the last fetch told; unknown ones absent."""
        return self._consumer.lag()

    def seek(self, partition: TopicPartition, start: Start) -> None:
        """Go on elsewhere in a partition that is read now. Raises `ProtocolError`."""
        self._consumer.seek(partition, start)

    # -- Records -----------------------------------------------------------------------------

    def poll(self, timeout_ms: int) -> list[FetchedRecords]:
        """What comes first within the time; empty if nothing does. See `Consumer.poll`.

        To be called at least each `max_poll_interval_ms`: else the group gives the partitions to
        others. Raises `ProtocolError`: what `Consumer.poll` does, and what ends the membership
        (FENCED_INSTANCE_ID, GROUP_AUTHORIZATION_FAILED, INVALID_SESSION_TIMEOUT...).
        """
        empty: dict[TopicPartition, FetchedRecords] = {}

        def read(slice_ms: int) -> list[FetchedRecords] | None:
            found = self._consumer.poll(slice_ms)
            if any(each.records for each in found):
                return [*empty.values(), *found]
            # Answers without records are no reason to return before the time is up.
            empty.update((each.topic_partition, each) for each in found)
            return None

        return self._first(read, timeout_ms) or list(empty.values())

    def next_record(self, timeout_ms: int) -> tuple[TopicPartition, Record] | None:
        """The record that comes first within the time; None if none does. All before it count as
        read. Raises as `poll`."""
        return self._first(self._consumer.next_record, timeout_ms)

    def _first(self, read: Callable[[int], T | None], timeout_ms: int) -> T | None:
        """What can be read first within the time, while the group is looked after."""
        deadline_ms = self._now_ms() + timeout_ms
        while True:
            thread = self._turn()
            left_ms = max(0, deadline_ms - self._now_ms())
            if self._consumer.partitions:
                found = read(min(left_ms, _SLICE_MS))
                if found:
                    return found
            else:
                self._handle_events(thread, left_ms)
            if self._now_ms() >= deadline_ms:
                return None

    def _turn(self) -> GroupThread:
        """What each call for records begins with."""
        thread = self._member()
        thread.polled()
        self._handle_events(thread)
        due = self._progress.due(self._consumer.positions, self._now_ms())
        if due:
            thread.commit_soon(due)
        return thread

    def commit(
        self,
        offsets: Mapping[TopicPartition, Offset] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit where to go on: the positions, or `offsets`. Waits for it, with retries.

        Raises `ProtocolError`; UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION if the group has gone on
        without this member, so that others may read the same again, and REBALANCE_IN_PROGRESS if
        that is not known yet.
        """
        thread = self._member()
        wanted = dict(self._consumer.positions if offsets is None else offsets)
        if timeout_ms is None:
            timeout_ms = self._cluster.settings.operation_timeout_ms
        offered = {at: Committed(each) for at, each in wanted.items()}
        self._progress.committed(thread.commit(offered, timeout_ms))

    def close(self) -> None:
        """Commit (with `enable_auto_commit`) and leave the group."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            owned = tuple(self._consumer.partitions)
            if owned:
                self._thread = thread
                self._give_up(thread, PartitionsRevoked(owned, is_lost=not thread.is_member))
        finally:
            self._thread = None
            thread.close()

    def _member(self) -> GroupThread:
        if self._thread is None:
            raise not_subscribed()
        return self._thread

    def _now_ms(self) -> int:
        return self._cluster.clock.monotonic_ms()

    # -- What the group says -----------------------------------------------------------------

    def _handle_events(self, thread: GroupThread, wait_ms: int = 0) -> None:
        """An event is handled as a whole or, if that raises, by the next call again; but for what
        the program was told."""
        while (event := thread.first_event(wait_ms)) is not None:
            wait_ms = 0
            match event:
                case GenerationJoined():
                    thread.event_handled()
                    self._progress.joined(event)
                case PartitionsAssigned(committed):
                    self._cluster.expect(committed)
                    self._consumer.add(self._progress.begin(committed))
                    thread.event_handled()
                    self._listener.assigned(tuple(committed))
                case PartitionsRevoked():
                    thread.event_handled()
                    try:
                        self._give_up(thread, event)
                    finally:
                        thread.revoked()
                case MemberFailed(error):
                    raise error

    def _give_up(self, thread: GroupThread, event: PartitionsRevoked) -> None:
        self._progress.generation = None
        try:
            if event.is_lost:
                self._listener.lost(event.partitions)
            else:
                # What is refused here was read by this member and will be read again.
                last = self._progress.last(self._consumer.positions)
                thread.commit(last, self._cluster.settings.request_timeout_ms, is_last=True)
                self._listener.revoked(event.partitions)
        finally:
            self._consumer.drop(event.partitions)
            self._progress.gave_up(event.partitions)
