"""Managing topics, settings and groups of a real broker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from strandline.client.admin import Admin
from strandline.client.admin_configs import ConfigSource, Resource
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.errors import ErrorCode, ProtocolError
from strandline.testing import Cluster
from strandline.types import BrokerId, Offset, TopicPartition


def test_a_topic_lives_and_dies(cluster: ClusterClient, name: str) -> None:
    topics = Admin(cluster).topics
    made = topics.create(name, partitions=2, configs={"retention.ms": "1000"})
    assert (made.partitions, made.replication_factor) == (2, 1)
    assert topics.describe(name).topic_id == made.topic_id
    assert name in [each.name for each in topics.list_all()]
    with pytest.raises(ProtocolError) as refused:
        topics.create(name)
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    topics.add_partitions(name, 4)
    described = topics.describe(name)
    assert list(described.partitions) == [0, 1, 2, 3]
    assert described.partitions[3].leader == described.partitions[3].replicas[0]
    with pytest.raises(ProtocolError) as shrinking:
        topics.add_partitions(name, 1)
    assert shrinking.value.code is ErrorCode.INVALID_PARTITIONS
    outcomes = topics.delete([name, "nowhere"])
    assert outcomes[name] is None
    gone = outcomes["nowhere"]
    assert gone is not None
    assert gone.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(ProtocolError, match=f"There is no topic '{name}'"):
        topics.describe(name)


def test_validate_only_makes_nothing(cluster: ClusterClient, name: str) -> None:
    topics = Admin(cluster).topics
    assert topics.create(name, partitions=3, validate_only=True).partitions == 3
    assert name not in [each.name for each in topics.list_all()]


def test_settings_are_set_and_reset(cluster: ClusterClient, name: str) -> None:
    admin = Admin(cluster)
    admin.topics.create(name)
    resource = Resource.topic(name)
    admin.configs.alter(resource, set_to={"retention.ms": "5", "segment.bytes": "2000000"})
    admin.configs.alter(resource, set_to={"retention.ms": "6"}, reset=["segment.bytes"])
    own = [each for each in admin.configs.describe(resource) if each.is_own_of(resource)]
    assert [(each.name, each.value, each.source) for each in own] == [
        ("retention.ms", "6", ConfigSource.TOPIC)
    ]
    (one,) = admin.configs.describe(resource, ["segment.bytes"])
    assert one.synonyms
    with pytest.raises(ProtocolError, match=r"did you mean retention.ms\?") as refused:
        admin.configs.alter(resource, set_to={"retention.mss": "1"})
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    admin.configs.alter(resource, set_to={"retention.ms": "7"}, validate_only=True)
    assert admin.configs.describe(resource, ["retention.ms"])[0].value == "6"


def test_settings_of_the_broker(cluster: ClusterClient, broker: Any) -> None:
    configs = Admin(cluster).configs
    own = {each.name: each for each in configs.describe(Resource.broker(BrokerId(1)))}
    assert own["log.dirs"].value == str(broker.data)
    assert own["log.dirs"].is_read_only
    configs.alter(Resource.all_brokers(), set_to={"log.retention.ms": "123456"})
    changed = configs.describe(Resource.broker(BrokerId(1)), ["log.retention.ms"])
    assert [(each.value, each.source) for each in changed] == [("123456", ConfigSource.ALL_BROKERS)]
    configs.alter(Resource.all_brokers(), reset=["log.retention.ms"])


def test_the_cluster_and_its_disks(cluster: ClusterClient, broker: Any, name: str) -> None:
    admin = Admin(cluster)
    admin.topics.create(name)
    producer = Producer(cluster)
    producer.send(name, bytes(1000))
    producer.flush().raise_failure()
    found = admin.cluster.describe()
    assert [each.broker_id for each in found.brokers] == [found.controller] == [1]
    assert found.brokers[0].address.port == broker.port
    (directory,) = admin.cluster.log_directories().found
    assert Path(directory.path) == broker.data
    assert directory.replicas[TopicPartition(name, 0)].size_bytes > 1000
    assert directory.usable_bytes > 0


def test_a_group_without_members(cluster: ClusterClient, name: str) -> None:
    admin = Admin(cluster)
    with pytest.raises(ProtocolError) as unknown:
        admin.groups.describe(name)
    assert unknown.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    admin.topics.create(name, partitions=2)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    admin.groups.set_offsets(name, {first: Offset(0)})
    assert admin.groups.describe(name).state == "Empty"
    assert name in [each.group for each in admin.groups.list_all()]
    lags = {each.partition: each.lag for each in admin.groups.lag(name, [second])}
    assert lags == {first: 0, second: None}
    assert admin.groups.delete_offsets(name, [first]) == {first: None}
    assert admin.groups.offsets(name) == {}


def test_a_deleted_group_is_gone(cluster: ClusterClient, name: str) -> None:
    admin = Admin(cluster)
    admin.topics.create(name)
    admin.groups.set_offsets(name, {TopicPartition(name, 0): Offset(0)})
    admin.groups.delete(name)
    assert name not in [each.group for each in admin.groups.list_all()]
    with pytest.raises(ProtocolError, match=f"There is no group '{name}'"):
        admin.groups.delete(name)


def test_lag_of_a_topic_that_is_gone_is_unknown(cluster: ClusterClient, name: str) -> None:
    admin = Admin(cluster)
    admin.topics.create(name)
    partition = TopicPartition(name, 0)
    admin.groups.set_offsets(name, {partition: Offset(0)})
    assert [each.lag for each in admin.groups.lag(name)] == [0]
    gone = TopicPartition("nowhere", 0)
    (unknown,) = [each for each in admin.groups.lag(name, [gone]) if each.partition == gone]
    assert (unknown.committed, unknown.end, unknown.lag) == (None, None, None)


def test_a_broker_that_leaves_while_all_are_asked_is_left_out() -> None:
    with Cluster(brokers=2) as brokers, ClusterClient(brokers.bootstrap_servers) as cluster:
        told: list[str] = []
        cluster.on_delay = lambda error: told.append(str(error))
        dead, alive = sorted(each.broker_id for each in brokers.brokers)
        brokers.kill(dead)
        assert dead in cluster.refresh().brokers  # its session lasts for some seconds more
        directories = Admin(cluster).cluster.log_directories()
        assert {each.broker for each in directories.found} == {alive}
        assert directories.unanswered == {}
        assert told
        assert Admin(cluster).groups.list_all() == []


def test_a_pattern_of_transactional_ids_needs_re2_on_the_broker(
    cluster: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)  # the broker is in this process
    transactions = Admin(cluster).transactions
    with pytest.raises(ProtocolError, match=r"'pay\.\*'.*needs strandline\[regex\]") as refused:
        transactions.list_all(pattern="pay.*")
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    everything = transactions.list_all()
    assert transactions.list_all(pattern="") == everything
