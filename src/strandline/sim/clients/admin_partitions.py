"""Operations on partitions: move, elect a leader, delete records, and look at everything."""

from __future__ import annotations

from typing import Any, Final

from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from strandline.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from strandline.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.sim.clients.admin import (
    TIMEOUT_MS,
    AdminOperation,
    Request,
    Script,
    brokers_named,
    partition_named,
    verdict,
)
from strandline.sim.clients.client import place_of
from strandline.sim.clients.offsets import EARLIEST, LATEST, list_offsets
from strandline.sim.history.operations import Deleted
from strandline.sim.scenarios.script import BadScript
from strandline.types import NO_EPOCH, TopicPartition

_ELECTIONS: Final = {"preferred": 0, "unclean": 1}
_HIGH_WATERMARK: Final = -1
_TOPIC: Final = 2
_UNCOMMITTED: Final = 0


def top_level(answer: Any) -> int:
    """The error of a whole answer."""
    code: int = answer.error_code
    return code


def first_move(answer: Any) -> int:
    """The error of the only move; or that of the whole."""
    if answer.error_code:
        return top_level(answer)
    code: int = answer.responses[0].partitions[0].error_code
    return code


def first_election(answer: Any) -> int:
    """The error of the only election; or that of the whole. No result: nothing was to be done."""
    if answer.error_code:
        return top_level(answer)
    for topic in answer.replica_election_results:
        for partition in topic.partition_result:
            code: int = partition.error_code
            return code
    return ErrorCode.ELECTION_NOT_NEEDED


def first_partition(answer: Any) -> int:
    """The error of the only partition."""
    code: int = answer.topics[0].partitions[0].error_code
    return code


def first_named(answer: Any) -> int:
    """The error of the only topic of a Metadata answer."""
    code: int = answer.topics[0].error_code
    return code


def first_described(answer: Any) -> int:
    """The error of the only described resource."""
    code: int = answer.results[0].error_code
    return code


class Reassign(AdminOperation):
    """`reassign t-0 2,3,1` (KIP-455); the preferred leader first."""

    def script(self) -> Script:
        """See `AdminOperation`."""
        at = partition_named(self.action.word(0))
        answer = yield move(at, brokers_named(self.action.word(1)))
        return verdict(first_move(answer))


class CancelReassign(AdminOperation):
    """`cancel-reassign t-0`."""

    def script(self) -> Script:
        """See `AdminOperation`."""
        answer = yield move(partition_named(self.action.word(0)), None)
        return verdict(first_move(answer))


def move(at: TopicPartition, replicas: list[int] | None) -> Request:
    """The request that begins a move, or with None cancels it."""
    partition = ReassignablePartition(partition_index=at.partition, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=at.topic, partitions=[partition])]
    )
    return Request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, first_move)


class Elect(AdminOperation):
    """`elect preferred t-0`, or `elect unclean t-0`."""

    def script(self) -> Script:
        """See `AdminOperation`."""
        kind = _ELECTIONS.get(self.action.word(0))
        if kind is None:
            raise BadScript(f"'{self.action}' is neither preferred nor unclean.")
        at = partition_named(self.action.word(1))
        request = ElectLeadersRequest(
            election_type=kind,
            topic_partitions=[TopicPartitions(topic=at.topic, partitions=[at.partition])],
            timeout_ms=TIMEOUT_MS,
        )
        answer = yield Request(ApiKey.ELECT_LEADERS, request, first_election)
        return verdict(first_election(answer))


class DeleteRecords(AdminOperation):
    """`delete-records t-0 offset=17`, `... high-watermark`, or `... fraction=50` (per cent)."""

    def topics(self) -> list[str]:
        """See `AdminOperation`."""
        return [partition_named(self.action.word(0)).topic]

    def script(self) -> Script:
        """See `AdminOperation`."""
        at = partition_named(self.action.word(0))
        offset = self.action.number("offset", _HIGH_WATERMARK)
        if "fraction" in self.action.options:
            start = yield end_of(at, EARLIEST)
            end = yield end_of(at, LATEST)
            codes = (first_partition(start), first_partition(end))
            if any(codes):
                return verdict(max(codes))
            first, last = (each.topics[0].partitions[0].offset for each in (start, end))
            offset = first + (last - first) * self.action.number("fraction", 50) // 100
        before = yield identity_of(at)
        partition = DeleteRecordsPartition(partition_index=at.partition, offset=offset)
        message = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=at.topic, partitions=[partition])],
            timeout_ms=TIMEOUT_MS,
        )
        answer = yield Request(ApiKey.DELETE_RECORDS, message, first_partition, leader_of=at)
        code = first_partition(answer)
        if code == ErrorCode.NONE:
            # The request names the topic: of which incarnation was that?
            after = yield identity_of(at)
            topic_id = before.topics[0].topic_id
            if topic_id == after.topics[0].topic_id:
                low_watermark = answer.topics[0].partitions[0].low_watermark
                place = place_of(at, topic_id)
                newest = self.world.leader_epoch(at)
                self.world.history.append(Deleted(place, low_watermark, newest))
                self.deleted.append((at, low_watermark))
                if self.on_deleted is not None:
                    self.on_deleted(at, topic_id, low_watermark)
        return verdict(code)


def end_of(at: TopicPartition, which: int) -> Request:
    """The request for one end of a partition's log."""
    message = list_offsets(at, which, NO_EPOCH, _UNCOMMITTED)
    return Request(ApiKey.LIST_OFFSETS, message, first_partition, leader_of=at)


def identity_of(at: TopicPartition) -> Request:
    """The request for the topic's id, as the leader knows it."""
    message = MetadataRequest(
        topics=[MetadataRequestTopic(name=at.topic)], allow_auto_topic_creation=False
    )
    return Request(ApiKey.METADATA, message, first_named, leader_of=at)


class Describe(AdminOperation):
    """`describe t`: the settings of a topic, and the moves that are under way (nothing changes)."""

    def script(self) -> Script:
        """See `AdminOperation`."""
        resources = [
            DescribeConfigsResource(resource_type=_TOPIC, resource_name=name)
            for name in self.action.words
        ]
        if resources:
            request = DescribeConfigsRequest(resources=resources)
            answer = yield Request(ApiKey.DESCRIBE_CONFIGS, request, first_described)
            if first_described(answer):
                return verdict(first_described(answer))
        moves = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS)
        answer = yield Request(ApiKey.LIST_PARTITION_REASSIGNMENTS, moves, top_level)
        return verdict(top_level(answer))
