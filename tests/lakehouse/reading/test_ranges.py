"""Exact ranges from a cluster: what is read, and every way in which a range can be lost."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import replace
from uuid import UUID

import pyarrow as pa
import pytest

from strandline.client.aborted import AbortedFilter
from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer, ProducerSettings
from strandline.errors import ProtocolError
from strandline.lakehouse.reading.catalogue import Catalogue
from strandline.lakehouse.reading.errors import (
    EpochDiverged,
    RangeGone,
    RangeNotReached,
    ReadError,
    TopicReplaced,
)
from strandline.lakehouse.reading.fetches import RangeFetches
from strandline.lakehouse.reading.ranges import OffsetRange, RangeReader, read_range
from strandline.lakehouse.reading.settings import ReadSettings
from strandline.records.codec import Codec
from strandline.testing import Cluster
from strandline.types import Offset, TopicPartition

NewTopic = Callable[..., str]


def offsets(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [offset for each in batches for offset in each.column("offset").to_pylist()]


def produce(
    client: ClusterClient, topic: str, count: int, *, size: int = 10, codec: Codec = Codec.NONE
) -> None:
    """Records with the values 0, 1, 2... on partition 0."""
    settings = ProducerSettings(codec=codec, batch_bytes=4096)
    with Producer(client, settings) as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n + bytes(size), partition=0, timestamp=1000 + n)
        producer.flush().raise_failure()


def planned(topic: str, start: int, end: int, **facts: object) -> OffsetRange:
    return OffsetRange(topic=topic, partition=0, start=start, end=end, **facts)  # type: ignore[arg-type]


@pytest.fixture
def settings(cluster: Cluster) -> ReadSettings:
    return ReadSettings(bootstrap=cluster.bootstrap_servers, patience_ms=120_000)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_exactly_the_range_is_read(
    client: ClusterClient, new_topic: NewTopic, settings: ReadSettings, codec: Codec
) -> None:
    topic = new_topic()
    produce(client, topic, 500, codec=codec)
    with RangeReader(settings) as reader:
        for start, end in ((0, 500), (1, 2), (13, 487), (499, 500), (7, 7)):
            assert offsets(reader.read(planned(topic, start, end))) == list(range(start, end))
    (batch,) = read_range(settings, planned(topic, 0, 500))
    assert batch.column("value").to_pylist() == [b"%d" % n + bytes(10) for n in range(500)]


def test_large_ranges_take_many_fetches_and_batches(
    cluster: Cluster, client: ClusterClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    produce(client, topic, 3000, size=300)
    settings = ReadSettings(
        bootstrap=cluster.bootstrap_servers, fetch_bytes=20_000, batch_bytes=100_000
    )
    batches = list(read_range(settings, planned(topic, 5, 2990)))
    assert len(batches) >= 8
    assert max(batch.nbytes for batch in batches) < 150_000
    assert offsets(batches) == list(range(5, 2990))


def test_a_reader_may_be_left_in_the_middle_and_used_again(
    cluster: Cluster, client: ClusterClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    produce(client, topic, 1000, size=300)
    settings = ReadSettings(
        bootstrap=cluster.bootstrap_servers, fetch_bytes=20_000, batch_bytes=20_000
    )
    with RangeReader(settings) as reader:
        for _ in reader.read(planned(topic, 0, 1000)):
            break
        assert offsets(reader.read(planned(topic, 100, 900))) == list(range(100, 900))


def test_records_that_were_deleted_are_an_error_that_says_so(
    client: ClusterClient, new_topic: NewTopic, settings: ReadSettings
) -> None:
    topic = new_topic()
    produce(client, topic, 100)
    at = TopicPartition(topic, 0)
    Admin(client).topics.delete_records({at: Offset(40)})
    with pytest.raises(RangeGone, match=r"begins at offset 40: .* from 10 on") as raised:
        list(read_range(settings, planned(topic, 10, 100)))
    gone = raised.value
    assert (gone.partition, gone.offset, gone.log_start, gone.log_end) == (at, 10, 40, 100)
    assert offsets(read_range(settings, planned(topic, 40, 100))) == list(range(40, 100))


def test_what_was_read_before_a_loss_is_handed_out(
    cluster: Cluster, client: ClusterClient, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are deleted when the first of them have been fetched, and fill no batch yet."""
    topic = new_topic()
    produce(client, topic, 500, size=300)
    settings = ReadSettings(bootstrap=cluster.bootstrap_servers, fetch_bytes=8192)
    next_answer, answers = RangeFetches.next_answer, 0

    def deleting(fetches: RangeFetches) -> tuple[memoryview, AbortedFilter | None]:
        nonlocal answers
        answers += 1
        if answers == 4:
            Admin(client).topics.delete_records({TopicPartition(topic, 0): Offset(400)})
            fetches._pending = None  # the fetch that was sent ahead
        return next_answer(fetches)

    monkeypatch.setattr(RangeFetches, "next_answer", deleting)
    found: list[pa.RecordBatch] = []
    with pytest.raises(RangeGone) as raised:
        found.extend(read_range(settings, planned(topic, 0, 500)))
    assert 0 < raised.value.offset < 400
    assert offsets(found) == list(range(raised.value.offset))


def test_records_that_never_were_are_an_error(
    client: ClusterClient, new_topic: NewTopic, settings: ReadSettings
) -> None:
    topic = new_topic()
    produce(client, topic, 10)
    with pytest.raises(RangeGone, match=r"ends at offset 10: .* from 20 on"):
        list(read_range(settings, planned(topic, 20, 30)))


def test_a_range_that_the_log_does_not_reach_is_given_up_after_the_patience(
    cluster: Cluster, client: ClusterClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    produce(client, topic, 10)
    hasty = ReadSettings(bootstrap=cluster.bootstrap_servers, patience_ms=3000)
    batches = read_range(hasty, planned(topic, 4, 30))
    with pytest.raises(RangeNotReached, match=r"up to offset 10, but .* high watermark 10"):
        list(batches)


def test_a_topic_made_again_under_its_name_is_another(
    cluster: Cluster, client: ClusterClient, new_topic: NewTopic, settings: ReadSettings
) -> None:
    topic = new_topic()
    produce(client, topic, 10)
    with Catalogue(settings) as catalogue:
        before = catalogue.topics([topic])[topic]
        old = planned(topic, 0, 10, topic_id=before.topic_id)
        assert offsets(read_range(settings, old)) == list(range(10))
        Admin(client).topics.delete([topic])
        hasty = replace(settings, patience_ms=2000)  # it might come back
        with pytest.raises(TopicReplaced, match="it was deleted"):
            list(read_range(hasty, old))
        cluster.create_topic(topic, 1, 1)
        produce(client, topic, 10)
        after = catalogue.topics([topic])[topic]
    with pytest.raises(TopicReplaced, match="made again") as raised:
        list(read_range(settings, old))
    assert (raised.value.expected, raised.value.found) == (before.topic_id, after.topic_id)
    anyhow = planned(topic, 0, 10)
    assert offsets(read_range(settings, anyhow)) == list(range(10))


def test_an_unknown_topic_or_partition_is_the_clusters_own_error(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    settings = ReadSettings(bootstrap=cluster.bootstrap_servers, patience_ms=3000)
    with pytest.raises(ProtocolError, match="no topic 'nowhere'"):
        list(read_range(settings, planned("nowhere", 0, 1)))
    wrong = OffsetRange(topic=new_topic(), partition=9, start=0, end=1)
    with pytest.raises(ProtocolError, match="no partition 9"):
        list(read_range(settings, wrong))


def test_errors_travel_between_processes() -> None:
    at = TopicPartition("t", 1)
    one, two = UUID(int=1), UUID(int=2)
    errors: list[ReadError] = [
        RangeGone(at, 5, 9, 20),
        TopicReplaced("t", one, None),
        TopicReplaced("t", one, two),
        EpochDiverged(at, 3, 1, 2),
        RangeNotReached(at, 5, 9, 100, "Nothing."),
    ]
    for error in errors:
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_the_catalogue_tells_what_there_is(
    client: ClusterClient, new_topic: NewTopic, settings: ReadSettings
) -> None:
    topic = new_topic(partitions=2)
    produce(client, topic, 10)
    filled, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    Admin(client).topics.delete_records({filled: Offset(3)})
    with Catalogue(settings) as catalogue:
        facts = catalogue.topics([topic])[topic]
        assert facts.topic_partitions == (filled, empty)
        assert list(catalogue.matching(f"{topic[:-1]}.")) == [topic]
        assert catalogue.matching(topic[:-1]) == {}
        assert catalogue.earliest([filled, empty]) == {filled: 3, empty: 0}
        latest = catalogue.latest([filled, empty])
        assert (latest[filled].offset, latest[empty].offset) == (10, 0)
        epoch = latest[filled].leader_epoch
        assert catalogue.epoch_ends({filled: epoch})[filled].end_offset == 10
        times = catalogue.at_times({filled: 1007, empty: 1007})
        assert times == {filled: 7, empty: None}
        assert catalogue.at_times({filled: 5000}) == {filled: None}
        assert catalogue.latest([]) == {}
        with pytest.raises(ProtocolError, match="no topic 'nowhere'"):
            catalogue.topics(["nowhere"])


@pytest.mark.strandline(brokers=3)
def test_a_leader_may_die_while_its_range_is_read(strandline_cluster: Cluster) -> None:
    strandline_cluster.create_topic("t", 1, 3)
    settings = ReadSettings(
        bootstrap=strandline_cluster.bootstrap_servers, fetch_bytes=8192, batch_bytes=8192
    )
    with ClusterClient(strandline_cluster.bootstrap_servers) as client:
        produce(client, "t", 500, size=300)
        with Catalogue(settings) as catalogue:
            (at,) = catalogue.topics(["t"])["t"].topic_partitions
            end = catalogue.latest([at])[at]
            whole = planned("t", 0, end.offset, leader_epoch=end.leader_epoch)
            rows = []
            for n, batch in enumerate(read_range(settings, whole)):
                rows += offsets([batch])
                if n == 2:
                    strandline_cluster.kill(strandline_cluster.leader_of("t"))
            assert rows == list(range(500))
            produce(client, "t", 10)
            with pytest.raises(EpochDiverged) as raised:
                list(read_range(settings, planned("t", 0, 510, leader_epoch=end.leader_epoch)))
            assert raised.value.offset == 500
            later = catalogue.latest([at])[at]
            assert later.leader_epoch > end.leader_epoch
            assert catalogue.epoch_ends({at: end.leader_epoch})[at].end_offset == 500
            again = planned("t", 480, 510, leader_epoch=later.leader_epoch)
            assert offsets(read_range(settings, again)) == list(range(480, 510))
