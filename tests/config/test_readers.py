"""A setting that is said to be served is read by the code that it is about."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from strandline.config.definition import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    Service,
    Setting,
)

ROOT = Path(__file__).parents[2] / "src" / "strandline"
PROPERTIES = {
    "socket.receive.buffer.bytes": "receive_buffer_bytes",
    "offsets.retention.minutes": "offsets_retention_ms",
    "offsets.topic.replication.factor": "offsets_topic_replicas",
    "transaction.state.log.min.isr": "transaction_topic_min_in_sync",
    "transaction.state.log.replication.factor": "transaction_topic_replicas",
    "share.coordinator.state.topic.min.isr": "share_topic_min_in_sync",
    "share.coordinator.state.topic.replication.factor": "share_topic_replicas",
    "cleanup.policy": "cleanup_policies",
    "internal.segment.bytes": "segment_bytes",
}
"""Read under another name."""
READ_BY_THE_CONFIGURATION = {
    "listener.security.protocol.map",
    "controller.listener.names",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    *(
        f"group.consumer.{end}.{rest}"
        for end in ("min", "max")
        for rest in ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms")
    ),
    *(
        f"group.share.{end}.{rest}"
        for end in ("min", "max")
        for rest in (
            "assignment.interval.ms",
            "delivery.count.limit",
            "heartbeat.interval.ms",
            "partition.max.record.locks",
            "record.lock.duration.ms",
            "session.timeout.ms",
        )
    ),
}
"""By `config` itself: parts of what `listeners` says, and the bounds of groups' settings."""


@cache
def read_attributes() -> frozenset[str]:
    """Every attribute that is read outside of the configuration, which only carries them. Not while
    tests are collected, as each process does that."""
    found = set()
    for path in ROOT.rglob("*.py"):
        if path.is_relative_to(ROOT / "config") or path.is_relative_to(ROOT / "sim"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add(node.attr)
    return frozenset(found)


@cache
def read_texts() -> frozenset[str]:
    """Every text outside of the configuration: settings of listeners are read by their names."""
    found = set()
    for room in ("broker", "node"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    return frozenset(found)


OF_LISTENERS = ("ssl.", "sasl.", "connections.max.reauth.ms")

CONFIG = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "config").glob("*.py"))


def is_read(setting: Setting) -> bool:
    name = setting.name
    if name in READ_BY_THE_CONFIGURATION:
        return f'"{name}"' in CONFIG
    if name.startswith(OF_LISTENERS) and name in read_texts():
        return True
    tables = (*TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values())
    behind = [each for each in tables if name in {s.name for s in each.synonyms}]
    return any(
        PROPERTIES.get(each.name, each.attribute) in read_attributes()
        for each in (setting, *behind)
    )


@pytest.mark.parametrize("name", [*TOPIC_SETTINGS, *GROUP_SETTINGS, *BROKER_SETTINGS])
def test_a_served_setting_has_a_reader(name: str) -> None:
    for table in (TOPIC_SETTINGS, GROUP_SETTINGS, BROKER_SETTINGS):
        setting = table.get(name)
        if setting is not None and setting.service is Service.SERVED:
            assert is_read(setting), f"{name} is called served, and nothing reads it"


def test_a_setting_without_a_reader_is_noticed() -> None:
    unread = BROKER_SETTINGS["message.max.bytes"]._replace(name="nothing.reads.this")
    assert not is_read(unread)
