"""Conversations between brokers to begin with: what followers, leaders and the controller say.

Each is a list of steps as `node_world` reads them, well-formed for the world that it makes: broker
2 is registered under epoch 2 and broker 3 under epoch 3.
"""

from __future__ import annotations

from typing import Any, Final

from fuzz.node_world import TOPIC, TOPIC_ID
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import request_frame
from strandline.protocol.messages import alter_partition
from strandline.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
)
from strandline.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.protocol.messages.elect_leaders import ElectLeadersRequest
from strandline.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from strandline.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from strandline.protocol.schema import encode
from strandline.records.builder import build_batch
from strandline.records.record import Record
from strandline.types import Offset

_FETCH_VERSION: Final = 17
_LIST_OFFSETS_VERSION: Final = 9
_ALTER_PARTITION_VERSION: Final = 3
_OFFSET_OUT_OF_RANGE: Final = 1
_NEW_SESSION: Final = 7
_BROKER_IS_GONE: Final = bytes([3, 2])
_BROKER_IS_BACK: Final = bytes([4, 2])
_BROKER_IS_CONTROLLER: Final = bytes([5, 2])
_WE_LEAD: Final = bytes([1, 1])
_OTHERS_LEAD: Final = bytes([0, 2])


def conversations() -> list[bytes]:
    """One input per conversation."""
    produce, wait = _step(0, _request(ApiKey.PRODUCE, 9, _produce())), _step(6, b"\xa0\x00")
    followed = _follower_fetch(1, 2, offset=1) + _follower_fetch(2, 3, offset=1)
    records = _answer(_fetched(PartitionData(partition_index=1, high_watermark=1, records=_BATCH)))
    return [
        produce + _follower_fetch(1, 2) + _follower_fetch(2, 3) + followed,
        produce + _follower_fetch(1, 2, max_wait_ms=500) + wait + followed,
        _follower_fetch(1, 2, last_fetched_epoch=0) + _follower_fetch(1, 2, session=(1, 1)),
        _follower_fetch(1, 2, broker_epoch=1) + _follower_fetch(1, 2, offset=99),
        records + _answer(_fetched(PartitionData(partition_index=1, high_watermark=1))),
        records + _answer(_fetched(_diverging())) + records,
        records + _answer(_fetched(_out_of_range())) + _ends(1) + _ends(0) + records,
        records + _step(6, b"") + wait + records + _metadata(_WE_LEAD) + produce,
        records + _metadata(_BROKER_IS_GONE) + _metadata(_BROKER_IS_BACK) + wait + records,
        produce + _metadata(_BROKER_IS_CONTROLLER) + wait + _altered() + _altered(),
        produce + _metadata(_OTHERS_LEAD) + followed + records,
        _step(1, _alter_partition(2)) + _step(1, _alter_partition(3)),
        _step(0, _request(ApiKey.ELECT_LEADERS, 2, ElectLeadersRequest())),
        _step(0, _request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, _move())) + followed + wait,
    ]


_RECORDS: Final = [Record(Offset(0), 1_700_000_000_000, None, b"v")]
_BATCH: Final = memoryview(build_batch(_RECORDS))


def _step(kind: int, data: bytes) -> bytes:
    return bytes([len(data), kind]) + data


def _metadata(change: bytes) -> bytes:
    return _step(7, change)


def _request(key: ApiKey, version: int, message: object) -> bytes:
    chunks: list[Any] = request_frame(KNOWN[key], version, 1, "broker", message)
    return b"".join(chunks)[4:]


def _produce() -> ProduceRequest:
    data = PartitionProduceData(index=0, records=_BATCH)
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def _follower_fetch(
    slot: int,
    broker: int,
    *,
    offset: int = 0,
    broker_epoch: int | None = None,
    last_fetched_epoch: int = -1,
    max_wait_ms: int = 0,
    session: tuple[int, int] = (0, -1),
) -> bytes:
    """What a follower of partition 0 asks on that connection."""
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=0,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch,
        log_start_offset=0,
        partition_max_bytes=1000,
    )
    epoch = broker if broker_epoch is None else broker_epoch
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=broker, replica_epoch=epoch),
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[partition])],
    )
    return _step(slot, _request(ApiKey.FETCH, _FETCH_VERSION, request))


def _alter_partition(leader: int) -> bytes:
    """What the leader of partition 1 proposes; only broker 2 is it."""
    partition = alter_partition.PartitionData(
        partition_index=1,
        leader_epoch=0,
        new_isr_with_epochs=[BrokerState(broker_id=2, broker_epoch=2)],
        partition_epoch=0,
    )
    topic = alter_partition.TopicData(topic_id=TOPIC_ID, partitions=[partition])
    request = AlterPartitionRequest(broker_id=leader, broker_epoch=leader, topics=[topic])
    return _request(ApiKey.ALTER_PARTITION, _ALTER_PARTITION_VERSION, request)


def _move() -> AlterPartitionReassignmentsRequest:
    partition = ReassignablePartition(partition_index=2, replicas=[1, 2])
    topic = ReassignableTopic(name=TOPIC, partitions=[partition])
    return AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[topic])


def _answer(body: bytes, *, to: int = 4) -> bytes:
    """An answer with a flexible header, which ends with its number of tags."""
    return _step(to, b"\0" + body)


def _fetched(partition: PartitionData) -> bytes:
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
    return encode(FetchResponse(session_id=_NEW_SESSION, responses=[topic]), _FETCH_VERSION)


def _diverging() -> PartitionData:
    return PartitionData(partition_index=1, diverging_epoch=EpochEndOffset(epoch=0, end_offset=0))


def _out_of_range() -> PartitionData:
    return PartitionData(partition_index=1, error_code=_OFFSET_OUT_OF_RANGE, high_watermark=-1)


def _ends(offset: int) -> bytes:
    partition = ListOffsetsPartitionResponse(partition_index=1, offset=offset)
    topic = ListOffsetsTopicResponse(name=TOPIC, partitions=[partition])
    return _answer(encode(ListOffsetsResponse(topics=[topic]), _LIST_OFFSETS_VERSION), to=5)


def _altered() -> bytes:
    """The controller's word about partition 0."""
    partition = alter_partition.AlteredPartitionData(
        partition_index=0, leader_id=1, isr=[1], partition_epoch=1
    )
    topic = alter_partition.AlteredTopicData(topic_id=TOPIC_ID, partitions=[partition])
    return _answer(encode(AlterPartitionResponse(topics=[topic]), _ALTER_PARTITION_VERSION), to=5)
