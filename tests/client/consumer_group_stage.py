"""A stage for one member of the consumer protocol, with a coordinator that a test speaks for."""

from __future__ import annotations

from uuid import UUID

from strandline.client.group_settings import CONSUMER
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from strandline.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from tests.client.group_stage import Asked, GroupStage

IDS = {name: UUID(int=number) for number, name in enumerate("tuv", 1)}
"""Of the topics that there are."""


class ConsumerStage(GroupStage):
    """See the module. The member subscribes to topic t; heartbeats are each second."""

    protocol = CONSUMER

    def beat(
        self,
        code: ErrorCode = ErrorCode.NONE,
        *,
        epoch: int = 1,
        message: str | None = None,
        **assigned: tuple[int, ...],
    ) -> Asked:
        """Wait for a heartbeat and answer it: `t=(0, 1)` is the assignment, of topic t."""
        if not self.requests:
            self.wait(1_000)
        asked = self.take(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        answer = ConsumerGroupHeartbeatResponse(
            error_code=code,
            error_message=message,
            member_id=asked.body.member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=1_000,
        )
        if assigned:
            answer.assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=IDS[name], partitions=list(numbers))
                    for name, numbers in assigned.items()
                ]
            )
        asked.answer(answer)
        return asked

    def names(self, *known: str) -> None:
        """Answer the question what the topics are called, of which the broker knows these."""
        asked = self.take(ApiKey.METADATA)
        named = {IDS[name]: name for name in known}
        topics = [
            MetadataResponseTopic(
                name=named.get(each.topic_id),
                topic_id=each.topic_id,
                error_code=0 if each.topic_id in named else ErrorCode.UNKNOWN_TOPIC_ID,
                partitions=[MetadataResponsePartition(partition_index=0, leader_id=1)],
            )
            for each in asked.body.topics
        ]
        brokers = [
            MetadataResponseBroker(node_id=number, host=host, port=9092)
            for number, host in ((1, "one"), (2, "two"), (3, "three"))
        ]
        asked.answer(MetadataResponse(brokers=brokers, topics=topics))

    def offsets_refused(self, code: ErrorCode) -> None:
        """Refuse the question what is committed."""
        group = OffsetFetchResponseGroup(group_id="g", error_code=code)
        self.take(ApiKey.OFFSET_FETCH).answer(OffsetFetchResponse(groups=[group]))

    def settle(self, *numbers: int, **stored: int) -> None:
        """All the way in, with these partitions of topic t."""
        self.find()
        self.beat(t=numbers)
        self.names("t")
        if numbers:
            self.beat()  # which acknowledges them
            self.offsets(**stored)
        self.events.clear()


def reported(asked: Asked) -> dict[str, list[int]] | None:
    """The partitions that a heartbeat reports, by topic; None if it leaves them out."""
    names = {topic_id: name for name, topic_id in IDS.items()}
    found = asked.body.topic_partitions
    return None if found is None else {names[each.topic_id]: each.partitions for each in found}
