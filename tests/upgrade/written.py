"""Writes a data directory of three brokers, and what it has to hold, with the release on its path.

`python written.py DIRECTORY clean|killed` runs with an earlier release's code (`PYTHONPATH`), so it
imports only what every release has: `strandline.testing` and foreign clients. It ends with a clean
stop, or by SIGKILL of its own process, in which all three brokers live.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from strandline.testing import Cluster

EXPECTED: Final = "expected.json"
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS: Final = 60
SEGMENT_MS: Final = 15_000
"""Records are a second apart: four segments for each partition."""
BATCH: Final = 5
BEGAN_MS: Final = 1_790_000_000_000
GROUP: Final = "readers"
WAIT_S: Final = 60.0

Records = dict[str, list[list[Any]]]
"""By `topic/partition`: [offset, key, value], as they have to be read."""


def main(home: Path, end: str) -> None:
    """Everything that leaves traces on a disk, then the end."""
    settings = {"offsets.topic.num.partitions": 2}
    cluster = Cluster(brokers=3, settings=settings, data_dir=home / "data").open()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    expected: dict[str, Any] = {"topics": {}, "group": {}, "starts": {}, "settings": {}}

    for codec in CODECS:
        _fill(cluster, f"plain-{codec}", codec)
    cluster.create_topic("accounts", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    _produce(cluster, "accounts", [(f"k{n % 7}", f"balance {n}") for n in range(RECORDS)])
    cluster.create_topic("shortened")
    _produce(cluster, "shortened", [(None, f"line {n}") for n in range(RECORDS)])
    future = admin.delete_records([TopicPartition("shortened", 0, 25)])
    expected["starts"]["shortened/0"] = next(iter(future.values())).result(WAIT_S).low_watermark

    _commit_offsets(cluster, expected["group"])
    _alter(admin, ResourceType.TOPIC, "plain-none", {"max.message.bytes": "900000"}, expected)
    _alter(admin, ResourceType.BROKER, "2", {"message.max.bytes": "2000000"}, expected)
    _leave_one_behind(cluster)

    topics = [f"plain-{codec}" for codec in CODECS] + ["accounts", "shortened", "behind"]
    for topic in topics:
        expected["topics"].update(read(cluster, topic))
    (home / EXPECTED).write_text(json.dumps(expected, indent=1, sort_keys=True))
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    cluster.close()


def _fill(cluster: Cluster, topic: str, codec: str) -> None:
    """Three partitions, several segments each, by an idempotent producer."""
    cluster.create_topic(
        topic, partitions=3, min_insync_replicas=2, retention_ms=-1, segment_ms=SEGMENT_MS
    )
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 1,
        }
    )
    for number in range(RECORDS):
        for partition in range(3):
            value = f"{topic} {partition} {number} " + str(number % 10) * 400
            at_ms = BEGAN_MS + 1000 * number
            producer.produce(topic, value, f"k{number}", partition, timestamp=at_ms)
        if number % BATCH == BATCH - 1:
            assert producer.flush(WAIT_S) == 0


def _produce(cluster: Cluster, topic: str, records: list[tuple[str | None, str]]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for key, value in records:
        producer.produce(topic, value, key, 0)
    assert producer.flush(WAIT_S) == 0


def _commit_offsets(cluster: Cluster, committed: dict[str, int]) -> None:
    """A group that got half way."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": GROUP})
    offsets = [TopicPartition("plain-none", partition, 10 + partition) for partition in range(3)]
    consumer.assign(offsets)
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    committed.update({f"{at.topic}/{at.partition}": at.offset for at in offsets})


def _alter(
    admin: AdminClient,
    kind: ResourceType,
    name: str,
    settings: dict[str, str],
    expected: dict[str, Any],
) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
    expected["settings"][f"{kind.name}:{name}"] = settings


def _leave_one_behind(cluster: Cluster) -> None:
    """A truncation with its ledger entry, and then a replica that is down and behind."""
    cluster.create_topic("behind", partitions=1, replication_factor=3, min_insync_replicas=2)
    _produce(cluster, "behind", [(None, f"early {n}") for n in range(10)])
    leader = cluster.leader_of("behind", 0)
    assert leader is not None
    others = {1, 2, 3} - {leader}
    cluster.partition({leader}, others)
    lonely = Producer(
        {"bootstrap.servers": cluster.brokers[leader - 1].address, "acks": 1, "linger.ms": 0}
    )
    for number in range(5):
        lonely.produce("behind", f"never committed {number}", None, 0)
    lonely.flush(5)
    cluster.wait_for_leader("behind", 0, other_than=leader)
    cluster.heal()
    cluster.wait_until_in_sync("behind")
    _produce(cluster, "behind", [(None, f"late {n}") for n in range(10)])
    follower = next(b for b in (1, 2, 3) if b != cluster.leader_of("behind", 0))
    cluster.stop(follower)
    _produce(cluster, "behind", [(None, f"without one {n}") for n in range(10)])


def read(cluster: Cluster, topic: str) -> Records:
    """All of a topic, as a consumer sees it."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "nothing-is-committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    partitions = sorted(consumer.list_topics(topic, WAIT_S).topics[topic].partitions)
    found: Records = {f"{topic}/{partition}": [] for partition in partitions}
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    waiting = set(partitions)
    while waiting:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"nothing of {topic} within {WAIT_S} s"
        error = message.error()
        if error is not None:
            assert error.name() == "_PARTITION_EOF", str(error)
            waiting.discard(message.partition())
            continue
        key, value = message.key(), message.value()
        assert value is not None
        found[f"{topic}/{message.partition()}"].append(
            [message.offset(), key and key.decode(), value.decode()]
        )
    consumer.close()
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
