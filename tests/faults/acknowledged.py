"""Everything that was acknowledged, and everything that is there: for runs with one producer."""

from __future__ import annotations

from collections import Counter
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.faults.cluster import ClusterProcesses
from tests.faults.run import TOPIC

READ_S: Final = 60.0


def produce_all(cluster: ClusterProcesses, records: int) -> tuple[set[bytes], Counter[int]]:
    """Send records with acks=all, each once; what was acknowledged, and why the others were not."""
    acknowledged: set[bytes] = set()
    refused: Counter[int] = Counter()

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.add(message.value() or b"")
        else:
            refused[error.code()] += 1

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "retries": 0})
    for number in range(records):
        producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=delivered)
        producer.flush()
    return acknowledged, refused


def read_all(cluster: ClusterProcesses) -> set[bytes]:
    """Everything that the partition has in the end."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "all", "enable.partition.eof": True}
    )
    values = set()
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while True:
            message = consumer.poll(READ_S)
            assert message is not None, "the partition cannot be read"
            error = message.error()
            if error is None:
                values.add(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                return values
            else:
                assert error.retriable(), error
    finally:
        consumer.close()
