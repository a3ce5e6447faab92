"""librdkafka's consumers of the consumer protocol (KIP-848), one of the classic one among them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions

from strandline.testing import Cluster
from tests.clients.librdkafka import assigned, create_topic, done, poll_all, send_all, take
from tests.clients.support import WAIT_SECONDS, BrokerProcess

QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), QUICK) as running:
        yield running
        running.stop()


@contextmanager
def consuming(broker: BrokerProcess, group: str, **more: Any) -> Iterator[Consumer]:
    settings = {
        "bootstrap.servers": broker.address,
        "group.id": group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
    }
    consumer = Consumer(settings | {key.replace("_", "."): value for key, value in more.items()})
    try:
        yield consumer
    finally:
        consumer.close()


def shared(consumers: list[Consumer], topic: str, count: int) -> bool:
    """Whether the consumers share all partitions, none twice, each with its fair part."""
    shares = [assigned(consumer) for consumer in consumers]
    sizes = [len(share) for share in shares]
    everything = {(topic, number) for number in range(count)}
    return (
        sum(sizes) == count and set().union(*shares) == everything and max(sizes) - min(sizes) < 2
    )


def test_members_come_and_go(broker: BrokerProcess, admin: AdminClient, name: str) -> None:
    topic = create_topic(admin, name, 6)
    send_all(broker.address, topic, [b"%d" % number for number in range(60)])
    with ExitStack() as stack:
        members: list[Consumer] = []
        for _ in range(3):
            members.append(stack.enter_context(consuming(broker, name)))
            members[-1].subscribe([topic])
            poll_all(members, lambda: shared(members, topic, 6), "a balanced group")
        described = done(admin.describe_consumer_groups([name])[name])
        assert (described.state, described.type) == (
            ConsumerGroupState.STABLE,
            ConsumerGroupType.CONSUMER,
        )
        assert [len(each.target_assignment.topic_partitions) for each in described.members] == [
            2
        ] * 3
        listed = done(admin.list_consumer_groups()).valid
        assert [each.type for each in listed if each.group_id == name] == [
            ConsumerGroupType.CONSUMER
        ]
        members.pop().close()
        poll_all(members, lambda: shared(members, topic, 6), "a balanced group without one")
        done(admin.create_partitions([NewPartitions(topic, 8)])[topic])
        poll_all(members, lambda: shared(members, topic, 8), "the new partitions")
    described = done(admin.describe_consumer_groups([name])[name])
    assert described.state == ConsumerGroupState.EMPTY
    done(admin.delete_consumer_groups([name])[name])


def test_offsets_are_those_of_a_member(broker: BrokerProcess, topic: str, name: str) -> None:
    send_all(broker.address, topic, [b"%d" % number for number in range(10)])
    with consuming(broker, name) as first:
        first.subscribe([topic])
        take(first, 4)
        first.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    with consuming(broker, name) as second:
        second.subscribe([topic])
        assert [message.offset() for message in take(second, 6)] == list(range(4, 10))
        with consuming(broker, name) as stranger, pytest.raises(KafkaException) as raised:
            stranger.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        assert raised.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
        [stored] = second.committed([TopicPartition(topic, 0)], WAIT_SECONDS)
        assert stored.offset == 4


def test_a_static_member_comes_back_to_what_it_had(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    topic = create_topic(admin, name, 4)
    with consuming(broker, name) as other:
        other.subscribe([topic])
        with consuming(broker, name, group_instance_id="first") as member:
            member.subscribe([topic])
            both = [other, member]
            poll_all(both, lambda: shared(both, topic, 4), "a balanced group")
            had = assigned(member)
        kept = assigned(other)
        with consuming(broker, name, group_instance_id="first") as successor:
            successor.subscribe([topic])
            both = [other, successor]
            poll_all(both, lambda: assigned(successor) == had, "its partitions")
            assert assigned(other) == kept


def test_topics_by_a_pattern(broker: BrokerProcess, admin: AdminClient, name: str) -> None:
    pytest.importorskip("re2")
    one = create_topic(admin, f"{name}-one", 1)
    create_topic(admin, f"other-{name}", 1)
    with consuming(broker, name) as member:
        member.subscribe([f"^{name}-.*"])
        poll_all([member], lambda: assigned(member) == {(one, 0)}, "the topic of the pattern")


def test_members_of_both_protocols_share_a_topic(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    topic = create_topic(admin, name, 6)
    classic = {"group_protocol": "classic", "partition_assignment_strategy": "range"}
    with ExitStack() as stack:
        members = [
            stack.enter_context(consuming(broker, name, **classic, heartbeat_interval_ms=200))
            for _ in range(2)
        ]
        for member in members:
            member.subscribe([topic])
        poll_all(members, lambda: shared(members, topic, 6), "a balanced classic group")
        with consuming(broker, name) as newer:
            newer.subscribe([topic])
            members_now = [*members, newer]
            poll_all(members_now, lambda: shared(members_now, topic, 6), "a balanced group of both")
            described = done(admin.describe_consumer_groups([name])[name])
            assert described.type == ConsumerGroupType.CONSUMER
        poll_all(members, lambda: shared(members, topic, 6), "the classic group again")
        described = done(admin.describe_consumer_groups([name])[name])
        assert described.type == ConsumerGroupType.CLASSIC


def test_a_group_goes_on_after_its_coordinator_was_killed(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    with BrokerProcess(tmp_path_factory.mktemp("killed"), QUICK) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        topic = create_topic(admin, name, 4)
        with consuming(broker, name) as first, consuming(broker, name) as second:
            both = [first, second]
            for member in both:
                member.subscribe([topic])
            poll_all(both, lambda: shared(both, topic, 4), "a balanced group")
            before = [assigned(member) for member in both]
            broker.kill()
            broker.start()
            send_all(broker.address, topic, [b"%d" % number for number in range(8)])
            read = 0
            while read < 8:
                for member in both:
                    message = member.poll(0.05)
                    read += message is not None and message.error() is None
            assert [assigned(member) for member in both] == before


def test_a_group_goes_on_while_its_coordinator_fails_over(name: str) -> None:
    """Another broker takes over from the log: members keep what they have, and read on."""
    settings = QUICK | {"offsets.topic.num.partitions": "1"}
    with Cluster(brokers=3, settings=settings) as cluster, ExitStack() as stack:
        cluster.create_topic(name, partitions=4, replication_factor=3)
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": name,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
        members = [Consumer(settings) for _ in range(2)]
        for member in members:
            stack.callback(member.close)
            member.subscribe([name])
        poll_all(members, lambda: shared(members, name, 4), "a balanced group")
        before = [assigned(member) for member in members]
        coordinator = cluster.leader_of("__consumer_offsets")
        cluster.kill(coordinator)
        send_all(cluster.bootstrap_servers, name, [b"%d" % number for number in range(8)])
        read = 0
        while read < 8:
            for member in members:
                message = member.poll(0.05)
                read += message is not None and message.error() is None
        assert [assigned(member) for member in members] == before
        assert cluster.leader_of("__consumer_offsets") != coordinator
        members[1].close()
        poll_all(members[:1], lambda: shared(members[:1], name, 4), "all partitions")
