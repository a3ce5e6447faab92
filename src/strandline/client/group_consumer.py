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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from strandline.client.cluster import ClusterClient
from strandline.client.consumer import Consumer, Start
from strandline.client.coordinator_client import sentence
from strandline.client.fetching import FetchedRecords, FetchSettings
from strandline.client.group_events import (
    GenerationJoined,
    GroupEvent,
    MemberFailed,
    PartitionsAssigned,
    PartitionsRevoked,
)
from strandline.client.group_requests import Committed, Membership
from strandline.client.group_settings import GroupSettings
from strandline.client.group_thread import GroupThread
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import Offset, TopicPartition

_SLICE_MS: Final = 250
"""So long at most records are waited for before the group is looked at again."""
_RESETS: Final = {"earliest": Start.earliest(), "latest": Start.latest(), "none": None}
_MEMBERSHIP_OVER: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
)


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
        self._reset = _RESETS[settings.auto_offset_reset]
        self._consumer = Consumer(cluster, fetch, reset=self._reset)
        self._listener = RebalanceListener()
        self._thread: GroupThread | None = None
        self._generation: GenerationJoined | None = None
        self._membership = Membership(settings.group, settings.instance_id)
        self._committed: dict[TopicPartition, Offset] = {}
        self._commit_at_ms = 0

    def __enter__(self) -> GroupConsumer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- The group ---------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None = None) -> None:
        """Read these topics as a member of the group, and no others; `poll` does the rest."""
        self._listener = listener or RebalanceListener()
        if self._thread is None:
            self._thread = GroupThread(self._cluster, self._settings)
            self._plan_commit()
        self._thread.subscribe(topics)

    @property
    def generation(self) -> GenerationJoined | None:
        """The generation in which the member is, and what it was given there; None before the
        first one, and while partitions are given up."""
        return self._generation

    @property
    def membership(self) -> Membership:
        """As whom the partitions are read that are read now, or were last: also a member that the
        group has taken out since is refused by this, and not taken for a stranger."""
        return self._membership

    @property
    def positions(self) -> Mapping[TopicPartition, Offset]:
        """The offset of the next record of each partition that is read now."""
        return self._consumer.positions

    @property
    def trouble(self) -> ProtocolError | None:
        """What is wrong at the moment and is tried again: with the group, or with reading."""
        trouble = None if self._thread is None else self._thread.trouble
        return trouble or self._consumer.trouble

    def end_offsets(self) -> dict[TopicPartition, Offset]:
        """Where the partitions that are read now end at the moment. Raises `ProtocolError`."""
        return self._consumer.end_offsets()

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
        thread = self._member()
        deadline_ms = self._cluster.clock.monotonic_ms() + timeout_ms
        while True:
            thread.polled()
            for event in thread.take_events():
                self._take(thread, event)
            self._maybe_commit(thread)
            left_ms = max(0, deadline_ms - self._cluster.clock.monotonic_ms())
            if self._consumer.positions:
                fetched = self._consumer.poll(min(left_ms, _SLICE_MS))
                if fetched:
                    return fetched
            else:
                for event in thread.take_events(left_ms):
                    self._take(thread, event)
            if self._cluster.clock.monotonic_ms() >= deadline_ms:
                return []

    def commit(
        self,
        offsets: Mapping[TopicPartition, Offset] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit where to go on: the positions, or `offsets`. Waits for it, with retries.

        Raises `ProtocolError`; UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION or REBALANCE_IN_PROGRESS if
        the group has gone on without this member, so that others may read the same again.
        """
        thread = self._member()
        wanted = dict(self._consumer.positions if offsets is None else offsets)
        if timeout_ms is None:
            timeout_ms = self._cluster.settings.operation_timeout_ms
        result = thread.commit({at: Committed(each) for at, each in wanted.items()}, timeout_ms)
        if result.code in _MEMBERSHIP_OVER:
            raise ProtocolError(
                result.code,
                f"Group '{self._settings.group}' has given partitions to other members before "
                "they were committed here.",
            )
        if result.code is not ErrorCode.NONE:
            raise sentence(result.code, self._settings.group)
        self._committed.update(wanted)

    def close(self) -> None:
        """Commit (with `enable_auto_commit`) and leave the group."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            owned = tuple(self._consumer.positions)
            if owned:
                self._thread = thread
                self._give_up(thread, PartitionsRevoked(owned, is_lost=not thread.is_member))
        finally:
            self._thread = None
            thread.close()

    def _member(self) -> GroupThread:
        if self._thread is None:
            raise ProtocolError(
                ErrorCode.UNKNOWN_MEMBER_ID, "The consumer is not subscribed, or is closed."
            )
        return self._thread

    # -- What the group says -----------------------------------------------------------------

    def _take(self, thread: GroupThread, event: GroupEvent) -> None:
        match event:
            case GenerationJoined():
                self._generation = event
                self._membership = replace(
                    self._membership, member_id=event.member_id, generation=event.generation
                )
            case PartitionsAssigned(committed):
                self._begin(committed)
            case PartitionsRevoked():
                self._generation = None
                self._give_up(thread, event)
                thread.revoked()
            case MemberFailed(error):
                raise error

    def _begin(self, committed: Mapping[TopicPartition, Committed | None]) -> None:
        starts = {at: Start.at_offset(each) for at, each in self._consumer.positions.items()}
        for at, stored in committed.items():
            if stored is not None:
                starts[at] = Start.at_offset(stored.offset)
                self._committed[at] = stored.offset
            elif self._reset is not None:
                starts[at] = self._reset
            else:
                raise ProtocolError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"Group '{self._settings.group}' has committed no offset for partition {at}, "
                    "and auto.offset.reset is none.",
                )
        self._consumer.assign(starts)
        self._listener.assigned(tuple(committed))

    def _give_up(self, thread: GroupThread, event: PartitionsRevoked) -> None:
        gone = dict.fromkeys(event.partitions)
        try:
            if event.is_lost:
                self._listener.lost(event.partitions)
            else:
                if self._settings.enable_auto_commit:
                    # What is refused here was read by this member and will be read again.
                    thread.commit(self._uncommitted(), self._cluster.settings.request_timeout_ms)
                self._listener.revoked(event.partitions)
        finally:
            rest = {at: each for at, each in self._consumer.positions.items() if at not in gone}
            self._consumer.assign({at: Start.at_offset(each) for at, each in rest.items()})
            for at in gone:
                self._committed.pop(at, None)

    # -- Commits by themselves ---------------------------------------------------------------

    def _uncommitted(self) -> dict[TopicPartition, Committed]:
        positions = self._consumer.positions
        return {
            at: Committed(offset)
            for at, offset in positions.items()
            if self._committed.get(at) != offset
        }

    def _plan_commit(self) -> None:
        now_ms = self._cluster.clock.monotonic_ms()
        self._commit_at_ms = now_ms + self._settings.auto_commit_interval_ms

    def _maybe_commit(self, thread: GroupThread) -> None:
        """What earlier calls of `poll` returned counts as read."""
        is_due = self._cluster.clock.monotonic_ms() >= self._commit_at_ms
        if self._settings.enable_auto_commit and is_due:
            self._plan_commit()
            offsets = self._uncommitted()
            if offsets:
                thread.commit_soon(offsets)
