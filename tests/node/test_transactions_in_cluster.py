"""Transactions among three brokers, request by request: version 2 of the protocol (KIP-890)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.cluster.topic_names import TRANSACTION_STATE
from strandline.errors import ErrorCode, ProtocolError
from strandline.node import marker_sending
from strandline.node.marker_writing import MarkerWriter
from strandline.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest
from strandline.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from strandline.protocol.messages.describe_transactions import DescribeTransactionsRequest
from strandline.protocol.messages.end_txn import EndTxnRequest
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from strandline.records.builder import build_batch
from strandline.records.record import Record
from strandline.types import NO_OFFSET, ProducerEpoch, ProducerId, TopicPartition
from tests.node.cluster_world import Broker, ClusterWorld
from tests.node.messages import fetch, fetched, produce, produced, values
from tests.node.world import WALL_MS

ID = "mover"
VERSION_1, VERSION_2 = 11, 12
"""The versions of Produce by which a client says which transactions it uses."""


class Transactions:
    """A producer's requests, each to the broker that answers it."""

    def __init__(self, world: ClusterWorld, replicas: tuple[int, ...] = (1, 2, 3)) -> None:
        self.world = world
        world.create_topic("t", replicas)
        world[1].connect().ask(FindCoordinatorRequest(key=ID, key_type=1), 2)
        world.run_until(world.is_settled)
        self.initialize()

    @property
    def coordinator(self) -> Broker:
        return self.world.leader_of(TRANSACTION_STATE)

    def initialize(self) -> None:
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
        answer = self.coordinator.connect().ask(request, 5)
        assert answer.error_code == ErrorCode.NONE
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def batch(self, value: bytes, sequence: int, epoch: int | None = None) -> bytes:
        """One record of the transaction."""
        return build_batch(
            [Record(NO_OFFSET, WALL_MS, None, value)],
            producer_id=ProducerId(self.producer_id),
            producer_epoch=ProducerEpoch(self.epoch if epoch is None else epoch),
            base_sequence=sequence,
            is_transactional=True,
        )

    def write(
        self, value: bytes, sequence: int, version: int = VERSION_2, epoch: int | None = None
    ) -> ErrorCode:
        """Produce one transactional record with acks=all."""
        request = produce(self.batch(value, sequence, epoch), "t", timeout_ms=30_000)
        request.transactional_id = ID
        answer = produced(self.world.leader_of("t").connect().ask(request, version))
        return ErrorCode(answer.error_code)

    def add(self) -> ErrorCode:
        """Let the partition join, as a client of version 1."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        [topic] = self.coordinator.connect().ask(request, 3).results_by_topic_v3_and_below
        return ErrorCode(topic.results_by_partition[0].partition_error_code)

    def end(self, *, commit: bool, version: int = 5) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = self.coordinator.connect().ask(request, version)
        if answer.error_code == ErrorCode.NONE and version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code)

    @property
    def state(self) -> str:
        request = DescribeTransactionsRequest(transactional_ids=[ID])
        [answer] = self.coordinator.connect().ask(request, 0).transaction_states
        return str(answer.transaction_state)

    def wait_for(self, state: str) -> None:
        self.world.run_until(lambda: self.state == state)

    def committed(self) -> list[bytes | None]:
        """What a reader of committed records gets from the leader."""
        answer = self.world.leader_of("t").connect().ask(fetch(("t", 0, 0), isolation_level=1), 11)
        aborted = fetched(answer)["t", 0].aborted_transactions
        assert all(each.producer_id == self.producer_id for each in aborted or ())
        return [] if aborted else values(answer)

    def producers(self) -> list[Any]:
        """What the leader of the partition remembers."""
        return list(producers_known_to(self.world.leader_of("t")).active_producers)


def producers_known_to(broker: Broker, name: str = "t") -> Any:
    """The answer of any broker."""
    request = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0])])
    [topic] = broker.connect().ask(request, 0).topics
    return topic.partitions[0]


def three_brokers() -> ClusterWorld:
    return ClusterWorld(
        3, "transaction.state.log.num.partitions=1", "transaction.state.log.min.isr=1"
    )


@pytest.fixture
def transactions() -> Iterator[Transactions]:
    world = three_brokers()
    yield Transactions(world)
    world.check()


def test_a_partition_joins_by_being_written_to(transactions: Transactions) -> None:
    assert transactions.write(b"a", 0) is ErrorCode.NONE
    assert transactions.write(b"b", 1) is ErrorCode.NONE
    assert transactions.state == "Ongoing"
    assert transactions.committed() == []
    assert transactions.end(commit=True) is ErrorCode.NONE
    transactions.wait_for("CompleteCommit")
    assert transactions.committed()[:2] == [b"a", b"b"]
    assert transactions.epoch == 1


def test_version_1_writes_only_where_it_said_it_would(transactions: Transactions) -> None:
    """A client that did not add the partition is refused; its transaction would hang."""
    assert transactions.write(b"a", 0, VERSION_1) is ErrorCode.TRANSACTION_ABORTABLE
    assert transactions.write(b"a", 0, VERSION_1 - 1) is ErrorCode.INVALID_TXN_STATE
    assert transactions.add() is ErrorCode.NONE
    assert transactions.write(b"a", 0, VERSION_1) is ErrorCode.NONE
    assert transactions.end(commit=True, version=4) is ErrorCode.NONE
    transactions.wait_for("CompleteCommit")
    assert transactions.epoch == 0


def test_the_next_transaction_of_version_1_waits_for_the_markers_of_the_last_one(
    transactions: Transactions,
) -> None:
    """Refused, a client would ask again after 20 ms (note 0053)."""
    for number in range(5):
        assert transactions.add() is ErrorCode.NONE
        assert transactions.write(b"%d" % number, number, VERSION_1) is ErrorCode.NONE
        assert transactions.end(commit=True, version=4) is ErrorCode.NONE
        assert transactions.state == "PrepareCommit"
    transactions.wait_for("CompleteCommit")
    assert transactions.committed()[::2] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("replicas", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
def test_the_next_transaction_of_version_2_begins_soon_after_the_last_one(
    replicas: tuple[int, ...],
) -> None:
    """Wherever the coordinator is: the leader does not wait for 20 ms before it asks again."""
    world = three_brokers()
    transactions = Transactions(world, replicas)
    assert transactions.write(b"first", 0) is ErrorCode.NONE
    longest_ms = 0
    for number in range(5):
        assert transactions.end(commit=True) is ErrorCode.NONE
        began_ms = world[1].now.monotonic_ms
        assert transactions.write(b"%d" % number, 0) is ErrorCode.NONE
        longest_ms = max(longest_ms, world[1].now.monotonic_ms - began_ms)
    assert longest_ms < 20
    world.check()


def test_a_producer_that_aborts_and_goes_on_does_not_keep_the_next_one_out(
    transactions: Transactions,
) -> None:
    assert transactions.write(b"a", 0) is ErrorCode.NONE
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
    begun = transactions.coordinator.connect().ask(request, 5)
    assert begun.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    transactions.wait_for("CompleteAbort")
    assert transactions.write(b"b", 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert transactions.end(commit=False) is ErrorCode.PRODUCER_FENCED
    transactions.initialize()
    assert transactions.write(b"c", 0) is ErrorCode.NONE


@pytest.mark.parametrize("internal", ["__consumer_offsets", "nowhere"])
def test_partitions_that_may_not_join_keep_the_others_out(
    transactions: Transactions, internal: str
) -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=transactions.producer_id,
        v3_and_below_producer_epoch=transactions.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name="t", partitions=[0]),
            AddPartitionsToTxnTopic(name=internal, partitions=[0]),
        ],
    )
    answer = transactions.coordinator.connect().ask(request, 3)
    codes = [
        topic.results_by_partition[0].partition_error_code
        for topic in answer.results_by_topic_v3_and_below
    ]
    refused = (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if internal.startswith("_")
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, refused]
    assert transactions.state == "Empty"


def test_i37_a_late_batch_of_an_ended_transaction_opens_none(transactions: Transactions) -> None:
    """X-12: in version 1 it would belong to the next transaction, or hang for ever."""
    transactions.write(b"a", 0)
    transactions.end(commit=False)
    transactions.wait_for("CompleteAbort")
    assert transactions.write(b"late", 1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert [each.current_txn_start_offset for each in transactions.producers()] == [-1]


def test_followers_tell_their_producers_too() -> None:
    """`kafka-transactions find-hanging --broker-id` asks one broker for all that it hosts."""
    transactions = Transactions(world := three_brokers(), (1, 2))
    assert transactions.write(b"a", 0) is ErrorCode.NONE
    for broker in (world[1], world[2]):
        answer = producers_known_to(broker)
        assert (answer.error_code, answer.active_producers) == (0, transactions.producers())
    assert [each.current_txn_start_offset for each in transactions.producers()] == [0]
    elsewhere, nowhere = producers_known_to(world[3]), producers_known_to(world[3], "nowhere")
    assert elsewhere.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_transaction_ends_although_a_partition_knows_a_newer_epoch(
    transactions: Transactions,
) -> None:
    """As after a loss of the coordinator's newest records: Kafka's stays in PrepareAbort."""
    assert transactions.write(b"a", 0) is ErrorCode.NONE
    newer = WritableTxnMarker(
        producer_id=transactions.producer_id,
        producer_epoch=transactions.epoch + 7,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
    )
    leader = transactions.world.leader_of("t").connect()
    [written] = leader.ask(WriteTxnMarkersRequest(markers=[newer]), 1).markers
    assert written.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert transactions.end(commit=False) is ErrorCode.NONE
    transactions.wait_for("CompleteAbort")
    transactions.initialize()


def test_the_next_transaction_may_begin_while_the_last_one_ends(
    transactions: Transactions,
) -> None:
    transactions.write(b"a", 0)
    assert transactions.end(commit=True) is ErrorCode.NONE
    assert transactions.write(b"b", 0) is ErrorCode.NONE
    assert transactions.end(commit=True) is ErrorCode.NONE
    transactions.wait_for("CompleteCommit")
    assert transactions.epoch == 2


def test_markers_reach_the_partition_after_its_leader_has_moved() -> None:
    """The leader that was asked first is cut off from the coordinator, and then dies."""
    world = ClusterWorld(
        3,
        "transaction.state.log.num.partitions=1",
        "transaction.state.log.replication.factor=2",
        "transaction.state.log.min.isr=1",
    )
    world[1].connect().ask(FindCoordinatorRequest(key=ID, key_type=1), 2)
    world.run_until(world.is_settled)
    coordinators = world.partition(TRANSACTION_STATE).replicas
    [away] = {1, 2, 3} - set(coordinators)
    transactions = Transactions(world, (away, *coordinators))
    transactions.write(b"a", 0)
    world.cut([away], [transactions.coordinator.broker_id])
    assert transactions.end(commit=True) is ErrorCode.NONE
    world.run(500)
    assert transactions.state == "PrepareCommit"
    world.kill(away, expire=True)
    transactions.wait_for("CompleteCommit")
    assert transactions.committed()[:1] == [b"a"]
    world.check()


def test_the_log_asks_for_the_guard_of_a_verified_transaction(transactions: Transactions) -> None:
    """What comes without one may be late: a marker may have ended its transaction meanwhile."""
    replica = transactions.world.replica(transactions.world.leader_of("t").broker_id, "t")
    now = transactions.world.leader_of("t").now
    with pytest.raises(ProtocolError) as refused:
        replica.check_leading().append(bytearray(transactions.batch(b"a", 0)), now)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    assert replica.log.log_end_offset == 0


@pytest.mark.parametrize("commit", [True, False])
def test_f66_a_successor_ends_what_was_decided(transactions: Transactions, commit: bool) -> None:
    world = transactions.world
    transactions.write(b"a", 0)
    assert transactions.end(commit=commit) is ErrorCode.NONE
    coordinator = transactions.coordinator
    world.kill(coordinator.broker_id, expire=True)
    world.run_until(
        lambda: world.partition(TRANSACTION_STATE).leader not in (-1, coordinator.broker_id)
    )
    world.run_until(lambda: world.partition("t").leader not in (-1, coordinator.broker_id))
    transactions.wait_for("CompleteCommit" if commit else "CompleteAbort")
    [producer] = transactions.producers()
    assert producer.current_txn_start_offset == -1
    assert transactions.committed()[:1] == ([b"a"] if commit else [])


def test_a_marker_of_an_older_coordinator_is_fenced(transactions: Transactions) -> None:
    transactions.write(b"a", 0)
    transactions.end(commit=True)
    transactions.wait_for("CompleteCommit")
    transactions.write(b"b", 0)
    [producer] = transactions.producers()
    marker = WritableTxnMarker(
        producer_id=transactions.producer_id,
        producer_epoch=transactions.epoch + 1,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0, 7])],
        coordinator_epoch=producer.coordinator_epoch - 1,
        transaction_version=2,
    )
    client = transactions.world.leader_of("t").connect()
    [answer] = client.ask(WriteTxnMarkersRequest(markers=[marker]), 2).markers
    codes = [item.error_code for item in answer.topics[0].partitions]
    assert codes == [
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert transactions.state == "Ongoing"


def test_a_deleted_topic_does_not_keep_a_transaction_from_ending(
    transactions: Transactions,
) -> None:
    world = transactions.world
    transactions.write(b"a", 0)
    world.controller.connect().ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    world.run_until(lambda: "t" not in world.image.topics)
    assert transactions.end(commit=True) is ErrorCode.NONE
    transactions.wait_for("CompleteCommit")


@pytest.mark.parametrize("brokers", [1, 2])
def test_the_end_of_a_huge_transaction_is_written_in_turns(
    brokers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_sending, "PARTITIONS_AT_ONCE", 3)
    world = ClusterWorld(brokers, "transaction.state.log.num.partitions=1")
    turns: Counter[tuple[int, int]] = Counter()
    write = MarkerWriter.write

    def counted(writer: MarkerWriter, at: TopicPartition, *more: Any) -> None:
        leader = world.image.topics["wide"].partitions[at.partition].leader
        turns[leader, world.schedule.now_us] += 1
        write(writer, at, *more)

    monkeypatch.setattr(MarkerWriter, "write", counted)
    world.create_topic("wide", *[(number % brokers + 1,) for number in range(20)])
    transactions = Transactions(world, (1,))
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=transactions.producer_id,
        v3_and_below_producer_epoch=transactions.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="wide", partitions=list(range(20)))],
    )
    [added] = transactions.coordinator.connect().ask(request, 3).results_by_topic_v3_and_below
    assert {each.partition_error_code for each in added.results_by_partition} == {0}
    assert transactions.end(commit=True, version=4) is ErrorCode.NONE
    transactions.wait_for("CompleteCommit")
    assert turns.total() == 20
    assert max(turns.values()) == 3
    world.check()
