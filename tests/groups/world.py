"""A small world for a group coordinator: virtual time, a log per partition, and its replies."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, Self

from strandline.errors import ErrorCode
from strandline.groups.consumer.cluster_view import ClusterView
from strandline.groups.coordinator import GroupCoordinator
from strandline.groups.effects import AppendMarker, AppendRecords, Effect, Reply
from strandline.groups.loading_shard import LoadReport
from strandline.groups.requests import Call, Request, Token
from strandline.groups.settings import GroupSettings
from strandline.protocol.coordinator_log import CoordinatorRecord, OpenRecord
from strandline.protocol.declare import shape_of
from strandline.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from strandline.protocol.messages.consumer_protocol import TopicPartition as Numbers
from strandline.protocol.messages.heartbeat import HeartbeatRequest
from strandline.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from strandline.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from strandline.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from strandline.protocol.schema import encode_versioned
from strandline.types import NO_TOPIC_ID, Instant, LeaderEpoch, TopicPartition

WALL_MS = 1_700_000_000_000
HOST = "/10.0.0.1"


def subscription(*topics: str, version: int = 0) -> bytes:
    """A consumer's subscription, as its protocol writes it."""
    return encode_versioned(
        ConsumerProtocolSubscription(topics=list(topics), user_data=None), version
    )


def assignment(*partitions: tuple[str, int]) -> bytes:
    """A consumer's assignment, one topic entry for each partition."""
    assigned = [Numbers(topic=topic, partitions=[number]) for topic, number in partitions]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), 0)


def protocol(name: str, metadata: bytes) -> JoinGroupRequestProtocol:
    """An assignment protocol that a member supports, with its subscription."""
    return JoinGroupRequestProtocol(name=name, metadata=metadata)


def outcomes(topic: AnsweredTopic) -> list[tuple[int, int]]:
    """What became of a topic's partitions: (partition, error) in the order of the answer."""
    return [(item.partition_index, item.error_code) for item in topic.partitions]


class Outcome(Protocol):
    """What became of a partition, in any answer."""

    partition_index: int
    error_code: int


class AnsweredTopic(Protocol):
    """A topic of an answer about offsets."""

    @property
    def partitions(self) -> Sequence[Outcome]: ...


class World:
    """A coordinator that leads every partition, with a log that acknowledges at once or by hand."""

    subscription = staticmethod(subscription)
    assignment = staticmethod(assignment)
    protocol = staticmethod(protocol)
    outcomes = staticmethod(outcomes)

    def __init__(
        self,
        settings: GroupSettings | None = None,
        *,
        partition_count: int = 1,
        load: bool = True,
        cluster: ClusterView | None = None,
    ) -> None:
        self.settings = settings or GroupSettings()
        self.cluster = cluster
        self.partition_count = partition_count
        self.coordinator = GroupCoordinator(
            self.settings,
            random.Random(7),
            partition_count=lambda: partition_count,
            cluster=cluster,
        )
        self.now = Instant(1_000, WALL_MS)
        self.replies: dict[Token, Any] = {}
        """By token the answer, which is of the type that belongs to the request's."""
        self.log: defaultdict[int, list[CoordinatorRecord]] = defaultdict(list)
        self.held: deque[int] = deque()
        self.hold = False
        self.fail_with: ErrorCode | None = None
        self.tokens = 0
        if load:
            for partition in range(partition_count):
                self.load(partition, 1)

    # Running.

    def run(self, effects: Iterable[Effect]) -> None:
        """Carry out effects, and what comes of them."""
        self.coordinator.check()
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.token not in self.replies, "answered twice"
                self.replies[effect.token] = effect.response
                continue
            assert isinstance(effect, AppendRecords | AppendMarker)
            if self.fail_with is not None:
                error, self.fail_with = self.fail_with, None
                self.run(self.coordinator.appended(effect.append_id, error, self.now))
                continue
            if isinstance(effect, AppendRecords):
                self.log[effect.partition] += effect.records
            self.held.append(effect.append_id)
        if not self.hold:
            self.release()

    def release(self, count: int | None = None) -> None:
        """Let the oldest held appends become durable."""
        while self.held and count != 0:
            self.run(self.coordinator.appended(self.held.popleft(), None, self.now))
            count = None if count is None else count - 1

    def refuse(self, error: ErrorCode) -> None:
        """The oldest held append has failed; its records vanish from the log's end."""
        self.run(self.coordinator.appended(self.held.popleft(), error, self.now))

    def advance(self, ms: int) -> None:
        """Let time pass, with a tick at every deadline."""
        end = self.now.monotonic_ms + ms
        while (due := self.coordinator.next_deadline()) is not None and due <= end:
            self._set(max(due, self.now.monotonic_ms))
            self.run(self.coordinator.tick(self.now))
        self._set(end)

    def _set(self, monotonic_ms: int) -> None:
        passed = monotonic_ms - self.now.monotonic_ms
        self.now = Instant(monotonic_ms, self.now.wall_ms + passed)

    def load(
        self,
        partition: int = 0,
        epoch: int = 1,
        records: Iterable[CoordinatorRecord | OpenRecord] | None = None,
    ) -> LoadReport | None:
        """Load a partition from its log, or from given records."""
        records = self.log[partition] if records is None else records
        effects, report = self.coordinator.load_partition(
            partition, LeaderEpoch(epoch), records, self.now
        )
        self.run(effects)
        return report

    def fail_over(self, epoch: int) -> Self:
        """A new coordinator on a new broker takes over from the log."""
        successor = type(self)(
            self.settings,
            partition_count=self.partition_count,
            load=False,
            cluster=self.cluster,
        )
        successor.now, successor.tokens = self.now, self.tokens
        successor.coordinator = GroupCoordinator(
            self.settings,
            random.Random(epoch),
            partition_count=lambda: self.partition_count,
            cluster=self.cluster,
        )
        for partition in range(self.partition_count):
            successor.log[partition] = list(self.log[partition])
            successor.load(partition, epoch)
        return successor

    # Asking.

    def token(self) -> int:
        self.tokens += 1
        return self.tokens

    def call(self, body: Request, version: int | None = None) -> Call[Request]:
        """A request with a token; in the newest version, unless told otherwise."""
        newest = shape_of(type(body)).versions.highest
        return Call(self.token(), newest if version is None else version, body, "client", HOST)

    def ask(self, body: Request, version: int | None = None) -> Token:
        """Hand in a request; returns its token."""
        return self.ask_call(self.call(body, version))

    def ask_call(self, call: Call[Request]) -> Token:
        self.run(self.coordinator.handle(call, self.now))
        return call.token

    def answer(self, body: Request, version: int | None = None) -> Any:
        """Hand in a request that is answered at once."""
        return self.replies[self.ask(body, version)]

    def join_call(
        self,
        member_id: str = "",
        group: str = "g",
        version: int = 9,
        client_id: str = "client",
        **overrides: Any,
    ) -> Call[JoinGroupRequest]:
        fields: dict[str, Any] = {
            "group_id": group,
            "member_id": member_id,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": [protocol("range", subscription("orders"))],
        }
        request = JoinGroupRequest(**(fields | overrides))
        return Call(self.token(), version, request, client_id, HOST)

    def join(self, member_id: str = "", group: str = "g", **overrides: Any) -> Token:
        """Ask to join; returns the token."""
        return self.ask_call(self.join_call(member_id, group, **overrides))

    def new_member(self, group: str = "g", **overrides: Any) -> tuple[str, Token]:
        """Join for the first time, fetching the member id first; returns (member id, token)."""
        first = self.replies[self.join(group=group, **overrides)]
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(first.member_id, group, **overrides)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Iterable[tuple[str, bytes]] = (),
        group: str = "g",
        **overrides: Any,
    ) -> Token:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=part)
                for member, part in assignments
            ],
            **overrides,
        )
        return self.ask(request)

    def heartbeat(
        self, member_id: str, generation: int, group: str = "g", instance: str | None = None
    ) -> int:
        """The error with which a heartbeat is answered."""
        request = HeartbeatRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        error: int = self.answer(request).error_code
        return error

    def leave(self, *members: str | tuple[str | None, ...], group: str = "g") -> Token:
        """Members go: ids, or (member id, instance id[, reason])."""
        names = ("member_id", "group_instance_id", "reason")
        leaving: list[MemberIdentity] = []
        for member in members:
            said = (member,) if isinstance(member, str) else member
            fields: dict[str, Any] = dict(zip(names, said, strict=False))
            leaving.append(MemberIdentity(**fields))
        return self.ask(LeaveGroupRequest(group_id=group, members=leaving))

    def commit(
        self,
        *commits: tuple[int, int] | tuple[int, int, str],
        group: str = "g",
        topic: str = "orders",
        version: int = 9,
        generation: int = -1,
        **overrides: Any,
    ) -> Token:
        """Commit (partition, offset[, metadata]) of a topic; returns the token."""
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=entry[0],
                committed_offset=entry[1],
                committed_metadata=entry[2] if len(entry) > 2 else None,
            )
            for entry in commits
        ]
        topic_id = overrides.pop("topic_id", NO_TOPIC_ID)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            topics=[OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=partitions)],
            **overrides,
        )
        return self.ask(request, version)

    def commit_error(
        self, *commits: tuple[int, int] | tuple[int, int, str], **overrides: Any
    ) -> int:
        """The one error of a commit that is answered at once."""
        topics = self.replies[self.commit(*commits, **overrides)].topics
        [error] = {error for topic in topics for _, error in outcomes(topic)}
        return error

    def offsets(self, group: str = "g", require_stable: bool = False) -> dict[TopicPartition, int]:
        """All committed offsets of a group, by partition."""
        wanted = OffsetFetchRequestGroup(group_id=group, topics=None)
        request = OffsetFetchRequest(groups=[wanted], require_stable=require_stable)
        [found] = self.answer(request).groups
        assert found.error_code == ErrorCode.NONE
        return {
            TopicPartition(topic.name, item.partition_index): item.committed_offset
            for topic in found.topics
            for item in topic.partitions
        }

    # Whole stories.

    def stable_group(
        self, count: int = 1, group: str = "g", **overrides: Any
    ) -> tuple[list[str], int]:
        """A stable group; returns (member ids, the leader's first, and the generation)."""
        joined = [self.new_member(group, **overrides) for _ in range(count)]
        self.advance(self.settings.initial_rebalance_delay_ms * (count + 1))
        return self.stabilize([token for _, token in joined], group)

    def stabilize(self, tokens: Iterable[Token], group: str = "g") -> tuple[list[str], int]:
        """Sync everyone whose join has been answered; returns (member ids, generation)."""
        responses = [self.replies[token] for token in tokens]
        assert {response.error_code for response in responses} == {ErrorCode.NONE}
        leader = responses[0].leader
        members = [response.member_id for response in responses]
        generation: int = responses[0].generation_id
        parts = [(member, assignment(("orders", i))) for i, member in enumerate(members)]
        waiting = [
            self.sync(member, generation, group=group) for member in members if member != leader
        ]
        waiting.append(self.sync(leader, generation, parts, group=group))
        assert {self.replies[token].error_code for token in waiting} == {ErrorCode.NONE}
        return sorted(members, key=lambda member: member != leader), generation

    def state(self, group: str = "g") -> str | None:
        """The state of a group as every client may see it, or None."""
        found = [o for o in self.coordinator.overviews() if o.group_id == group]
        return found[0].state.value if found else None
