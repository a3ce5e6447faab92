"""Frames are cut and headers read as Kafka lays them out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import MalformedFrame
from strandline.protocol import apis, framing, schema
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.wire import Records

API_VERSIONS = apis.api_of(ApiKey.API_VERSIONS)
METADATA = apis.api_of(ApiKey.METADATA)
FETCH = apis.api_of(ApiKey.FETCH)


def joined(chunks: list[Any]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)


def test_a_request_is_laid_out_as_the_protocol_says() -> None:
    chunks = framing.request_frame(
        METADATA, 9, 7, "me", MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    )
    assert joined(chunks) == bytes.fromhex(
        "00000015"  # 21 bytes follow
        "0003 0009 00000007 0002 6d65 00"  # header 2: key, version, correlation, "me", no tags
        "02 02 74 00"  # one topic "t", no tags
        "01 00 00 00"  # create it, no authorized operations, no tags
    )


@given(st.lists(st.binary(max_size=20), max_size=4), st.binary(max_size=3), st.integers(0, 5))
@settings(deadline=None, derandomize=True, database=None)
def test_frames_are_cut_wherever_the_stream_was_cut(
    contents: list[bytes], rest: bytes, skipped: int
) -> None:
    stream = b"x" * skipped + b"".join(len(c).to_bytes(4, "big") + c for c in contents) + rest
    frames, position = framing.split_frames(memoryview(stream), skipped)
    assert [bytes(frame) for frame in frames] == contents
    assert position == len(stream) - len(rest)


def test_an_incomplete_frame_is_left_for_later() -> None:
    assert framing.split_frames(memoryview(b"\0\0\0\2a")) == ([], 0)


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\x0b"])
def test_a_forbidden_size_is_refused_before_its_frame_is_there(size: bytes) -> None:
    with pytest.raises(MalformedFrame, match="0 to 10 are allowed"):
        framing.split_frames(memoryview(b"\0\0\0\1a" + size), 0, 10)


def test_a_frame_of_exactly_the_limit_is_allowed() -> None:
    frames, position = framing.split_frames(memoryview(b"\0\0\0\2ab"), 0, 2)
    assert [bytes(frame) for frame in frames] == [b"ab"]
    assert position == 6


@pytest.mark.parametrize("client_id", [None, "", "librdkafka", "ä"])
@pytest.mark.parametrize("version", [0, 3])
def test_a_request_header_is_read_as_written(client_id: str | None, version: int) -> None:
    message = ApiVersionsRequest()
    frame = memoryview(
        joined(framing.request_frame(API_VERSIONS, version, -5, client_id, message))
    )[4:]
    assert framing.peek(frame) == (18, version, -5)
    header, position = framing.parse_request_header(frame)
    assert header == (18, version, -5, client_id or "")
    assert schema.decode_request(18, version, frame, position) == message


def test_the_tags_of_a_header_are_skipped() -> None:
    plain = bytes.fromhex("0012 0003 00000001 ffff")
    tags = bytes.fromhex("02 00 01 ff 05 02 aabb")
    header, position = framing.parse_request_header(memoryview(plain + tags + b"body"))
    assert header.client_id == ""
    assert position == len(plain) + len(tags)


def test_the_header_of_a_version_to_come_is_read() -> None:
    frame = memoryview(bytes.fromhex("0012 0063 00000001 ffff 00"))
    assert framing.parse_request_header(frame) == ((18, 99, 1, ""), 11)


@pytest.mark.parametrize("size", range(15))
def test_a_cut_header_is_refused(size: int) -> None:
    frame = bytes.fromhex("0012 0003 00000001 0002 6d65 01 00 00")
    framing.parse_request_header(memoryview(frame))
    with pytest.raises(MalformedFrame):
        framing.parse_request_header(memoryview(frame)[: min(size, len(frame) - 1)])


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        ("03e7 0000 00000001 ffff", "API key 999"),
        ("0012 0000 00000001 fffe", "impossible length"),
        ("0012 0000 00000001 0005 61", "impossible length"),
        ("0012 0000 00000001 0001 ff", "not UTF-8"),
    ],
)
def test_a_wrong_header_is_refused(frame: str, sentence: str) -> None:
    with pytest.raises(MalformedFrame, match=sentence):
        framing.parse_request_header(memoryview(bytes.fromhex(frame)))


def test_a_peek_into_too_little_is_refused() -> None:
    with pytest.raises(MalformedFrame):
        framing.peek(b"\0\0\0\0\0\0\0")


@pytest.mark.parametrize(("version", "header_bytes"), [(0, 4), (3, 4), (4, 4)])
def test_the_answer_to_api_versions_never_has_tags_in_its_header(
    version: int, header_bytes: int
) -> None:
    frame = joined(framing.response_frame(API_VERSIONS, version, 9, ApiVersionsResponse()))[4:]
    assert framing.parse_response_header(memoryview(frame), API_VERSIONS, version) == (
        9,
        header_bytes,
    )
    read = schema.decode_response(18, version, frame, header_bytes)
    assert read == ApiVersionsResponse()


def test_a_flexible_response_has_tags_in_its_header() -> None:
    frame = memoryview(b"\0\0\0\x09\1\7\1x")
    assert framing.parse_response_header(frame, METADATA, 9) == (9, 8)
    for size in range(len(frame)):
        with pytest.raises(MalformedFrame):
            framing.parse_response_header(frame[:size], METADATA, 9)


class Elsewhere:
    """Records of which only the size is known."""

    length = 1000


def test_ranges_of_files_stay_chunks_of_their_own() -> None:
    first, second = Elsewhere(), Elsewhere()
    contents: list[Records] = [first, b"small", second]
    partitions = [
        PartitionData(partition_index=index, records=records)
        for index, records in enumerate(contents)
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    chunks = framing.response_frame(FETCH, 12, 1, response)
    assert [type(chunk) for chunk in chunks] == [
        bytearray,
        Elsewhere,
        bytearray,
        Elsewhere,
        bytearray,
    ]
    assert chunks[1] is first
    assert chunks[3] is second
    filled = joined([bytes(1000) if isinstance(chunk, Elsewhere) else chunk for chunk in chunks])
    assert framing.frame_size(filled) == len(filled) - 4
    read = schema.decode_response(ApiKey.FETCH, 12, filled, 9)
    assert isinstance(read, FetchResponse)
    sizes = [len(each.records) for each in read.responses[0].partitions]  # type: ignore[arg-type]
    assert sizes == [1000, 5, 1000]


def test_large_records_are_not_copied_and_several_buffers_are_joined() -> None:
    large = memoryview(bytes(20_000))
    topic = FetchableTopicResponse(topic="t", partitions=[PartitionData(records=[b"ab", large])])
    chunks = framing.response_frame(FETCH, 11, 1, FetchResponse(responses=[topic]))
    assert chunks[1] is large
    assert len(chunks) == 2
    filled = joined(chunks)
    assert framing.frame_size(filled) == len(filled) - 4
    read = schema.decode_response(ApiKey.FETCH, 11, filled, 8)
    assert isinstance(read, FetchResponse)
    assert read.responses[0].partitions[0].records == b"ab" + bytes(20_000)
