"""Topics that appear, vanish and come back while librdkafka's clients use them; restarts."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.librdkafka import (
    Deliveries,
    consuming,
    create_topic,
    delete_topic,
    error_of,
    read_partition,
    send_all,
    take,
)
from tests.clients.support import WAIT_SECONDS, BrokerProcess, until


def test_creation_by_the_first_record(broker: BrokerProcess, admin: AdminClient, name: str) -> None:
    [message] = send_all(broker.address, name, [b"first"])
    assert (message.partition(), message.offset()) == (0, 0)
    assert len(admin.list_topics(name, WAIT_SECONDS).topics[name].partitions) == 1


def test_consumers_do_not_create_topics(
    broker: BrokerProcess, admin: AdminClient, name: str
) -> None:
    with consuming(broker.address, name) as consumer:
        consumer.subscribe([name])
        refused = until(lambda: consumer.poll(0.1), "the error")
        assert error_of(refused).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert name not in admin.list_topics(timeout=WAIT_SECONDS).topics


def test_creation_can_be_switched_off(own_broker: BrokerProcess) -> None:
    own_broker.stop()
    own_broker.settings["auto.create.topics.enable"] = "false"
    own_broker.start()
    deliveries = Deliveries(own_broker.address, {"topic.metadata.propagation.max.ms": 100})
    deliveries.send("absent", b"v")
    assert deliveries.refusals() == [KafkaError.UNKNOWN_TOPIC_OR_PART]


def recreate_topic(admin: AdminClient, topic: str) -> None:
    """Create a topic again that running producers may bring back at any moment by themselves."""
    try:
        create_topic(admin, topic, 4)
    except KafkaException as error:
        assert error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS  # noqa: PT017


def test_recreation_under_a_producer(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    """A running producer goes on with the new topic, whose offsets start at zero."""
    settings = {"topic.metadata.refresh.interval.ms": 100, "retry.backoff.ms": 20}
    for idempotent in (False, True):
        deliveries = Deliveries(broker.address, {**settings, "enable.idempotence": idempotent})
        for n in range(10):
            deliveries.send(topic, b"old %d" % n, partition=0)
        deliveries.flush()
        delete_topic(admin, topic)
        recreate_topic(admin, topic)

        def written(deliveries: Deliveries = deliveries) -> bool:
            deliveries.delivered.clear()
            deliveries.failed.clear()
            deliveries.send(topic, b"new", partition=0)
            deliveries.settle()
            return bool(deliveries.delivered)

        until(written, "a record in the new topic")
        [message] = deliveries.delivered
        assert message.offset() == 0
        [read] = read_partition(broker.address, topic, 0, 1)
        assert read.value() == b"new"


def test_recreation_under_a_consumer(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    """A running consumer finds the new topic and starts over in it."""
    send_all(broker.address, topic, [b"old %d" % n for n in range(10)])
    settings = {"topic.metadata.refresh.interval.ms": 100, "group.id": f"{topic}-reader"}
    with consuming(broker.address, topic, settings) as consumer:
        consumer.subscribe([topic])
        assert take(consumer, 10)[-1].value() == b"old 9"
        delete_topic(admin, topic)
        create_topic(admin, topic, 4)
        send_all(broker.address, topic, [b"new %d" % n for n in range(3)])

        def record() -> bytes | None:
            # While the topic is gone its readers are told so; that is no failure here.
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                return None
            return message.value()

        assert [until(record, "a new record") for _ in range(3)] == [b"new 0", b"new 1", b"new 2"]


def test_restart_under_a_producer(own_broker: BrokerProcess) -> None:
    """An idempotent producer loses and doubles nothing when the broker is restarted or killed."""
    admin = AdminClient({"bootstrap.servers": own_broker.address})
    topic = create_topic(admin, "steady", 1)
    deliveries = Deliveries(
        own_broker.address,
        {"enable.idempotence": True, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20},
    )
    for part, interrupt in enumerate([own_broker.stop, own_broker.kill]):
        for n in range(500):
            deliveries.send(topic, b"%d" % (part * 1000 + n), partition=0)
        deliveries.producer.poll(0)
        interrupt()
        for n in range(500, 1000):
            deliveries.send(topic, b"%d" % (part * 1000 + n), partition=0)
        own_broker.start()
        deliveries.flush()
    values = [message.value() for message in read_partition(own_broker.address, topic, 0, 2000)]
    assert values == [b"%d" % n for n in range(2000)]
    with consuming(own_broker.address, "not-used") as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_SECONDS) == (0, 2000)


def test_topics_survive_restarts(own_broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": own_broker.address})
    for n in range(3):
        create_topic(admin, f"t{n}", n + 1, {"retention.ms": str(10**9 + n)})
    delete_topic(admin, "t1")
    before = admin.list_topics(timeout=WAIT_SECONDS)
    own_broker.restart()
    own_broker.kill()
    own_broker.start()
    after = AdminClient({"bootstrap.servers": own_broker.address}).list_topics(timeout=WAIT_SECONDS)
    assert after.cluster_id == before.cluster_id
    assert {name: len(topic.partitions) for name, topic in after.topics.items()} == {
        "t0": 1,
        "t2": 3,
    }
