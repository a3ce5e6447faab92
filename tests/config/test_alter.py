"""What alterations do to stored overrides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline.config.alter import (
    Alteration,
    Operation,
    alter_broker,
    alter_topic,
    replace_broker,
    replace_topic,
)
from strandline.config.broker import BrokerConfig
from strandline.config.describe import describe_broker
from strandline.config.load import apply_dynamic, load_broker_config
from strandline.errors import ErrorCode, InvalidSetting, ProtocolError

SET, DELETE, APPEND, SUBTRACT = Operation

BROKER = BrokerConfig()
PLAIN = "listener.name.plaintext"


def topic(overrides: dict[str, str], *alterations: tuple[str, int, str | None]) -> dict[str, str]:
    before = dict(overrides)
    altered = alter_topic(overrides, [Alteration(*each) for each in alterations], BROKER)
    assert overrides == before
    return altered


def topic_error(*alterations: tuple[str, int, str | None]) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        topic({"retention.ms": "5"}, *alterations)
    return caught.value


def test_set_and_delete() -> None:
    assert topic({}, ("retention.ms", SET, "1")) == {"retention.ms": "1"}
    assert topic({"retention.ms": "1"}, ("retention.ms", SET, "2")) == {"retention.ms": "2"}
    assert topic({"retention.ms": "1"}, ("retention.ms", DELETE, None)) == {}
    assert topic({}, ("retention.ms", DELETE, None)) == {}
    assert topic({}, ("no.such.setting", DELETE, None)) == {}


@pytest.mark.parametrize(
    ("stored", "operation", "value", "expected"),
    [
        (None, APPEND, "compact", "delete,compact"),
        (None, SUBTRACT, "delete", ""),
        ("compact", APPEND, "delete", "compact,delete"),
        ("compact", APPEND, "compact", "compact"),
        ("compact,delete", SUBTRACT, "compact", "delete"),
        ("compact,delete", SUBTRACT, "compact,delete", ""),
        ("compact", SUBTRACT, "delete", "compact"),
        ("", APPEND, "compact,delete", "compact,delete"),
    ],
)
def test_lists(stored: str | None, operation: int, value: str, expected: str) -> None:
    before = {} if stored is None else {"cleanup.policy": stored}
    assert topic(before, ("cleanup.policy", operation, value)) == {"cleanup.policy": expected}


@pytest.mark.parametrize(
    ("alterations", "code"),
    [
        ([("retention", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        ([("cleanup.policy", APPEND, "shred")], ErrorCode.INVALID_CONFIG),
        ([("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")],
         ErrorCode.INVALID_CONFIG),
        ([("leader.replication.throttled.replicas", SET, "0:1," * 9000)],
         ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 4, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
    ],
)  # fmt: skip
def test_errors(alterations: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    error = topic_error(*alterations)
    assert error.code is code
    assert alterations[0][0] in error.message


def test_the_older_request_replaces_everything() -> None:
    assert replace_topic([("retention.ms", "1")], BROKER) == {"retention.ms": "1"}
    assert replace_topic([], BROKER) == {}
    with pytest.raises(ProtocolError, match="null"):
        replace_topic([("retention.ms", None)], BROKER)
    with pytest.raises(ProtocolError, match="more than once"):
        replace_topic([("retention.ms", "1"), ("retention.ms", "1")], BROKER)


def test_settings_of_listeners() -> None:
    wanted = {
        f"{PLAIN}.max.connections": "5",
        f"{PLAIN}.ssl.keystore.location": "a.pem",
        f"{PLAIN}.ssl.key.password": "file:a.password",
    }
    alterations = [Alteration(name, SET, value) for name, value in wanted.items()]
    checked: list[BrokerConfig] = []
    altered = alter_broker({}, alterations, BROKER, one_broker=True, check=checked.append)
    assert altered == wanted
    assert [each.layers.per_broker for each in checked] == [wanted]

    def refuse(config: BrokerConfig) -> None:
        raise InvalidSetting("a.pem", f"{config.layers.per_broker[alterations[1].name]} is none.")

    with pytest.raises(ProtocolError, match=r"a\.pem is none"):
        alter_broker({}, alterations, BROKER, one_broker=True, check=refuse)
    stored = apply_dynamic(BROKER, cluster_wide=wanted, per_broker=wanted | {f"{PLAIN}.x": "y"})
    assert stored.config.layers.per_broker == wanted | {f"{PLAIN}.x": "y"}
    assert dict(stored.config.layers.cluster_wide) == {f"{PLAIN}.max.connections": "5"}
    described = {each.name: each for each in describe_broker(stored.config)}
    shown = described[f"{PLAIN}.ssl.keystore.location"]
    assert (shown.value, shown.read_only, shown.is_sensitive) == ("a.pem", False, False)
    assert described[f"{PLAIN}.ssl.key.password"].value is None


@pytest.mark.parametrize("one_broker", [True, False])
def test_broker_settings(one_broker: bool) -> None:
    setting = [Alteration("log.segment.bytes", SET, "1048576")]
    altered = alter_broker({"max.connections": "5"}, setting, BROKER, one_broker=one_broker)
    assert altered == {"max.connections": "5", "log.segment.bytes": "1048576"}
    replaced = replace_broker([("max.connections", "1")], BROKER, one_broker=one_broker)
    assert replaced == {"max.connections": "1"}


@pytest.mark.parametrize(
    ("name", "value", "one_broker", "code", "sentence"),
    [
        ("num.partitions", "1", True, ErrorCode.INVALID_REQUEST, "dynamically: [num.partitions]"),
        ("listeners", "PLAINTEXT://:1", True, ErrorCode.INVALID_REQUEST, "must stay as it is"),
        ("advertised.listeners", "X://:1", True, ErrorCode.INVALID_REQUEST, "configs dynamica"),
        ("cordoned.log.dirs", "*", False, ErrorCode.INVALID_REQUEST, "broker id must be specified"),
        ("ssl.key.password", "x", True, ErrorCode.INVALID_REQUEST, "only per-listener using the"),
        (
            "listener.name.x.max.connections",
            "1",
            True,
            ErrorCode.INVALID_REQUEST,
            "no listener 'x'",
        ),
        (f"{PLAIN}.max.connections", "-1", True, ErrorCode.INVALID_REQUEST, "at least 0"),
        (f"{PLAIN}.sasl.enabled.mechanisms", "A", True, ErrorCode.INVALID_REQUEST, "cannot change"),
        (f"{PLAIN}.ssl.keystore.type", "PEM", False, ErrorCode.INVALID_REQUEST, "id must be spec"),
        (
            f"{PLAIN}.ssl.key.password",
            "x",
            True,
            ErrorCode.INVALID_REQUEST,
            "env:NAME or file:PATH",
        ),
        ("min.insync.replicas", "1", True, ErrorCode.INVALID_CONFIG, "for all brokers"),
        ("max.connections", "-1", True, ErrorCode.INVALID_REQUEST, "must be at least 0"),
        ("max.connections.per.ip", "0", False, ErrorCode.INVALID_REQUEST, "no client could"),
        ("log.roll.ms", "0", False, ErrorCode.INVALID_REQUEST, "segment.ms"),
    ],
)
def test_broker_settings_that_cannot_change(
    name: str, value: str, one_broker: bool, code: ErrorCode, sentence: str
) -> None:
    with pytest.raises(ProtocolError) as caught:
        alter_broker({}, [Alteration(name, SET, value)], BROKER, one_broker=one_broker)
    assert caught.value.code is code
    assert sentence in caught.value.message


def test_c1_a_minimum_of_one_broker_that_an_older_version_stored_has_no_effect() -> None:
    """It can be taken away, and does not stand in the way of other changes."""
    stored = {"min.insync.replicas": "3", "max.connections": "5"}
    loaded = apply_dynamic(BROKER, cluster_wide={}, per_broker=stored)
    assert loaded.config.topic_defaults.min_insync_replicas == 1
    assert loaded.config.max_connections == 5
    assert any("min.insync.replicas is ignored" in each for each in loaded.warnings)
    for change in (
        Alteration("min.insync.replicas", Operation.DELETE, None),
        Alteration("max.connections", SET, "5"),
    ):
        assert alter_broker(stored, [change], BROKER, one_broker=True) == {"max.connections": "5"}


def test_c16_settings_that_cannot_change_are_refused_in_kafkas_words() -> None:
    """Tools compare them."""
    wanted = [Alteration(name, SET, "x") for name in ("node.id", "log.dirs", "num.partitions")]
    with pytest.raises(ProtocolError) as caught:
        alter_broker({}, wanted, BROKER, one_broker=True)
    assert caught.value.message == (
        "Cannot update these configs dynamically: [log.dirs, node.id, num.partitions]"
    )


@pytest.mark.parametrize("one_broker", [True, False])
def test_c14_unknown_dynamic_settings_are_stored(one_broker: bool) -> None:
    """As Kafka does: they may be those of a plugin."""
    unknown = [Alteration("my.plugin.url", SET, "x"), Alteration("max.connections", SET, "5")]
    altered = alter_broker({}, unknown, BROKER, one_broker=one_broker)
    assert altered == {"my.plugin.url": "x", "max.connections": "5"}


def test_c19_a_value_for_all_brokers_must_be_right_by_itself() -> None:
    """A good value of this broker's own hid a bad one that the others, and it later, met."""
    own = {"max.connections": "7", "log.cleaner.threads": "2"}
    broker = apply_dynamic(BROKER, cluster_wide={}, per_broker=own).config
    for value in ("-1", "many"):
        alters: tuple[Callable[[str], dict[str, str]], ...] = (
            lambda bad: alter_broker(
                {}, [Alteration("max.connections", SET, bad)], broker, one_broker=False
            ),
            lambda bad: replace_broker([("max.connections", bad)], broker, one_broker=False),
        )
        for alter in alters:
            with pytest.raises(ProtocolError) as caught:
                alter(value)
            assert caught.value.code is ErrorCode.INVALID_REQUEST
            assert "max.connections" in caught.value.message


def test_c19_a_bad_value_that_was_stored_before_does_not_stop_other_changes() -> None:
    """It is left out by every broker, so it has no effect; it can be changed and removed."""
    stored = {"max.connections": "many", "node.id": "4"}
    other = [Alteration("log.segment.bytes", SET, "1048576")]
    altered = alter_broker(stored, other, BROKER, one_broker=False)
    assert altered == {**stored, "log.segment.bytes": "1048576"}
    removed = [Alteration(name, DELETE, None) for name in stored]
    assert alter_broker(altered, removed, BROKER, one_broker=False) == {
        "log.segment.bytes": "1048576"
    }


def test_a_broker_change_is_checked_together_with_the_other_layers() -> None:
    broker = load_broker_config(overrides=["max.connections.per.ip.overrides=10.0.0.1:1"]).config
    limit = [Alteration("max.connections.per.ip", SET, "0")]
    assert alter_broker({}, limit, broker, one_broker=False) == {"max.connections.per.ip": "0"}


@pytest.mark.parametrize("one_broker", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    ],
)
def test_numbers_of_threads_change_to_the_half_or_the_double_at_most(
    name: str, one_broker: bool
) -> None:
    def alter(value: int) -> dict[str, str]:
        change = [Alteration(name, SET, str(value))]
        return alter_broker({}, change, broker, one_broker=one_broker)

    broker = load_broker_config(overrides=[f"{name}=5"]).config
    for value in (2, 5, 10):
        assert alter(value) == {name: str(value)}
    for value, rule in ((1, "be at least half the current value 5"), (11, "not be greater than")):
        with pytest.raises(ProtocolError, match=f"{name}={value}, value should {rule}") as caught:
            alter(value)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_without_threads_nothing_would_be_compacted() -> None:
    with pytest.raises(ProtocolError, match="at least 1"):
        alter_broker({}, [Alteration("log.cleaner.threads", SET, "0")], BROKER, one_broker=True)


def test_there_is_a_way_out_of_no_threads() -> None:
    """Of a number that an earlier version took, or that stands in the file."""
    name, stored = "log.cleaner.threads", {"log.cleaner.threads": "0"}
    broker = apply_dynamic(BROKER, cluster_wide=stored, per_broker={}).config
    deleted = alter_broker(stored, [Alteration(name, DELETE, None)], broker, one_broker=False)
    assert deleted == {}
    for count in ("1", "2"):
        change = [Alteration(name, SET, count)]
        assert alter_broker(stored, change, broker, one_broker=False) == {name: count}
    with pytest.raises(ProtocolError, match=f"{name}=3, value should be at most 2"):
        alter_broker(stored, [Alteration(name, SET, "3")], broker, one_broker=False)


def test_the_present_number_of_threads_is_that_of_the_broker_that_is_asked() -> None:
    """Its own value counts before that of all brokers; a deletion is a change, too."""
    own = {"num.io.threads": "64"}
    broker = apply_dynamic(BROKER, cluster_wide={}, per_broker=own).config
    other = [Alteration("max.connections", SET, "5")]
    assert alter_broker({}, other, broker, one_broker=False) == {"max.connections": "5"}
    with pytest.raises(ProtocolError, match="at least half the current value 64"):
        alter_broker(own, [Alteration("num.io.threads", DELETE, None)], broker, one_broker=True)


def test_a_broker_may_begin_with_any_number_of_threads() -> None:
    stored = [("num.io.threads", "64")]
    replaced = replace_broker(stored, BROKER, one_broker=True, is_running=False)
    assert replaced == dict(stored)
    with pytest.raises(ProtocolError, match="double the current value 8"):
        replace_broker(stored, BROKER, one_broker=True)


def test_a_setting_without_effect_is_told_when_it_changes_first() -> None:
    first = apply_dynamic(BROKER, cluster_wide={"num.io.threads": "9"}, per_broker={})
    assert first.warnings == ("num.io.threads is accepted but has no effect in Strandline.",)
    again = apply_dynamic(first.config, cluster_wide={"num.io.threads": "10"}, per_broker={})
    assert again.warnings == ()
