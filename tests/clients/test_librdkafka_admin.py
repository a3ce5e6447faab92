"""librdkafka's admin client: topics, settings, groups, offsets, the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from tests.clients.librdkafka import (
    Deliveries,
    assigned,
    consuming,
    create_topic,
    delete_topic,
    done,
    poll_all,
    refused,
    send_all,
    take,
)
from tests.clients.support import WAIT_SECONDS, BrokerProcess, until


def error_code(future: Any) -> int:
    """The error with which an admin call must fail."""
    with pytest.raises(KafkaException) as caught:
        done(future)
    code: int = caught.value.args[0].code()
    return code


# -- topics ------------------------------------------------------------------------------------


def test_topic_life(admin: AdminClient, name: str) -> None:
    create_topic(admin, name, 3, {"retention.ms": "86400000", "cleanup.policy": "delete"})
    assert error_code(admin.create_topics([NewTopic(name, 1, 1)])[name]) == (
        KafkaError.TOPIC_ALREADY_EXISTS
    )
    assert sorted(admin.list_topics(name, WAIT_SECONDS).topics[name].partitions) == [0, 1, 2]
    delete_topic(admin, name)
    assert name not in admin.list_topics(timeout=WAIT_SECONDS).topics
    assert error_code(admin.delete_topics([name])[name]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_many_topics_at_once(admin: AdminClient, name: str) -> None:
    """Each topic has its own outcome; a bad one does not spoil the others."""
    good = [f"{name}-{n}" for n in range(5)]
    bad = {
        "spaces are not allowed": KafkaError.TOPIC_EXCEPTION,
        f"{name}-replicas": KafkaError.INVALID_REPLICATION_FACTOR,
        f"{name}-config": KafkaError.INVALID_CONFIG,
    }
    futures = admin.create_topics(
        [
            *(NewTopic(topic, 2, 1) for topic in good),
            NewTopic("spaces are not allowed", 1, 1),
            NewTopic(f"{name}-replicas", 1, 3),
            NewTopic(f"{name}-config", 1, 1, config={"retention.ms": "soon"}),
        ]
    )
    for topic in good:
        done(futures[topic])
    assert {topic: error_code(futures[topic]) for topic in bad} == bad
    topics = admin.list_topics(timeout=WAIT_SECONDS).topics
    assert set(good) <= set(topics)
    assert not set(bad) & set(topics)
    for future in admin.delete_topics(good).values():
        done(future)


def test_validate_only(admin: AdminClient, name: str) -> None:
    done(admin.create_topics([NewTopic(name, 3, 1)], validate_only=True)[name])
    assert name not in admin.list_topics(timeout=WAIT_SECONDS).topics


def test_manual_assignment(admin: AdminClient, broker: BrokerProcess, name: str) -> None:
    [node] = admin.list_topics(timeout=WAIT_SECONDS).brokers
    new = NewTopic(name, num_partitions=2, replica_assignment=[[node], [node]])
    done(admin.create_topics([new])[name])
    assert sorted(admin.list_topics(name, WAIT_SECONDS).topics[name].partitions) == [0, 1]
    wrong = NewTopic(f"{name}-wrong", num_partitions=1, replica_assignment=[[node + 7]])
    assert error_code(admin.create_topics([wrong])[wrong.topic]) == (
        KafkaError.INVALID_REPLICA_ASSIGNMENT
    )


def test_more_partitions(admin: AdminClient, topic: str, broker: BrokerProcess) -> None:
    assert error_code(admin.create_partitions([NewPartitions(topic, 4)])[topic]) == (
        KafkaError.INVALID_PARTITIONS
    )
    assert error_code(admin.create_partitions([NewPartitions(topic, 2)])[topic]) == (
        KafkaError.INVALID_PARTITIONS
    )
    done(admin.create_partitions([NewPartitions(topic, 6)])[topic])
    assert len(admin.list_topics(topic, WAIT_SECONDS).topics[topic].partitions) == 6
    [message] = send_all(broker.address, topic, [b"v"], partition=5)
    assert (message.partition(), message.offset()) == (5, 0)


def test_describe_topics(admin: AdminClient, topic: str) -> None:
    futures = admin.describe_topics(
        TopicCollection([topic, f"{topic}-missing"]), include_authorized_operations=True
    )
    described = done(futures[topic])
    assert described.name == topic
    assert not described.is_internal
    assert str(described.topic_id)
    assert [part.id for part in described.partitions] == [0, 1, 2, 3]
    for part in described.partitions:
        assert [node.id for node in part.replicas] == [part.leader.id]
        assert [node.id for node in part.isr] == [part.leader.id]
    assert described.authorized_operations
    assert error_code(futures[f"{topic}-missing"]) == KafkaError.UNKNOWN_TOPIC_OR_PART


# -- settings ----------------------------------------------------------------------------------


def settings_of(admin: AdminClient, resource: ConfigResource) -> dict[str, ConfigEntry]:
    found: dict[str, ConfigEntry] = done(admin.describe_configs([resource])[resource])
    return found


def test_topic_settings(admin: AdminClient, name: str) -> None:
    topic = create_topic(admin, name, 1, {"retention.ms": "1234567"})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = settings_of(admin, resource)
    retention = found["retention.ms"]
    assert retention.value == "1234567"
    source: object = retention.source  # a number, whatever its annotation says
    assert source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not retention.is_read_only
    assert found["cleanup.policy"].value == "delete"
    assert found["cleanup.policy"].is_default
    assert found["max.message.bytes"].value == "1048588"


def test_incremental_changes(admin: AdminClient, name: str) -> None:
    topic = create_topic(admin, name, 1, {"retention.ms": "1000000"})

    def change(setting: str, value: str | None, operation: AlterConfigOpType) -> Any:
        resource = ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[ConfigEntry(setting, value, incremental_operation=operation)],
        )
        return admin.incremental_alter_configs([resource])[resource]

    def values() -> dict[str, str | None]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return {entry.name: entry.value for entry in settings_of(admin, resource).values()}

    done(change("segment.bytes", "2097152", AlterConfigOpType.SET))
    done(change("cleanup.policy", "compact", AlterConfigOpType.APPEND))
    assert (values()["segment.bytes"], values()["retention.ms"]) == ("2097152", "1000000")
    assert set((values()["cleanup.policy"] or "").split(",")) == {"delete", "compact"}
    done(change("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT))
    assert values()["cleanup.policy"] == "compact"
    done(change("retention.ms", None, AlterConfigOpType.DELETE))
    assert values()["retention.ms"] == "604800000"
    assert error_code(change("retention.ms", "soon", AlterConfigOpType.SET)) == (
        KafkaError.INVALID_CONFIG
    )
    assert error_code(change("no.such.setting", "1", AlterConfigOpType.SET)) == (
        KafkaError.INVALID_CONFIG
    )


def test_changes_take_effect(admin: AdminClient, broker: BrokerProcess, name: str) -> None:
    topic = create_topic(admin, name)
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "500", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    send_all(broker.address, topic, [b"x" * 1000])
    done(admin.incremental_alter_configs([resource])[resource])
    assert refused(broker.address, topic, b"x" * 1000) == KafkaError.MSG_SIZE_TOO_LARGE


def test_replacing_changes(admin: AdminClient, name: str) -> None:
    """The older call: what is not named loses its override."""
    topic = create_topic(admin, name, 1, {"retention.ms": "1000000"})
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.bytes": "3145728"})
    with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
        futures = admin.alter_configs([resource])
    done(futures[resource])
    found = settings_of(admin, ConfigResource(ResourceType.TOPIC, topic))
    assert (found["segment.bytes"].value, found["retention.ms"].value) == ("3145728", "604800000")


def test_broker_settings(admin: AdminClient) -> None:
    [node] = admin.list_topics(timeout=WAIT_SECONDS).brokers
    found = settings_of(admin, ConfigResource(ResourceType.BROKER, str(node)))
    assert found["log.dirs"].is_read_only
    assert found["group.initial.rebalance.delay.ms"].value == "0"
    assert found["node.id"].value == str(node)


def test_settings_of_what_is_missing(admin: AdminClient, name: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, name)
    assert error_code(admin.describe_configs([resource])[resource]) == (
        KafkaError.UNKNOWN_TOPIC_OR_PART
    )


# -- records and offsets -----------------------------------------------------------------------


def test_delete_records(admin: AdminClient, broker: BrokerProcess, topic: str) -> None:
    send_all(broker.address, topic, [b"%d" % n for n in range(20)])
    part = TopicPartition(topic, 0)
    deleted = done(admin.delete_records([TopicPartition(topic, 0, 12)])[part])
    assert deleted.low_watermark == 12
    with consuming(broker.address, "not-used") as consumer:
        assert consumer.get_watermark_offsets(part, WAIT_SECONDS) == (12, 20)
    assert error_code(admin.delete_records([TopicPartition(topic, 0, 21)])[part]) == (
        KafkaError.OFFSET_OUT_OF_RANGE
    )
    assert done(admin.delete_records([TopicPartition(topic, 0, -1)])[part]).low_watermark == 20


@pytest.mark.parametrize("isolation", list(IsolationLevel))
def test_list_offsets(
    admin: AdminClient, broker: BrokerProcess, name: str, isolation: IsolationLevel
) -> None:
    topic = create_topic(admin, name, 2)
    producer_times = [1_000_000_000_000, 1_700_000_000_000, 1_500_000_000_000]
    deliveries = Deliveries(broker.address)
    for at_ms in producer_times:
        deliveries.send(topic, b"v", partition=0, timestamp=at_ms)
        deliveries.flush()

    def offset(spec: OffsetSpec, partition: int = 0) -> tuple[int, int]:
        part = TopicPartition(topic, partition)
        found = done(admin.list_offsets({part: spec}, isolation_level=isolation)[part])
        return found.offset, found.timestamp

    assert offset(OffsetSpec.earliest()) == (0, -1)
    assert offset(OffsetSpec.latest()) == (3, -1)
    assert offset(OffsetSpec.max_timestamp()) == (1, producer_times[1])
    assert offset(OffsetSpec.for_timestamp(1_200_000_000_000)) == (1, producer_times[1])
    assert offset(OffsetSpec.for_timestamp(1_700_000_000_001)) == (-1, -1)
    assert offset(OffsetSpec.latest(), partition=1) == (0, -1)
    assert offset(OffsetSpec.max_timestamp(), partition=1) == (-1, -1)
    missing = TopicPartition(topic, 9)
    with pytest.raises(KafkaException):
        done(admin.list_offsets({missing: OffsetSpec.latest()})[missing])


# -- groups ------------------------------------------------------------------------------------


def test_groups(admin: AdminClient, broker: BrokerProcess, topic: str, name: str) -> None:
    with consuming(broker.address, name, {"client.id": "watcher"}) as consumer:
        consumer.subscribe([topic])
        poll_all([consumer], lambda: len(assigned(consumer)) == 4, "all partitions")
        listed = {g.group_id: g for g in done(admin.list_consumer_groups()).valid}
        assert listed[name].state == ConsumerGroupState.STABLE
        assert not listed[name].is_simple_consumer_group
        stable = {ConsumerGroupState.STABLE}
        assert name in {g.group_id for g in done(admin.list_consumer_groups(states=stable)).valid}
        empty = {ConsumerGroupState.EMPTY}
        assert name not in {
            g.group_id for g in done(admin.list_consumer_groups(states=empty)).valid
        }
        group = done(admin.describe_consumer_groups([name])[name])
        assert (group.state, group.partition_assignor) == (ConsumerGroupState.STABLE, "range")
        [member] = group.members
        assert member.client_id == "watcher"
        parts = member.assignment.topic_partitions
        assert {(part.topic, part.partition) for part in parts} == assigned(consumer)
        assert error_code(admin.delete_consumer_groups([name])[name]) == KafkaError.NON_EMPTY_GROUP
        consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    group = done(admin.describe_consumer_groups([name])[name])
    assert (group.state, group.members) == (ConsumerGroupState.EMPTY, [])
    done(admin.delete_consumer_groups([name])[name])
    assert name not in {g.group_id for g in done(admin.list_consumer_groups()).valid}
    assert error_code(admin.delete_consumer_groups([name])[name]) == KafkaError.GROUP_ID_NOT_FOUND


def test_group_offsets(admin: AdminClient, broker: BrokerProcess, topic: str, name: str) -> None:
    def offsets(partitions: list[TopicPartition] | None = None) -> dict[int, int]:
        asked = ConsumerGroupTopicPartitions(name, partitions)
        found = done(admin.list_consumer_group_offsets([asked])[name])
        return {part.partition: part.offset for part in found.topic_partitions}

    wanted = [TopicPartition(topic, 0, 5), TopicPartition(topic, 2, 9)]
    done(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, wanted)])[name])
    assert offsets() == {0: 5, 2: 9}
    assert offsets([TopicPartition(topic, 1), TopicPartition(topic, 2)]) == {1: -1001, 2: 9}
    with consuming(broker.address, name) as consumer:
        consumer.subscribe([topic])
        poll_all([consumer], lambda: len(assigned(consumer)) == 4, "all partitions")
        again = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, 0, 1)])
        answered = done(admin.alter_consumer_group_offsets([again])[name])
        [part] = answered.topic_partitions
        assert part.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    done(admin.alter_consumer_group_offsets([again])[name])
    assert offsets() == {0: 1, 2: 9}


def test_reset_group_reads_again(
    admin: AdminClient, broker: BrokerProcess, topic: str, name: str
) -> None:
    send_all(broker.address, topic, [b"%d" % n for n in range(10)])
    with consuming(broker.address, name) as consumer:
        consumer.subscribe([topic])
        take(consumer, 10)
        consumer.commit(asynchronous=False)
    reset = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, 0, 4)])
    done(admin.alter_consumer_group_offsets([reset])[name])
    with consuming(broker.address, name) as consumer:
        consumer.subscribe([topic])
        assert [message.offset() for message in take(consumer, 6)] == list(range(4, 10))


def test_group_that_is_missing(admin: AdminClient, name: str) -> None:
    """Kafka 4 answers GROUP_ID_NOT_FOUND since DescribeGroups 6; older versions say DEAD."""
    future = admin.describe_consumer_groups([name])[name]
    try:
        assert done(future).state == ConsumerGroupState.DEAD
    except KafkaException as error:
        assert error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND  # noqa: PT017


# -- the cluster -------------------------------------------------------------------------------


def test_describe_cluster(admin: AdminClient, broker: BrokerProcess) -> None:
    found = done(admin.describe_cluster(include_authorized_operations=True))
    [node] = found.nodes
    assert f"{node.host}:{node.port}" == broker.address
    assert found.controller.id == node.id
    assert len(found.cluster_id) == 22
    assert found.authorized_operations


def test_metadata_of_all_topics(admin: AdminClient, topic: str, name: str) -> None:
    """librdkafka sends three bytes too many in this request (its issue 5049), as Kafka allows."""
    found = admin.list_topics(timeout=WAIT_SECONDS)
    assert len(found.topics[topic].partitions) == 4
    assert found.cluster_id == done(admin.describe_cluster()).cluster_id


def test_leader_elections(admin: AdminClient, topic: str) -> None:
    parts = [TopicPartition(topic, 0), TopicPartition("no-such-topic", 0)]
    elected = done(admin.elect_leaders(ElectionType.PREFERRED, parts))
    assert {part.topic: error.code() for part, error in elected.items()} == {
        topic: KafkaError.ELECTION_NOT_NEEDED,
        "no-such-topic": KafkaError.UNKNOWN_TOPIC_OR_PART,
    }


ANY: Any = None
"""What a filter asks for that asks for everything; the library's annotations know text only."""
EVERYTHING = AclBindingFilter(
    ResourceType.ANY,
    ANY,
    ResourcePatternType.ANY,
    ANY,
    ANY,
    AclOperation.ANY,
    AclPermissionType.ANY,
)
READS = AclBinding(
    ResourceType.TOPIC,
    "ord",
    ResourcePatternType.PREFIXED,
    "User:alice",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)


def test_access_control_is_switched_off(admin: AdminClient) -> None:
    # Of DescribeAcls librdkafka does not tell the error.
    (created,) = admin.create_acls([READS]).values()
    (deleted,) = admin.delete_acls([EVERYTHING]).values()
    assert error_code(created) == KafkaError.SECURITY_DISABLED
    assert error_code(deleted) == KafkaError.SECURITY_DISABLED


def test_access_control(tmp_path: Path) -> None:
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with BrokerProcess(tmp_path, settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        (created,) = admin.create_acls([READS]).values()
        done(created)
        assert done(admin.describe_acls(EVERYTHING)) == [READS]
        (deleted,) = admin.delete_acls([EVERYTHING]).values()
        assert done(deleted) == [READS]
        assert done(admin.describe_acls(EVERYTHING)) == []


def test_internal_topic(admin: AdminClient, broker: BrokerProcess, name: str) -> None:
    with consuming(broker.address, name) as consumer:
        consumer.committed([TopicPartition(create_topic(admin, name), 0)], WAIT_SECONDS)
    topics = until(lambda: admin.list_topics(timeout=WAIT_SECONDS).topics, "metadata")
    assert len(topics["__consumer_offsets"].partitions) == 4
    described = done(
        admin.describe_topics(TopicCollection(["__consumer_offsets"]))["__consumer_offsets"]
    )
    assert described.is_internal
    assert refused(broker.address, "__consumer_offsets", b"forged") == KafkaError.TOPIC_EXCEPTION
