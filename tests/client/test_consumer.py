"""The consumer's positions against a real broker."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.consumer import Consumer
from strandline.client.fetching import FetchSettings
from strandline.client.offsets import commit_offsets, committed_offsets
from strandline.client.producer import Producer
from strandline.client.start import Start
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.testing import Cluster
from strandline.types import Offset, TopicPartition
from tests.client.conftest import FAST
from tests.client.half_led import HEALTHY, ORPHAN, VALUES, comes_back, half_led

TIME_MS = 1_700_000_000_000


@pytest.fixture
def partition(cluster: ClusterClient, name: str) -> TopicPartition:
    """A partition with the values 0 to 9 at offsets 0 to 9, a second apart, each a batch."""
    Admin(cluster).topics.create(name)
    producer = Producer(cluster)
    for number in range(10):
        producer.send(name, b"%d" % number, timestamp=TIME_MS + 1000 * number)
        producer.flush().raise_failure()
    return TopicPartition(name, 0)


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        (Start.earliest(), 0),
        (Start.earliest(3), 3),
        (Start.latest(), 10),
        (Start.latest(4), 6),
        (Start.latest(400), 0),
        (Start.at_offset(5), 5),
        (Start.at_time(0), 0),
        (Start.at_time(TIME_MS + 4500), 5),
        (Start.at_time(TIME_MS + 9001), 10),
    ],
)
def test_places_are_resolved(
    cluster: ClusterClient, partition: TopicPartition, start: Start, offset: int
) -> None:
    assert Consumer(cluster).resolve({partition: start}) == {partition: offset}


def test_reading_goes_on_where_it_stopped(
    cluster: ClusterClient, partition: TopicPartition
) -> None:
    consumer = Consumer(cluster, FetchSettings(max_bytes=1, partition_max_bytes=1))
    consumer.assign({partition: Start.at_offset(4)})
    values = []
    for _ in range(6):
        (fetched,) = consumer.poll(60_000)
        values += [record.value for record in fetched.records]
        assert consumer.positions[partition] == fetched.next_offset
    assert values == [b"%d" % number for number in range(4, 10)]
    assert consumer.lag() == {partition: 0}
    consumer.seek(partition, Start.latest(1))
    assert [record.value for record in consumer.poll(60_000)[0].records] == [b"9"]


def test_a_poll_at_the_end_waits_for_what_comes(
    cluster: ClusterClient, partition: TopicPartition
) -> None:
    consumer = Consumer(cluster)
    consumer.assign({partition: Start.latest()})
    assert all(not fetched.records for fetched in consumer.poll(20))
    Producer(cluster).send(partition.topic, b"new")
    producer = Producer(cluster)
    producer.send(partition.topic, b"newer")
    producer.flush().raise_failure()
    found = [record.value for fetched in consumer.poll(60_000) for record in fetched.records]
    assert found == [b"newer"]


def test_a_position_outside_the_log(cluster: ClusterClient, partition: TopicPartition) -> None:
    strict = Consumer(cluster)
    strict.assign({partition: Start.at_offset(11)})
    with pytest.raises(ProtocolError, match="no offset 11") as refused:
        strict.poll(60_000)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    lenient = Consumer(cluster, reset=Start.earliest())
    lenient.assign({partition: Start.at_offset(11)})
    assert lenient.poll(60_000)[0].records[0].value == b"0"


def test_deleted_records_are_not_read(cluster: ClusterClient, partition: TopicPartition) -> None:
    assert Admin(cluster).topics.delete_records({partition: Offset(7)}) == {partition: 7}
    consumer = Consumer(cluster)
    consumer.assign({partition: Start.earliest()})
    assert consumer.poll(60_000)[0].records[0].offset == 7


def test_unknown_partitions_are_refused(cluster: ClusterClient, partition: TopicPartition) -> None:
    consumer = Consumer(cluster)
    with pytest.raises(ProtocolError, match="no partition 1"):
        consumer.assign({TopicPartition(partition.topic, 1): Start.earliest()})
    with pytest.raises(ProtocolError, match="There is no topic 'nowhere'"):
        consumer.assign({TopicPartition("nowhere", 0): Start.earliest()})


def test_many_partitions_are_read_fairly(cluster: ClusterClient, name: str) -> None:
    Admin(cluster).topics.create(name, partitions=3)
    producer = Producer(cluster)
    for number in range(30):
        producer.send(name, bytes(1000), partition=number % 3)
        producer.flush().raise_failure()
    consumer = Consumer(cluster, FetchSettings(max_bytes=1))
    consumer.assign({TopicPartition(name, each): Start.earliest() for each in range(3)})
    # As in Kafka, a session's order turns with its incremental answers: the first partition of the
    # full one is served twice.
    seen = [consumer.poll(60_000)[0].topic_partition.partition for _ in range(7)]
    assert set(seen[:4]) == {0, 1, 2}
    assert sorted(seen[1:]) == [0, 0, 1, 1, 2, 2]


def test_offsets_are_kept_for_a_group(
    cluster: ClusterClient, partition: TopicPartition, name: str
) -> None:
    assert committed_offsets(cluster, name) == {}
    commit_offsets(cluster, name, {partition: Offset(4)}, "note")
    stored = committed_offsets(cluster, name, [partition])
    assert (stored[partition].offset, stored[partition].metadata) == (4, "note")
    with pytest.raises(ProtocolError) as refused:
        commit_offsets(cluster, name, {TopicPartition("nowhere", 0): Offset(1)})
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_reader_of_a_rack_reads_there_and_goes_on_at_the_next_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """KIP-392 and KIP-320 on real brokers: who is asked, and what a new leader is asked first."""
    settings = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    }
    at = TopicPartition("t", 0)
    asked: list[tuple[ApiKey, str]] = []
    send = Connection.send

    def recorded(self: Connection, key: ApiKey, *rest: Any, **named: Any) -> Any:
        asked.append((key, str(self.address)))
        return send(self, key, *rest, **named)

    monkeypatch.setattr(Connection, "send", recorded)
    with Cluster(brokers=3, racks=("a", "b", "c"), settings=settings) as brokers:
        brokers.create_topic("t", partitions=1, replication_factor=3)
        leader = brokers.leader_of("t") or 0
        follower = next(each for each in brokers.brokers if each.broker_id != leader)
        rack = follower.rack or ""
        with (
            ClusterClient(brokers.bootstrap_servers, FAST) as cluster,
            Producer(cluster) as producer,
        ):
            consumer = Consumer(cluster, FetchSettings(rack=rack))
            consumer.assign({at: Start.earliest()})
            found: list[bytes | None] = []
            for number in range(5):
                producer.send("t", b"%d" % number)
                producer.flush().raise_failure()
                while len(found) <= number:
                    polled = consumer.poll(60_000)
                    found += [record.value for each in polled for record in each.records]
            assert [where for key, where in asked if key is ApiKey.FETCH][-1] == follower.address
            assert ApiKey.OFFSET_FOR_LEADER_EPOCH not in [key for key, _ in asked]
            brokers.kill(leader)
            producer.send("t", b"5")
            producer.flush().raise_failure()
            while len(found) < 6:
                polled = consumer.poll(60_000)
                found += [record.value for each in polled for record in each.records]
            assert found == [b"%d" % number for number in range(6)]
            assert ApiKey.OFFSET_FOR_LEADER_EPOCH in [key for key, _ in asked]


def values_of(consumer: Consumer, count: int) -> list[bytes | None]:
    """So many values, as they come."""
    found: list[bytes | None] = []
    while len(found) < count:
        polled = consumer.poll(60_000)
        assert polled, f"only {found} came"
        found += [record.value for each in polled for record in each.records]
    return found


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_partition_that_no_broker_gives_stops_no_other(is_noticed: bool) -> None:
    """It has no leader, or one that cannot be reached."""
    with (
        half_led(is_noticed=is_noticed) as brokers,
        ClusterClient(brokers.bootstrap_servers, FAST) as cluster,
    ):
        consumer = Consumer(cluster)
        consumer.assign({ORPHAN: Start.at_offset(0), HEALTHY: Start.at_offset(0)})
        assert values_of(consumer, 3) == VALUES[HEALTHY]
        while consumer.trouble is None:
            consumer.poll(10)
        comes_back(brokers)
        assert values_of(consumer, 1) == VALUES[ORPHAN]
        assert consumer.trouble is None


def test_where_to_begin_is_found_out_when_a_leader_tells_it() -> None:
    with (
        half_led(is_noticed=True) as brokers,
        ClusterClient(brokers.bootstrap_servers, FAST) as cluster,
    ):
        consumer = Consumer(cluster)
        consumer.add({ORPHAN: Start.earliest(), HEALTHY: Start.earliest()})
        assert sorted(consumer.partitions) == [HEALTHY, ORPHAN]
        assert consumer.positions == {HEALTHY: 0}
        assert values_of(consumer, 3) == VALUES[HEALTHY]
        comes_back(brokers)
        assert values_of(consumer, 1) == VALUES[ORPHAN]
        assert consumer.positions == {HEALTHY: 3, ORPHAN: 1}


def test_a_partition_that_is_dropped_before_it_has_a_position_is_forgotten() -> None:
    with (
        half_led(is_noticed=True) as brokers,
        ClusterClient(brokers.bootstrap_servers, FAST) as cluster,
    ):
        consumer = Consumer(cluster)
        consumer.add({ORPHAN: Start.latest(), HEALTHY: Start.earliest()})
        consumer.drop([ORPHAN])
        assert consumer.partitions == [HEALTHY]
        assert values_of(consumer, 3) == VALUES[HEALTHY]
        assert consumer.trouble is None
