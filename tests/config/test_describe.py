"""What DescribeConfigs answers."""

from __future__ import annotations

from strandline.config.broker import BrokerConfig
from strandline.config.definition import BROKER_SETTINGS
from strandline.config.describe import (
    DescribedSetting,
    DescribedSynonym,
    Source,
    describe_broker,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
)
from strandline.config.load import apply_dynamic, load_broker_config
from strandline.config.values import Kind


def by_name(described: list[DescribedSetting]) -> dict[str, DescribedSetting]:
    names = [each.name for each in described]
    assert names == sorted(set(names))
    return {each.name: each for each in described}


def broker() -> BrokerConfig:
    static = load_broker_config(
        overrides=[
            "log.retention.hours=2",
            "log.segment.bytes=2097152",
            "ssl.key.password=hunter2",
            "listener.name.x.max.connections=5",
        ]
    ).config
    return apply_dynamic(
        static,
        cluster_wide={"log.segment.bytes": "3145728", "max.connections": "8"},
        per_broker={"log.segment.bytes": "4194304"},
    ).config


def test_a_topic_without_anything_set() -> None:
    described = by_name(describe_topic({}, BrokerConfig()))
    assert len(described) == 33  # internal.segment.bytes only when it is set
    assert described["segment.bytes"].value == "1073741824"
    assert described["segment.bytes"].kind is Kind.INT
    assert {each.source for each in described.values()} == {Source.DEFAULT_CONFIG}
    assert not any(each.read_only or each.is_sensitive for each in described.values())
    assert described["cleanup.policy"].value == "delete"
    assert described["min.cleanable.dirty.ratio"].value == "0.5"
    assert described["preallocate"].value == "false"


def test_synonyms_of_a_topic_setting_are_strongest_first() -> None:
    described = by_name(
        describe_topic({"segment.bytes": " 5242880 ", "internal.segment.bytes": "9"}, broker())
    )
    assert described["segment.bytes"].value == "5242880"
    assert described["segment.bytes"].source is Source.DYNAMIC_TOPIC_CONFIG
    assert described["segment.bytes"].synonyms == (
        DescribedSynonym("segment.bytes", "5242880", Source.DYNAMIC_TOPIC_CONFIG),
        DescribedSynonym("log.segment.bytes", "4194304", Source.DYNAMIC_BROKER_CONFIG),
        DescribedSynonym("log.segment.bytes", "3145728", Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        DescribedSynonym("log.segment.bytes", "2097152", Source.STATIC_BROKER_CONFIG),
        DescribedSynonym("log.segment.bytes", "1073741824", Source.DEFAULT_CONFIG),
    )
    assert described["internal.segment.bytes"].value == "9"


def test_a_weaker_spelling_gives_a_topic_its_value_but_is_not_listed() -> None:
    """In Kafka, `log.retention.hours` is nowhere among the synonyms of `retention.ms`."""
    retention = by_name(describe_topic({}, broker()))["retention.ms"]
    assert retention.value == "7200000"
    assert retention.source is Source.DEFAULT_CONFIG
    assert retention.synonyms == ()
    overridden = by_name(describe_topic({"retention.ms": "-1"}, broker()))["retention.ms"]
    assert overridden.synonyms == (
        DescribedSynonym("retention.ms", "-1", Source.DYNAMIC_TOPIC_CONFIG),
    )


def test_what_nothing_sets_lists_the_default_of_the_strongest_spelling_only() -> None:
    described = by_name(describe_topic({}, BrokerConfig()))
    for name in ("retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms"):
        assert described[name].synonyms == (), name
    assert described["segment.bytes"].synonyms == (
        DescribedSynonym("log.segment.bytes", "1073741824", Source.DEFAULT_CONFIG),
    )
    assert described["leader.replication.throttled.replicas"].synonyms == ()


def test_the_strongest_spelling_behind_a_topic_setting_is_listed_with_the_weaker_ones() -> None:
    static = load_broker_config(
        overrides=["log.retention.ms=5000", "log.retention.minutes=9"]
    ).config
    retention = by_name(describe_topic({}, static))["retention.ms"]
    assert (retention.value, retention.source) == ("5000", Source.STATIC_BROKER_CONFIG)
    assert retention.synonyms == (
        DescribedSynonym("log.retention.ms", "5000", Source.STATIC_BROKER_CONFIG),
        DescribedSynonym("log.retention.minutes", "9", Source.STATIC_BROKER_CONFIG),
        DescribedSynonym("log.retention.hours", "168", Source.DEFAULT_CONFIG),
    )


def test_an_override_that_is_not_allowed_is_not_shown() -> None:
    stored = {"segment.ms": "x", "retention.ms": "x", "nothing": "1"}
    described = by_name(describe_topic(stored, BrokerConfig()))
    assert described["segment.ms"].source is Source.DEFAULT_CONFIG
    assert "nothing" not in described
    retention = described["retention.ms"]  # it is not shortened
    assert (retention.value, retention.source) == ("-1", Source.DYNAMIC_TOPIC_CONFIG)
    of_group = by_name(describe_group({"share.session.timeout.ms": "x"}, BrokerConfig()))
    assert of_group["share.session.timeout.ms"].value == "45000"


def test_a_broker() -> None:
    described = by_name(describe_broker(broker()))
    segment = described["log.segment.bytes"]
    assert (segment.value, segment.source) == ("4194304", Source.DYNAMIC_BROKER_CONFIG)
    assert [each.value for each in segment.synonyms] == [
        "4194304",
        "3145728",
        "2097152",
        "1073741824",
    ]
    assert not segment.read_only
    assert described["log.dirs"].value is None
    assert described["broker.id"].value == described["node.id"].value == "1"
    assert described["num.partitions"].read_only
    assert described["num.partitions"].documentation == BROKER_SETTINGS["num.partitions"].doc
    assert not described["listeners"].read_only
    assert described["advertised.listeners"].read_only
    assert described["max.connections"].source is Source.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert "log.initial.task.delay.ms" not in described
    assert "leader.replication.throttled.rate" not in described


def test_a_setting_is_not_shown_as_from_a_stronger_spelling() -> None:
    described = by_name(describe_broker(broker()))
    assert described["log.retention.ms"].synonyms == ()
    assert described["log.retention.ms"].source is Source.DEFAULT_CONFIG
    assert described["log.retention.hours"].value == "2"
    assert described["log.retention.hours"].source is Source.STATIC_BROKER_CONFIG


def test_a_setting_for_one_listener() -> None:
    described = by_name(describe_broker(broker()))["listener.name.x.max.connections"]
    assert (described.value, described.kind) == ("5", Kind.INT)
    assert described.synonyms[0].name == "listener.name.x.max.connections"
    assert described.synonyms[1].name == "max.connections"


def test_secrets_have_no_value() -> None:
    secret = by_name(describe_broker(broker()))["ssl.key.password"]
    assert secret.is_sensitive
    assert secret.value is None
    assert secret.source is Source.STATIC_BROKER_CONFIG
    assert secret.synonyms[0].value is None
    assert "hunter2" not in repr(describe_broker(broker()))


def test_an_internal_setting_is_shown_when_it_is_set() -> None:
    made = load_broker_config(overrides=["log.initial.task.delay.ms=1"]).config
    assert by_name(describe_broker(made))["log.initial.task.delay.ms"].value == "1"


def test_cluster_wide_settings() -> None:
    described = by_name(describe_cluster_defaults(broker()))
    assert described.keys() == {"log.segment.bytes", "max.connections"}
    assert described["log.segment.bytes"].synonyms == (
        DescribedSynonym("log.segment.bytes", "3145728", Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
    )
    assert described["max.connections"].source is Source.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert describe_cluster_defaults(BrokerConfig()) == []


def test_a_cluster_wide_setting_for_one_listener() -> None:
    name = "listener.name.x.max.connections"
    stored = {name: "7", "max.connections": "8"}
    made = apply_dynamic(BrokerConfig(), cluster_wide=stored, per_broker={}).config
    assert by_name(describe_cluster_defaults(made))[name] == DescribedSetting(
        name=name,
        value="7",
        source=Source.DYNAMIC_DEFAULT_BROKER_CONFIG,
        synonyms=(
            DescribedSynonym(name, "7", Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
            DescribedSynonym("max.connections", "8", Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ),
        kind=Kind.INT,
        documentation=BROKER_SETTINGS["max.connections"].doc,
    )
