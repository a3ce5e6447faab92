"""A stopped broker stays a member of a cluster over ZooKeeper, until it is unregistered (C-12)."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from strandline.client.admin_cluster import ClusterAdmin
from strandline.client.cluster import ClusterClient
from strandline.types import BrokerId
from tests.faults.processes import START_S, until
from tests.faults.zookeeper_cluster import ZooKeeperCluster

TOPIC = "made-meanwhile"


def test_c12_topics_and_a_first_group_are_made_while_a_broker_is_down(
    steady_cluster: ZooKeeperCluster,
) -> None:
    """What ZooKeeper forgets with the broker's ephemeral node is kept elsewhere."""
    cluster = steady_cluster
    cluster.settings["offsets.topic.replication.factor"] = "3"
    for broker in cluster.ids:
        cluster.stop(broker)
        cluster.start(broker)
    down = cluster.ids[-1]
    cluster.stop(down)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 2, 3)])[TOPIC].result(START_S)
    admin.create_partitions([NewPartitions(TOPIC, 3)])[TOPIC].result(START_S)
    for partition in range(3):
        assert cluster.state_of(TOPIC, partition).leader not in (down, -1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(TOPIC, b"x", partition=0)
    assert producer.flush(START_S) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "first"})
    try:
        at = TopicPartition(TOPIC, 0, 1)
        assert consumer.commit(offsets=[at], asynchronous=False)[0].error is None
    finally:
        consumer.close()
    with ClusterClient(cluster.bootstrap) as client:
        found = ClusterAdmin(client).describe()
        assert {each.broker_id for each in found.fenced} == {down}
    cluster.start(down)
    for partition in range(3):
        cluster.wait_until_in_sync(TOPIC, partition)
    cluster.wait_until_in_sync("__consumer_offsets")


def test_a_broker_that_is_gone_for_good_is_unregistered(steady_cluster: ZooKeeperCluster) -> None:
    cluster = steady_cluster
    down = BrokerId(cluster.ids[-1])
    cluster.stop(down)
    with ClusterClient(cluster.bootstrap) as client:
        admin = ClusterAdmin(client)
        assert [each.broker_id for each in admin.describe().fenced] == [down]
        admin.unregister(down)
        assert admin.describe().fenced == ()
    cluster.start(down)
    with ClusterClient(cluster.bootstrap) as client:
        until(
            lambda: len(ClusterAdmin(client).describe().brokers) == 3,
            "the broker again",
            seconds=START_S,
        )
