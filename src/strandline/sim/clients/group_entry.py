"""The way into a consumer group: find the coordinator, join, get a part, learn where it stands.

    find ──> join ──> sync ──> offsets ──> settle
      ^ └───────^────────┴─────────┘ whatever goes wrong

Each way in is an attempt with a number; what belongs to an earlier attempt is void. The leader of a
generation hands out the partitions (`group_messages.assignments`). `group_watch` hears what each
member was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from strandline.client.backoff import ExponentialBackoff
from strandline.client.channel import RequestFailed
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.cluster import REQUEST_TIMEOUT_US
from strandline.sim.clients.connection import Connection, Outcome
from strandline.sim.clients.group_messages import (
    NO_MEMBER,
    PROTOCOL_TYPE,
    RANGE,
    Membership,
    assigned,
    assignments,
    fetch_offsets,
    join,
    stored_offsets,
)
from strandline.sim.clients.group_watch import GroupWatch
from strandline.sim.clients.reader import Reader
from strandline.sim.clients.versions import STATIC_LEAST
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.types import TopicId, TopicPartition

_COORDINATOR_GONE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
_PLACE_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
_NO_GENERATION: Final = -1


class GroupEntrant(Reader):
    """See the module. What is done as a member is its subclass's business."""

    def __init__(
        self, world: ClientWorld, spec: ClientSpec, options: ClientOptions, watch: GroupWatch
    ) -> None:
        super().__init__(world, spec, options)
        self.group = options.text("group")
        self.topics = options.text("topic").split(",")
        self.session_us = options.time_us("session", "6s")
        self.instance_id = self.name if options.flag("static") else None
        self.watch = watch
        if self.instance_id is not None:
            watch.has_static(self.group)
        self.cluster.topics = list(self.topics)
        self.member_id = NO_MEMBER
        self.generation = _NO_GENERATION
        self.attempt = 0
        """Counts the ways into the group; what belongs to an earlier one is void."""
        self.is_member = False
        self.partitions_seen: dict[str, list[int]] | None = None
        """What this member has assigned as the leader of its generation; None: it does not lead."""
        self._rebalance_us = options.time_us("rebalance", "3s")
        self._backoff = ExponentialBackoff(self.random)

    def least_versions(self, options: ClientOptions) -> Mapping[ApiKey, int]:
        """See `SimClient`."""
        static = STATIC_LEAST if options.flag("static") else {}
        return {**super().least_versions(options), **static}

    @property
    def wants_in(self) -> bool:
        """Whether it is to become a member at all."""
        raise NotImplementedError

    def settle(self, offsets: Mapping[TopicPartition, int]) -> None:
        """It is a member now, with these partitions and their committed offsets (-1: none)."""
        raise NotImplementedError

    def give_up_place(self) -> None:
        """What was given is no longer ours."""
        self.attempt += 1
        self.is_member = False
        self.positions.clear()

    @property
    def membership(self) -> Membership:
        """As whom it speaks."""
        return Membership(self.group, self.member_id, self.generation, self.instance_id)

    def to_coordinator(self) -> Connection | None:
        """To the coordinator, apart from what is fetched: a join may wait for long."""
        coordinator = self.cluster.coordinator(self.group)
        return None if coordinator is None else self.cluster.connection(coordinator, "group")

    def enter(self) -> None:
        """Begin, or begin again, to become a member."""
        self.give_up_place()
        attempt = self.attempt
        if not self.partitions_now():
            # A leader could assign nothing.
            self.cluster.stale()
            self.enter_later()
            return
        if self.cluster.coordinator(self.group) is None:
            self._find(attempt)
            return
        connection = self.to_coordinator()
        if connection is None:
            self.enter_later()
            return
        self.counters["join"] += 1
        request = join(
            self.membership,
            self.topics,
            session_ms=self.session_us // 1000,
            rebalance_ms=self._rebalance_us // 1000,
        )
        self.cluster.ask(
            connection,
            ApiKey.JOIN_GROUP,
            request,
            partial(self._joined, attempt, connection),
            timeout_us=max(self._rebalance_us, self.session_us) + REQUEST_TIMEOUT_US,
        )

    def enter_later(self) -> None:
        """Try again after a while, from the beginning."""
        self.give_up_place()
        attempt = self.attempt

        def again() -> None:
            if attempt == self.attempt and self.wants_in:
                self.enter()

        self.after(1000 * self._backoff.next_ms(), again)

    def _find(self, attempt: int) -> None:
        connection = self.cluster.any_connection()
        if connection is None:
            self.enter_later()
            return
        self.cluster.find_coordinator(connection, self.group, partial(self._found, attempt))

    def _found(self, attempt: int, code: ErrorCode) -> None:
        if attempt != self.attempt:
            return
        if code is ErrorCode.NONE:
            self.enter()
        else:
            self.enter_later()

    def failed(self, attempt: int, outcome: Outcome, code: int) -> bool:
        """Whether a step did not work, or is void; then the next attempt is under way."""
        if attempt != self.attempt:
            return True
        error = (
            ErrorCode.NETWORK_EXCEPTION if isinstance(outcome, RequestFailed) else ErrorCode(code)
        )
        if error is ErrorCode.NONE:
            return False
        self.counters[f"group {error.name}"] += 1
        if isinstance(outcome, RequestFailed) or error in _COORDINATOR_GONE:
            self.cluster.forget_coordinator(self.group)
        if error in _PLACE_LOST:
            self.member_id = NO_MEMBER
        if error in (ErrorCode.REBALANCE_IN_PROGRESS, *_PLACE_LOST, ErrorCode.ILLEGAL_GENERATION):
            self.enter()
        else:
            self.enter_later()
        return True

    def _joined(self, attempt: int, connection: Connection, outcome: Outcome) -> None:
        code = 0 if isinstance(outcome, RequestFailed) else outcome.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED and attempt == self.attempt:
            self.member_id = outcome.member_id
            self.enter()
            return
        if self.failed(attempt, outcome, code):
            return
        if connection.is_over:
            self.enter_later()
            return
        self._backoff.reset()
        self.member_id = outcome.member_id
        self.generation = outcome.generation_id
        parts: dict[str, bytes] = {}
        if outcome.leader == outcome.member_id:
            self.counters["leads group"] += 1
            self.partitions_seen = partitions = self.partitions_now()
            members = {member.member_id: member.metadata for member in outcome.members}
            parts = assignments(members, partitions)
        else:
            self.partitions_seen = None
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=RANGE,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=part)
                for member, part in parts.items()
            ],
        )
        newest = self.watch.newest(self.group)
        then = partial(self._synced, attempt, connection, outcome.leader, newest)
        timeout_us = self._rebalance_us + REQUEST_TIMEOUT_US
        self.cluster.ask(connection, ApiKey.SYNC_GROUP, request, then, timeout_us=timeout_us)

    def partitions_now(self) -> dict[str, list[int]]:
        """The partitions of its topics, as far as they are known."""
        views = {topic: self.cluster.view(topic) for topic in self.topics}
        return {topic: sorted(view.partitions) for topic, view in views.items() if view is not None}

    def _synced(
        self, attempt: int, connection: Connection, leader: str, newest: int, outcome: Outcome
    ) -> None:
        if self.failed(
            attempt, outcome, 0 if isinstance(outcome, RequestFailed) else outcome.error_code
        ):
            return
        owned = assigned(outcome.assignment)
        self.watch.synced(
            self.group,
            self.generation,
            member=self.instance_id or self.member_id,
            leader=leader,
            owned=owned,
            newest_before=newest,
        )
        known = [at for at in owned if self.cluster.view(at.topic) is not None]
        if len(known) < len(owned) or connection.is_over:
            self.cluster.stale()
            self.enter_later()
            return
        if not owned:
            self.settle({})
            return
        version = self.cluster.versions.of(ApiKey.OFFSET_FETCH)
        request = fetch_offsets(self.group, owned, self.ids(), version)
        floors = {at: self.watch.floor(self.group, at, self.generation) for at in owned}
        then = partial(self._offsets_told, attempt, self.generation, floors)
        self.cluster.ask(connection, ApiKey.OFFSET_FETCH, request, then)

    def ids(self) -> dict[str, TopicId]:
        """The ids of its topics, as far as they are known."""
        return {topic: self.cluster.topic_id(topic) for topic in self.topics}

    def _offsets_told(
        self,
        attempt: int,
        generation: int,
        floors: Mapping[TopicPartition, int],
        outcome: Outcome,
    ) -> None:
        code, offsets = 0, dict[TopicPartition, int]()
        if not isinstance(outcome, RequestFailed):
            names = {topic_id: topic for topic, topic_id in self.ids().items()}
            code, offsets = stored_offsets(outcome, names)
        if self.failed(attempt, outcome, code):
            return
        for at, floor in floors.items():
            self.watch.fetched(
                self.group, at, offsets.get(at, -1), floor=floor, generation=generation
            )
        self.settle({at: offsets.get(at, -1) for at in floors})
