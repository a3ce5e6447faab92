"""The readers that Spark calls, called without Spark: a stream's life against a real cluster."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Protocol

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from strandline.client.aborted import AbortedFilter
from strandline.client.admin import Admin
from strandline.client.clock import SystemClock
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.errors import InvalidSetting, ProtocolError
from strandline.lakehouse.format import StrandlineDataSource, StreamReader
from strandline.lakehouse.reading.fetches import RangeFetches
from strandline.lakehouse.source.losses import DataLost
from strandline.lakehouse.source.options import parse_options
from strandline.lakehouse.source.planner import StreamPlanner, Wait
from strandline.testing import Cluster
from strandline.types import Offset, TopicPartition

NewTopic = Callable[..., str]
ALL = ReadAllAvailable()


class Write(Protocol):
    """Puts values "0", "1", ... on a partition, a millisecond apart from 1000 ms on."""

    def __call__(self, topic: str, count: int, partition: int = 0) -> None: ...


@pytest.fixture
def write(client: ClusterClient) -> Write:
    def send(topic: str, count: int, partition: int = 0) -> None:
        with Producer(client) as producer:
            for n in range(count):
                producer.send(topic, b"%d" % n, partition=partition, timestamp=1000 + n)
            producer.flush().raise_failure()

    return send


@pytest.fixture
def source(cluster: Cluster) -> Callable[..., StrandlineDataSource]:
    def made(**options: str) -> StrandlineDataSource:
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers} | options
        return StrandlineDataSource(CaseInsensitiveDict(given))

    return made


class HandClock(SystemClock):
    """Goes when it is set."""

    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


@contextmanager
def streaming(source: StrandlineDataSource) -> Iterator[StreamReader]:
    reader = source.streamReader(source.schema())
    assert isinstance(reader, StreamReader)
    try:
        yield reader
    finally:
        reader.stop()


def batch(source: StrandlineDataSource) -> list[tuple[str, int, list[int]]]:
    """Of each task of a batch query the topic, the partition and the offsets that it reads."""
    reader = source.reader(source.schema())
    return [_read(reader, each) for each in reader.partitions()]


def _read(reader: Any, planned: InputPartition) -> tuple[str, int, list[int]]:
    """As an executor does it: with copies of the range, and of a reader that did nothing else."""
    fresh = type(reader)(reader._options)
    reader, planned = pickle.loads(pickle.dumps((fresh, planned)))
    offsets = [n for rows in reader.read(planned) for n in rows.column("offset").to_pylist()]
    return planned.value.topic, planned.value.partition, offsets


def ends(document: dict[str, Any], topic: str) -> list[int]:
    return [each["offset"] for each in document["topics"][topic]["partitions"].values()]


def test_a_batch_reads_between_any_two_places(
    source: Callable[..., StrandlineDataSource], new_topic: NewTopic, write: Write
) -> None:
    topic = new_topic(2)
    write(topic, 10, 0)
    write(topic, 5, 1)
    whole = [(topic, 0, list(range(10))), (topic, 1, list(range(5)))]

    def offsets(one: int, other: int) -> str:
        return f'{{"{topic}": {{"0": {one}, "1": {other}}}}}'

    assert batch(source(subscribe=topic)) == whole
    assert batch(source(subscribePattern=topic[:-1] + "[0-9]")) == whole
    assert batch(source(assign=f'{{"{topic}": [1]}}')) == whole[1:]
    assert batch(
        source(subscribe=topic, startingOffsets=offsets(3, -2), endingOffsets=offsets(-1, 2))
    ) == [(topic, 0, list(range(3, 10))), (topic, 1, [0, 1])]
    assert batch(source(subscribe=topic, startingTimestamp="1003", endingTimestamp="1006")) == [
        (topic, 0, [3, 4, 5]),
        (topic, 1, [3, 4]),
    ]
    late = source(
        subscribe=topic,
        startingOffsetsByTimestamp=offsets(1008, 9999),
        startingOffsetsByTimestampStrategy="latest",
    )
    assert batch(late) == [(topic, 0, [8, 9])]
    cut = batch(source(subscribe=topic, minPartitions="5", maxRecordsPerPartition="4"))
    assert [(number, len(each)) for _, number, each in cut] == [
        (0, 3),
        (0, 3),
        (0, 4),
        (1, 2),
        (1, 3),
    ]
    assert [n for _, number, each in cut for n in each] == [*range(10), *range(5)]
    nothing = source(subscribe=topic).reader(source(subscribe=topic).schema())
    assert list(nothing.read(InputPartition(None))) == []


def test_what_cannot_be_read_is_refused_when_it_is_planned(
    source: Callable[..., StrandlineDataSource], new_topic: NewTopic, write: Write
) -> None:
    topic = new_topic(2)
    write(topic, 3)
    one, both = f'{{"{topic}": {{"0": 0}}}}', f'{{"{topic}": {{"0": 7, "1": 0}}}}'
    with pytest.raises(ProtocolError, match="There is no topic 'never'"):
        batch(source(subscribe=f"{topic},never"))
    with pytest.raises(ProtocolError, match=f"There is no partition {topic}-2"):
        batch(source(assign=f'{{"{topic}": [0, 2]}}'))
    with pytest.raises(InvalidSetting, match=f"every partition that is read: {topic}-1 is missing"):
        batch(source(subscribe=topic, startingOffsets=one))
    with pytest.raises(InvalidSetting, match=f"names {topic}-1, which is not read"):
        batch(source(assign=f'{{"{topic}": [0]}}', startingOffsets=both))
    with pytest.raises(InvalidSetting, match="is as late as 5000, which startingTimestamp names"):
        batch(source(subscribe=topic, startingTimestamp="5000"))
    with pytest.raises(DataLost, match=f"{topic}-0 ends at offset 3: there are no records up to 7"):
        batch(source(subscribe=topic, endingOffsets=both))
    assert batch(source(subscribe=topic, endingOffsets=both, failOnDataLoss="false")) == [
        (topic, 0, [0, 1, 2])
    ]
    with pytest.raises(InvalidSetting, match="leave schema"):
        source(subscribe=topic).reader(source(subscribe=topic, includeHeaders="true").schema())


def test_a_stream_goes_on_where_it_was_within_its_limit(
    source: Callable[..., StrandlineDataSource], new_topic: NewTopic, write: Write
) -> None:
    topic = new_topic(2)
    write(topic, 30, 0)
    write(topic, 10, 1)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    with streaming(source(**options)) as reader:
        limit = reader.getDefaultReadLimit()
        assert limit == ReadMaxRows(20)
        start = reader.initialOffset()
        assert ends(start, topic) == [0, 0]
        assert reader.reportLatestOffset() is None
        end = reader.latestOffset(start, limit)
        assert ends(end, topic) == [15, 5]
        assert ends(reader.reportLatestOffset() or {}, topic) == [30, 10]
        planned = reader.partitions(start, end)
        assert [_read(reader, each)[2] for each in planned] == [list(range(15)), list(range(5))]
        reader.commit(end)
        assert ends(reader.latestOffset(end, ALL), topic) == [30, 10]
        last = reader.latestOffset(reader.latestOffset(end, limit), limit)
        assert reader.latestOffset(last, limit) == last
        assert list(reader.partitions(last, last)) == []
    # After a restart the same two documents mean the same records.
    with streaming(source(**options)) as reader:
        again = reader.partitions(start, end)
        assert [each.value for each in again] == [each.value for each in planned]


def test_available_now_ends_where_the_log_ended_then(
    source: Callable[..., StrandlineDataSource],
    new_topic: NewTopic,
    write: Write,
    client: ClusterClient,
) -> None:
    topic = new_topic()
    write(topic, 10)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "8"}
    with streaming(source(**options)) as reader:
        reader.prepareForTriggerAvailableNow()
        write(topic, 10)
        Admin(client).topics.add_partitions(topic, 2)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(8))
        assert ends(end, topic) == [8, 0]
        end = reader.latestOffset(end, ALL)
        assert ends(end, topic) == [10, 0]
        assert reader.latestOffset(end, ALL) == end


def test_partitions_and_topics_that_appear_are_read_from_their_start(
    source: Callable[..., StrandlineDataSource],
    cluster: Cluster,
    new_topic: NewTopic,
    write: Write,
    client: ClusterClient,
) -> None:
    topic = new_topic()
    write(topic, 3)
    with streaming(source(subscribePattern=f"{topic}.*")) as reader:
        start = reader.initialOffset()
        assert ends(start, topic) == [3]
        Admin(client).topics.add_partitions(topic, 2)
        cluster.create_topic(f"{topic}-more", 1, 1)
        write(topic, 4, 1)
        write(f"{topic}-more", 5)
        end = reader.latestOffset(start, ALL)
        tasks = [_read(reader, each) for each in reader.partitions(start, end)]
    wanted = [(topic, 1, [0, 1, 2, 3]), (f"{topic}-more", 0, [0, 1, 2, 3, 4])]
    assert tasks == wanted
    # The same from another query, which begins where this one was.
    options = {"subscribePattern": f"{topic}.*", "startingOffsets": json.dumps(start)}
    assert batch(source(**options)) == wanted
    with streaming(source(**options)) as reader:
        begin = reader.initialOffset()
        assert ends(begin, topic) == [3, 0]
        end = reader.latestOffset(begin, ALL)
        tasks = [_read(reader, each) for each in reader.partitions(begin, end)]
    assert tasks == wanted


def test_a_batch_waits_for_enough_but_not_for_ever(
    cluster: Cluster, source: Callable[..., StrandlineDataSource], new_topic: NewTopic, write: Write
) -> None:
    topic = new_topic()
    options = {"subscribe": topic, "minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "12"}
    with streaming(source(**options)) as reader:
        assert reader.getDefaultReadLimit() == ReadMinRows(10)
        begin = reader.initialOffset()
        write(topic, 1)
        start = reader.latestOffset(begin, ReadMinRows(10))
        assert ends(start, topic) == [1]  # the first batch takes what there is
        write(topic, 8)
        assert reader.latestOffset(start, ReadMinRows(10)) == start
        write(topic, 9)
        assert ends(reader.latestOffset(start, ReadMinRows(10)), topic) == [13]
    clock = HandClock()
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, **options}
    planner = StreamPlanner(parse_options(given, is_stream=True), clock)
    with closing(planner):
        at, wait = TopicPartition(topic, 0), Wait(100, 5000)
        first = planner.initial()
        assert planner.latest(first, at_most=None, wait=wait) == first
        write(topic, 1)
        assert planner.latest(first, at_most=None, wait=wait) == first
        clock.now_ms = 4999
        assert planner.latest(first, at_most=None, wait=wait) == first
        clock.now_ms = 5000
        end = planner.latest(first, at_most=None, wait=wait)
        assert end.at[at].offset == first.at[at].offset + 1


@pytest.mark.strandline(brokers=2, settings={"unclean.leader.election.enable": True})
def test_a_log_that_was_cut_and_written_anew_is_noticed(strandline_cluster: Cluster) -> None:
    """The offsets go on as if nothing had been: only the epochs tell."""
    cluster = strandline_cluster
    cluster.create_topic("t", 1, 2, min_insync_replicas=1)
    leader = cluster.leader_of("t")
    (follower,) = {1, 2} - {leader}
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "t"}
    options["startingOffsets"] = "earliest"
    data_source = StrandlineDataSource(CaseInsensitiveDict(options))

    def write(count: int) -> None:
        with ClusterClient(cluster.bootstrap_servers) as client, Producer(client) as producer:
            for n in range(count):
                producer.send("t", b"%d" % n)
            producer.flush().raise_failure()

    with streaming(data_source) as reader:
        write(10)
        cluster.wait_until_in_sync("t")
        start = reader.initialOffset()
        cluster.kill(follower)
        cluster.wait_until(lambda status: status.partition("t").in_sync == (leader,))
        write(10)
        end = reader.latestOffset(start, ALL)
        assert ends(end, "t") == [20]
        cluster.kill(leader)
        cluster.start(follower)
        cluster.wait_for_leader("t", other_than=leader)
        write(15)
        with pytest.raises(DataLost, match=r"up to offset 20 in leader epoch .* only 10 of that"):
            reader.latestOffset(end, ALL)
        # A batch that has to be repeated meets the other log in its task.
        (planned,) = reader.partitions(start, end)
        with pytest.raises(DataLost, match="cut and written again"):
            _read(reader, planned)


def test_a_task_reads_what_is_before_a_loss_and_behind_it(
    source: Callable[..., StrandlineDataSource],
    new_topic: NewTopic,
    write: Write,
    client: ClusterClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records 5 to 7 go when the task has fetched those before them."""
    topic = new_topic()
    write(topic, 5)
    write(topic, 5)
    next_answer = RangeFetches.next_answer

    def deleting(fetches: RangeFetches) -> tuple[memoryview, AbortedFilter | None]:
        if fetches.next_offset == 5:
            monkeypatch.undo()
            Admin(client).topics.delete_records({TopicPartition(topic, 0): Offset(8)})
            fetches._pending = None  # the fetch that was sent ahead
        return next_answer(fetches)

    monkeypatch.setattr(RangeFetches, "next_answer", deleting)
    # A broker sends one batch at least, however little is asked for.
    options = {"kafka.max.partition.fetch.bytes": "1", "failOnDataLoss": "false"}
    found = batch(source(subscribe=topic, **options))
    assert found == [(topic, 0, [0, 1, 2, 3, 4, 8, 9])]


def test_what_retention_or_a_deletion_took_is_never_passed_in_silence(
    source: Callable[..., StrandlineDataSource],
    cluster: Cluster,
    new_topic: NewTopic,
    write: Write,
    client: ClusterClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic, admin = new_topic(), Admin(client).topics
    write(topic, 10)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    options["kafka.default.api.timeout.ms"] = "2000"  # for how long a topic may be missing
    with (
        streaming(source(**options)) as strict,
        streaming(source(**options, failOnDataLoss="false")) as lax,
    ):
        start = strict.initialOffset()
        end = strict.latestOffset(start, ALL)
        (planned,) = strict.partitions(start, end)
        admin.delete_records({TopicPartition(topic, 0): Offset(4)})
        # Between the plan and its tasks, and between two batches.
        with pytest.raises(DataLost, match=r"begins at offset 4: .* from 0 on"):
            _read(strict, planned)
        assert _read(lax, planned)[2] == list(range(4, 10))
        with pytest.raises(DataLost, match="begins at offset 4: the records from 0 on"):
            strict.latestOffset(start, ALL)
        moved = lax.latestOffset(start, ALL)
        (rest,) = lax.partitions(start, moved)
        assert _read(lax, rest)[2] == list(range(4, 10))
        # The topic is made again under its name.
        admin.delete([topic])
        cluster.create_topic(topic, 1, 1)
        write(topic, 3)
        client.refresh([topic])
        with pytest.raises(DataLost, match="deleted and made again"):
            _read(strict, rest)
        assert _read(lax, rest)[2] == []
        behind = source(subscribe=topic, startingOffsets=json.dumps(moved))
        with pytest.raises(DataLost, match="was deleted and made again"):
            batch(behind)
        with pytest.raises(DataLost, match="was deleted and made again"):
            strict.latestOffset(moved, ALL)
        anew = lax.latestOffset(moved, ALL)
        assert [_read(lax, each)[2] for each in lax.partitions(moved, anew)] == [[0, 1, 2]]
        admin.delete([topic])
        with pytest.raises(DataLost, match="is gone"):
            strict.latestOffset(anew, ALL)
        assert lax.latestOffset(anew, ALL)["topics"] == {}
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert sum("failOnDataLoss is false" in each for each in told) == 5
