"""A stage for one group member: a clock, and a coordinator that says what a test tells it to."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from random import Random
from typing import Any

from strandline.client.assignors import ASSIGNORS
from strandline.client.channel import RequestFailed
from strandline.client.consumer_protocol import (
    Subscription,
    assignment_bytes,
    subscription_bytes,
)
from strandline.client.coordinator_client import Ask
from strandline.client.group_events import GroupEvent
from strandline.client.group_members import make_member
from strandline.client.group_observer import MemberObserver
from strandline.client.group_settings import CLASSIC, GroupSettings
from strandline.client.router import Router
from strandline.client.settings import Address, ClientSettings
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey, api_of
from strandline.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from strandline.protocol.messages.heartbeat import HeartbeatResponse
from strandline.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from strandline.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from strandline.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from strandline.protocol.messages.sync_group import SyncGroupResponse
from strandline.protocol.schema import decode_request, encode_request
from strandline.types import TopicPartition

COORDINATOR = 2
ASSIGNOR_NAMES = tuple(ASSIGNORS)


class Asked:
    """A request that the member has sent, in the newest version that it may use."""

    def __init__(self, stage: GroupStage, ask: Ask) -> None:
        self.key = ask.key
        self.to = ask.to
        self.timeout_ms = ask.timeout_ms
        highest = api_of(ask.key).versions.highest
        self.version = highest if ask.highest is None else min(highest, ask.highest)
        data = encode_request(ask.request(self.version), self.version)
        self.body: Any = decode_request(ask.key, self.version, data)
        self._stage = stage
        self._ask = ask

    def answer(self, outcome: object) -> None:
        self._stage.member.answered(self._ask, outcome, self._stage.now_ms)
        self._stage.step()


class GroupStage:
    """See the module. The member offers `assignors` and subscribes to topic t."""

    protocol = CLASSIC
    remote_assignor: str | None = None

    def __init__(
        self,
        *assignors: str,
        instance_id: str | None = None,
        observer: MemberObserver | None = None,
        **partitions: int,
    ) -> None:
        self.now_ms = 1_000
        self.partitions = partitions or {"t": 2}
        self.requests: deque[Asked] = deque()
        self.events: deque[GroupEvent] = deque()
        self.settings = GroupSettings(
            group="g",
            protocol=self.protocol,
            instance_id=instance_id,
            assignors=assignors or ("range",),
            remote_assignor=self.remote_assignor,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=1_000,
            max_poll_interval_ms=60_000,
            request_timeout_ms=5_000,
        )
        bootstrap = [Address("one", 9092)]
        self.router = Router(ClientSettings(), Random(1), bootstrap)
        self.member = make_member(self.settings, self.router, Random(1), observer)
        self.member.subscribe(["t"], self.now_ms)
        self.step()

    def step(self) -> None:
        """Let the member do what is due."""
        for ask in self.member.step(self.now_ms):
            self.requests.append(Asked(self, ask))
        self.events += self.member.events()

    def wait(self, duration_ms: int, *, polls: bool = True) -> None:
        """Let time pass, in the steps that the member asks for."""
        end_ms = self.now_ms + duration_ms
        for _ in range(10_000):
            wake_ms = self.member.wake_ms
            if wake_ms is None or wake_ms > end_ms:
                break
            assert wake_ms > self.now_ms, "it wakes for nothing"
            self.now_ms = wake_ms
            if polls:
                self.member.polled(self.now_ms)
            self.step()
        self.now_ms = end_ms
        if polls:
            self.member.polled(self.now_ms)
        self.step()

    def take(self, key: ApiKey) -> Asked:
        """The next request, which must be of this kind."""
        asked = self.requests.popleft()
        assert asked.key is key, asked.key.name
        return asked

    def event(self) -> GroupEvent:
        """What the member has told next."""
        return self.events.popleft()

    # -- Answers -----------------------------------------------------------------------------

    def find(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """Answer the look-up of the coordinator."""
        found = Coordinator(
            key="g", node_id=COORDINATOR, host="two", port=9092, error_code=code.value
        )
        asked = self.take(ApiKey.FIND_COORDINATOR)
        assert asked.to is None
        asked.answer(FindCoordinatorResponse(coordinators=[found]))

    def join(
        self,
        generation: int = 1,
        *,
        leads: bool = False,
        protocol: str | None = None,
        others: Mapping[str, bytes] | None = None,
        skips: bool = False,
    ) -> Asked:
        """Let the member in. The leader is told of `others` too."""
        asked = self.take(ApiKey.JOIN_GROUP)
        name = protocol or self.settings.assignors[0]
        own = next(each.metadata for each in asked.body.protocols if each.name == name)
        members = {"m-1": bytes(own), **(others or {})}
        asked.answer(
            JoinGroupResponse(
                generation_id=generation,
                protocol_type="consumer",
                protocol_name=name,
                leader="m-1" if leads else "m-0",
                skip_assignment=skips,
                member_id="m-1",
                members=[
                    JoinGroupResponseMember(member_id=each, metadata=metadata)
                    for each, metadata in members.items()
                    if leads
                ],
            )
        )
        return asked

    def sync(self, *numbers: int, topic: str = "t") -> Asked:
        """Give the member these partitions."""
        asked = self.take(ApiKey.SYNC_GROUP)
        part = [TopicPartition(topic, number) for number in numbers]
        asked.answer(SyncGroupResponse(assignment=assignment_bytes(part)))
        return asked

    def offsets(self, *refused: tuple[int, ErrorCode], **stored: int) -> Asked:
        """Answer for all partitions that are asked for: `t0=5`; others have no offset."""
        asked = self.take(ApiKey.OFFSET_FETCH)
        topics = []
        for topic in asked.body.groups[0].topics:
            name = topic.name or "t"
            parts = [
                OffsetFetchResponsePartitions(
                    partition_index=number,
                    committed_offset=stored.get(f"{name}{number}", -1),
                    error_code=dict(refused).get(number, ErrorCode.NONE),
                )
                for number in topic.partition_indexes
            ]
            topics.append(
                OffsetFetchResponseTopics(name=name, topic_id=topic.topic_id, partitions=parts)
            )
        group = OffsetFetchResponseGroup(group_id="g", topics=topics)
        asked.answer(OffsetFetchResponse(groups=[group]))
        return asked

    def metadata(self) -> None:
        """Answer with the topics that there are."""
        asked = self.take(ApiKey.METADATA)
        topics = [
            MetadataResponseTopic(
                name=name,
                error_code=0 if name in self.partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                partitions=[
                    MetadataResponsePartition(partition_index=number, leader_id=1)
                    for number in range(self.partitions.get(name, 0))
                ],
            )
            for name in (each.name for each in asked.body.topics)
        ]
        brokers = [
            MetadataResponseBroker(node_id=number, host=host, port=9092)
            for number, host in ((1, "one"), (2, "two"), (3, "three"))
        ]
        asked.answer(MetadataResponse(brokers=brokers, topics=topics))

    def beat(self, code: ErrorCode = ErrorCode.NONE) -> Asked:
        """Wait for a heartbeat and answer it."""
        if not self.requests:
            self.wait(1_000)
        asked = self.take(ApiKey.HEARTBEAT)
        asked.answer(HeartbeatResponse(error_code=code))
        return asked

    def committed(self, code: ErrorCode = ErrorCode.NONE) -> Asked:
        """Answer a commit."""
        asked = self.take(ApiKey.OFFSET_COMMIT)
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=code
                    )
                    for part in topic.partitions
                ],
            )
            for topic in asked.body.topics
        ]
        asked.answer(OffsetCommitResponse(topics=topics))
        return asked

    def settle(self, *numbers: int, **stored: int) -> None:
        """All the way in, as a member that does not lead, with these partitions."""
        self.find()
        self.join()
        self.sync(*numbers)
        if numbers:
            self.offsets(**stored)
        self.events.clear()


LOST = RequestFailed("the connection broke", was_sent=True)


def subscription(*topics: str) -> bytes:
    """What another member tells the leader."""
    return subscription_bytes(Subscription(topics))
