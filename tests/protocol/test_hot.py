"""Every shortcut against the generated codecs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import MalformedFrame
from strandline.protocol import apis, framing, hot, schema
from strandline.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

SOME = settings(max_examples=60, deadline=None, derandomize=True, database=None)
PRODUCE = apis.api_of(apis.ApiKey.PRODUCE)
FETCH = apis.api_of(apis.ApiKey.FETCH)
PRODUCE_VERSIONS = range(PRODUCE.versions.lowest, PRODUCE.versions.highest + 1)
FETCH_VERSIONS = range(FETCH.versions.lowest, FETCH.versions.highest + 1)

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text("topic-ä日", max_size=60)
CONTENT = st.sampled_from([0, 1, 125, 126, 127, 128, 129, 16_382, 16_383, 20_000]).map(bytes)


def topic_fields(version: int, first_by_id: int, name: str, topic_id: UUID) -> dict[str, Any]:
    return {"topic_id": topic_id} if version >= first_by_id else {"name": name}


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@SOME
@given(acks=INT16, timeout_ms=INT32, name=NAMES, topic_id=st.uuids(), index=INT32, content=CONTENT)
def test_a_single_produce_is_read_as_the_codec_reads_it(
    version: int, acks: int, timeout_ms: int, name: str, topic_id: UUID, index: int, content: bytes
) -> None:
    partition = PartitionProduceData(index=index, records=memoryview(content))
    topic = TopicProduceData(
        **topic_fields(version, 13, name, topic_id),
        partition_data=[partition],
    )
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])
    frame = memoryview(b"header" + schema.encode(request, version))
    read = hot.read_single_produce(frame, version, 6)
    if len(name.encode()) < 127 or version not in range(9, 13):
        named = topic_id if version >= 13 else name
        assert read is not None
        assert read[:4] == (acks, timeout_ms, named, index)
        assert read[4].tobytes() == content
        assert read[4].obj is frame.obj  # the records were not copied
    else:
        assert read is None


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@SOME
@given(data=st.data())
def test_no_produce_is_taken_that_the_codec_reads_otherwise(
    version: int, values_of: Any, data: Any
) -> None:
    encoded = bytearray(schema.encode(data.draw(values_of(ProduceRequest, version)), version))
    if data.draw(st.booleans()):
        position = data.draw(st.integers(0, len(encoded)))
        change = st.sampled_from([b"", b"\0", b"\1", b"\2", b"\xff", b"\xff\xff\xff\xff\x7f"])
        encoded[position : position + 1] = data.draw(change)
    read = hot.read_single_produce(memoryview(encoded), version, 0)
    try:
        request = schema.decode(ProduceRequest, version, encoded)
    except MalformedFrame:
        assert read is None
        return
    if read is not None:
        ((topic,),) = (request.topic_data,)
        ((partition,),) = (topic.partition_data,)
        named = topic.topic_id if version >= 13 else topic.name
        assert request.transactional_id is None
        assert read == (
            request.acks, request.timeout_ms, named, partition.index, partition.records
        )  # fmt: skip


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_every_cut_produce_is_left_to_the_codec(version: int) -> None:
    partition = PartitionProduceData(index=1, records=memoryview(bytes(130)))
    topic = TopicProduceData(
        **topic_fields(version, 13, "topic", UUID(int=5)), partition_data=[partition]
    )
    encoded = schema.encode(ProduceRequest(topic_data=[topic]), version)
    assert hot.read_single_produce(memoryview(encoded), version, 0) is not None
    for size in range(len(encoded)):
        assert hot.read_single_produce(memoryview(encoded)[:size], version, 0) is None
    assert hot.read_single_produce(memoryview(encoded + b"\0"), version, 0) is None


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@SOME
@given(
    correlation_id=INT32, name=NAMES, topic_id=st.uuids(), index=INT32, code=INT16,
    base=INT64, append_time=INT64, start=INT64,
)  # fmt: skip
def test_a_single_produce_is_answered_as_the_codec_answers(
    version: int, correlation_id: int, name: str, topic_id: UUID, index: int, code: int,
    base: int, append_time: int, start: int,
) -> None:  # fmt: skip
    partition = PartitionProduceResponse(
        index=index,
        error_code=code,
        base_offset=base,
        log_append_time_ms=append_time,
        log_start_offset=start,
    )
    topic = TopicProduceResponse(
        **topic_fields(version, 13, name, topic_id), partition_responses=[partition]
    )
    (expected,) = framing.response_frame(
        PRODUCE, version, correlation_id, ProduceResponse(responses=[topic])
    )
    answer = hot.single_produce_response(
        version,
        correlation_id,
        topic_id if version >= 13 else name,
        index,
        error_code=code,
        base_offset=base,
        log_append_time_ms=append_time,
        log_start_offset=start,
    )
    assert answer == expected


class Elsewhere:
    """Records of which only the size is known."""

    def __init__(self, length: int) -> None:
        self.length = length


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@SOME
@given(
    correlation_id=INT32, name=NAMES, topic_id=st.uuids(), index=INT32, session=INT32,
    high=INT64, stable=INT64, start=INT64, known=st.booleans(),
    size=st.sampled_from([1, 126, 127, 128, 16_383, 1 << 20, 1 << 30]),
)  # fmt: skip
def test_a_single_fetch_is_headed_as_the_codec_heads_it(
    version: int, correlation_id: int, name: str, topic_id: UUID, index: int, session: int,
    high: int, stable: int, start: int, known: bool, size: int,
) -> None:  # fmt: skip
    records = Elsewhere(size)
    partition = PartitionData(
        partition_index=index,
        high_watermark=high,
        last_stable_offset=stable,
        log_start_offset=start,
        aborted_transactions=[] if known else None,
        records=records,
    )
    by_id = version >= 13
    topic = FetchableTopicResponse(partitions=[partition])
    if by_id:
        topic.topic_id = topic_id
    else:
        topic.topic = name
    session = session if version >= 7 else 0
    response = FetchResponse(session_id=session, responses=[topic])
    head, middle, *tail = framing.response_frame(FETCH, version, correlation_id, response)
    assert middle is records
    assert tail == ([hot.FETCH_TAIL] if version >= 12 else [])
    assert head == hot.single_fetch_head(
        version,
        correlation_id,
        topic_id if by_id else name,
        index,
        session_id=session,
        high_watermark=high,
        last_stable_offset=stable,
        log_start_offset=start,
        aborted_transactions_known=known,
        records_bytes=size,
    )
