"""From files and overrides to the values in force."""

from __future__ import annotations

import dataclasses
import re
import typing
from pathlib import Path

import pytest

from strandline.config.broker import BrokerConfig, SettingLayers
from strandline.config.definition import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from strandline.config.describe import describe_broker
from strandline.config.group import GroupConfig, check_group, group_config
from strandline.config.listeners import Listener
from strandline.config.load import (
    apply_dynamic,
    load_broker_config,
    make_broker_config,
    stored_topic_config,
    topic_config,
)
from strandline.config.setting import Service
from strandline.config.topic import TopicConfig
from strandline.errors import InvalidSetting

# What Kafka's distribution says in config/server.properties, in short.
KAFKA_FILE = """\
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=16
log.dirs=/data/a, /data/b
num.partitions=4
log.retention.hours=24
log.segment.bytes=1073741824
offsets.topic.replication.factor=1
"""

OF_LISTENERS = ("ssl.", "sasl.", "connections.max.reauth.ms")
"""What is read with `ListenerSettings` and not from `BrokerConfig`."""


def config(*overrides: str) -> BrokerConfig:
    return load_broker_config(overrides=overrides).config


def refusal(*overrides: str) -> str:
    with pytest.raises(InvalidSetting) as caught:
        load_broker_config(overrides=overrides)
    return str(caught.value)


def test_the_class_defaults_are_what_loading_nothing_gives() -> None:
    loaded = load_broker_config()
    assert loaded.config == BrokerConfig()
    assert loaded.warnings == ()
    assert topic_config({}, loaded.config) == TopicConfig()


@pytest.mark.parametrize("made", [config(), config().topic_defaults])
def test_values_have_the_types_that_are_declared(made: BrokerConfig | TopicConfig) -> None:
    hints = typing.get_type_hints(type(made))
    for field in dataclasses.fields(made):
        declared = typing.get_origin(hints[field.name]) or hints[field.name]
        if isinstance(declared, type) and declared.__module__ == "builtins":
            assert type(getattr(made, field.name)) is declared, field.name


def test_every_served_setting_arrives_somewhere() -> None:
    brokers = {field.name for field in dataclasses.fields(BrokerConfig)}
    behind_topics = {s.name for each in TOPIC_SETTINGS.values() for s in each.synonyms}
    groups = {field.name for field in dataclasses.fields(GroupConfig)}
    assert {each.attribute for each in GROUP_SETTINGS.values()} == groups
    used_by_checks = {"broker.id", "log.dir", "listener.security.protocol.map",
                      "controller.listener.names", "inter.broker.listener.name",
                          "security.inter.broker.protocol"}  # fmt: skip
    for name, setting in BROKER_SETTINGS.items():
        arrives = setting.attribute in brokers or name in behind_topics | used_by_checks
        arrives |= name.startswith(OF_LISTENERS)
        if setting.service is Service.SERVED:
            assert arrives, name
        elif setting.attribute in brokers:
            pytest.fail(f"{name} is in BrokerConfig but not said to be served")
    topics = {field.name for field in dataclasses.fields(TopicConfig)}
    renamed = {"cleanup_policy": "cleanup_policies", "internal_segment_bytes": "segment_bytes"}
    attributes = {each.attribute for each in TOPIC_SETTINGS.values()}
    assert {renamed.get(name, name) for name in attributes} == topics


def test_a_file_written_for_kafka(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(KAFKA_FILE)
    loaded = load_broker_config(str(file), ["num.partitions=6"])
    assert loaded.config.node_id == 7
    assert loaded.config.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert loaded.config.advertised_listeners == (Listener("PLAINTEXT", "localhost", 9092),)
    assert loaded.config.log_dirs == ("/data/a", "/data/b")
    assert loaded.config.num_partitions == 6
    assert loaded.config.topic_defaults.retention_ms == 86_400_000
    about = [re.split(r"[ :]", sentence)[0] for sentence in loaded.warnings]
    assert about == ["controller.quorum.bootstrap.servers", "num.io.threads", "The"]
    assert "CONTROLLER://:9093 is not opened" in loaded.warnings[-1]


def test_a_file_must_be_text(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"broker.rack=\xff\xfe")
    with pytest.raises(InvalidSetting, match=r"server\.properties is not UTF-8"):
        load_broker_config(str(file))
    with pytest.raises(FileNotFoundError):
        load_broker_config(str(tmp_path / "missing"))


def test_c14_settings_of_plugins_are_accepted_with_a_warning_for_each() -> None:
    names = (
        "confluent.license",
        "confluent.license.topic.replication.factor",
        "confluent.metrics.reporter.bootstrap.servers",
        "cruise.control.metrics.topic",
        "inter.broker.protocol.version",
        "my.authorizer.url",
        "zap",
    )
    loaded = load_broker_config(None, [f"{name}=1" for name in names])
    assert loaded.warnings == tuple(
        f"{name} is accepted but has no effect in Strandline." for name in names
    )
    shown = {entry.name: entry for entry in describe_broker(loaded.config)}
    for name in names:
        assert (shown[name].value, shown[name].is_sensitive) == (None, True)


def test_an_override_may_have_equals_signs_and_must_have_one() -> None:
    assert config(" broker.rack = a=b ").broker_rack == "a=b"
    assert "name=value" in refusal("broker.rack")
    assert "name=value" in refusal("=1")


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("num.partition=1", "num.partition is not a broker setting; did you mean num.partitions?"),
        ("Log.Retention.Hour=1", "did you mean log.retention.hours?"),
        ("log_dirs=/x", "log_dirs is not a broker setting; did you mean log.dirs?"),
        ("port=1", "port is not a broker setting any more: use listeners."),
        ("zookeeper.sync.time.ms=1", "Strandline serves only zookeeper.connect"),
        ("inter.broker.listener.name=X", "is X, which is not in advertised.listeners (PLAINTEXT)."),
        ("replica.selector.class=my.Selector", "a Java class that is not known here"),
        ("num.partitions=none", "num.partitions is 'none'; expected a 32-bit integer in [1,...]."),
        ("num.partitions=0", "num.partitions is 0; it must be at least 1."),
        ("log.preallocate=yes", "log.preallocate is 'yes'; expected true or false."),
        ("compression.type=none", "it must be one of uncompressed, zstd, lz4"),
        (
            "authorizer.class.name=A",
            "ACLs are switched on by kafka.security",
        ),
        ("super.users=User:a;bob", "super.users has 'bob', which is not of the form User:name"),
        ("remote.log.storage.system.enable=true", "accepts only the default, false."),
        ("security.inter.broker.protocol=SSL", "is not in advertised.listeners (PLAINTEXT)."),
        ("leader.replication.throttled.rate=1", "can only be set dynamically"),
        ("listener.name.x.nothing=1", "listener.name.x.nothing is not a broker setting"),
        ("listener.name.x.max.connections=z", "expected a 32-bit integer"),
        ("log.roll.ms=0", "log.roll.ms makes segment.ms 0; it must be at least 1."),
        ("log.roll.jitter.ms=-1", "log.roll.jitter.ms makes segment.jitter.ms -1"),
        ("log.retention.minutes=0", "makes retention.ms 0; it must be -1 or at least 1."),
        ("log.flush.interval.ms=-1", "log.flush.interval.ms makes flush.ms -1"),
        ("max.connections.per.ip=0", "no client could connect"),
        ("max.connections.per.ip.overrides=a", "each entry must be address:limit"),
        ("max.connections.per.ip.overrides=a:b", "each entry must be address:limit"),
        ("max.connections.per.ip.overrides=localhost:0", "localhost is not an IP address"),
        ("connections.max.idle.ms=100", "connection.failed.authentication.delay.ms, which is 100"),
        ("queued.max.request.bytes=1", "must not be above queued.max.request.bytes"),
        ("replica.fetch.wait.max.ms=30001", "must not be above replica.socket.timeout.ms"),
        ("log.cleaner.dedupe.buffer.size=1048576", "above 1 MiB for each of the 1 threads"),
        ("log.cleaner.io.buffer.load.factor=0", "is 0.0; it must be above 0"),
        ("log.cleaner.io.max.bytes.per.second=0", "is 0.0; it must be at least 1"),
        ("group.coordinator.rebalance.protocols=consumer", "without classic"),
        ("offsets.topic.compression.codec=5", "from 0 to 4"),
        ("log.cleaner.min.compaction.lag.ms=9223372036854775807", None),
        ("listeners=TLS://:1", "says no security protocol"),
        ("listeners=PLAINTEXT://:70000", "ports are from 0 to 65535"),
        ("listeners=PLAINTEXT:9092", "not an address of the form"),
        ("listeners=A://:1", "says no security protocol"),
        ("listeners=PLAINTEXT://:1,plaintext://:2", "names the listener PLAINTEXT twice"),
        ("listeners=CONTROLLER://:1", "no listener for clients"),
        ("listeners=", "it must have at least one item"),
        ("listeners=PLAINTEXT://0.0.0.0:1", "set advertised.listeners to an address"),
        ("advertised.listeners=SSL://h:1", "the listener SSL, which is not in listeners"),
        ("advertised.listeners=CONTROLLER://h:1", "has no listener for clients"),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:1", "cannot be reached"),
        ("listener.security.protocol.map=A:B", "each entry must be NAME:PROTOCOL"),
        ("node.id=-1", "node.id is -1; it must be at least 0."),
        ("broker.id=-1", "node.id is -1; it must be at least 0."),
        ("log.dirs=", "it must have at least one item"),
    ],
)
def test_what_is_refused_and_how_it_is_said(override: str, sentence: str | None) -> None:
    if sentence is None:
        assert config(override).topic_defaults.min_compaction_lag_ms == 2**63 - 1
    else:
        assert sentence in refusal(override)


def test_secrets_are_not_repeated() -> None:
    loaded = load_broker_config(overrides=["ssl.key.password=secret"])
    assert "secret" not in "".join(loaded.warnings)
    with pytest.raises(InvalidSetting) as refused:
        load_broker_config(overrides=["ssl.key.password=secret", "ssl.client.auth=secretly"])
    assert "secretly" in str(refused.value)
    assert "secret'" not in str(refused.value)


def test_settings_of_listeners_that_nothing_reads_are_told_without_their_values() -> None:
    loaded = load_broker_config(
        overrides=[
            "sasl.jaas.config=hidden",
            "listener.name.other.ssl.key.password=hidden",
            "listener.name.plaintext.ssl.key.password=hidden",
        ]
    )
    assert loaded.warnings == (
        "listener.name.other.ssl.key.password is accepted but has no effect in Strandline.",
        "sasl.jaas.config is accepted but has no effect in Strandline.",
    )
    assert "hidden" not in repr(loaded.config)


def test_a_jaas_line_of_no_mechanism_is_told_with_the_name_that_it_should_have() -> None:
    own = "listener.name.plaintext"
    loaded = load_broker_config(
        overrides=[
            f"{own}.gssapi.sasl.jaas.config=hidden",
            f"{own}.sasl.jaas.config=hidden",
            f"{own}.scram-sha-256.sasl.jaas.config=hidden",
        ]
    )
    assert loaded.warnings == tuple(
        f"{name} is accepted but has no effect: write {own}.MECHANISM.sasl.jaas.config, where "
        "MECHANISM is one of plain, scram-sha-256, scram-sha-512, oauthbearer."
        for name in (f"{own}.gssapi.sasl.jaas.config", f"{own}.sasl.jaas.config")
    )


def test_of_a_listeners_settings_those_that_are_for_the_whole_broker_are_told() -> None:
    own = "listener.name.plaintext"
    loaded = load_broker_config(
        overrides=[
            f"{own}.connections.max.idle.ms=7",
            f"{own}.connections.max.reauth.ms=7",
            f"{own}.max.connections=7",
            f"{own}.message.max.bytes=7",
            f"{own}.plain.connections.max.reauth.ms=7",
            f"{own}.plain.ssl.client.auth=required",
            f"{own}.sasl.enabled.mechanisms=PLAIN",
            f"{own}.sasl.kerberos.service.name=kafka",
            f"{own}.ssl.client.auth=required",
            f"{own}.ssl.principal.mapping.rules=DEFAULT",
        ]
    )
    but = "is accepted but has no effect"
    assert loaded.warnings == (
        f"{own}.connections.max.idle.ms {but}: connections.max.idle.ms is not read for one "
        "listener.",
        f"{own}.message.max.bytes {but}: message.max.bytes is not read for one listener.",
        f"{own}.plain.ssl.client.auth {but}: ssl.client.auth is not read for one mechanism.",
        f"{own}.sasl.kerberos.service.name {but} in Strandline.",
    )


def test_broker_id_is_an_older_name_of_node_id() -> None:
    assert config("broker.id=3").node_id == 3
    assert config("broker.id=3", "node.id=3").node_id == 3
    assert "must be equal" in refusal("broker.id=3", "node.id=4")


def test_listeners_may_share_a_port_only_across_address_families() -> None:
    both = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"
    assert len(config(both, "listeners=A://127.0.0.1:1,B://[::1]:1").listeners) == 2
    assert len(config(both, "listeners=A://h:0,B://h:0").listeners) == 2
    assert "uses port 1 for A, B" in refusal(both, "listeners=A://127.0.0.1:1,B://127.0.0.2:1")
    assert "uses port 1 for A, B" in refusal(both, "listeners=A://:1,B://[::1]:1")


def test_a_listener_is_written_as_it_is_read() -> None:
    listener = config("listeners=PLAINTEXT://[fe80::1%en0]:9").listeners[0]
    assert listener == Listener("PLAINTEXT", "fe80::1%en0", 9)
    assert str(listener) == "PLAINTEXT://[fe80::1%en0]:9"
    assert str(Listener("PLAINTEXT", "", 9092)) == "PLAINTEXT://:9092"


def test_limits_by_address() -> None:
    made = config("max.connections.per.ip=0", "max.connections.per.ip.overrides=::1:4, 10.0.0.5:5")
    assert made.max_connections_per_ip_overrides == {"::1": 4, "10.0.0.5": 5}


def test_a_stored_limit_of_a_host_is_left_out_alone() -> None:
    made = apply_dynamic(
        config(),
        cluster_wide={"max.connections.per.ip.overrides": "h:5", "max.connections": "7"},
        per_broker={},
    )
    assert (made.config.max_connections, made.config.max_connections_per_ip_overrides) == (7, {})
    assert "max.connections.per.ip.overrides is ignored" in made.warnings[0]


def test_limits_are_by_addresses_as_connections_have_them() -> None:
    made = config(
        "max.connections.per.ip.overrides=0:0:0:0:0:0:0:1:0,[2001:DB8::0:1]:2,::ffff:10.0.0.1:3"
    )
    assert made.max_connections_per_ip_overrides == {"::1": 0, "2001:db8::1": 2, "10.0.0.1": 3}


@pytest.mark.parametrize(
    ("overrides", "retention_ms"),
    [
        ((), 604_800_000),
        (("log.retention.hours=1",), 3_600_000),
        (("log.retention.hours=1", "log.retention.minutes=2"), 120_000),
        (("log.retention.hours=1", "log.retention.minutes=2", "log.retention.ms=3"), 3),
        (("log.retention.hours=-5",), -1),
        (("log.retention.ms=-1",), -1),
    ],
)
def test_the_finest_unit_wins(overrides: tuple[str, ...], retention_ms: int) -> None:
    assert config(*overrides).topic_defaults.retention_ms == retention_ms


def test_the_scheduler_interval_is_the_default_of_the_flush_interval() -> None:
    assert config("log.flush.scheduler.interval.ms=9").topic_defaults.flush_ms == 9
    made = config("log.flush.scheduler.interval.ms=9", "log.flush.interval.ms=8")
    assert (made.topic_defaults.flush_ms, made.log_flush_scheduler_interval_ms) == (8, 9)


def test_a_topic_follows_its_overrides_then_the_broker() -> None:
    broker = config("message.max.bytes=5", "log.cleanup.policy=compact,delete")
    topic = topic_config({"retention.ms": "7", "internal.segment.bytes": "12"}, broker)
    assert topic.max_message_bytes == 5
    assert topic.cleanup_policies == {"compact", "delete"}
    assert (topic.is_compacted, topic.deletes_old_segments) == (True, True)
    assert (topic.retention_ms, topic.segment_bytes) == (7, 12)
    assert topic_config({"cleanup.policy": ""}, broker).cleanup_policies == frozenset()


def test_a_compacted_topic_closes_segments_in_time_to_compact() -> None:
    overrides = {"max.compaction.lag.ms": "5", "segment.ms": "9"}
    assert topic_config(overrides, BrokerConfig()).max_segment_ms == 9
    compacted = {**overrides, "cleanup.policy": "compact"}
    assert topic_config(compacted, BrokerConfig()).max_segment_ms == 5


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"retention": "1"}, "retention is not a topic setting; did you mean retention.ms?"),
        ({"segment.bytes": "1048575"}, "must be at least 1048576"),
        ({"remote.storage.enable": "true"}, "accepts only the default, false"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "must not be above"),
    ],
)
def test_what_a_topic_may_not_say(overrides: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(sentence)):
        topic_config(overrides, BrokerConfig())


def test_stored_overrides_of_a_topic_are_left_out_when_they_are_not_allowed_here() -> None:
    stored = {"remote.storage.enable": "true", "retention": "1", "retention.ms": "5"}
    made = stored_topic_config(stored, BrokerConfig())
    assert made.config == TopicConfig(retention_ms=5)
    assert len(made.warnings) == 2
    contradiction = {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}
    made = stored_topic_config(contradiction, BrokerConfig())
    assert made == (TopicConfig(min_compaction_lag_ms=2, max_compaction_lag_ms=1), ())


def test_dynamic_settings_replace_every_spelling_below_them() -> None:
    static = config("log.retention.minutes=1", "log.roll.ms=4")
    made = apply_dynamic(
        static,
        cluster_wide={"log.retention.ms": "2", "max.connections": "3"},
        per_broker={"max.connections": "4"},
    )
    assert made.config.topic_defaults.retention_ms == 2
    assert made.config.topic_defaults.segment_ms == 4
    assert made.config.max_connections == 4
    back = apply_dynamic(made.config, cluster_wide={}, per_broker={})
    assert back.config == static


def test_a_weaker_spelling_in_a_stronger_layer_wins() -> None:
    layers = SettingLayers(static={"log.roll.ms": "1"}, cluster_wide={"log.roll.hours": "2"})
    assert make_broker_config(layers).config.topic_defaults.segment_ms == 7_200_000


def test_stored_settings_that_are_not_allowed_any_more_are_left_out() -> None:
    made = apply_dynamic(
        BrokerConfig(),
        cluster_wide={"log.segment.bytes": "many", "node.id": "4", "max.connections": "3"},
        per_broker={"nothing": "1", "node.id": "3"},
    )
    assert made.config.max_connections == 3
    assert made.config.layers.cluster_wide == {"max.connections": "3"}
    assert made.config.layers.per_broker == {"nothing": "1"}
    *ignored, unknown = made.warnings
    assert len(ignored) == 3
    assert all("is ignored" in sentence for sentence in ignored)
    assert unknown == "nothing is accepted but has no effect in Strandline."


def test_of_stored_settings_those_that_contradict_others_are_left_out_alone() -> None:
    stored = {"max.connections.per.ip": "0", "max.connections": "3"}
    made = apply_dynamic(BrokerConfig(), cluster_wide={}, per_broker=stored)
    assert made.config.layers.per_broker == {"max.connections": "3"}
    [warning] = made.warnings
    assert warning.startswith("max.connections.per.ip stays as it is: ")


LOWER, UPPER = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"


@pytest.mark.parametrize(
    ("in_force", "wanted", "followed"),
    [
        ({LOWER: "1", UPPER: "2"}, {LOWER: "3", UPPER: "4"}, {LOWER: "3", UPPER: "4"}),
        ({LOWER: "3", UPPER: "4"}, {LOWER: "1", UPPER: "2"}, {LOWER: "1", UPPER: "2"}),
        ({LOWER: "1", UPPER: "2"}, {LOWER: "20", UPPER: "4"}, {LOWER: "1", UPPER: "4"}),
        ({LOWER: "15", UPPER: "20"}, {LOWER: "15"}, {LOWER: "15", UPPER: "20"}),
        ({}, {LOWER: "15"}, {}),
    ],
)
def test_what_contradicts_the_file_stays_as_it_is(
    in_force: dict[str, str], wanted: dict[str, str], followed: dict[str, str]
) -> None:
    """At run time that is what the broker follows, as in Kafka; at its start, the file."""
    static = config(f"{UPPER}=10")
    other = {"min.insync.replicas": "2"}
    before = apply_dynamic(static, cluster_wide=in_force | other, per_broker={})
    assert before.config.layers.cluster_wide == in_force | other
    retained = {"log.retention.ms": "-1"}
    made = apply_dynamic(before.config, cluster_wide=wanted | other | retained, per_broker={})
    assert made.config.layers.cluster_wide == followed | other | retained
    assert len(made.warnings) == (followed != wanted)


def test_a_brokers_own_settings_count_before_those_of_all() -> None:
    """As they came while the broker ran, so they are followed at its start."""
    made = apply_dynamic(config(), cluster_wide={LOWER: "15"}, per_broker={UPPER: "10"})
    assert made.config.layers.per_broker == {UPPER: "10"}
    assert made.config.layers.cluster_wide == {}


def test_a_stored_retention_of_brokers_that_cannot_be_used_never_becomes_shorter() -> None:
    stored = {"log.retention.ms": "?", "log.cleanup.policy": "burn", "log.retention.bytes": "?"}
    static = config("log.retention.bytes=5")
    made = apply_dynamic(static, cluster_wide=stored, per_broker={}).config
    defaults = made.topic_defaults
    assert (defaults.retention_ms, defaults.retention_bytes) == (-1, -1)
    assert defaults.cleanup_policies == frozenset()
    running = apply_dynamic(static, cluster_wide={"log.retention.ms": "7"}, per_broker={}).config
    made = apply_dynamic(running, cluster_wide=stored, per_broker={}).config
    assert made.topic_defaults.retention_ms == 7


def test_warnings_of_a_change_do_not_repeat_those_of_the_file() -> None:
    loaded = load_broker_config(overrides=["group.min.session.timeout.ms=1800001"])
    assert loaded.warnings
    changed = apply_dynamic(loaded.config, cluster_wide={"nothing": "1"}, per_broker={})
    assert changed.warnings == ("nothing is accepted but has no effect in Strandline.",)


def test_odd_but_allowed() -> None:
    loaded = load_broker_config(overrides=["group.min.session.timeout.ms=1800001"])
    assert "no member can join" in loaded.warnings[0]


def test_internal_topics_fit_the_cluster_unless_told() -> None:
    fitting, told = BrokerConfig(), config("offsets.topic.replication.factor=3")
    assert [fitting.offsets_topic_replicas(n) for n in (0, 1, 2, 3, 9)] == [1, 1, 2, 3, 3]
    assert told.offsets_topic_replicas(1) == 3
    assert fitting.offsets_retention_ms == 604_800_000


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["group.consumer.assignors=uniform,com.example.Mine"], "has com.example.Mine, which"),
        (["group.consumer.session.timeout.ms=1000"], "must not be above"),
        (["group.consumer.max.heartbeat.interval.ms=4000"], "must not be above"),
        (["group.consumer.assignment.interval.ms=16000"], "must not be above"),
        (
            [
                "group.consumer.max.heartbeat.interval.ms=45000",
                "group.consumer.heartbeat.interval.ms=45000",
            ],
            "it must be less than group.consumer.session.timeout.ms",
        ),
        (["group.share.heartbeat.interval.ms=1000"], "must not be above"),
        (["group.share.session.timeout.ms=10000"], "must not be above"),
        (["group.share.record.lock.duration.ms=1000"], "must not be above"),
        (["group.share.min.session.timeout.ms=70000"], "must not be above"),
        (["group.share.assignment.interval.ms=20000"], "must not be above"),
        (["group.share.max.delivery.count.limit=5", "group.share.delivery.count.limit=6"], "above"),
        (["group.share.partition.max.record.locks=5000"], "must not be above"),
        (["group.share.max.share.sessions=1"], "group.share.max.size is 200; it must not be above"),
        (
            [
                "group.share.max.heartbeat.interval.ms=45000",
                "group.share.heartbeat.interval.ms=45000",
            ],
            "it must be less than group.share.session.timeout.ms",
        ),
    ],
)
def test_settings_of_groups_that_do_not_fit_together(settings: list[str], sentence: str) -> None:
    with pytest.raises(InvalidSetting, match=sentence):
        load_broker_config(None, settings)


def test_a_group_keeps_within_bounds_that_have_changed() -> None:
    narrow = ["group.consumer.max.session.timeout.ms=50000"]
    broker = load_broker_config(None, narrow).config
    assert group_config({}, broker).consumer_session_timeout_ms == 45_000
    overrides = {"consumer.session.timeout.ms": "60000"}
    assert group_config(overrides, broker).consumer_session_timeout_ms == 50_000
    with pytest.raises(InvalidSetting, match=r"group\.consumer\.max\.session\.timeout\.ms"):
        check_group(overrides, broker)
    check_group(overrides, load_broker_config(None, []).config)


def test_a_group_needs_more_than_one_heartbeat_in_a_session() -> None:
    settings = [
        "group.consumer.min.session.timeout.ms=5000",
        "group.consumer.max.heartbeat.interval.ms=60000",
    ]
    broker = load_broker_config(None, settings).config
    with pytest.raises(InvalidSetting, match=r"must be greater than consumer\.heartbeat"):
        check_group({"consumer.session.timeout.ms": "5000"}, broker)
