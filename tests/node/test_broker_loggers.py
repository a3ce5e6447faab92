"""Resources with settings that are no metadata: loggers; and those that have none here (C-21)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.config.alter import Operation
from strandline.errors import ErrorCode
from strandline.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from strandline.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.node.world import Client, World

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
NAME = "strandline.node.membership"
GROUP_SETTINGS = {
    "consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "share.assignment.interval.ms",
    "share.auto.offset.reset",
    "share.delivery.count.limit",
    "share.heartbeat.interval.ms",
    "share.isolation.level",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
    "share.renew.acknowledge.enable",
    "share.session.timeout.ms",
}


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    loggers = [logging.getLogger(name) for name in (None, "strandline", NAME)]
    before = [each.level for each in loggers]
    yield world.connect()
    for each, level in zip(loggers, before, strict=True):
        each.setLevel(level)


def describe(client: Client, kind: int, name: str, *keys: str) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys)
    )
    (result,) = client.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    return result


def level(client: Client, name: str = NAME) -> str:
    (entry,) = describe(client, LOGGER, "1", name).configs
    assert (entry.config_source, entry.read_only) == (6, False)
    value: str = entry.value
    return value


def alter(
    client: Client,
    name: str,
    value: str | None,
    *,
    broker: str = "1",
    kind: int = LOGGER,
    operation: int = Operation.SET,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    config = AlterableConfig(name=name, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=broker, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = client.ask(request, 1).responses
    assert (result.resource_type, result.resource_name) == (kind, broker)
    return result.error_code, result.error_message


def test_c21_the_levels_of_loggers_can_be_read_and_changed(client: Client) -> None:
    """With Kafka's words for the levels, and truly: they are those of Python's loggers."""
    ours = logging.getLogger(NAME)
    logging.getLogger("strandline").setLevel(logging.ERROR)
    assert level(client) == "ERROR"
    assert alter(client, NAME, "DEBUG", validate_only=True) == (0, None)
    assert not ours.isEnabledFor(logging.DEBUG)
    for word, expected in [("TRACE", 5), ("DEBUG", 10), ("WARN", 30), ("FATAL", 50)]:
        assert alter(client, NAME, word) == (0, None)
        assert (ours.getEffectiveLevel(), level(client)) == (expected, word)
    # Removed, it follows the one above it again.
    assert alter(client, NAME, None, operation=Operation.DELETE) == (0, None)
    assert level(client) == "ERROR"
    assert alter(client, "root", "FATAL") == (0, None)
    assert logging.getLogger().level == logging.CRITICAL


@pytest.mark.parametrize(
    ("name", "value", "more", "code", "sentence"),
    [
        (NAME, "LOUD", {}, ErrorCode.INVALID_CONFIG, "to LOUD as it is not a supported log level"),
        (NAME, None, {}, ErrorCode.INVALID_CONFIG, "not a supported log level"),
        ("strandline.none", "INFO", {}, ErrorCode.INVALID_CONFIG, "does not exist!"),
        ("kazoo.client", "INFO", {}, ErrorCode.INVALID_CONFIG, "does not exist!"),
        (NAME, "INFO", {"operation": 2}, ErrorCode.INVALID_REQUEST, "APPEND operation is not all"),
        (NAME, "INFO", {"operation": 9}, ErrorCode.INVALID_REQUEST, "operation 9 does not exist"),
        ("root", None, {"operation": 1}, ErrorCode.INVALID_REQUEST, "of the root logger is not"),
        (NAME, "INFO", {"broker": "9"}, ErrorCode.INVALID_REQUEST, "expected 1 but received 9"),
        (NAME, "INFO", {"broker": ""}, ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        (
            "interval.ms",
            "1000",
            {"kind": CLIENT_METRICS, "broker": "x"},
            ErrorCode.INVALID_REQUEST,
            "does not collect metrics from clients",
        ),
        (
            "share.session.timeout.ms",
            "1000",
            {"kind": GROUP, "broker": "g"},
            ErrorCode.INVALID_CONFIG,
            "must be greater than or equal to group.share.min.session.timeout.ms: 45000",
        ),
        (
            "consumer.session.timeout.ms",
            "1000",
            {"kind": GROUP, "broker": "g"},
            ErrorCode.INVALID_CONFIG,
            "must be greater than or equal to group.consumer.min.session.timeout.ms: 45000",
        ),
        (
            "consumer.heartbeat.interval.ms",
            "20000",
            {"kind": GROUP, "broker": "g"},
            ErrorCode.INVALID_CONFIG,
            "must be less than or equal to group.consumer.max.heartbeat.interval.ms: 15000",
        ),
        (
            "consumer.session.timeout",
            "50000",
            {"kind": GROUP, "broker": "g"},
            ErrorCode.INVALID_CONFIG,
            "consumer.session.timeout.ms",
        ),
        (
            "consumer.session.timeout.ms",
            "50000",
            {"kind": GROUP, "broker": ""},
            ErrorCode.INVALID_REQUEST,
            "Default group resources are not allowed.",
        ),
    ],
)
def test_c21_what_is_refused(
    client: Client, name: str, value: str, more: Any, code: ErrorCode, sentence: str
) -> None:
    found, told = alter(client, name, value, **more)
    assert found == code
    assert told is not None
    assert sentence in told


def test_c21_resources_without_settings_say_why(client: Client) -> None:
    for kind, sentence in [(CLIENT_METRICS, "KIP-714"), (77, "type 77")]:
        result = describe(client, kind, "x")
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert sentence in result.error_message


def test_groups_have_settings_whatever_their_names_are(client: Client) -> None:
    for group in ("readers", "a/b c%2F", "é", "<default>"):
        code, told = alter(client, "consumer.session.timeout.ms", "50000", kind=GROUP, broker=group)
        assert (code, told) == (ErrorCode.NONE, None)
        found = {each.name: each for each in describe(client, GROUP, group).configs}
        assert found.keys() == GROUP_SETTINGS
        session = found["consumer.session.timeout.ms"]
        assert (session.value, session.config_source) == ("50000", 8)
        assert found["consumer.heartbeat.interval.ms"].value == "5000"
    answer = client.ask(ListConfigResourcesRequest(resource_types=[GROUP]), 1)
    names = {each.resource_name for each in answer.config_resources}
    assert names == {"readers", "a/b c%2F", "é", "<default>"}


def test_c21_loggers_are_listed_and_no_groups_or_subscriptions(client: Client) -> None:
    for asked, expected in [
        ([], {(TOPIC, "orders"), (BROKER, "1"), (LOGGER, "1")}),
        ([LOGGER], {(LOGGER, "1")}),
        ([CLIENT_METRICS, GROUP], set()),
    ]:
        answer = client.ask(ListConfigResourcesRequest(resource_types=asked), 1)
        assert answer.error_code == 0
        found = {(each.resource_type, each.resource_name) for each in answer.config_resources}
        assert found == expected
    answer = client.ask(ListConfigResourcesRequest(resource_types=[77]), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
