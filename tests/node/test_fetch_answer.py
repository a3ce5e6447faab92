"""The hand-written fetch answer against the generated codec, for every version."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import ErrorCode
from strandline.node.connection import Connection
from strandline.node.fetch_answer import FetchAnswer, PartitionAnswer, encode_fetch_answer
from strandline.node.leader_hints import LeaderEndpoint, LeaderHint
from strandline.node.outbox import Outbox
from strandline.node.request import Request
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import response_frame
from strandline.protocol.messages import fetch as messages
from strandline.protocol.messages.fetch import FetchResponse
from strandline.storage.log_reader import LogSlice
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.transaction_index import AbortedTransaction
from strandline.types import BrokerId, Offset, ProducerId
from tests.node.world import joined

FILES = MemoryFiles()
FILES.make_directory("/d")
FILE = FILES.open("/d/log", create=True)
FILE.append(bytes(range(256)) * 40)

LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
ENDPOINTS = st.builds(LeaderEndpoint, INTS, TEXTS, INTS, st.none() | TEXTS)


@st.composite
def partitions(draw: st.DrawFn) -> PartitionAnswer:
    answer = PartitionAnswer(draw(st.integers(0, 300)))
    answer.error_code = draw(st.sampled_from([ErrorCode.NONE, *ErrorCode]))
    answer.high_watermark = draw(LONGS)
    answer.last_stable_offset = draw(LONGS)
    answer.log_start_offset = draw(LONGS)
    answer.diverging = draw(st.none() | st.tuples(INTS, LONGS))
    answer.preferred_replica = draw(st.none() | st.integers(0, 2**31 - 1).map(BrokerId))
    answer.current_leader = draw(st.none() | st.builds(LeaderHint, INTS, INTS))
    aborted = st.builds(
        AbortedTransaction,
        producer_id=LONGS.map(ProducerId),
        first_offset=LONGS.map(Offset),
        last_offset=st.just(Offset(0)),
        last_stable_offset=st.just(Offset(0)),
    )
    answer.aborted_transactions = draw(st.none() | st.lists(aborted, max_size=130))
    length = draw(st.none() | st.integers(0, 300) | st.just(10_000))
    if length is not None:
        position = draw(st.integers(0, 40))
        answer.records = LogSlice(FILE, position, length, Offset(0), Offset(0))
    return answer


@st.composite
def answers(draw: st.DrawFn, version: int) -> FetchAnswer:
    answer = FetchAnswer(error_code=draw(st.sampled_from(list(ErrorCode))), session_id=draw(INTS))
    names: st.SearchStrategy[str | UUID] = (
        st.uuids() if version >= 13 else st.text(st.characters(exclude_categories=["Cs"]))
    )
    if version >= 16:
        answer.leaders = draw(st.lists(ENDPOINTS, max_size=3))
    for name in draw(st.lists(names, max_size=3)):
        for partition in draw(st.lists(partitions(), max_size=3)):
            answer.add(name, partition)
    return answer


def by_the_codec(answer: FetchAnswer, version: int) -> bytes:
    """The same answer as a message, encoded by the schema."""
    response = FetchResponse(error_code=int(answer.error_code), session_id=answer.session_id)
    if version < 7:
        response.error_code, response.session_id = 0, 0
    for name, entries in answer.topics:
        topic = messages.FetchableTopicResponse()
        if isinstance(name, UUID):
            topic.topic_id = name
        else:
            topic.topic = name
        for entry in entries:
            records = b""
            if entry.records is not None:
                records = FILE.read_at(entry.records.position, entry.records.length)
            data = messages.PartitionData(
                partition_index=entry.partition,
                error_code=int(entry.error_code),
                high_watermark=entry.high_watermark,
                last_stable_offset=entry.last_stable_offset,
                log_start_offset=entry.log_start_offset,
                aborted_transactions=None
                if entry.aborted_transactions is None
                else [
                    messages.AbortedTransaction(
                        producer_id=one.producer_id, first_offset=one.first_offset
                    )
                    for one in entry.aborted_transactions
                ],
                records=memoryview(records),
            )
            if entry.preferred_replica is not None and version >= 11:
                data.preferred_read_replica = entry.preferred_replica
            if entry.diverging is not None and version >= 12:
                data.diverging_epoch = messages.EpochEndOffset(
                    epoch=entry.diverging[0], end_offset=entry.diverging[1]
                )
            if entry.current_leader is not None and version >= 16:
                leader_id, leader_epoch = entry.current_leader
                data.current_leader = messages.LeaderIdAndEpoch(
                    leader_id=leader_id, leader_epoch=leader_epoch
                )
            topic.partitions.append(data)
        response.responses.append(topic)
    response.node_endpoints = [
        messages.NodeEndpoint(node_id=end.broker_id, host=end.host, port=end.port, rack=end.rack)
        for end in answer.leaders
    ]
    chunks = response_frame(KNOWN[ApiKey.FETCH], version, 99, response)
    return joined(chunks)


@pytest.mark.parametrize("version", range(4, 19))
@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_the_bytes_are_those_of_the_codec(version: int, data: st.DataObject) -> None:
    compare(data.draw(answers(version)), version)


@pytest.mark.parametrize("version", [12, 13, 17, 18])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_an_answer_with_one_partition(version: int, data: st.DataObject) -> None:
    """Which is what followers get, and is written in one piece."""
    answer = FetchAnswer(error_code=data.draw(st.sampled_from(list(ErrorCode))), session_id=7)
    topics: st.SearchStrategy[UUID | str] = st.uuids() if version >= 13 else st.just("t")
    answer.add(data.draw(topics), data.draw(partitions()))
    compare(answer, version)


def compare(answer: FetchAnswer, version: int) -> None:
    connection = Connection(1, "client", "PLAINTEXT", 10)
    request = Request(connection, Outbox(), ApiKey.FETCH, version, 99, None, None)
    written = b""
    for chunk in encode_fetch_answer(request, answer):
        if isinstance(chunk, LogSlice):
            written += chunk.file.read_at(chunk.position, chunk.length)
        else:
            written += chunk
    assert written == by_the_codec(answer, version)
    assert int.from_bytes(written[:4], "big") == len(written) - 4
