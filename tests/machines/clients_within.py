"""Foreign clients, run in a network of its own. Arguments: ADDRESS TOPIC VALUE...

The values are in the topic already. Each client produces one more and reads all that are there.
Prints a line of JSON: what each has read.
"""

from __future__ import annotations

import json
import sys

from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

PATIENCE_S = 120.0


def with_librdkafka(address: str, topic: str, count: int) -> list[str]:
    """One more record, and this many."""
    producer = Producer({"bootstrap.servers": address})
    producer.produce(topic, b"librdkafka", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    group = {"group.id": "librdkafka", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": address, **group})
    consumer.subscribe([topic])
    found = consumer.consume(count, PATIENCE_S)
    consumer.close()
    return [(each.value() or b"").decode() for each in found]


def with_kafka_python(address: str, topic: str, count: int) -> list[str]:
    """The same."""
    producer = KafkaProducer(bootstrap_servers=address)
    producer.send(topic, b"kafka-python", partition=0).get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=address, group_id="python", auto_offset_reset="earliest"
    )
    found = [next(consumer).value.decode() for _ in range(count)]
    consumer.close()
    return found


def main() -> None:
    """See the module."""
    address, topic, *present = sys.argv[1:]
    count = len(present) + 1
    read = [with_librdkafka(address, topic, count), with_kafka_python(address, topic, count + 1)]
    print(json.dumps(read))


if __name__ == "__main__":
    main()
