"""The fast path of transactional batches against the general way, on the same bytes.

As `test_produce_fast_path`: two nodes get the same requests, and one of them forgets the fast path
before each. The producer's coordinator is the node itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.authorization.acls import (
    AclBinding,
    AclEntry,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from strandline.cluster.controller import create_acls
from strandline.errors import ErrorCode
from strandline.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from strandline.protocol.messages.end_txn import EndTxnRequest
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.records.batch import CRC_AT, HEADER_BYTES
from strandline.records.builder import build_batch
from strandline.records.codec import Codec
from strandline.records.record import Record
from strandline.types import NO_OFFSET, USER, Principal, ProducerEpoch, ProducerId
from tests.node.messages import produce, produced, with_flipped_bit
from tests.node.world import WALL_MS, World

ID = "payments"
VERSION_1, VERSION_2 = 11, 12
"""Of produce requests, for either version of transactions."""


@dataclass(frozen=True)
class Write:
    """A batch of one record. `step` is how far its sequence is from the one that is due."""

    step: int = 0
    epoch: int = 0
    is_transactional: bool = True
    names_id: bool = True
    topic: str = "orders"
    version: int = VERSION_1
    codec: Codec = Codec.NONE
    flipped: int | None = None
    """The bit of the batch that is damaged on the way."""


class Side:
    """A node, a producer, and what the producer does."""

    def __init__(self, *settings: str, short: bool = True) -> None:
        self.short = short
        self.world = World("transaction.state.log.num.partitions=1", *settings)
        for topic in ("orders", "other"):
            self.world.create_topic(topic)
        self.client = self.world.connect()
        self.client.ask(FindCoordinatorRequest(key=ID, key_type=1), 2)
        self.world.advance(1000)
        self.due: dict[str, int] = {}
        self.initialize()

    def initialize(self) -> None:
        """A new epoch; the producer may have to ask again."""
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
        answer = self.client.ask(request, 4)
        if answer.error_code:
            answer = self.client.ask(request, 4)
        assert not answer.error_code
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.due.clear()

    def write(self, write: Write) -> Any:
        """The whole answer to a produce."""
        if not self.short:
            self.client.connection.forget_fast_path()
        sequence = max(0, self.due.get(write.topic, 0) + write.step)
        data = build_batch(
            [Record(NO_OFFSET, WALL_MS, None, b"v" * 30)],
            codec=write.codec,
            producer_id=ProducerId(self.producer_id),
            producer_epoch=ProducerEpoch(max(0, self.epoch + write.epoch)),
            base_sequence=sequence,
            is_transactional=write.is_transactional,
        )
        if write.flipped is not None:
            data = with_flipped_bit(data, write.flipped)
        request = produce(data, write.topic, acks=-1)
        request.transactional_id = ID if write.names_id else None
        answer = self.client.ask(request, write.version)
        if produced(answer).error_code == ErrorCode.NONE and write.step == 0 == write.epoch:
            self.due[write.topic] = sequence + 1
        return answer

    def add(self, topic: str = "orders") -> Any:
        """Let a topic join."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        return self.client.ask(request, 3)

    def end(self, *, commit: bool, version: int = 4) -> Any:
        """Commit or abort; with version 5 the epoch that follows is used from here on."""
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = self.client.ask(request, version)
        if version >= 5 and not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.due.clear()
        return answer

    def state(self) -> Any:
        """What is written, and what is known of the producer."""
        found = []
        for topic in ("orders", "other"):
            log = self.world.replica(topic).log
            log.check()
            known = {
                entry.producer_id: [getattr(entry, name) for name in entry.__slots__]
                for entry in log.producers.active.values()
            }
            found.append((self.world.log_bytes(topic), log.last_stable_offset, known))
        return found, self.world.log_bytes("__transaction_state")

    def takes_fast_path(self, write: Write) -> bool:
        """Whether the write is appended without the general way."""
        before = self.world.node.outbox.produced_at_once
        assert produced(self.write(write)).error_code == ErrorCode.NONE
        return self.world.node.outbox.produced_at_once > before


WRITES = st.builds(
    Write,
    step=st.sampled_from([0, 0, 0, 0, 0, -1, 1]),
    epoch=st.sampled_from([0, 0, 0, 0, 0, -1, 1]),
    is_transactional=st.sampled_from([True, True, True, True, False]),
    names_id=st.sampled_from([True, True, True, True, False]),
    topic=st.sampled_from(["orders", "orders", "other"]),
    version=st.sampled_from([VERSION_1, VERSION_1, VERSION_2]),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
)
PLAIN = st.builds(Write, topic=st.sampled_from(["orders", "orders", "other"]))
STEPS = st.one_of(
    WRITES,
    PLAIN,
    PLAIN,
    st.sampled_from(["add", "add", "add other", "commit", "abort", "commit 2", "initialize"]),
)


def do(side: Side, step: Write | str) -> Any:
    match step:
        case Write():
            return side.write(step)
        case "add":
            return side.add()
        case "add other":
            return side.add("other")
        case "commit" | "abort":
            return side.end(commit=step == "commit")
        case "commit 2":
            return side.end(commit=True, version=5)
        case _:
            return side.initialize()


@pytest.mark.parametrize("verifies", ["true", "false"])
@settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.lists(STEPS, min_size=3, max_size=25))
def test_both_ways_do_the_same(verifies: str, steps: list[Write | str]) -> None:
    setting = f"transaction.partition.verification.enable={verifies}"
    short, general = (Side(setting, short=is_short) for is_short in (True, False))
    for step in ["add", Write(), "commit", *steps]:
        assert repr(do(short, step)) == repr(do(general, step)), step
    assert short.state() == general.state()


def test_a_transaction_takes_it_from_its_first_batch_on() -> None:
    side = Side()
    for _ in range(2):
        side.add()
        side.write(Write())
        side.end(commit=True)
    side.add()
    assert side.takes_fast_path(Write())
    assert side.takes_fast_path(Write())


def test_a_refused_transaction_of_another_producer_does_not_end_it() -> None:
    side = Side()
    side.add()
    side.write(Write())
    true_id = side.producer_id
    side.producer_id = 10**6
    refused = side.world.connect()
    side.client, client = refused, side.client
    assert produced(side.write(Write())).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    side.producer_id, side.client = true_id, client
    assert side.takes_fast_path(Write())


def test_nothing_is_written_there_without_the_coordinator_knowing() -> None:
    side = Side()
    side.add()
    side.write(Write())
    side.end(commit=True)
    end = side.world.replica("orders").log.log_end_offset
    assert produced(side.write(Write())).error_code != ErrorCode.NONE
    assert side.world.replica("orders").log.log_end_offset == end


def test_a_shape_with_an_id_is_learnt_from_transactional_batches_only() -> None:
    """Whether the client may use the id is asked for these only."""
    side = Side()
    side.write(Write(is_transactional=False))
    assert not side.takes_fast_path(Write(is_transactional=False))
    side.add()
    assert not side.takes_fast_path(Write())
    assert side.takes_fast_path(Write())


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
@pytest.mark.parametrize("joined", [True, False])
def test_a_damaged_batch_is_sent_again_in_its_transaction(version: int, joined: bool) -> None:
    """Whichever bit it is: CORRUPT_MESSAGE lets the producer go on, other errors would end it.

    Not so in Kafka, which asks the coordinator before it looks at the checksum (seed 130000812).
    """
    side = Side()
    if joined:
        side.add()
    for bit in range(8 * CRC_AT, 8 * HEADER_BYTES):
        answer = side.write(Write(version=version, flipped=bit))
        assert produced(answer).error_code == ErrorCode.CORRUPT_MESSAGE, bit
    if not joined and version == VERSION_1:
        side.add()
    assert produced(side.write(Write(version=version))).error_code == ErrorCode.NONE


def test_what_may_not_be_written_under_an_id_is_refused_each_time() -> None:
    """Mallory knows the producer of another's transaction, and may write to the topic.

    A damaged batch, or one that is not all there, is in no transaction, so that no permission is
    asked for, and nothing is learnt.
    """
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    side = Side(f"authorizer.class.name={authorizer}", "super.users=User:ANONYMOUS")
    allowed = AclEntry("User:mallory", "*", Operation.WRITE, Permission.ALLOW)
    pattern = ResourcePattern(ResourceType.TOPIC, "orders")
    world = side.world
    operations = create_acls(world.node.metadata.image, [AclBinding(pattern, allowed)]).operations
    changes = world.tree.multi(operations).changes
    assert changes is not None
    world.metadata_changed(changes)
    side.add()
    assert produced(side.write(Write())).error_code == ErrorCode.NONE
    side.client = world.connect(Principal(USER, "mallory"))
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for flipped, code in (
        (None, denied),
        (8 * HEADER_BYTES, ErrorCode.CORRUPT_MESSAGE),  # of a record
        (8 * 8 + 1, ErrorCode.INVALID_RECORD),  # of its length
    ):
        assert produced(side.write(Write(flipped=flipped))).error_code == code
        assert produced(side.write(Write())).error_code == denied
    assert world.replica("orders").log.log_end_offset == 1
