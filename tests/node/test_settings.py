"""Which settings a node follows when stored ones cannot be used, alone or with the others."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from strandline.cluster.store import Create, Operation, SetData
from strandline.cluster.znodes import ConfigNode, ConfigResource, ResourceKind
from strandline.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.node.messages import batch, produce
from tests.node.world import Client, World

ALL_BROKERS = ConfigResource(ResourceKind.BROKER, "")
LEDGER = ConfigResource(ResourceKind.TOPIC, "ledger")
GROUP = ConfigResource(ResourceKind.GROUP, "workers")
CHECK_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


def configure(client: Client, setting: str, value: str) -> None:
    """Set one setting of all brokers."""
    change = AlterableConfig(name=setting, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
    (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer.error_message


def store(world: World, resource: ConfigResource, overrides: Mapping[str, str]) -> None:
    """Have another broker, perhaps of another version, store the settings of a resource."""
    stored = world.node.metadata.image.configs.get(resource)
    data = ConfigNode(overrides).encode()
    operation: Operation = (
        Create(resource.path, data)
        if stored is None
        else SetData(resource.path, data, stored.version)
    )
    changes = world.tree.multi([operation]).changes
    assert changes is not None
    world.metadata_changed(changes)


def test_a_later_setting_of_all_brokers_takes_nothing_from_a_topic() -> None:
    """Kafka holds settings of a topic against those of brokers only when the topic's change."""
    world = World(f"log.retention.check.interval.ms={CHECK_MS}")
    world.create_topic(
        "ledger", cleanup_policy="compact", min_compaction_lag_ms=str(HOUR_MS), retention_ms="-1"
    )
    client = world.connect()
    log = world.replica("ledger").log
    for key in (b"a", b"b"):
        client.ask(produce(batch(b"x", key=key, timestamp=world.now.wall_ms), "ledger"), 9)
        log.roller.roll(world.now.wall_ms)
    configure(client, "log.cleaner.max.compaction.lag.ms", str(HOUR_MS // 2))
    assert log.config.cleanup_policies == {"compact"}
    assert (log.config.retention_ms, log.config.min_compaction_lag_ms) == (-1, HOUR_MS)
    assert log.config.max_compaction_lag_ms == HOUR_MS // 2
    world.advance(8 * DAY_MS)
    assert log.log_start_offset == 0


@pytest.mark.parametrize("lost", ["cleanup.policy", "retention.bytes", "retention.ms"])
def test_one_setting_that_cannot_be_used_leaves_the_topic_the_others(
    lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What would remove records removes none; a name that is not known says nothing at all."""
    world = World("log.cleanup.policy=compact,delete", "log.retention.bytes=1")
    world.create_topic("ledger")
    good = {
        "cleanup.policy": "delete",
        "retention.bytes": "7",
        "retention.ms": "8",
        "segment.ms": "9",
    }
    caplog.set_level(logging.WARNING)
    store(world, LEDGER, {**good, lost: "?", "nothing": "1"})
    config = world.replica("ledger").log.config
    assert config.segment_ms == 9
    assert config.retention_bytes == (-1 if lost == "retention.bytes" else 7)
    assert config.retention_ms == (-1 if lost == "retention.ms" else 8)
    assert config.cleanup_policies == (set() if lost == "cleanup.policy" else {"delete"})
    told = [each for each in caplog.messages if "Topic ledger: " in each]
    assert [lost in told[0], "nothing" in told[1], len(told)] == [True, True, 2]
    world.node.settings.of_topic("ledger", world.node.metadata.image)
    assert len([each for each in caplog.messages if "Topic ledger: " in each]) == 2


def test_one_setting_that_cannot_be_used_leaves_a_group_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    known = {"consumer.session.timeout.ms": "50000"}
    store(world, GROUP, {**known, "consumer.heartbeat.interval.ms": "?", "nothing": "1"})
    config = world.node.settings.of_group("workers", world.node.metadata.image)
    assert config.consumer_session_timeout_ms == 50_000
    assert config.consumer_heartbeat_interval_ms == 5_000
    assert [each for each in caplog.messages if "Group workers: " in each] == [
        "Group workers: The stored setting consumer.heartbeat.interval.ms is ignored: "
        "consumer.heartbeat.interval.ms is '?'; expected a 32-bit integer in [1,...].",
        "Group workers: The stored setting nothing is ignored: nothing is not a group setting.",
    ]


def test_a_contradiction_with_this_brokers_file_leaves_the_other_dynamic_settings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Another broker took the change, as its file allows; here it changes nothing else."""
    world = World(f"log.cleaner.max.compaction.lag.ms={HOUR_MS}")
    before = {"min.insync.replicas": "2", "log.retention.ms": "-1"}
    store(world, ALL_BROKERS, before | {"log.cleaner.min.compaction.lag.ms": "5"})
    assert caplog.messages == []
    store(world, ALL_BROKERS, before | {"log.cleaner.min.compaction.lag.ms": "7200000"})
    store(world, LEDGER, {"segment.ms": "9"})
    assert [each for each in caplog.messages if "log.cleaner.min" in each] == [
        "Stored settings of brokers: log.cleaner.min.compaction.lag.ms stays as it is: "
        "min.compaction.lag.ms is 7200000 and max.compaction.lag.ms is 3600000; the minimum must "
        "not be above the maximum."
    ]

    def lag() -> int:
        defaults = world.node.settings.broker.topic_defaults
        assert (defaults.min_insync_replicas, defaults.retention_ms) == (2, -1)
        return defaults.min_compaction_lag_ms

    assert lag() == 5
    world.restart()
    assert lag() == 0
