"""A stage for one share consumer: a clock, a coordinator and two leaders that a test speaks for."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any
from uuid import UUID

from strandline.client.channel import RequestFailed
from strandline.client.router import Router
from strandline.client.settings import Address, ClientSettings
from strandline.client.share_group.acknowledgements import ShareRecord
from strandline.client.share_group.core import ShareConsumerCore
from strandline.client.share_group.settings import EXPLICIT, ShareSettings
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages import share_acknowledge, share_fetch
from strandline.protocol.messages.consumer_group_heartbeat import Assignment, TopicPartitions
from strandline.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from strandline.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from tests.client.group_stage import COORDINATOR, Asked

TOPIC_ID = UUID(int=1)
LOCK_MS = 30_000
LEADERS = (1, 3)
"""Of the partitions of topic t, unless a test says otherwise."""
LOST = RequestFailed("the connection was lost", was_sent=True)


class ShareStage:
    """See the module. The consumer subscribes to topic t with two partitions, and acknowledges
    explicitly."""

    def __init__(self, mode: str = EXPLICIT, max_poll_records: int = 500) -> None:
        self.now_ms = 1_000
        self.requests: deque[Asked] = deque()
        self.epoch = 1
        settings = ShareSettings(
            group="g", mode=mode, max_poll_records=max_poll_records, operation_timeout_ms=10_000
        )
        self.router = Router(ClientSettings(), Random(1), [Address("one", 9092)])
        self.member = ShareConsumerCore(settings, self.router, Random(1))
        self.member.subscribe(["t"], self.now_ms)
        self.step()

    def step(self) -> None:
        for ask in self.member.step(self.now_ms):
            self.requests.append(Asked(self, ask))  # type: ignore[arg-type]

    def wait(self, duration_ms: int) -> None:
        """Let time pass, in the steps that the core asks for."""
        end_ms = self.now_ms + duration_ms
        while (wake_ms := self.member.wake_ms) is not None and wake_ms <= end_ms:
            assert wake_ms > self.now_ms, "it wakes for nothing"
            self.now_ms = wake_ms
            self.step()
        self.now_ms = end_ms
        self.step()

    def take(self, key: ApiKey, to: int | None = None) -> Asked:
        """The next request of this kind, to this broker."""
        for asked in self.requests:
            if asked.key is key and to in (None, asked.to):
                self.requests.remove(asked)
                return asked
        raise AssertionError([(each.key.name, each.to) for each in self.requests])

    @property
    def sent(self) -> list[tuple[str, int | None]]:
        """What is unanswered."""
        return [(each.key.name, each.to) for each in self.requests]

    # -- The group ---------------------------------------------------------------------------

    def settle(self, *numbers: int) -> None:
        """All the way in, with these partitions."""
        found = Coordinator(key="g", node_id=COORDINATOR, host="two", port=9092, error_code=0)
        self.take(ApiKey.FIND_COORDINATOR).answer(FindCoordinatorResponse(coordinators=[found]))
        self.beat(t=numbers)
        self.tell_leaders()

    def beat(self, code: ErrorCode = ErrorCode.NONE, t: tuple[int, ...] | None = None) -> Asked:
        """Answer a heartbeat."""
        asked = self.take(ApiKey.SHARE_GROUP_HEARTBEAT, COORDINATOR)
        answer = ShareGroupHeartbeatResponse(
            error_code=code, member_epoch=self.epoch, heartbeat_interval_ms=1_000
        )
        if t is not None:
            given = [TopicPartitions(topic_id=TOPIC_ID, partitions=list(t))] if t else []
            answer.assignment = Assignment(topic_partitions=given)
        asked.answer(answer)
        return asked

    def tell_leaders(self, *leaders: int, epoch: int = 0) -> None:
        """Answer the question who leads."""
        partitions = [
            MetadataResponsePartition(partition_index=number, leader_id=leader, leader_epoch=epoch)
            for number, leader in enumerate(leaders or LEADERS)
        ]
        brokers = [
            MetadataResponseBroker(node_id=number, host=host, port=9092)
            for number, host in ((1, "one"), (2, "two"), (3, "three"))
        ]
        topic = MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=partitions)
        self.take(ApiKey.METADATA).answer(MetadataResponse(brokers=brokers, topics=[topic]))

    # -- Records -----------------------------------------------------------------------------

    def begin_poll(self) -> None:
        self.member.begin_poll(self.now_ms)
        self.step()

    def end_poll(self) -> list[ShareRecord]:
        return self.member.end_poll(self.now_ms)

    def answer_fetch(self, to: int, *parts: share_fetch.PartitionData, code: int = 0) -> Asked:
        """Answer a fetch with what there is of topic t."""
        asked = self.take(ApiKey.SHARE_FETCH, to)
        topic = share_fetch.ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(parts))
        asked.answer(
            share_fetch.ShareFetchResponse(
                error_code=code,
                acquisition_lock_timeout_ms=LOCK_MS,
                responses=[topic] if parts else [],
            )
        )
        return asked

    def answer_acknowledge(self, to: int, *codes: tuple[int, int]) -> Asked:
        """Answer an acknowledgement with a code for each partition."""
        asked = self.take(ApiKey.SHARE_ACKNOWLEDGE, to)
        parts = [
            share_acknowledge.PartitionData(partition_index=number, error_code=code)
            for number, code in codes
        ]
        topic = share_acknowledge.ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=parts)
        asked.answer(share_acknowledge.ShareAcknowledgeResponse(responses=[topic]))
        return asked


def acknowledged(asked: Asked) -> dict[int, list[tuple[int, int, int]]]:
    """What a request says of records: by partition, first and last offset and type."""
    return {
        each.partition_index: [
            (batch.first_offset, batch.last_offset, *batch.acknowledge_types)
            for batch in each.acknowledgement_batches
        ]
        for topic in asked.body.topics
        for each in topic.partitions
        if each.acknowledgement_batches
    }


def fetched(asked: Asked) -> tuple[list[int], list[int]]:
    """The partitions that a fetch names, and those that it forgets."""
    body: Any = asked.body
    named = [each.partition_index for topic in body.topics for each in topic.partitions]
    gone = [number for topic in body.forgotten_topics_data for number in topic.partitions]
    return sorted(named), sorted(gone)
