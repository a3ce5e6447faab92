"""Members of consumer groups: they join, read what they are given, and commit how far they are.

`client group m1 group=g topic=t stay=5s away=2s goes=vanish static=yes assignors=range`
`client group m2 group=g topic=t protocol=consumer remote-assignor=uniform`

    apart ── comes ──> member: what `client.group_members` do, reads, commits ──┐
      ^──────────────── leaves, or vanishes without a word ──────────────────────┘

This file drives the client's own group member, of either protocol, by the schedule and the
simulated network. What it reads is the business of `Reader`; what all members of a group are told
must fit together, `group_watch` sees to that.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Final

from strandline.client.assignors import parse_assignors
from strandline.client.channel import RequestFailed
from strandline.client.consumer_protocol import NO_GENERATION
from strandline.client.coordinator_client import Ask
from strandline.client.group_events import (
    GenerationJoined,
    GroupEvent,
    MemberFailed,
    PartitionsAssigned,
    PartitionsRevoked,
)
from strandline.client.group_member import GroupMember as ClassicMember
from strandline.client.group_members import Member, make_member
from strandline.client.group_offsets import CommitResult
from strandline.client.group_requests import Committed
from strandline.client.group_settings import CONSUMER, PROTOCOLS, GroupSettings
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.cluster import REQUEST_TIMEOUT_US
from strandline.sim.clients.connection import Outcome
from strandline.sim.clients.group_watch import GroupWatch, WatchedMember
from strandline.sim.clients.reader import Reader
from strandline.sim.clients.tenures import Standing
from strandline.sim.clients.versions import EPOCHS_LEAST, STATIC_LEAST
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.types import Offset, TopicPartition

_HEARTBEATS_PER_SESSION: Final = 3
_LEAVE_US: Final = 10_000_000
"""How long a member that ends tries to say so."""
_NOT_COMMITTED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""After these a commit had no effect for certain; others may come behind the write."""


class GroupMember(Reader):
    """See the module."""

    kind: ClassVar[str] = "group"

    def __init__(
        self, world: ClientWorld, spec: ClientSpec, options: ClientOptions, watch: GroupWatch
    ) -> None:
        super().__init__(world, spec, options)
        self.pause_us = options.time_us("every", "200ms")
        self.group = options.text("group")
        self.watch = watch
        self.cluster.topics = options.text("topic").split(",")
        self._terms = _terms(self.name, options)
        if self._terms.instance_id is not None:
            watch.has_static(self.group)
        if self._terms.protocol == CONSUMER:
            watch.has_epochs(self.group)
        self._commit_every_us = options.time_us("commit-every", "500ms")
        self._stay_us = options.time_us("stay", "0s")
        self._away_us = options.time_us("away", "2s")
        self._rejoins = options.flag("rejoins")
        """Whether it joins again when the coordinator may be another one: then it fetches the
        committed offsets, which shows whether that one knows them."""
        self._had_coordinator = False
        self._vanishes = options.one_of("goes", ("leave", "vanish")) == "vanish"
        self._committed: dict[TopicPartition, int] = {}
        self._core: Member | None = None
        self._watched = WatchedMember(world, watch, self.group, self.cluster)
        self._woken_at_ms: int | None = None

    def least_versions(self, options: ClientOptions) -> Mapping[ApiKey, int]:
        """See `SimClient`."""
        static = STATIC_LEAST if options.flag("static") else {}
        newer = EPOCHS_LEAST if options.one_of("protocol", PROTOCOLS) == CONSUMER else {}
        return {**super().least_versions(options), **static, **newer}

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """See `SimClient`."""
        self.cluster.stale()
        self._come()

    @property
    def may_read(self) -> bool:
        """See `Reader`."""
        return self._core is not None and not self.is_finishing

    def pump(self) -> None:
        """See `SimClient`: an answer may be what the member waits for, too."""
        super().pump()
        if self._core is not None:
            self._drive(self._core)

    def _come(self) -> None:
        if self.is_finishing:
            self.done()
            return
        self._watched = WatchedMember(self.world, self.watch, self.group, self.cluster)
        self._core = core = make_member(
            self._terms, self.cluster.router, self.random, self._watched
        )
        core.subscribe(self.cluster.topics, self.now_ms)
        self._drive(core)
        self.after(self.about(self._commit_every_us), partial(self._commit_again, core))
        if self._stay_us:
            self.after(self.about(self._stay_us), partial(self._go, core))

    def _go(self, core: Member) -> None:
        """Leave for a while, with a word or without; if it is not the core that failed since."""
        if core is not self._core or self.is_finishing:
            return
        self.counters["member vanishes" if self._vanishes else "member leaves"] += 1
        self._part(says_so=not self._vanishes)
        self.after(self.about(self._away_us), self._come)

    def _part(self, *, says_so: bool) -> bool:
        """End the membership. Returns whether a request to leave was sent."""
        core, self._core = self._core, None
        if core is not None and says_so:
            self._commit(core)
            core.leave(self.now_ms, "the member goes", also_static=True)
            for ask in core.step(self.now_ms):
                self._send(core, ask)
        self.drop_positions(self.positions)
        return core is not None and says_so and core.is_leaving

    def finishing(self) -> None:
        """See `SimClient`."""
        core = self._core
        is_member = core is not None and core.membership.generation != NO_GENERATION
        if self._part(says_so=is_member):
            self.after(_LEAVE_US, self.done)
        else:
            self.done()

    # -- driving the member ------------------------------------------------------------------

    def _drive(self, core: Member) -> None:
        """Let the member do what is due, and do what it says."""
        while core is self._core:
            core.polled(self.now_ms)
            self._look_for_coordinator(core)
            for ask in core.step(self.now_ms):
                self._send(core, ask)
            events = core.events()
            if not events:
                break
            for event in events:
                self._hear(core, event)
        if core is self._core:
            self._wake_for(core)

    def _look_for_coordinator(self, core: Member) -> None:
        has_coordinator = core.coordinator is not None
        is_new = has_coordinator and not self._had_coordinator
        if self._rejoins and is_new and isinstance(core, ClassicMember):
            core.enforce_rebalance("the coordinator may be another one")
        self._had_coordinator = has_coordinator

    def _wake_for(self, core: Member) -> None:
        wake_ms = core.wake_ms
        if wake_ms is None or wake_ms == self._woken_at_ms:
            return
        self._woken_at_ms = wake_ms = max(wake_ms, self.now_ms + 1)

        def due() -> None:
            if self._woken_at_ms == wake_ms:
                self._woken_at_ms = None
            if core is self._core:
                self._drive(core)

        self.after(1000 * wake_ms - self.now_us, due)

    def _send(self, core: Member, ask: Ask) -> None:
        if ask.key is ApiKey.JOIN_GROUP:
            self.counters["join"] += 1
        elif ask.key is ApiKey.CONSUMER_GROUP_HEARTBEAT:
            self.counters["beats with an epoch"] += 1
        if ask.to is None:
            connection = self.cluster.any_connection()
        else:
            # Apart from what is fetched: a join may wait for long.
            connection = self.cluster.connection(ask.to, "group")
        then = partial(self._answered, core, ask)
        if connection is None:
            self.world.schedule.after(0, partial(then, RequestFailed("left alone", was_sent=False)))
            return
        version = self.cluster.versions.of(ask.key)
        if ask.highest is not None:
            version = min(version, ask.highest)
        self.cluster.ask(
            connection,
            ask.key,
            ask.request(version),
            then,
            version=version,
            timeout_us=1000 * ask.timeout_ms,
        )

    def _answered(self, core: Member, ask: Ask, outcome: Outcome) -> None:
        if self.is_done:
            return
        was_leaving = core.is_leaving
        core.answered(ask, outcome, self.now_ms)
        if was_leaving and not core.is_leaving:
            is_heard = not isinstance(outcome, RequestFailed)
            self.counters["leave heard" if is_heard else "leave unheard"] += 1
            if self.is_finishing:
                self.done()
        self._drive(core)

    def _hear(self, core: Member, event: GroupEvent) -> None:
        match event:
            case GenerationJoined():
                self.counters["member of a generation"] += 1
                if event.is_leader:
                    self.counters["leads group"] += 1
            case PartitionsAssigned(committed):
                self._begin(committed)
            case PartitionsRevoked(partitions, is_lost):
                if self._terms.protocol == CONSUMER:
                    self.counters["member loses all" if is_lost else "member gives up some"] += 1
                if not is_lost:
                    self._commit(core)
                self.drop_positions(partitions)
                core.revoked(self.now_ms)
            case MemberFailed(error):
                self.counters[f"member failed: {error.code.name}"] += 1
                self._core = None
                self.drop_positions(self.positions)
                if not self.is_finishing:
                    self.after(self.about(self._away_us), self._come)

    # -- reading and committing --------------------------------------------------------------

    def _begin(self, committed: Mapping[TopicPartition, Committed | None]) -> None:
        for at, stored in committed.items():
            start = self.reset if stored is None else stored.offset
            self.add_position(at, start)
            self._committed.pop(at, None)
            if stored is not None:
                self._committed[at] = stored.offset
        Reader.pump(self)

    def _commit_again(self, core: Member) -> None:
        if core is not self._core or self.is_finishing:
            return
        self._commit(core)
        self._drive(core)
        self.after(self.about(self._commit_every_us), partial(self._commit_again, core))

    def _commit(self, core: Member) -> None:
        """Commit the positions that have changed since the last time."""
        offsets = {}
        for at, position in self.positions.items():
            if position.offset is None or self._committed.get(at) == position.offset:
                continue
            if position.offset < self._committed.get(at, 0):
                self.watch.forget(self.group, at)
            offsets[at] = position.offset
        if not offsets or core.coordinator is None:
            return
        for at, offset in offsets.items():
            self._committed[at] = offset
            self.watch.committing(self.group, at, offset)
        self.counters["commit"] += 1
        values = {at: Committed(Offset(offset)) for at, offset in offsets.items()}
        as_what = {at: self._watched.standing(core.membership, at) for at in offsets}
        core.commit(values, partial(self._commit_told, core, as_what), self.now_ms)

    def _commit_told(
        self, core: Member, as_what: Mapping[TopicPartition, Standing], result: CommitResult
    ) -> None:
        offsets = {at: value.offset for at, value in result.offsets.items()}
        if result.code is ErrorCode.NONE:
            self.counters["commit acknowledged"] += 1
            for at, offset in offsets.items():
                self.watch.committed_as(self.group, at, as_what[at], offset)
            return
        self.counters[f"group {result.code.name}"] += 1
        if result.code not in _NOT_COMMITTED:
            for at, offset in offsets.items():
                self.watch.commit_unknown(self.group, at, as_what[at].tenure, offset)
        if core is self._core:
            for at, offset in offsets.items():
                if self._committed.get(at) == offset:
                    del self._committed[at]


def _terms(name: str, options: ClientOptions) -> GroupSettings:
    session_ms = options.time_us("session", "6s") // 1000
    return GroupSettings(
        group=options.text("group"),
        protocol=options.one_of("protocol", PROTOCOLS),
        remote_assignor=options.text("remote-assignor", "") or None,
        instance_id=name if options.flag("static") else None,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=session_ms // _HEARTBEATS_PER_SESSION,
        max_poll_interval_ms=options.time_us("rebalance", "3s") // 1000,
        assignors=parse_assignors(options.text("assignors", "range")),
        request_timeout_ms=REQUEST_TIMEOUT_US // 1000,
    )
