"""Every kind of node: Kafka's own JSON, round trips, unknown keys kept, wrong content refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cluster.identifiers import uuid_from_text, uuid_text
from strandline.cluster.store import MalformedNode
from strandline.cluster.znodes import (
    CLUSTER_DEFAULT,
    NO_PREVIOUS_EPOCH,
    BrokerNode,
    ClusterIdNode,
    ConfigNode,
    ConfigResource,
    ControllerEpochNode,
    ControllerNode,
    Endpoint,
    FeatureRange,
    PartitionStateNode,
    ProducerIdBlockNode,
    ResourceKind,
    TopicNode,
    adoption_path,
    deletion_path,
    state_path,
)
from strandline.types import NO_LEADER, NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicPartition

PARTITION = TopicPartition("orders", 3)
TOPIC_CONFIG = ConfigResource(ResourceKind.TOPIC, "orders")
BROKER = BrokerId(1)
ID_TEXT = "wKs0VNfdR-mTvNpWBhhcpQ"

KAFKAS_BROKER = (
    b'{"version":5,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"2233345666",'
    b'"endpoints":["PLAINTEXT://host1:9092","SSL://[::1]:9093","ctl-1://:0"],"rack":"dc1",'
    b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","SSL":"SSL","ctl-1":"SASL_SSL"},'
    b'"features":{"feature":{"min_version":1,"max_version":2}}}'
)
KAFKAS_TOPIC = (
    b'{"removing_replicas":{"0":[1]},"partitions":{"10":[2,1],"0":[1,2,3]},"topic_id":"'
    + ID_TEXT.encode()
    + b'","adding_replicas":{"0":[3]},"version":3}'
)
KAFKAS_STATE = (
    b'{"controller_epoch":4,"leader":1,"version":1,"leader_epoch":7,"isr":[1,2],'
    b'"leader_recovery_state":1}'
)


def test_a_broker_as_kafka_writes_it() -> None:
    node = BrokerNode.decode(BROKER, KAFKAS_BROKER)
    assert node == BrokerNode(
        BROKER,
        (
            Endpoint("PLAINTEXT", "host1", 9092, "PLAINTEXT"),
            Endpoint("SSL", "::1", 9093, "SSL"),
            Endpoint("ctl-1", "", 0, "SASL_SSL"),
        ),
        rack="dc1",
        timestamp_ms=2233345666,
        features={"feature": FeatureRange(1, 2)},
    )
    written = json.loads(node.encode())
    expected = json.loads(KAFKAS_BROKER)
    # These three are derived: the first plaintext listener, and JMX which there is not.
    expected |= {"host": "host1", "port": 9092, "jmx_port": -1}
    assert written == expected
    assert node.path == "/brokers/ids/1"


def test_a_broker_without_a_plaintext_listener_or_a_rack() -> None:
    written = json.loads(BrokerNode(BROKER, (Endpoint("A", "h", 1, "SSL"),)).encode())
    assert (written["host"], written["port"]) == (None, -1)
    assert "rack" not in written


def test_an_old_brokers_listeners_are_named_after_their_protocols() -> None:
    old = (
        b'{"version":2,"host":"h","port":1,"jmx_port":2,"timestamp":"3","endpoints":["SSL://h:1"]}'
    )
    assert BrokerNode.decode(BROKER, old).endpoints == (Endpoint("SSL", "h", 1, "SSL"),)


def test_a_topic_as_kafka_writes_it() -> None:
    node = TopicNode.decode("orders", KAFKAS_TOPIC)
    assert uuid_text(node.topic_id) == ID_TEXT
    assert node.partitions == {0: (1, 2, 3), 10: (2, 1)}
    assert list(node.partitions) == [0, 10]
    assert node.adding_replicas == {0: (3,)}
    assert node.removing_replicas == {0: (1,)}
    assert json.loads(node.encode()) == json.loads(KAFKAS_TOPIC)


def test_a_very_old_topic_has_no_id_and_no_moves() -> None:
    node = TopicNode.decode("orders", b'{"version":1,"partitions":{"0":[1]}}')
    assert node.topic_id == NO_TOPIC_ID
    assert (node.adding_replicas, node.removing_replicas) == ({}, {})
    assert "topic_id" not in json.loads(node.encode())


def test_a_partition_state_as_kafka_writes_it() -> None:
    node = PartitionStateNode.decode(PARTITION, KAFKAS_STATE)
    assert node == PartitionStateNode(
        BROKER, LeaderEpoch(7), (BROKER, BrokerId(2)), 4, is_recovering=True
    )
    assert json.loads(node.encode()) == json.loads(KAFKAS_STATE)
    assert "leader_recovery_state" not in json.loads(
        PartitionStateNode(NO_LEADER, LeaderEpoch(7), (), 4).encode()
    )
    assert state_path(PARTITION) == "/brokers/topics/orders/partitions/3/state"
    assert deletion_path("orders") == "/admin/delete_topics/orders"


def test_our_own_keys_of_a_partition_state() -> None:
    node = PartitionStateNode(
        BROKER,
        LeaderEpoch(7),
        (BROKER,),
        4,
        in_sync_epochs={BrokerId(3): 64, BROKER: 77},
        elr=(BrokerId(3),),
        last_known_elr=(BrokerId(2),),
    )
    written = json.loads(node.encode())
    assert written["isr_epochs"] == {"1": 77, "3": 64}
    assert (written["elr"], written["last_known_elr"]) == ([3], [2])
    assert PartitionStateNode.decode(PARTITION, node.encode()) == node
    plain = PartitionStateNode.decode(PARTITION, KAFKAS_STATE)
    assert (plain.in_sync_epochs, plain.elr, plain.last_known_elr) == ({}, (), ())


@pytest.mark.parametrize(
    "broken",
    [
        b'"isr_epochs":[1]',
        b'"isr_epochs":{"1":"x"}',
        b'"isr_epochs":{"1":true}',
        b'"isr_epochs":{"x":1}',
        b'"elr":1',
        b'"elr":["1"]',
        b'"last_known_elr":null',
    ],
)
def test_our_own_keys_of_a_partition_state_are_read_strictly(broken: bytes) -> None:
    with pytest.raises(MalformedNode):
        PartitionStateNode.decode(PARTITION, KAFKAS_STATE[:-1] + b"," + broken + b"}")


def test_c2_a_broker_holds_what_was_recorded_in_a_life_that_its_disk_has_seen() -> None:
    node = BrokerNode(BROKER, (Endpoint("A", "h", 1),), previous_epoch=77)
    assert [node.holds(epoch) for epoch in (76, 77, 99)] == [False, True, True], "as in 0.1.0"
    node = replace(node, lives=((77, 77), (81, 84)))
    held = [epoch for epoch in range(70, 90) if node.holds(epoch)]
    assert held == [77, 81, 82, 83, 84]
    assert not replace(node, lives=()).holds(77)
    assert not replace(node, previous_epoch=NO_PREVIOUS_EPOCH).holds(77)


def test_our_own_keys_of_a_broker() -> None:
    plain = BrokerNode.decode(BROKER, KAFKAS_BROKER)
    assert (plain.previous_epoch, plain.is_shutting_down) == (NO_PREVIOUS_EPOCH, False)
    offline = frozenset({TopicPartition("t", 3), TopicPartition("t", 0), TopicPartition("u", 1)})
    node = BrokerNode(
        BROKER,
        (Endpoint("A", "h", 1),),
        previous_epoch=77,
        lives=((77, 77), (81, 84)),
        is_shutting_down=True,
        offline=offline,
    )
    written = json.loads(node.encode())
    assert (written["previous_epoch"], written["shutting_down"]) == (77, True)
    assert written["lives"] == [[77, 77], [81, 84]]
    assert written["offline"] == {"t": [0, 3], "u": [1]}
    assert BrokerNode.decode(BROKER, node.encode()) == node
    for broken in (
        b'"shutting_down":1',
        b'"previous_epoch":"x"',
        b'"lives":7',
        b'"lives":[7]',
        b'"lives":[[7]]',
        b'"lives":[["7",8]]',
        b'"offline":["t"]',
        b'"offline":{"t":0}',
        b'"offline":{"t":[true]}',
    ):
        with pytest.raises(MalformedNode):
            BrokerNode.decode(BROKER, KAFKAS_BROKER[:-1] + b"," + broken + b"}")


def test_settings_as_kafka_writes_them() -> None:
    data = b'{"version":1,"config":{"retention.ms":"1","x":""}}'
    node = ConfigNode.decode(TOPIC_CONFIG, data)
    assert node == ConfigNode({"retention.ms": "1", "x": ""})
    assert node.encode() == data


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (TOPIC_CONFIG, "/config/topics/orders"),
        (ConfigResource(ResourceKind.BROKER, "1"), "/config/brokers/1"),
        (ConfigResource(ResourceKind.BROKER, CLUSTER_DEFAULT), "/config/brokers/<default>"),
        (ConfigResource(ResourceKind.IP, "::1"), "/config/ips/%3A%3A1"),
        (ConfigResource.of_user("a/b", "c"), "/config/users/a%2Fb/clients/c"),
        (ConfigResource.of_user("", ""), "/config/users/<default>/clients/<default>"),
        (ConfigResource.of_user("a", None), "/config/users/a/clients"),
        (ConfigResource.of_user("..", "."), "/config/users/%2E%2E/clients/%2E"),
        (ConfigResource(ResourceKind.CLIENT, "."), "/config/clients/%2E"),
        (ConfigResource(ResourceKind.GROUP, "..."), "/config/groups/..."),
    ],
)
def test_paths_of_settings_go_both_ways(resource: ConfigResource, path: str) -> None:
    assert resource.path == path
    assert ConfigResource.of_path(*path.split("/")[2:]) == resource


def test_settings_of_other_kinds_are_none_of_ours() -> None:
    assert ConfigResource.of_path("changes", "127.0.0.1") is None
    assert ConfigResource.of_path("topics", "a", "clients") is None
    assert ConfigResource.of_path("users", "a", "others", "b") is None


def test_nodes_that_exist_once() -> None:
    cluster = b'{"version":"1","id":"abc"}'
    assert ClusterIdNode.decode(cluster) == ClusterIdNode("abc")
    assert ClusterIdNode("abc").encode() == cluster
    controller = b'{"version":1,"brokerid":1,"timestamp":"170"}'
    assert ControllerNode.decode(controller) == ControllerNode(BROKER, 170)
    assert ControllerNode(BROKER, 170).encode() == controller
    assert ControllerEpochNode.decode(b"12") == ControllerEpochNode(12)
    assert ControllerEpochNode(12).encode() == b"12"
    block = b'{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}'
    assert ProducerIdBlockNode.decode(block) == ProducerIdBlockNode(BROKER, 1000, 1999)
    assert ProducerIdBlockNode(BROKER, 1000, 1999).encode() == block
    assert ProducerIdBlockNode.decode(b"") is None
    assert adoption_path(BROKER) == "/strandline/adopted_logs/1"


def broker(data: bytes) -> object:
    return BrokerNode.decode(BROKER, data)


def topic(data: bytes) -> object:
    return TopicNode.decode("orders", data)


def state(data: bytes) -> object:
    return PartitionStateNode.decode(PARTITION, data)


def config(data: bytes) -> object:
    return ConfigNode.decode(TOPIC_CONFIG, data)


DECODERS: list[Callable[[bytes], object]] = [
    broker,
    topic,
    state,
    config,
    ClusterIdNode.decode,
    ControllerNode.decode,
    ControllerEpochNode.decode,
    ProducerIdBlockNode.decode,
]


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(
    "data", [b"{", b"[]", b'"x"', b"null", b"\xff\xfe\xfd", b"[" * 20_000, b"{}x", b"1" * 5000]
)
def test_what_is_no_json_object_is_malformed(
    decode: Callable[[bytes], object], data: bytes
) -> None:
    with pytest.raises(MalformedNode):
        decode(data)


def changed(data: bytes, **values: Any) -> bytes:
    return json.dumps({**json.loads(data), **values}).encode()


def without(data: bytes, key: str) -> bytes:
    return json.dumps({k: v for k, v in json.loads(data).items() if k != key}).encode()


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (broker, changed(KAFKAS_BROKER, endpoints="PLAINTEXT://h:1")),
        (broker, changed(KAFKAS_BROKER, endpoints=[1])),
        (broker, changed(KAFKAS_BROKER, endpoints=["h:1"])),
        (broker, changed(KAFKAS_BROKER, endpoints=["A://h:123456"])),
        (broker, changed(KAFKAS_BROKER, endpoints=["A://h"])),
        (broker, without(KAFKAS_BROKER, "endpoints")),
        (broker, changed(KAFKAS_BROKER, rack=5)),
        (broker, changed(KAFKAS_BROKER, timestamp="soon")),
        (broker, changed(KAFKAS_BROKER, listener_security_protocol_map={"A": 1})),
        (broker, changed(KAFKAS_BROKER, features=[])),
        (broker, changed(KAFKAS_BROKER, features={"f": {"min_version": 1}})),
        (broker, changed(KAFKAS_BROKER, features={"f": 1})),
        (topic, without(KAFKAS_TOPIC, "version")),
        (topic, changed(KAFKAS_TOPIC, topic_id="short")),
        (topic, changed(KAFKAS_TOPIC, topic_id="wKs0VNfdR-mTvNpWBhhcp!")),
        (topic, changed(KAFKAS_TOPIC, topic_id="wKs0VNfdR-mTvNpWBhhcpR")),
        (topic, changed(KAFKAS_TOPIC, topic_id=7)),
        (topic, changed(KAFKAS_TOPIC, partitions=[[1]])),
        (topic, changed(KAFKAS_TOPIC, partitions={"x": [1]})),
        (topic, changed(KAFKAS_TOPIC, partitions={"-1": [1]})),
        (topic, changed(KAFKAS_TOPIC, partitions={"00": [1], "0": [2]})),
        (topic, changed(KAFKAS_TOPIC, partitions={"0": 1})),
        (topic, changed(KAFKAS_TOPIC, partitions={"0": ["1"]})),
        (topic, changed(KAFKAS_TOPIC, partitions={"0": [True]})),
        (state, without(KAFKAS_STATE, "leader")),
        (state, without(KAFKAS_STATE, "isr")),
        (state, changed(KAFKAS_STATE, leader_epoch=1.5)),
        (state, changed(KAFKAS_STATE, leader=None)),
        (state, changed(KAFKAS_STATE, controller_epoch=True)),
        (state, changed(KAFKAS_STATE, isr=[1, None])),
        (config, b'{"version":1,"config":{"a":1}}'),
        (config, b'{"version":1,"config":[]}'),
        (config, b'{"config":{}}'),
        (ClusterIdNode.decode, b'{"version":"1"}'),
        (ClusterIdNode.decode, b'{"id":5}'),
        (ControllerNode.decode, b'{"version":1}'),
        (ControllerEpochNode.decode, b""),
        (ControllerEpochNode.decode, b"-"),
        (ControllerEpochNode.decode, b"1 "),
        (ControllerEpochNode.decode, "\u0661".encode()),
        (ProducerIdBlockNode.decode, b'{"broker":1,"block_start":"5","block_end":"4"}'),
        (ProducerIdBlockNode.decode, b'{"broker":1,"block_start":"-1","block_end":"4"}'),
        (ProducerIdBlockNode.decode, b'{"block_start":"0","block_end":"4"}'),
    ],
)
def test_content_of_the_wrong_shape_is_malformed(
    decode: Callable[[bytes], object], data: bytes
) -> None:
    with pytest.raises(MalformedNode, match="content of the metadata node '/"):
        decode(data)


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (broker, KAFKAS_BROKER),
        (topic, KAFKAS_TOPIC),
        (state, KAFKAS_STATE),
        (config, b'{"version":1}'),
    ],
)
def test_unknown_keys_are_kept(decode: Callable[[bytes], Any], data: bytes) -> None:
    node = decode(changed(data, new_key={"a": [1, None, "ü", "\ud800"]}))
    written = json.loads(node.encode())
    assert written["new_key"] == {"a": [1, None, "ü", "\ud800"]}
    assert decode(node.encode()) == node


BROKERS = st.integers(0, 2**31 - 1).map(BrokerId)
REPLICAS = st.lists(BROKERS, max_size=3).map(tuple)
PARTITIONS = st.dictionaries(st.integers(0, 2**31 - 1), REPLICAS, max_size=4)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,9}", fullmatch=True)
HOSTS = st.from_regex(r"[a-z0-9.-]{0,9}|([0-9a-f]{1,4}:){1,7}:", fullmatch=True)
ENDPOINTS = st.builds(
    Endpoint, NAMES, HOSTS, st.integers(0, 65535), st.sampled_from(["PLAINTEXT", "SSL"])
)
RANGES = st.builds(FeatureRange, st.integers(0, 9), st.integers(0, 9))


@given(
    st.builds(
        BrokerNode,
        st.just(BROKER),
        st.lists(ENDPOINTS, max_size=3, unique_by=lambda end: end.listener).map(tuple),
        st.none() | TEXTS,
        st.integers(-1, 2**63 - 1),
        st.dictionaries(TEXTS, RANGES, max_size=2),
    )
)
def test_brokers_round_trip(node: BrokerNode) -> None:
    assert BrokerNode.decode(BROKER, node.encode()) == node


@given(st.builds(TopicNode, st.just("orders"), st.uuids(), PARTITIONS, PARTITIONS, PARTITIONS))
def test_topics_round_trip(node: TopicNode) -> None:
    assert TopicNode.decode("orders", node.encode()) == node


@given(
    st.builds(
        PartitionStateNode,
        st.integers(-2, 2**31 - 1).map(BrokerId),
        st.integers(0, 2**31 - 1).map(LeaderEpoch),
        REPLICAS,
        st.integers(0, 2**31 - 1),
        st.booleans(),
    )
)
def test_states_round_trip(node: PartitionStateNode) -> None:
    assert PartitionStateNode.decode(PARTITION, node.encode()) == node


@given(st.dictionaries(TEXTS, TEXTS, max_size=5).map(ConfigNode))
def test_settings_round_trip(node: ConfigNode) -> None:
    assert ConfigNode.decode(TOPIC_CONFIG, node.encode()) == node


@given(st.uuids())
def test_ids_round_trip(identifier: UUID) -> None:
    text = uuid_text(identifier)
    assert len(text) == 22
    assert uuid_from_text(text) == identifier


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.data())
def test_any_json_is_decoded_or_malformed(data: st.DataObject) -> None:
    """Keys that mean something with values of any type: nothing else may be raised."""
    samples = [KAFKAS_BROKER, KAFKAS_TOPIC, KAFKAS_STATE, b'{"version":1,"config":{}}']
    at = data.draw(st.integers(0, 3))
    content = json.loads(samples[at])
    content[data.draw(st.sampled_from(sorted(content)))] = data.draw(JSON)
    with suppress(MalformedNode):
        assert DECODERS[at](json.dumps(content).encode())
