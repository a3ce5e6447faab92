"""MirrorMaker 2: a topic and the offsets of its group come to another cluster."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from tests.java.neighbours.rig import PATIENCE_S, Rig, consumer, produce, read, until

TOPIC = "orders"
RECORDS = [(f"key {number % 7}", f"value {number}") for number in range(300)]


def run(rig: Rig) -> str:
    """From one cluster of ours to another one, both with the topics of MirrorMaker."""
    here, there = rig.cluster(), rig.cluster()
    here.create_topic(TOPIC, partitions=2, replication_factor=3)
    produce(here.bootstrap_servers, TOPIC, RECORDS)
    settings: dict[str, object] = {
        "clusters": "here, there",
        "here.bootstrap.servers": here.bootstrap_servers,
        "there.bootstrap.servers": there.bootstrap_servers,
        "here->there.enabled": "true",
        "there->here.enabled": "false",
        "here->there.topics": TOPIC,
        "here->there.groups": "shop",
        "replication.factor": 3,
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": 1,
        "emit.checkpoints.interval.seconds": 1,
        "refresh.groups.interval.seconds": 1,
        "refresh.topics.interval.seconds": 2,
        "offset.lag.max": 0,
        "plugin.discovery": "service_load",
        "offset.storage.partitions": 1,
        "status.storage.partitions": 1,
    }
    program = rig.java(
        "org.apache.kafka.connect.mirror.MirrorMaker", rig.properties("mirror.properties", settings)
    )
    with consumer(there.bootstrap_servers, "judge", "^here[.]orders$") as reader:
        first = read(reader, len(RECORDS), program.complaint)
        assert sorted(first) == sorted(RECORDS)
        more = [(f"key {number}", f"later {number}") for number in range(20)]
        produce(here.bootstrap_servers, TOPIC, more)
        assert sorted(read(reader, len(more), program.complaint)) == sorted(more)

    # MirrorMaker translates only what is committed behind the newest offset that it knew when it
    # started: so the group reads now.
    with consumer(here.bootstrap_servers, "shop", TOPIC) as reader:
        has_read = len(read(reader, len(RECORDS) + len(more), str))
        reader.commit(asynchronous=False)

    def translated() -> bool:
        return sum(_committed(there.bootstrap_servers, "shop")) > 0

    until(translated, "offsets of the group", program.complaint)
    offsets = _committed(there.bootstrap_servers, "shop")
    assert sum(offsets) <= has_read  # it may read some again there, and misses none
    return f"{has_read} records, and {sum(offsets)} of them read by the group there, too"


def _committed(bootstrap: str, group: str) -> list[int]:
    asking = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        partitions = [TopicPartition("here.orders", number) for number in range(2)]
        found = asking.committed(partitions, PATIENCE_S)
        return [max(0, each.offset) for each in found]  # below 0: none
    finally:
        asking.close()
