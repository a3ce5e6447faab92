"""TxnOffsetCommit as a node lets it through to its group coordinator."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.messages.end_txn import EndTxnRequest
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from strandline.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.node.world import Client, World

MAPPING, EPOCH = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_EPOCH


def commit(
    client: Client, producer_id: int, epoch: int, version: int, name: str = "t", offset: int = 3
) -> int:
    item = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = TxnOffsetCommitRequestTopic(name="orders", partitions=[item])
    request = TxnOffsetCommitRequest(
        transactional_id=name,
        group_id="g",
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[topic],
    )
    return int(client.ask(request, version).topics[0].partitions[0].error_code)


def stable(client: Client) -> tuple[int, int]:
    """(offset, error) as a reader of stable offsets is told."""
    topic = OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id="g", topics=[topic])
    answer = client.ask(OffsetFetchRequest(groups=[group], require_stable=True), 8)
    found = answer.groups[0].topics[0].partitions[0]
    return found.committed_offset, found.error_code


@pytest.mark.parametrize("version", [2, 4, 5])
@pytest.mark.parametrize("verifies", ["true", "false"])
def test_what_names_no_producer_is_refused(version: int, verifies: str) -> None:
    world = World(
        "offsets.topic.num.partitions=1",
        "transaction.state.log.num.partitions=1",
        f"transaction.partition.verification.enable={verifies}",
    )
    world.create_topic("orders")
    client = world.connect()
    for key, key_type in (("g", 0), ("t", 1)):
        assert client.ask(FindCoordinatorRequest(key=key, key_type=key_type), 2).error_code == 0
    asked = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
    producer_id = client.ask(asked, 4).producer_id
    assert commit(client, -1, -1, version) == MAPPING
    assert commit(client, -1, 0, version) == MAPPING
    assert commit(client, producer_id, -1, version) == EPOCH
    assert stable(client) == (-1, ErrorCode.NONE)
    world.restart()
    assert stable(world.connect()) == (-1, ErrorCode.NONE)
    world.check()


@pytest.mark.parametrize("restarts_after", range(4))
def test_of_two_transactions_the_later_offset_counts(restarts_after: int) -> None:
    """Whichever ends last, and whatever of it is read from the log: compaction keeps the later."""
    world = World("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")
    world.create_topic("orders")
    client = world.connect()
    producers = {"first": 5, "second": 6}
    for key, key_type in (("g", 0), ("first", 1)):
        assert client.ask(FindCoordinatorRequest(key=key, key_type=key_type), 2).error_code == 0
    ids = {}
    for name, offset in producers.items():
        asked = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        ids[name] = client.ask(asked, 4)
        told = ids[name].producer_id, ids[name].producer_epoch
        assert commit(client, *told, version=5, name=name, offset=offset) == ErrorCode.NONE
    for step, name in enumerate(("second", "first", "")):
        if step == restarts_after:
            world.restart()
            client = world.connect()
        if name:
            ended = EndTxnRequest(
                transactional_id=name,
                producer_id=ids[name].producer_id,
                producer_epoch=ids[name].producer_epoch,
                committed=True,
            )
            assert client.ask(ended, 5).error_code == ErrorCode.NONE
            world.advance(100)
    assert stable(client) == (6, ErrorCode.NONE)
    world.check()
