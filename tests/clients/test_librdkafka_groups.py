"""Consumer groups of librdkafka: membership, rebalances, commits."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.clients.librdkafka import (
    Deliveries,
    assigned,
    consuming,
    create_topic,
    done,
    error_of,
    poll_all,
    send_all,
    take,
    values_of,
)
from tests.clients.support import WAIT_SECONDS, BrokerProcess, until


def balanced(consumers: list[Consumer], topic: str, partitions: int) -> bool:
    """Whether the consumers share all partitions, none twice, each with its fair part."""
    shares = [assigned(consumer) for consumer in consumers]
    sizes = [len(share) for share in shares]
    return (
        sum(sizes) == partitions
        and set().union(*shares) == {(topic, n) for n in range(partitions)}
        and max(sizes) - min(sizes) <= 1
    )


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_rebalances(broker: BrokerProcess, admin: AdminClient, name: str, strategy: str) -> None:
    """Members come and go; every record is read by exactly one of the members at a time."""
    topic = create_topic(admin, name, 6)
    settings = {"partition.assignment.strategy": strategy}
    with ExitStack() as stack:
        consumers: list[Consumer] = []
        for _ in range(3):
            consumer = stack.enter_context(consuming(broker.address, name, settings))
            consumer.subscribe([topic])
            consumers.append(consumer)
            poll_all(consumers, lambda: balanced(consumers, topic, 6), "a balanced group")
        deliveries = Deliveries(broker.address)
        for n in range(60):
            deliveries.send(topic, b"%d" % n, partition=n % 6)
        deliveries.flush()
        read: list[bytes] = []
        for consumer in consumers:
            read += values_of(take(consumer, 20))
        assert sorted(read, key=int) == [b"%d" % n for n in range(60)]
        consumers.pop().close()
        poll_all(consumers, lambda: balanced(consumers, topic, 6), "two members to share all")
        consumers.pop(0).close()
        poll_all(consumers, lambda: balanced(consumers, topic, 6), "one member to have all")


def test_cooperative_members_keep_what_they_have(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    topic = create_topic(admin, name, 6)
    revoked: list[TopicPartition] = []
    settings = {"partition.assignment.strategy": "cooperative-sticky"}
    with (
        consuming(broker.address, name, settings) as first,
        consuming(broker.address, name, settings) as second,
    ):
        first.subscribe([topic], on_revoke=lambda _, parts: revoked.extend(parts))
        poll_all([first], lambda: balanced([first], topic, 6), "the first member to have all")
        second.subscribe([topic])
        poll_all([first, second], lambda: balanced([first, second], topic, 6), "a balanced group")
        assert len(revoked) == 3


def test_commits(broker: BrokerProcess, topic: str, name: str) -> None:
    send_all(broker.address, topic, [b"%d" % n for n in range(30)])
    part = TopicPartition(topic, 0)
    with consuming(broker.address, name) as consumer:
        consumer.subscribe([topic])
        messages = take(consumer, 10)
        [committed] = consumer.commit(message=messages[-1], asynchronous=False)
        assert (committed.offset, committed.error) == (10, None)
        [stored] = consumer.committed([part], WAIT_SECONDS)
        assert stored.offset == 10
    with consuming(broker.address, name) as consumer:
        consumer.subscribe([topic])
        assert [message.offset() for message in take(consumer, 5)] == [10, 11, 12, 13, 14]
        consumer.commit(offsets=[TopicPartition(topic, 0, 25)], asynchronous=True)
        until(
            lambda: consumer.committed([part], WAIT_SECONDS)[0].offset == 25, "the commit to arrive"
        )
    with consuming(broker.address, name) as consumer:
        consumer.subscribe([topic])
        assert [message.offset() for message in take(consumer, 5)] == list(range(25, 30))
        [never] = consumer.committed([TopicPartition(topic, 3)], WAIT_SECONDS)
        assert never.offset == OFFSET_INVALID


def test_commit_with_metadata(broker: BrokerProcess, topic: str, name: str) -> None:
    part = TopicPartition(topic, 1, 7, "where I was ✓")
    with consuming(broker.address, name) as consumer:
        consumer.commit(offsets=[part], asynchronous=False)
        [stored] = consumer.committed([TopicPartition(topic, 1)], WAIT_SECONDS)
        assert (stored.offset, stored.metadata) == (7, "where I was ✓")
        with pytest.raises(KafkaException) as caught:
            consumer.commit(offsets=[TopicPartition(topic, 1, 8, "m" * 5000)], asynchronous=False)
        assert caught.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE


def test_automatic_commits(broker: BrokerProcess, topic: str, name: str) -> None:
    send_all(broker.address, topic, [b"%d" % n for n in range(20)])
    settings = {"enable.auto.commit": True, "auto.commit.interval.ms": 50}
    with consuming(broker.address, name, settings) as consumer:
        consumer.subscribe([topic])
        take(consumer, 20)
        until(
            lambda: consumer.committed([TopicPartition(topic, 0)], WAIT_SECONDS)[0].offset == 20,
            "an automatic commit",
        )


def test_commit_of_a_stranger(broker: BrokerProcess, topic: str, name: str) -> None:
    """Who is no member must not overwrite the offsets of those who are."""
    with consuming(broker.address, name) as first, consuming(broker.address, name) as second:
        first.subscribe([topic])
        poll_all([first], lambda: balanced([first], topic, 4), "the first member to have all")
        second.subscribe([topic])
        poll_all([first, second], lambda: balanced([first, second], topic, 4), "two members")
        with (
            consuming(broker.address, name) as stranger,
            pytest.raises(KafkaException) as caught,
        ):
            stranger.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        assert caught.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID


def test_member_that_vanishes_is_replaced(broker: BrokerProcess, topic: str, name: str) -> None:
    """A member that stops polling loses its partitions after max.poll.interval.ms."""
    settings = {"session.timeout.ms": 4000, "max.poll.interval.ms": 4000}
    with (
        consuming(broker.address, name, settings) as silent,
        consuming(broker.address, name) as lively,
    ):
        silent.subscribe([topic])
        poll_all([silent], lambda: balanced([silent], topic, 4), "the first member to have all")
        lively.subscribe([topic])
        poll_all([lively], lambda: balanced([lively], topic, 4), "the other to take all over")
        # It hears of it at its next poll. (librdkafka hangs if it is closed before it has heard.)
        told = until(lambda: silent.poll(0.1), "the silent member to be told")
        assert error_of(told).code() == KafkaError._MAX_POLL_EXCEEDED


def test_static_member_restarts_without_a_rebalance(
    broker: BrokerProcess, admin: AdminClient, topic: str, name: str
) -> None:
    def settings(instance: str) -> dict[str, object]:
        return {"group.instance.id": instance, "session.timeout.ms": 30_000}

    with consuming(broker.address, name, settings("one")) as one:
        events: list[str] = []
        one.subscribe(
            [topic],
            on_assign=lambda *_: events.append("assign"),
            on_revoke=lambda *_: events.append("revoke"),
        )
        with consuming(broker.address, name, settings("two")) as two:
            two.subscribe([topic])
            poll_all([one, two], lambda: balanced([one, two], topic, 4), "a balanced group")
            had = assigned(two)
        events.clear()
        with consuming(broker.address, name, settings("two")) as again:
            again.subscribe([topic])
            poll_all([one, again], lambda: bool(assigned(again)), "the member to be back")
            assert assigned(again) == had
            send_all(broker.address, topic, [b"x"], partition=min(had)[1])
            assert len(take(again, 1)) == 1
            assert events == []
            group = done(admin.describe_consumer_groups([name])[name])
            assert sorted(m.group_instance_id for m in group.members) == ["one", "two"]


def test_two_members_with_one_instance_id(broker: BrokerProcess, topic: str, name: str) -> None:
    """The newer one wins; the older one is fenced for good."""
    settings = {"group.instance.id": "same"}
    with (
        consuming(broker.address, name, settings) as older,
        consuming(broker.address, name, settings) as newer,
    ):
        older.subscribe([topic])
        poll_all([older], lambda: balanced([older], topic, 4), "the first member to have all")
        newer.subscribe([topic])
        poll_all([newer], lambda: balanced([newer], topic, 4), "the second to have all")
        fenced = until(lambda: older.poll(0.1), "the older member to be fenced")
        assert error_of(fenced).code() == KafkaError._FATAL
        assert "same group.instance.id" in error_of(fenced).str()


def test_subscription_by_pattern(broker: BrokerProcess, admin: AdminClient, name: str) -> None:
    """Topics that appear later and match are taken in."""
    first = create_topic(admin, f"{name}-a", 2)
    settings = {"topic.metadata.refresh.interval.ms": 200}
    with consuming(broker.address, name, settings) as consumer:
        consumer.subscribe([f"^{name}-.*"])
        poll_all(
            [consumer], lambda: assigned(consumer) == {(first, 0), (first, 1)}, "the first topic"
        )
        second = create_topic(admin, f"{name}-b", 1)
        poll_all(
            [consumer],
            lambda: assigned(consumer) == {(first, 0), (first, 1), (second, 0)},
            "the second topic",
        )


def test_new_partitions_are_taken_in(broker: BrokerProcess, admin: AdminClient, name: str) -> None:
    topic = create_topic(admin, name, 1)
    settings = {"topic.metadata.refresh.interval.ms": 200}
    with consuming(broker.address, name, settings) as consumer:
        consumer.subscribe([topic])
        poll_all([consumer], lambda: balanced([consumer], topic, 1), "the only partition")
        done(admin.create_partitions([NewPartitions(topic, 3)])[topic])
        poll_all([consumer], lambda: balanced([consumer], topic, 3), "the new partitions")
        send_all(broker.address, topic, [b"new"], partition=2)
        [message] = take(consumer, 1)
        assert (message.partition(), message.value()) == (2, b"new")


def test_members_of_unlike_protocols(broker: BrokerProcess, topic: str, name: str) -> None:
    """A member whose assignors no other member shares is refused, and the group goes on."""
    with (
        consuming(broker.address, name, {"partition.assignment.strategy": "range"}) as member,
        consuming(
            broker.address, name, {"partition.assignment.strategy": "roundrobin"}
        ) as stranger,
    ):
        member.subscribe([topic])
        poll_all([member], lambda: balanced([member], topic, 4), "the member to have all")
        stranger.subscribe([topic])
        refused = until(lambda: stranger.poll(0.1), "the refusal")
        assert error_of(refused).code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        assert member.poll(0.1) is None
        assert balanced([member], topic, 4)


def test_groups_survive_a_restart(own_broker: BrokerProcess, name: str) -> None:
    """Offsets are there after a restart, and running members find their way back."""
    admin = AdminClient({"bootstrap.servers": own_broker.address})
    topic = create_topic(admin, name, 2)
    send_all(own_broker.address, topic, [b"%d" % n for n in range(20)])
    settings = {"reconnect.backoff.max.ms": 200}
    with consuming(own_broker.address, name, settings) as consumer:
        consumer.subscribe([topic])
        messages = take(consumer, 10)
        consumer.commit(message=messages[-1], asynchronous=False)
        take(consumer, 10)
        own_broker.restart()
        send_all(own_broker.address, topic, [b"after"])
        # The connection's end may be told as an event; only records matter here.
        seen = until(
            lambda: [m for m in [consumer.poll(0.1)] if m is not None and m.error() is None],
            "a record after the restart",
        )
        assert seen[0].value() == b"after"
    with consuming(own_broker.address, name) as consumer:
        [stored] = consumer.committed([TopicPartition(topic, 0)], WAIT_SECONDS)
        assert stored.offset == 10
    group = done(admin.describe_consumer_groups([name])[name])
    assert group.state == ConsumerGroupState.EMPTY


def test_offsets_survive_a_kill(own_broker: BrokerProcess, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": own_broker.address})
    topic = create_topic(admin, name, 1)
    send_all(own_broker.address, topic, [b"%d" % n for n in range(20)])
    with consuming(own_broker.address, name) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 13)], asynchronous=False)
    own_broker.kill()
    own_broker.start()
    with consuming(own_broker.address, name) as consumer:
        consumer.subscribe([topic])
        assert [message.offset() for message in take(consumer, 7)] == list(range(13, 20))
