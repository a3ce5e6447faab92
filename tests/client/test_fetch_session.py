"""What the client says of its fetch sessions, alone and to a real broker (KIP-227)."""

from __future__ import annotations

from functools import partial

from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.fetch_session import FetchSession
from strandline.client.fetching import FetchFrom, FetchSettings
from strandline.client.producer import Producer
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import FetchResponse
from strandline.types import NO_EPOCH, Offset, TopicId, TopicPartition

SETTINGS = FetchSettings(max_bytes=1000, partition_max_bytes=100)
TOPIC_ID = TopicId(int=7)
AT = TopicPartition("t", 0)
WAIT_MS = 500
NEWEST = 18


def wanted(**offsets: int) -> dict[TopicPartition, FetchFrom]:
    partitions = {TopicPartition("t", int(name[1:])): offset for name, offset in offsets.items()}
    return {
        at: FetchFrom(at, TOPIC_ID, Offset(offset), NO_EPOCH) for at, offset in partitions.items()
    }


def asked(
    session: FetchSession, partitions: dict[TopicPartition, FetchFrom], version: int = NEWEST
) -> tuple[int, int, list[int], list[int]]:
    """(session, its epoch, partitions, forgotten partitions) of its next request."""
    request = session.request(partitions, SETTINGS, WAIT_MS, version)
    return (
        request.session_id,
        request.session_epoch,
        [part.partition for topic in request.topics for part in topic.partitions],
        [number for topic in request.forgotten_topics_data for number in topic.partitions],
    )


def test_a_session_says_only_what_has_changed() -> None:
    session = FetchSession(wants_session=True)
    assert asked(session, wanted(p0=0, p1=0)) == (
        0,
        0,
        [0, 1],
        [],
    )
    session.answered(77)
    assert asked(session, wanted(p0=0, p1=5)) == (
        77,
        1,
        [1],
        [],
    )
    session.answered(77)
    assert asked(session, wanted(p1=5)) == (77, 2, [], [0])


def test_a_session_that_failed_begins_anew_and_ends_the_old_one() -> None:
    session = FetchSession(wants_session=True)
    session.request(wanted(p0=0), SETTINGS, WAIT_MS, NEWEST)
    session.answered(77)
    session.failed(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert asked(session, wanted(p0=0)) == (77, 0, [0], [])
    session.failed(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert asked(session, wanted(p0=0)) == (0, 0, [0], [])


def test_a_broker_may_refuse_to_keep_a_session() -> None:
    session = FetchSession(wants_session=True)
    session.request(wanted(p0=0), SETTINGS, WAIT_MS, NEWEST)
    session.answered(0)
    assert not session.is_open
    assert asked(session, wanted(p0=0)) == (0, 0, [0], [])


def test_a_topic_made_anew_is_forgotten_under_its_old_id() -> None:
    session = FetchSession(wants_session=True)
    session.request(wanted(p0=3), SETTINGS, WAIT_MS, NEWEST)
    session.answered(77)
    anew = {AT: FetchFrom(AT, TopicId(int=8), Offset(0), NO_EPOCH)}
    request = session.request(anew, SETTINGS, WAIT_MS, NEWEST)
    assert [topic.topic_id for topic in request.topics] == [TopicId(int=8)]
    assert [topic.topic_id for topic in request.forgotten_topics_data] == [TOPIC_ID]


def test_without_a_session_everything_is_said_each_time() -> None:
    session = FetchSession(wants_session=False)
    for _ in range(2):
        assert asked(session, wanted(p0=0)) == (
            0,
            -1,
            [0],
            [],
        )
        session.answered(0)


def test_brokers_without_sessions_are_told_everything_each_time() -> None:
    session = FetchSession(wants_session=True)
    for _ in range(2):
        assert asked(session, wanted(p0=0), version=6)[2:] == ([0], [])
        session.answered(0)


def fetched(
    connection: Connection, session: FetchSession, partitions: dict[TopicPartition, FetchFrom]
) -> list[int]:
    """The partitions of a real broker's answer."""
    response = connection.call(
        ApiKey.FETCH, FetchResponse, partial(session.request, partitions, SETTINGS, 0)
    )
    assert response.error_code == ErrorCode.NONE
    session.answered(response.session_id)
    return [part.partition_index for topic in response.responses for part in topic.partitions]


def test_a_broker_tells_only_what_is_new(cluster: ClusterClient, name: str) -> None:
    Admin(cluster).topics.create(name, partitions=2)
    topic_id = cluster.topic(name).topic_id
    first, second = (
        FetchFrom(TopicPartition(name, number), topic_id, Offset(0), NO_EPOCH) for number in (0, 1)
    )
    both = {each.partition: each for each in (first, second)}
    session = FetchSession(wants_session=True)
    connection = cluster.any_connection()
    assert fetched(connection, session, both) == [0, 1]
    assert session.is_open
    assert fetched(connection, session, both) == []
    producer = Producer(cluster)
    producer.send(name, b"new", partition=1)
    producer.flush().raise_failure()
    assert fetched(connection, session, both) == [1]
    only = {first.partition: first}
    assert fetched(connection, session, only) == []
    session.failed()
    assert fetched(connection, session, both) == [0, 1]
