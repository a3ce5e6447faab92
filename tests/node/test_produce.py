"""Produce through the wire: answers, refusals, acks, and idempotent producers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.records.batch import (
    CONTROL_BIT,
    CRC_AT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    iterate_headers,
    parse_header,
)
from strandline.records.builder import join_batch
from strandline.records.codec import Codec
from strandline.types import NO_TOPIC_ID
from tests.node.messages import (
    batch,
    fetch,
    list_offsets,
    offsets,
    produce,
    produced,
    values,
    with_flipped_bit,
)
from tests.node.world import WALL_MS, Client, World
from tests.records.lies import LIES, ODDITIES


def end_offset(world: World, topic: str = "orders") -> int:
    return world.replica(topic).log.log_end_offset


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_by_name(world: World, version: int, acks: int) -> None:
    client = world.connect()
    for base in (0, 2, 4):
        answer = produced(client.ask(produce(batch(b"a", b"b"), acks=acks), version))
        assert (answer.error_code, answer.base_offset) == (0, base)
    assert len(values(client.ask(fetch(("orders", 0, 0)), 11))) == 6


def test_by_topic_id(world: World) -> None:
    topic_id = world.replica("orders").topic_id
    client = world.connect()
    for base in (0, 1, 2):
        answer = produced(client.ask(produce(batch(b"a"), topic_id=topic_id), 13))
        assert (answer.error_code, answer.base_offset) == (0, base)
    answer = produced(client.ask(produce(batch(b"a"), topic_id=UUID(int=5)), 13))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("acks", [2, -2, 100, -32768])
def test_wrong_acks_are_refused_however_often(world: World, acks: int) -> None:
    client = world.connect()
    for _ in range(3):
        answer = produced(client.ask(produce(batch(b"a"), acks=acks), 9))
        assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert answer.base_offset == -1
    assert end_offset(world) == 0


def test_acks_zero_gets_no_answer(world: World) -> None:
    client = world.connect()
    for _ in range(3):
        client.send(produce(batch(b"a"), acks=0), 9, silent=True)
    world.turn()
    assert client.answers == []
    assert end_offset(world) == 3
    assert client.ask(list_offsets(-1), 7).topics[0].partitions[0].offset == 3


def test_a_failed_produce_with_acks_zero_closes_the_connection(world: World) -> None:
    client = world.connect()
    client.send(produce(batch(b"a"), "missing", acks=0), 9, silent=True)
    world.turn()
    assert client.closed
    assert "UNKNOWN_TOPIC_OR_PARTITION" in client.closed


def test_partitions_are_answered_one_by_one(world: World) -> None:
    world.create_topic("wide", 3)
    data = bytearray(batch(b"damaged"))
    data[-1] ^= 1
    records: dict[tuple[str, int], bytes | None] = {
        ("wide", 0): batch(b"a"),
        ("wide", 1): bytes(data),
        ("wide", 2): None,
        ("wide", 7): batch(b"a"),
        ("orders", 0): batch(b"b"),
    }
    answer = world.connect().ask(produce(records), 9)
    codes = {
        (topic.name, partition.index): partition.error_code
        for topic in answer.responses
        for partition in topic.partition_responses
    }
    assert codes == {
        ("wide", 0): 0,
        ("wide", 1): ErrorCode.CORRUPT_MESSAGE,
        ("wide", 2): ErrorCode.INVALID_RECORD,
        ("wide", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("orders", 0): 0,
    }


def test_internal_topics_take_nothing_from_clients(world: World) -> None:
    world.create_topic("__consumer_offsets", 2)
    client = world.connect()
    for _ in range(2):
        answer = produced(client.ask(produce(batch(b"a"), "__consumer_offsets"), 9))
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_batch_above_the_limit_is_refused(world: World) -> None:
    world.create_topic("small", max_message_bytes="200")
    client = world.connect()
    answer = produced(client.ask(produce(batch(b"x" * 300), "small"), 9))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produced(client.ask(produce(batch(b"x" * 30), "small"), 9)).error_code == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_stored_as_it_came(world: World, codec: Codec) -> None:
    client = world.connect()
    for _ in range(3):
        answer = produced(client.ask(produce(batch(b"a" * 100, b"b", codec=codec)), 9))
        assert answer.error_code == 0
    assert values(client.ask(fetch(("orders", 0, 0)), 11)) == [b"a" * 100, b"b"] * 3


def test_zstd_needs_version_7(world: World) -> None:
    client = world.connect()
    for _ in range(3):
        answer = produced(client.ask(produce(batch(b"a", codec=Codec.ZSTD)), 6))
        assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    # A shape that was learnt with another codec must not let it through.
    client.ask(produce(batch(b"a")), 6)
    answer = produced(client.ask(produce(batch(b"a", codec=Codec.ZSTD)), 6))
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def transactional(value: bytes = b"t", *, is_control: bool = False, **fields: Any) -> bytes:
    """A batch that claims to belong to a transaction, under a right checksum."""
    plain = batch(value, producer_id=77, epoch=0, sequence=0)
    attributes = TRANSACTIONAL_BIT | (CONTROL_BIT if is_control else 0)
    header = parse_header(plain)._replace(attributes=attributes, **fields)
    return bytes(join_batch(header, plain[HEADER_BYTES:]))


@pytest.mark.parametrize("version", range(3, 14))
def test_c3_transactional_batches_without_an_id_are_refused(world: World, version: int) -> None:
    """One opened a transaction that nothing ends: readers of committed records stopped for ever.

    Also behind a request of the same shape, by which the fast path is learnt.
    """
    topic_id = world.replica("orders").topic_id if version == 13 else NO_TOPIC_ID
    client = world.connect()
    plain = produce(batch(b"a", producer_id=77, epoch=0, sequence=0), topic_id=topic_id)
    assert produced(client.ask(plain, version)).error_code == 0
    for is_control in (False, True):
        request = produce(transactional(is_control=is_control), topic_id=topic_id)
        answer = produced(client.ask(request, version))
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert answer.base_offset == -1
    assert end_offset(world) == 1
    committed = client.ask(fetch(("orders", 0, 0), isolation_level=1), 11)
    assert values(committed) == [b"a"]


def test_c3_one_transactional_batch_refuses_every_partition(world: World) -> None:
    """As in Kafka 4.3.1 (`tests/java` compares), and before anything else is asked."""
    world.create_topic("wide", 2)
    client = world.connect()
    plain = batch(b"a")
    for others in ({("wide", 1): plain}, {("unknown", 0): plain}, {("wide", 1): None}):
        for acks in (1, -1, 7):
            answer = client.ask(produce({**others, ("wide", 0): transactional()}, acks=acks), 9)
            codes = {
                each.error_code for topic in answer.responses for each in topic.partition_responses
            }
            assert codes == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    assert [world.replica("wide", n).log.log_end_offset for n in (0, 1)] == [0, 0]


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("count", [1, 2])
def test_a_flipped_bit_does_not_end_a_producer(world: World, version: int, count: int) -> None:
    """It sends a damaged batch again, and would not after what is said of transactions, codecs or
    sequences. Other partitions of the request are served."""
    world.create_topic("wide", partitions=2)
    client = world.connect()

    def send(sequence: int, flipped: int | None = None) -> list[int]:
        sent = batch(b"a", producer_id=7, epoch=3, sequence=1)
        sent = sent if flipped is None else with_flipped_bit(sent, flipped)
        batches: dict[tuple[str, int], bytes | None] = {("wide", 0): sent}
        if count > 1:
            batches["wide", 1] = batch(b"a", producer_id=7, epoch=3, sequence=sequence)
        answer = client.ask(produce(batches), version)
        return [each.error_code for each in answer.responses[0].partition_responses]

    first = batch(b"a", producer_id=7, epoch=3, sequence=0)
    assert produced(client.ask(produce(first, "wide"), version)).error_code == ErrorCode.NONE
    bits = range(8 * CRC_AT, 8 * HEADER_BYTES)
    for sequence, bit in enumerate(bits):
        assert send(sequence, bit) == [ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE][:count], bit
    assert send(len(bits)) == [ErrorCode.NONE] * count


def test_c3_acks_zero_loses_the_connection_over_a_transactional_batch(world: World) -> None:
    client = world.connect()
    client.send(produce(transactional(), acks=0), 9, silent=True)
    world.turn()
    assert client.closed is not None
    assert end_offset(world) == 0


def test_a_transactional_id_means_nothing_to_ordinary_batches(world: World) -> None:
    client = world.connect()
    for offset in range(2):
        request = produce(batch(b"a"))
        request.transactional_id = "tx"
        answer = produced(client.ask(request, 9))
        assert (answer.error_code, answer.base_offset) == (0, offset)


@pytest.mark.parametrize("at", [8, 16])
def test_what_has_no_frame_refuses_every_partition(world: World, at: int) -> None:
    """A length below every batch's, an unknown magic: Kafka cannot read the request's batches."""
    unframed = bytearray(batch(b"a"))
    unframed[at : at + 4] = b"\x09\x09\x09\x09" if at == 16 else (13).to_bytes(4, "big")
    world.create_topic("wide", 2)
    client = world.connect()
    answer = client.ask(produce({("wide", 1): batch(b"a"), ("wide", 0): bytes(unframed)}), 9)
    assert [each.error_code for each in answer.responses[0].partition_responses] == [
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.CORRUPT_MESSAGE,
    ]
    assert [world.replica("wide", n).log.log_end_offset for n in (0, 1)] == [0, 0]


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_c4_a_header_that_lies_about_time_is_put_right(
    world: World, version: int, codec: Codec
) -> None:
    """Records of this second were removed as too old, and lookups by time did not find them."""
    client = world.connect()
    for name in ("nothing odd", "a largest timestamp that is too small", "no largest timestamp"):
        lie = ODDITIES[name].batch(WALL_MS, codec)
        assert produced(client.ask(produce(lie), version)).error_code == 0
    log = world.replica("orders").log
    for segment in log.segments.all:
        for _, header in iterate_headers(segment.log.read_at(0, segment.log.size)):
            assert header.max_timestamp == WALL_MS
        assert segment.largest_timestamp().timestamp == WALL_MS
    found = client.ask(list_offsets(WALL_MS), 7).topics[0].partitions[0]
    assert (found.offset, found.timestamp) == (0, WALL_MS)


@pytest.mark.parametrize("version", range(3, 13))
def test_c4_what_cannot_be_read_is_refused_alone(world: World, version: int) -> None:
    world.create_topic("wide", 3)
    client = world.connect()
    for name, lie in LIES.items():
        before = [world.replica("wide", n).log.log_end_offset for n in range(3)]
        packed = lie.batch(WALL_MS, Codec.GZIP)
        batches = {("wide", 0): lie.batch(WALL_MS), ("wide", 1): packed, ("wide", 2): batch(b"a")}
        answer = client.ask(produce(batches), version)
        codes = [each.error_code for each in answer.responses[0].partition_responses]
        assert codes == [ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD, 0], name
        after = [world.replica("wide", n).log.log_end_offset for n in range(3)]
        assert after == [before[0], before[1], before[2] + 1]


def test_a_control_batch_without_a_transaction_is_refused_alone(world: World) -> None:
    world.create_topic("wide", 2)
    client = world.connect()
    plain = batch(b"a")
    header = parse_header(plain)._replace(attributes=CONTROL_BIT)
    control = bytes(join_batch(header, plain[HEADER_BYTES:]))
    answer = client.ask(produce({("wide", 0): control, ("wide", 1): plain}), 9)
    assert [each.error_code for each in answer.responses[0].partition_responses] == [
        ErrorCode.INVALID_RECORD,
        0,
    ]
    assert [world.replica("wide", n).log.log_end_offset for n in (0, 1)] == [0, 1]


# -- idempotence -----------------------------------------------------------------------------


def init(client: Client) -> tuple[int, int]:
    answer = client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
    assert answer.error_code == 0
    return int(answer.producer_id), int(answer.producer_epoch)


def send(
    client: Client, sequence: int, *data: bytes, producer_id: int, epoch: int = 0
) -> tuple[int, int]:
    answer = produced(
        client.ask(
            produce(batch(*data, producer_id=producer_id, epoch=epoch, sequence=sequence)), 9
        )
    )
    return int(answer.error_code), int(answer.base_offset)


def test_a_repeated_batch_is_answered_as_the_first_time(world: World) -> None:
    client = world.connect()
    producer_id, epoch = init(client)
    assert epoch == 0
    sent = [(sequence, b"v%d" % sequence) for sequence in range(8)]
    for sequence, value in sent:
        assert send(client, sequence, value, producer_id=producer_id) == (0, sequence)
    # The last five can be repeated, on any connection; older ones are known to be duplicates.
    other = world.connect()
    for sequence, value in sent[3:]:
        assert send(other, sequence, value, producer_id=producer_id) == (0, sequence)
    assert end_offset(world) == 8
    code, _ = send(client, 2, b"v2", producer_id=producer_id)
    assert code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert end_offset(world) == 8


def test_a_gap_in_the_sequence_is_refused(world: World) -> None:
    client = world.connect()
    producer_id, _ = init(client)
    assert send(client, 0, b"a", b"b", producer_id=producer_id) == (0, 0)
    code, base = send(client, 3, b"d", producer_id=producer_id)
    assert (code, base) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(client, 2, b"c", producer_id=producer_id) == (0, 2)


def test_an_old_epoch_is_fenced(world: World) -> None:
    client = world.connect()
    producer_id, _ = init(client)
    assert send(client, 0, b"a", producer_id=producer_id, epoch=1) == (0, 0)
    code, _ = send(client, 1, b"b", producer_id=producer_id, epoch=0)
    assert code == ErrorCode.INVALID_PRODUCER_EPOCH
    # A new epoch begins with sequence 0.
    code, _ = send(client, 1, b"b", producer_id=producer_id, epoch=2)
    assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(client, 0, b"b", producer_id=producer_id, epoch=2) == (0, 1)


def test_sequences_wrap_around(world: World) -> None:
    client = world.connect()
    producer_id, _ = init(client)
    last = 2**31 - 1
    assert send(client, last, b"a", producer_id=producer_id) == (0, 0)
    assert send(client, 0, b"b", producer_id=producer_id) == (0, 1)


def test_duplicates_are_known_after_a_restart(world: World) -> None:
    client = world.connect()
    producer_id, _ = init(client)
    assert send(client, 0, b"a", b"b", producer_id=producer_id) == (0, 0)
    assert send(client, 2, b"c", producer_id=producer_id) == (0, 2)
    for restart in (world.restart, world.kill_and_restart):
        restart()
        client = world.connect()
        # A snapshot of the producers keeps the last batch of each, as Kafka's does.
        assert send(client, 2, b"c", producer_id=producer_id) == (0, 2)
        assert end_offset(world) == 3
    assert init(client)[0] != producer_id


def test_producer_ids_are_never_given_twice(world: World) -> None:
    seen: set[int] = set()
    for _ in range(3):
        client = world.connect()
        for _ in range(1200):
            producer_id, _ = init(client)
            assert producer_id not in seen
            seen.add(producer_id)
        world.kill_and_restart()
    assert len(seen) == 3600


def test_who_waits_for_a_block_of_ids_is_answered_in_order(world: World) -> None:
    world.holds_metadata = True
    clients = [world.connect() for _ in range(5)]
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    for client in clients:
        client.send(request, 4)
    world.turn()
    assert len(world.held) == 1, "one allocation for all who wait"
    clients[1].close()
    world.write_metadata(world.held.popleft())
    world.turn()
    given = [client.answers[0].producer_id for client in clients if client.closed is None]
    assert given == sorted(set(given))
    assert len(given) == 4
    world.holds_metadata = False


def test_offsets_count_every_record_once(world: World) -> None:
    client = world.connect()
    for count in (1, 3, 2, 5):
        client.send(produce(batch(*[b"x"] * count)), 9)
    world.turn()
    assert [produced(answer).base_offset for answer in client.answers] == [0, 1, 4, 6]
    assert offsets(client.ask(fetch(("orders", 0, 0)), 11)) == list(range(11))
