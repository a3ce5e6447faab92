"""Members of consumer groups: they join, read what they are given, and commit how far they are.

`client group m1 group=g topic=t stay=5s away=2s goes=vanish static=yes`

    apart ── find ──> join ──> sync ──> offsets ──> member ── heartbeats, fetches, commits ──┐
      ^ └──────────────^────────── rebalance, lost place, lost coordinator ─────────────────┘
      └── leaves, or vanishes without a word, and comes back

A member gives all up before it joins again (KIP-54's eager way). What it reads is the business of
`Reader`; what all members of a group are told must fit together, `group_watch` sees to that.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final

from strandline.client.backoff import ExponentialBackoff
from strandline.client.channel import RequestFailed
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.heartbeat import HeartbeatRequest
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.connection import Outcome
from strandline.sim.clients.fetch_position import FetchPosition
from strandline.sim.clients.group_entry import GroupEntrant
from strandline.sim.clients.group_messages import (
    NO_MEMBER,
    commit,
    leave,
)
from strandline.sim.clients.group_watch import GroupWatch
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.types import TopicPartition

_HEARTBEATS_PER_SESSION: Final = 3
_LEAVE_US: Final = 10_000_000
"""How long a member that ends tries to say so."""
_PASSING: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.REQUEST_TIMED_OUT}
)
"""A commit that met one of these is simply done again later."""
_NOT_COMMITTED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""After these a commit had no effect for certain; others may come behind the write."""


class GroupMember(GroupEntrant):
    """See the module."""

    kind: ClassVar[str] = "group"

    def __init__(
        self, world: ClientWorld, spec: ClientSpec, options: ClientOptions, watch: GroupWatch
    ) -> None:
        super().__init__(world, spec, options, watch)
        self.pause_us = options.time_us("every", "200ms")
        self._commit_every_us = options.time_us("commit-every", "500ms")
        self._stay_us = options.time_us("stay", "0s")
        self._away_us = options.time_us("away", "2s")
        self._vanishes = options.one_of("goes", ("leave", "vanish")) == "vanish"
        self._committed: dict[TopicPartition, int] = {}
        self._is_away = False

    @property
    def wants_in(self) -> bool:
        """See `GroupEntrant`."""
        return not self._is_away and not self.is_finishing

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """See `SimClient`."""
        self.cluster.stale()
        self._come()

    @property
    def may_read(self) -> bool:
        """See `Reader`."""
        return self.is_member and not self.is_finishing

    def _come(self) -> None:
        self._is_away = False
        if self.is_finishing:
            self.done()
            return
        self.enter()
        if self._stay_us:
            self.after(self.about(self._stay_us), self._go)

    def _go(self) -> None:
        """Leave for a while, with a word or without."""
        if self.is_finishing:
            return
        self._is_away = True
        self.counters["member vanishes" if self._vanishes else "member leaves"] += 1
        if self._vanishes:
            self.give_up_place()
            self.member_id = NO_MEMBER
        else:
            self._commit()
            self._leave(self._left)
        self.after(self.about(self._away_us), self._come)

    def finishing(self) -> None:
        """See `SimClient`."""
        if self._is_away or not self.is_member:
            self.done()
            return
        self._commit()
        self.after(_LEAVE_US, self.done)
        self._leave(lambda _: self.done())

    def _left(self, outcome: Outcome) -> None:
        """Whatever the answer was: the group will find out."""
        self.counters["leave unheard" if isinstance(outcome, RequestFailed) else "leave heard"] += 1

    def _leave(self, then: Any) -> None:
        connection = self.to_coordinator()
        who = self.membership
        self.give_up_place()
        self.member_id = NO_MEMBER
        if connection is None:
            then(RequestFailed(was_sent=False, reason="there is no coordinator"))
            return
        request = leave(who, self.cluster.versions.of(ApiKey.LEAVE_GROUP))
        self.cluster.ask(connection, ApiKey.LEAVE_GROUP, request, then)

    # -- being a member ----------------------------------------------------------------------

    def settle(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See `GroupEntrant`."""
        attempt = self.attempt
        self.is_member = True
        self._committed = {}
        self.counters["member of a generation"] += 1
        for at, offset in offsets.items():
            start = offset if offset >= 0 else self.reset
            self.positions[at] = FetchPosition(at, ExponentialBackoff(self.random), start)
            if offset >= 0:
                self._committed[at] = offset
        self.after(self._heartbeat_us, partial(self._heartbeat, attempt))
        self.after(self.about(self._commit_every_us), partial(self._commit_again, attempt))
        self.pump()

    @property
    def _heartbeat_us(self) -> int:
        return self.session_us // _HEARTBEATS_PER_SESSION

    def _heartbeat(self, attempt: int) -> None:
        if attempt != self.attempt or self.is_finishing:
            return
        self.cluster.keep_fresh()
        if self.partitions_seen not in (None, self.partitions_now()):
            self.counters["leader sees more partitions"] += 1
            self.enter()
            return
        connection = self.to_coordinator()
        if connection is None:
            self.enter_later()
            return
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        self.cluster.ask(connection, ApiKey.HEARTBEAT, request, partial(self._beaten, attempt))

    def _beaten(self, attempt: int, outcome: Outcome) -> None:
        code = 0 if isinstance(outcome, RequestFailed) else outcome.error_code
        if attempt == self.attempt and code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._commit()
        if not self.failed(attempt, outcome, code):
            self.after(self._heartbeat_us, partial(self._heartbeat, attempt))

    def _commit_again(self, attempt: int) -> None:
        if attempt != self.attempt or self.is_finishing:
            return
        self._commit()
        self.after(self.about(self._commit_every_us), partial(self._commit_again, attempt))

    def _commit(self) -> None:
        """Commit the positions that have changed since the last time."""
        offsets = {}
        for at, position in self.positions.items():
            if position.offset is None or self._committed.get(at) == position.offset:
                continue
            if position.offset < self._committed.get(at, 0):
                self.watch.forget(self.group, at)
            offsets[at] = position.offset
        connection = self.to_coordinator()
        if not offsets or connection is None:
            return
        for at, offset in offsets.items():
            self._committed[at] = offset
            self.watch.committing(self.group, at, offset)
        request = commit(self.membership, offsets, self.ids())
        self.counters["commit"] += 1
        then = partial(self._commit_told, self.attempt, self.generation, offsets)
        self.cluster.ask(connection, ApiKey.OFFSET_COMMIT, request, then)

    def _commit_told(
        self,
        attempt: int,
        generation: int,
        offsets: Mapping[TopicPartition, int],
        outcome: Outcome,
    ) -> None:
        codes: list[int] = []
        if not isinstance(outcome, RequestFailed):
            codes = [part.error_code for topic in outcome.topics for part in topic.partitions]
        first_error = next((code for code in codes if code != ErrorCode.NONE), 0)
        if codes and not first_error:
            self.counters["commit acknowledged"] += 1
            for at, offset in offsets.items():
                self.watch.committed(self.group, at, generation, offset)
            return
        if not codes or first_error not in _NOT_COMMITTED:
            for at, offset in offsets.items():
                self.watch.commit_unknown(self.group, at, generation, offset)
        if attempt == self.attempt:
            for at in offsets:
                self._committed.pop(at, None)
            if first_error not in _PASSING:
                self.failed(attempt, outcome, first_error)
