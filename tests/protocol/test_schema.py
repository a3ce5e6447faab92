"""What the generated codecs refuse, drop and pass over."""

from __future__ import annotations

import dataclasses
from uuid import UUID

import pytest

from strandline.errors import ErrorCode, InvariantViolated, MalformedFrame, ProtocolError
from strandline.protocol import schema
from strandline.protocol.declare import (
    FLOAT64,
    INT64,
    RECORDS,
    UINT16,
    UINT32,
    UUID_,
    array,
    float64,
    int32,
    message,
    nullable_one,
    nullable_string,
    records,
    string,
    structure,
    tagged_one,
    uint16,
    uint32,
)
from strandline.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from strandline.protocol.messages.heartbeat import HeartbeatRequest
from strandline.protocol.messages.list_groups import ListGroupsRequest
from strandline.protocol.messages.metadata import MetadataRequest, MetadataResponse
from strandline.protocol.messages.offsets_topic import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from strandline.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from strandline.protocol.wire import varint


@structure
class Point:
    """Something inside."""

    x: int = int32()
    y: int = int32("1+", default=-1)


@message("0-2", flexible="1+")
class Sample:
    """Every kind of field that Kafka's own messages use seldom or never."""

    small: int = uint16()
    large: int = uint32()
    ratio: float = float64()
    ids: list[UUID] = array(UUID_)
    smalls: list[int] = array(UINT16)
    larges: list[int] = array(UINT32)
    ratios: list[float] = array(FLOAT64)
    longs: list[int] = array(INT64)
    point: Point | None = nullable_one(Point, nullable="1+")
    note: str | None = nullable_string("1+", default=None, tag=3)
    place: Point | None = tagged_one(Point, "1+", tag=1, ignorable=True)


def full_sample() -> Sample:
    return Sample(
        small=65_535,
        large=2**32 - 1,
        ratio=1.5,
        ids=[UUID(int=7)],
        smalls=[1],
        larges=[2],
        ratios=[-0.25],
        longs=[3, -3],
        point=Point(x=1),
        note="n",
        place=Point(x=2),
    )


def test_seldom_kinds_of_fields() -> None:
    sample = full_sample()
    assert schema.decode(Sample, 2, schema.encode(sample, 2)) == sample
    sample.point = None
    assert schema.decode(Sample, 1, schema.encode(sample, 1)) == sample


def test_tagged_fields_are_written_by_tag_and_read_in_any_order() -> None:
    encoded = schema.encode(Sample(point=None, note="n", place=Point(x=2, y=3)), 1)
    place, note = bytes.fromhex("01 09 00000002 00000003 00"), bytes.fromhex("03 02 02 6e")
    assert encoded.endswith(b"\xff\2" + place + note)
    other = encoded.replace(place + note, note + place)
    assert schema.decode(Sample, 1, other) == schema.decode(Sample, 1, encoded)


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = schema.encode(Sample(point=None), 1)
    unknown = bytes.fromhex("8002 03 010203")
    many = bytes([2]) + bytes.fromhex("03 02 02 6e") + unknown
    assert schema.decode(Sample, 1, plain[:-1] + many) == Sample(point=None, note="n")
    long_count = bytes.fromhex("8100") + unknown  # 1, written in two bytes
    assert schema.decode(Sample, 1, plain[:-1] + long_count) == Sample(point=None)
    for cut in range(1, len(unknown)):
        with pytest.raises(MalformedFrame):
            schema.decode(Sample, 1, plain[:-1] + b"\1" + unknown[:cut])


@pytest.mark.parametrize("announced", [8, 10])
def test_a_tagged_field_must_have_the_size_it_announces(announced: int) -> None:
    plain = schema.encode(Sample(point=None), 1)[:-1]
    place = bytes([1, 1, announced]) + bytes.fromhex("00000002 00000003 00 00 00")
    with pytest.raises(MalformedFrame, match="does not have the size it announces"):
        schema.decode(Sample, 1, plain + place)


def test_a_structure_of_defaults_is_not_sent_as_a_tagged_field() -> None:
    def response(leader: LeaderIdAndEpoch | None) -> ProduceResponse:
        partition = PartitionProduceResponse(current_leader=leader)
        return ProduceResponse(responses=[TopicProduceResponse(partition_responses=[partition])])

    absent = schema.encode(response(None), 10)
    assert schema.encode(response(LeaderIdAndEpoch()), 10) == absent
    assert len(schema.encode(response(LeaderIdAndEpoch(leader_id=1)), 10)) == len(absent) + 11


def test_a_value_without_a_place_is_dropped_only_if_it_may_be() -> None:
    droppable = MetadataResponse(throttle_time_ms=5, cluster_id="c", controller_id=3)
    assert schema.encode(droppable, 0) == schema.encode(MetadataResponse(), 0)
    with pytest.raises(ProtocolError, match="no place for a value of states_filter") as refused:
        schema.encode(ListGroupsRequest(states_filter=["Stable"]), 3)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    inner = FetchPartition(last_fetched_epoch=1)
    request = FetchRequest(topics=[FetchTopic(partitions=[inner])])
    with pytest.raises(ProtocolError, match="last_fetched_epoch"):
        schema.encode(request, 11)


def test_absent_fields_are_read_as_their_defaults() -> None:
    sample = schema.decode(Sample, 0, schema.encode(Sample(point=Point(x=4)), 0))
    assert sample == Sample(point=Point(x=4, y=-1), note=None, place=None)


def test_a_null_that_the_version_cannot_express_is_refused() -> None:
    with pytest.raises(ProtocolError, match="topics cannot be null") as refused:
        schema.encode(MetadataRequest(topics=None), 0)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(ProtocolError, match="point cannot be null"):
        schema.encode(Sample(point=None), 0)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (3, "ffff 00000000 0000 ffff"),  # null for a group id
        (3, "fffe 00000000 0000 ffff"),  # a length below null
        (3, "0000 00000000 0000 fffe"),  # the same where null is allowed
        (4, "00 00000000 01 00 00"),  # compact null for a group id
        (4, "ffffffff0f 00000000 01 00 00"),  # more than 31 bits
        (4, "ffffffffff01 00000000 01 00 00"),  # more than five bytes
        (4, "818002 00000000 01 00 00"),  # 32,768 bytes announced
    ],
)
def test_impossible_lengths_are_refused(version: int, body: str) -> None:
    with pytest.raises(MalformedFrame):
        schema.decode(HeartbeatRequest, version, bytes.fromhex(body))


def test_strings_are_limited_even_in_compact_form() -> None:
    longest = HeartbeatRequest(group_id="x" * 32_767)
    for version in (3, 4):
        assert schema.decode(HeartbeatRequest, version, schema.encode(longest, version)) == longest
        with pytest.raises(InvariantViolated):
            schema.encode(HeartbeatRequest(group_id="x" * 32_768), version)
    # The same as a frame from another encoder: 32,768 bytes that are all there.
    body = bytes.fromhex("818002") + b"x" * 32_768 + bytes.fromhex("00000000 01 00 00")
    with pytest.raises(MalformedFrame, match="group_id"):
        schema.decode(HeartbeatRequest, 4, body)


def test_text_that_is_not_utf8_is_refused_both_ways() -> None:
    with pytest.raises(MalformedFrame, match="utf-8"):
        schema.decode(HeartbeatRequest, 4, bytes.fromhex("02 ff 00000000 01 00 00"))
    with pytest.raises(InvariantViolated):
        schema.encode(HeartbeatRequest(group_id="\ud800"), 4)


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvariantViolated, match="HeartbeatRequest version 4"):
        schema.encode(HeartbeatRequest(generation_id=2**31), 4)


@pytest.mark.parametrize("count", ["7fffffff", "80000000", "00000002", "fffffffe"])
def test_counts_are_checked_before_anything_is_built(count: str) -> None:
    # A topic takes at least 2 bytes in version 1: one byte cannot hold any.
    with pytest.raises(MalformedFrame, match="topics"):
        schema.decode(MetadataRequest, 1, bytes.fromhex(count) + b"\0\0\0")


def test_counts_of_numbers_are_checked_too() -> None:
    body = schema.encode(Sample(point=None), 1)
    at = 2 + 4 + 8 + 1  # behind small, large, ratio and ids
    with pytest.raises(MalformedFrame, match="smalls"):
        schema.decode(Sample, 1, body[:at] + bytes.fromhex("ffffffff07") + body[at + 1 :])


def test_any_byte_but_zero_is_true() -> None:
    request = schema.decode(MetadataRequest, 4, bytes.fromhex("ffffffff 02"))
    assert request == MetadataRequest(topics=None, allow_auto_topic_creation=True)


def test_versioned_records() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    assert schema.encode_versioned(key, 1) == bytes.fromhex("0001 0001 67 0001 74 00000003")
    assert schema.decode_versioned(OffsetCommitKey, schema.encode_versioned(key, 0)) == key
    assert schema.encode_versioned(GroupMetadataKey(group="g"), 2) == b"\0\2\0\1g"
    value = OffsetCommitValue(offset=9, leader_epoch=4, metadata="m", topic_id=UUID(int=8))
    assert schema.decode_versioned(OffsetCommitValue, schema.encode_versioned(value, 4)) == value


@pytest.mark.parametrize("content", [b"", b"\0", b"\0\5", b"\xff\xff", b"\0\2\0\1g"])
def test_versioned_records_of_no_known_version_are_refused(content: bytes) -> None:
    with pytest.raises(MalformedFrame):
        schema.decode_versioned(OffsetCommitKey, content)


def test_messages_behave_as_values() -> None:
    one, other = Point(x=1), Point(x=1)
    assert one == other
    assert one != Point(x=2)
    assert one.__eq__((1, -1)) is NotImplemented
    assert repr(one) == "Point(x=1, y=-1)"
    with pytest.raises(TypeError):
        hash(one)
    with pytest.raises(AttributeError):
        one.z = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        Point(z=1)  # type: ignore[call-arg]
    assert not dataclasses.is_dataclass(one)


def test_lists_and_structures_are_not_shared_between_messages() -> None:
    first = MetadataRequest()
    assert first.topics == []
    assert first.topics is not MetadataRequest().topics
    read = schema.decode(MetadataRequest, 1, bytes(4))
    assert read.topics is not schema.decode(MetadataRequest, 1, bytes(4)).topics


def test_structures_have_no_codec_of_their_own() -> None:
    with pytest.raises(InvariantViolated, match="inside messages"):
        schema.encode(Point(), 0)
    with pytest.raises(InvariantViolated, match="not declared"):
        schema.codec_source(int, 0)


def test_an_array_of_nothing_cannot_be_declared_readable() -> None:
    @structure
    class Empty:
        """Without fields, its elements would take no bytes and their count had no bound."""

    @message("0")
    class Holder:
        """Holds them."""

        empties: list[Empty] = array(Empty)

    with pytest.raises(InvariantViolated, match="no bound"):
        schema.decode(Holder, 0, bytes.fromhex("7fffffff"))


@pytest.mark.parametrize("count", [0, 1, 3, 200])
@pytest.mark.parametrize("tags", [0, 1, 200])
def test_elements_of_all_arrays_and_unknown_tags_are_limited_together(
    count: int, tags: int
) -> None:
    """Also those that are within others: what takes two bytes becomes objects of hundreds."""
    request = FetchRequest(
        topics=[
            FetchTopic(topic="t", partitions=[FetchPartition(partition=n) for n in range(count)])
        ],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[*range(count)])],
    )
    frame = schema.encode(request, 12)
    frame = frame[:-1] + varint(tags) + b"\x63\x00" * tags
    elements = 2 + 2 * count + tags
    read, end = schema.decode_from(FetchRequest, 12, frame, 0, elements)
    assert (read, end) == (request, len(frame))
    with pytest.raises(MalformedFrame, match="too many elements"):
        schema.decode_from(FetchRequest, 12, frame, 0, elements - 1)


def test_misplaced_tags_and_records_are_found_when_the_codec_is_made() -> None:
    @message("0")
    class Inflexible:
        """Has a tagged field in a version that has no room for any."""

        note: str = string(tag=0)

    @message("0", flexible="0+")
    class TaggedRecords:
        """Records behind a size that is only known after them."""

        batch: memoryview | None = records(tag=0)

    with pytest.raises(InvariantViolated, match="inflexible"):
        schema.decode(Inflexible, 0, b"")
    with pytest.raises(InvariantViolated, match="inflexible"):
        schema.encode(Inflexible(), 0)
    with pytest.raises(InvariantViolated, match="tagged field"):
        schema.encode(TaggedRecords(), 0)


def test_the_generated_source_can_be_read() -> None:
    text = schema.codec_source(HeartbeatRequest, 4)
    assert text.startswith("def decode(buffer, position, limit, elements):\n")
    assert "\ndef encode(message, out, chunks):\n" in text
    assert RECORDS.name not in text
