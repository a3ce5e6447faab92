"""What a test cluster offers, with the clients that people use."""

from __future__ import annotations

import asyncio
import threading
import warnings
from pathlib import Path

import aiokafka
import pytest
from confluent_kafka import Producer

from strandline.errors import ErrorCode, InvalidSetting, ProtocolError, StorageError
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.testing import Cluster, ClusterError
from tests.alone import run_alone
from tests.broker.harness import Wire
from tests.descriptors import open_descriptors
from tests.testing.load import PATIENCE_S, read_all

with warnings.catch_warnings():
    # The library reads its own files through a deprecated function while it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer

# And whenever it needs another message's schema for the first time.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")


def produce(cluster: Cluster, topic: str, count: int, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(first, first + count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(PATIENCE_S) == 0


def test_records_are_on_all_brokers_and_all_readers_get_them(strandline_cluster: Cluster) -> None:
    cluster = strandline_cluster
    cluster.create_topic("orders", partitions=2, replication_factor=3, retention_ms=-1)
    produce(cluster, "orders", 10)
    assert [number for _, number in read_all(cluster, "orders", 10)] == list(range(10))
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        consumer_timeout_ms=120_000,
    )
    assert sorted(int(next(consumer).value) for _ in range(10)) == list(range(10))
    consumer.close()
    status = cluster.status()
    replicas = status.partition("orders").replicas
    assert [(each.broker_id, each.log_end) for each in replicas] == [
        (each, 10) for each in status.partition("orders").assigned
    ]
    assert {each.role for each in replicas} == {"leader", "follower"}


def test_a_topic_is_known_everywhere_when_it_is_made(strandline_cluster: Cluster) -> None:
    cluster = strandline_cluster
    for number in range(5):
        cluster.create_topic(f"topic-{number}", partitions=3)
        for broker in cluster.brokers:
            with Wire(int(broker.address.rpartition(":")[2])) as wire:
                wanted = MetadataRequestTopic(name=f"topic-{number}")
                (topic,) = wire.ask(MetadataRequest(topics=[wanted]), 9).topics
            assert {each.partition_index for each in topic.partitions} == {0, 1, 2}
            assert all(each.leader_id > 0 for each in topic.partitions)
    with pytest.raises(ProtocolError) as refused:
        cluster.create_topic("topic-0")
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.strandline(session_timeout_ms=60_000)  # that a broker is dead is not noticed
def test_what_it_says_of_itself(strandline_cluster: Cluster) -> None:
    cluster = strandline_cluster
    cluster.create_topic("orders")
    assert len(cluster.bootstrap_servers.split(",")) == 3
    assert [each.broker_id for each in cluster.brokers] == [1, 2, 3]
    assert {each.state for each in cluster.brokers} == {"running"}
    assert cluster.controller in (1, 2, 3)
    assert repr(cluster) == f"<Cluster of 3 brokers at {cluster.bootstrap_servers}>"
    text = str(cluster.status())
    assert text.startswith(f"Cluster of 3 brokers, controller {cluster.controller}\n")
    assert f"{cluster.brokers[1].address}  running" in text
    assert "orders-0" in text
    cluster.pause(2)
    cluster.kill(3)
    assert [each.state for each in cluster.brokers] == ["running", "paused", "down"]
    assert "down, not noticed yet" in str(cluster.status())
    cluster.resume(2)


def test_racks_and_settings() -> None:
    settings = {"num.partitions": 7, "auto.create.topics.enable": True, "min.insync.replicas": 2}
    with Cluster(brokers=2, racks=("east", "west"), settings=settings) as cluster:
        assert [each.rack for each in cluster.brokers] == ["east", "west"]
        produce(cluster, "made-by-use", 1)
        partitions = cluster.status().partitions
        assert [each.partition for each in partitions] == list(range(7))
        assert {len(each.assigned) for each in partitions} == {2}
    with pytest.raises(InvalidSetting, match=r"num\.partitions"):
        Cluster(settings={"num.partition": 7}).open()


def test_a_port_is_a_brokers_own_while_it_is_down(strandline_cluster: Cluster) -> None:
    before = [each.address for each in strandline_cluster.brokers]
    strandline_cluster.kill(1)
    strandline_cluster.stop(2)
    strandline_cluster.start()
    assert [each.address for each in strandline_cluster.brokers] == before
    assert {each.state for each in strandline_cluster.brokers} == {"running"}


def test_stopped_and_started_on_the_same_data(tmp_path: Path) -> None:
    with Cluster(data_dir=tmp_path) as first:
        first.create_topic("orders", replication_factor=3)
        produce(first, "orders", 10)
        first.stop()
        assert {each.state for each in first.brokers} == {"down"}
        first.start()
        produce(first, "orders", 10, first=10)
    with Cluster(data_dir=tmp_path) as second:
        assert [number for _, number in read_all(second, "orders", 20)] == list(range(20))
        second.wait_until_in_sync("orders")
        assert {each.data for each in second.brokers} == {
            (str(tmp_path / f"broker-{number}"),) for number in (1, 2, 3)
        }


def test_one_broker_grows_to_three(tmp_path: Path) -> None:
    with Cluster(brokers=1, data_dir=tmp_path) as alone:
        alone.create_topic("orders")
        produce(alone, "orders", 3)
        assert alone.brokers[0].data == (str(tmp_path),)
    with Cluster(brokers=3, data_dir=tmp_path) as grown:
        grown.create_topic("more", replication_factor=3)
        produce(grown, "more", 3)
        assert len(read_all(grown, "orders", 3)) == 3
    with Cluster(brokers=1, data_dir=tmp_path) as again:
        assert len(read_all(again, "orders", 3)) == 3


def test_a_broker_alone(strandline_broker: Cluster) -> None:
    produce(strandline_broker, "orders", 3)
    assert strandline_broker.leader_of("orders") == 1
    strandline_broker.kill(1)
    strandline_broker.start()
    assert len(read_all(strandline_broker, "orders", 3)) == 3


def test_coroutines_and_an_asyncio_client() -> None:
    async def run() -> list[bytes | None]:
        async with Cluster(brokers=3) as cluster:
            await cluster.create_topic("orders", replication_factor=3)
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers, acks="all", request_timeout_ms=60_000
            )
            consumer = aiokafka.AIOKafkaConsumer(
                "orders",
                bootstrap_servers=cluster.bootstrap_servers,
                auto_offset_reset="earliest",
            )
            await producer.start()
            await consumer.start()
            try:
                await producer.send_and_wait("orders", b"before", partition=0)
                leader = await cluster.leader_of("orders")
                await cluster.kill(leader)
                await cluster.wait_for_leader("orders", other_than=leader)
                await producer.send_and_wait("orders", b"after", partition=0)
                async with asyncio.timeout(PATIENCE_S):
                    return [(await consumer.getone()).value for _ in range(2)]
            finally:
                await consumer.stop()
                await producer.stop()

    assert asyncio.run(run()) == [b"before", b"after"]


def test_mistakes_are_sentences(strandline_cluster: Cluster) -> None:
    cluster = strandline_cluster
    cluster.create_topic("orders", replication_factor=1)
    with pytest.raises(ClusterError, match="There is no broker 4; the brokers are 1, 2, 3"):
        cluster.kill(4)
    with pytest.raises(ClusterError, match="There is no partition 5 of a topic 'orders'"):
        cluster.leader_of("orders", 5)
    with pytest.raises(ClusterError, match="Broker 1 cannot be started: already running"):
        cluster.start(1)
    with pytest.raises(ClusterError, match="Brokers 1, 2 cannot be resumed: not paused"):
        cluster.resume(1, 2)
    with pytest.raises(ClusterError, match="metadata_with"):
        cluster.partition({1}, {2})
    with pytest.raises(ClusterError, match="on both sides"):
        cluster.partition({1, 2}, {2, 3})
    leader = cluster.leader_of("orders")
    cluster.kill(leader)
    with pytest.raises(ClusterError, match=f"Broker {leader} cannot be stopped: not running"):
        cluster.stop(leader)
    with pytest.raises(ClusterError, match=r"After 0\.1 s orders-0 has no such leader") as late:
        cluster.wait_for_leader("orders", other_than=leader, timeout_s=0.1)
    assert "Cluster of 3 brokers" in str(late.value)
    with pytest.raises(ClusterError, match="id is None"):
        cluster.kill(None)
    cluster.close()
    cluster.close()
    with pytest.raises(ClusterError, match="not running"):
        cluster.status()
    assert repr(cluster) == "<Cluster of 3 brokers, not running>"


def fail_in_the_middle(ending: str, seen: list[Path]) -> None:
    with Cluster() as cluster:
        seen.append(cluster.data_dir)
        cluster.create_topic("orders", partitions=3)
        produce(cluster, "orders", 10)
        if ending == "one killed":
            cluster.kill(2)
        elif ending == "one paused":
            cluster.pause(2)
        elif ending == "one cut off":
            cluster.partition({2}, {1, 3})
        raise ZeroDivisionError


@pytest.mark.parametrize("ending", ["all run", "one killed", "one paused", "one cut off"])
def test_nothing_is_left_when_a_test_fails(ending: str) -> None:
    run_alone(end_in_the_middle, ending)


def end_in_the_middle(ending: str) -> None:
    with Cluster():
        pass  # what is made once per process is there now
    threads, files = set(threading.enumerate()), open_descriptors()
    seen: list[Path] = []
    with pytest.raises(ZeroDivisionError):
        fail_in_the_middle(ending, seen)
    assert not seen[0].exists()
    assert set(threading.enumerate()) <= threads
    assert open_descriptors() <= files


def test_a_start_that_fails_leaves_nothing(tmp_path: Path) -> None:
    run_alone(start_twice, str(tmp_path))


def start_twice(data: str) -> None:
    with Cluster(brokers=1, data_dir=data):  # one that opens nothing more by itself
        threads, files = set(threading.enumerate()), open_descriptors()
        with pytest.raises(StorageError, match="lock"):
            Cluster(brokers=1, data_dir=data).open()
        assert set(threading.enumerate()) == threads
        assert open_descriptors() <= files


def test_a_condition_that_asks_the_cluster_is_refused(strandline_cluster: Cluster) -> None:
    """It runs in the thread of the brokers, whose answer it would wait for."""
    cluster = strandline_cluster
    cluster.create_topic("orders")
    with pytest.raises(ClusterError, match="looks at the status that it is given only"):
        cluster.wait_until(lambda status: cluster.leader_of("orders") is not None)
    cluster.wait_until(lambda status: status.partition("orders").leader is not None)
