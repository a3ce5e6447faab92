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

from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.heartbeat import HeartbeatRequest
from strandline.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from strandline.sim.clients.backoff import Backoff
from strandline.sim.clients.cluster import REQUEST_TIMEOUT_US
from strandline.sim.clients.connection import Connection, Lost, Outcome
from strandline.sim.clients.group_messages import (
    NO_MEMBER,
    PROTOCOL_TYPE,
    RANGE,
    Membership,
    assigned,
    assignments,
    commit,
    fetch_offsets,
    find_coordinator,
    found_coordinator,
    join,
    leave,
    stored_offsets,
)
from strandline.sim.clients.group_watch import GroupWatch
from strandline.sim.clients.reader import Reader
from strandline.sim.clients.seats import Seat
from strandline.sim.clients.versions import STATIC_LEAST
from strandline.sim.clients.wishes import Wishes
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.types import BrokerId, TopicId, TopicPartition

_HEARTBEATS_PER_SESSION: Final = 3
_NO_GENERATION: Final = -1
_LEAVE_US: Final = 10_000_000
"""How long a member that ends tries to say so."""
_COORDINATOR_GONE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
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
_PLACE_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})


class GroupMember(Reader):
    """See the module."""

    kind: ClassVar[str] = "group"

    def __init__(
        self, world: ClientWorld, spec: ClientSpec, wishes: Wishes, watch: GroupWatch
    ) -> None:
        super().__init__(world, spec, wishes)
        self.group = wishes.text("group")
        self.pause_us = wishes.time_us("every", "200ms")
        self._topics = wishes.text("topic").split(",")
        self._commit_every_us = wishes.time_us("commit-every", "500ms")
        self._session_us = wishes.time_us("session", "6s")
        self._rebalance_us = wishes.time_us("rebalance", "3s")
        self._stay_us = wishes.time_us("stay", "0s")
        self._away_us = wishes.time_us("away", "2s")
        self._vanishes = wishes.one_of("goes", ("leave", "vanish")) == "vanish"
        self._instance_id = self.name if wishes.flag("static") else None
        self._watch = watch
        if self._instance_id is not None:
            watch.has_static(self.group)
        self.cluster.topics = list(self._topics)
        self._coordinator: BrokerId | None = None
        self._member_id = NO_MEMBER
        self._generation = _NO_GENERATION
        self._attempt = 0
        """Counts the ways into the group; what belongs to an earlier one is void."""
        self._is_member = False
        self._partitions_seen: dict[str, list[int]] | None = None
        """What a leader has assigned; when a topic grows it must do so again."""
        self._committed: dict[TopicPartition, int] = {}
        self._backoff = Backoff(self.random)
        self._is_away = False

    def least_versions(self, wishes: Wishes) -> Mapping[ApiKey, int]:
        """See `SimClient`."""
        static = STATIC_LEAST if wishes.flag("static") else {}
        return {**super().least_versions(wishes), **static}

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """See `SimClient`."""
        self.cluster.stale()
        self._come()

    @property
    def may_read(self) -> bool:
        """See `Reader`."""
        return self._is_member and not self.is_finishing

    def _come(self) -> None:
        self._is_away = False
        if self.is_finishing:
            self.done()
            return
        self._enter()
        if self._stay_us:
            self.after(self.about(self._stay_us), self._go)

    def _go(self) -> None:
        """Leave for a while, with a word or without."""
        if self.is_finishing:
            return
        self._is_away = True
        self.counters["member vanishes" if self._vanishes else "member leaves"] += 1
        if self._vanishes:
            self._give_up_place()
            self._member_id = NO_MEMBER
        else:
            self._commit()
            self._leave(self._left)
        self.after(self.about(self._away_us), self._come)

    def finishing(self) -> None:
        """See `SimClient`."""
        if self._is_away or not self._is_member:
            self.done()
            return
        self._commit()
        self.after(_LEAVE_US, self.done)
        self._leave(lambda _: self.done())

    def _left(self, outcome: Outcome) -> None:
        """Whatever the answer was: the group will find out."""
        self.counters["leave unheard" if isinstance(outcome, Lost) else "leave heard"] += 1

    def _leave(self, then: Any) -> None:
        connection = self._connection()
        who = self._membership
        self._give_up_place()
        self._member_id = NO_MEMBER
        if connection is None:
            then(Lost(was_sent=False, reason="there is no coordinator"))
            return
        request = leave(who, self.cluster.versions.of(ApiKey.LEAVE_GROUP))
        self.cluster.ask(connection, ApiKey.LEAVE_GROUP, request, then)

    def _give_up_place(self) -> None:
        """What was given is no longer ours."""
        self._attempt += 1
        self._is_member = False
        self.seats = {}
        self._committed = {}

    # -- the way in --------------------------------------------------------------------------

    @property
    def _membership(self) -> Membership:
        return Membership(self.group, self._member_id, self._generation, self._instance_id)

    def _connection(self) -> Connection | None:
        """To the coordinator, apart from what is fetched: a join may wait for long."""
        if self._coordinator is None:
            return None
        return self.cluster.connection(self._coordinator, "group")

    def _enter(self) -> None:
        """Begin, or begin again, to become a member."""
        self._give_up_place()
        attempt = self._attempt
        if self._coordinator is None:
            self._find(attempt)
            return
        connection = self._connection()
        if connection is None:
            self._enter_later()
            return
        self.counters["join"] += 1
        request = join(
            self._membership,
            self._topics,
            session_ms=self._session_us // 1000,
            rebalance_ms=self._rebalance_us // 1000,
        )
        self.cluster.ask(
            connection,
            ApiKey.JOIN_GROUP,
            request,
            partial(self._joined, attempt, connection),
            timeout_us=max(self._rebalance_us, self._session_us) + REQUEST_TIMEOUT_US,
        )

    def _enter_later(self) -> None:
        """Try again after a while, from the beginning."""
        self._give_up_place()
        attempt = self._attempt

        def again() -> None:
            if attempt == self._attempt and not self._is_away and not self.is_finishing:
                self._enter()

        self.after(self._backoff.next_us(), again)

    def _find(self, attempt: int) -> None:
        connection = self.cluster.any_connection()
        if connection is None:
            self._enter_later()
            return
        request = find_coordinator(self.group, self.cluster.versions.of(ApiKey.FIND_COORDINATOR))
        self.cluster.ask(
            connection, ApiKey.FIND_COORDINATOR, request, partial(self._told_coordinator, attempt)
        )

    def _told_coordinator(self, attempt: int, outcome: Outcome) -> None:
        if attempt != self._attempt:
            return
        code, coordinator = (
            (ErrorCode.NETWORK_EXCEPTION, None)
            if isinstance(outcome, Lost)
            else found_coordinator(outcome)
        )
        if code != ErrorCode.NONE:
            self._enter_later()
            return
        self._coordinator = coordinator
        self._enter()

    def _failed(self, attempt: int, outcome: Outcome, code: int) -> bool:
        """Whether a step did not work, or is void; then the next attempt is under way."""
        if attempt != self._attempt:
            return True
        error = ErrorCode.NETWORK_EXCEPTION if isinstance(outcome, Lost) else ErrorCode(code)
        if error is ErrorCode.NONE:
            return False
        self.counters[f"group {error.name}"] += 1
        if isinstance(outcome, Lost) or error in _COORDINATOR_GONE:
            self._coordinator = None
        if error in _PLACE_LOST:
            self._member_id = NO_MEMBER
        if error in (ErrorCode.REBALANCE_IN_PROGRESS, *_PLACE_LOST, ErrorCode.ILLEGAL_GENERATION):
            self._enter()
        else:
            self._enter_later()
        return True

    def _joined(self, attempt: int, connection: Connection, outcome: Outcome) -> None:
        code = 0 if isinstance(outcome, Lost) else outcome.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED and attempt == self._attempt:
            self._member_id = outcome.member_id
            self._enter()
            return
        if self._failed(attempt, outcome, code):
            return
        if connection.is_over:
            self._enter_later()
            return
        self._backoff.worked()
        self._member_id = outcome.member_id
        self._generation = outcome.generation_id
        parts: dict[str, bytes] = {}
        if outcome.leader == outcome.member_id:
            self.counters["leads group"] += 1
            self._partitions_seen = partitions = self._partitions_now()
            members = {member.member_id: member.metadata for member in outcome.members}
            parts = assignments(members, partitions)
        else:
            self._partitions_seen = None
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=RANGE,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=part)
                for member, part in parts.items()
            ],
        )
        newest = self._watch.newest(self.group)
        then = partial(self._synced, attempt, connection, outcome.leader, newest)
        timeout_us = self._rebalance_us + REQUEST_TIMEOUT_US
        self.cluster.ask(connection, ApiKey.SYNC_GROUP, request, then, timeout_us=timeout_us)

    def _partitions_now(self) -> dict[str, list[int]]:
        views = {topic: self.cluster.view(topic) for topic in self._topics}
        return {topic: sorted(view.leaders) for topic, view in views.items() if view is not None}

    def _synced(
        self, attempt: int, connection: Connection, leader: str, newest: int, outcome: Outcome
    ) -> None:
        if self._failed(attempt, outcome, 0 if isinstance(outcome, Lost) else outcome.error_code):
            return
        owned = assigned(outcome.assignment)
        self._watch.synced(
            self.group,
            self._generation,
            member=self._instance_id or self._member_id,
            leader=leader,
            owned=owned,
            newest_before=newest,
        )
        known = [at for at in owned if self.cluster.view(at.topic) is not None]
        if len(known) < len(owned) or connection.is_over:
            self.cluster.stale()
            self._enter_later()
            return
        if not owned:
            self._settle(attempt, {})
            return
        version = self.cluster.versions.of(ApiKey.OFFSET_FETCH)
        request = fetch_offsets(self.group, owned, self._ids(), version)
        floors = {at: self._watch.floor(self.group, at, self._generation) for at in owned}
        then = partial(self._offsets_told, attempt, floors)
        self.cluster.ask(connection, ApiKey.OFFSET_FETCH, request, then)

    def _ids(self) -> dict[str, TopicId]:
        return {topic: self.cluster.topic_id(topic) for topic in self._topics}

    def _offsets_told(
        self, attempt: int, floors: Mapping[TopicPartition, int], outcome: Outcome
    ) -> None:
        code, offsets = 0, dict[TopicPartition, int]()
        if not isinstance(outcome, Lost):
            names = {topic_id: topic for topic, topic_id in self._ids().items()}
            code, offsets = stored_offsets(outcome, names)
        if self._failed(attempt, outcome, code):
            return
        for at, floor in floors.items():
            self._watch.fetched(self.group, at, offsets.get(at, -1), floor=floor)
        self._settle(attempt, {at: offsets.get(at, -1) for at in floors})

    # -- being a member ----------------------------------------------------------------------

    def _settle(self, attempt: int, offsets: Mapping[TopicPartition, int]) -> None:
        self._is_member = True
        self.counters["member of a generation"] += 1
        for at, offset in offsets.items():
            start = offset if offset >= 0 else self.reset
            self.seats[at] = Seat(at, Backoff(self.random), start)
            if offset >= 0:
                self._committed[at] = offset
        self.after(self._heartbeat_us, partial(self._heartbeat, attempt))
        self.after(self.about(self._commit_every_us), partial(self._commit_again, attempt))
        self.pump()

    @property
    def _heartbeat_us(self) -> int:
        return self._session_us // _HEARTBEATS_PER_SESSION

    def _heartbeat(self, attempt: int) -> None:
        if attempt != self._attempt or self.is_finishing:
            return
        self.cluster.keep_fresh()
        if self._partitions_seen not in (None, self._partitions_now()):
            self.counters["leader sees more partitions"] += 1
            self._enter()
            return
        connection = self._connection()
        if connection is None:
            self._enter_later()
            return
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
        )
        self.cluster.ask(connection, ApiKey.HEARTBEAT, request, partial(self._beaten, attempt))

    def _beaten(self, attempt: int, outcome: Outcome) -> None:
        code = 0 if isinstance(outcome, Lost) else outcome.error_code
        if attempt == self._attempt and code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._commit()
        if not self._failed(attempt, outcome, code):
            self.after(self._heartbeat_us, partial(self._heartbeat, attempt))

    def _commit_again(self, attempt: int) -> None:
        if attempt != self._attempt or self.is_finishing:
            return
        self._commit()
        self.after(self.about(self._commit_every_us), partial(self._commit_again, attempt))

    def _commit(self) -> None:
        """Commit the positions that have changed since the last time."""
        offsets = {}
        for at, seat in self.seats.items():
            if seat.position is None or self._committed.get(at) == seat.position:
                continue
            if seat.position < self._committed.get(at, 0):
                self._watch.forget(self.group, at)
            offsets[at] = seat.position
        connection = self._connection()
        if not offsets or connection is None:
            return
        for at, offset in offsets.items():
            self._committed[at] = offset
            self._watch.committing(self.group, at, offset)
        request = commit(self._membership, offsets, self._ids())
        self.counters["commit"] += 1
        then = partial(self._commit_told, self._attempt, self._generation, offsets)
        self.cluster.ask(connection, ApiKey.OFFSET_COMMIT, request, then)

    def _commit_told(
        self,
        attempt: int,
        generation: int,
        offsets: Mapping[TopicPartition, int],
        outcome: Outcome,
    ) -> None:
        codes: list[int] = []
        if not isinstance(outcome, Lost):
            codes = [part.error_code for topic in outcome.topics for part in topic.partitions]
        first_error = next((code for code in codes if code != ErrorCode.NONE), 0)
        if codes and not first_error:
            self.counters["commit acknowledged"] += 1
            for at, offset in offsets.items():
                self._watch.committed(self.group, at, generation, offset)
            return
        if not codes or first_error not in _NOT_COMMITTED:
            for at, offset in offsets.items():
                self._watch.commit_unknown(self.group, at, generation, offset)
        if attempt == self._attempt:
            for at in offsets:
                self._committed.pop(at, None)
            if first_error not in _PASSING:
                self._failed(attempt, outcome, first_error)
