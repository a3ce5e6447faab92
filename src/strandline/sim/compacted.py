"""Compacted topics in a seed: which there are, how cleaners are set, who writes what keys.

Drawn from streams of their own, so that a seed without such topics is what it was before there were
any. Segments and lags are small, so that a run of some seconds is compacted many times over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final

from strandline.sim.plan import ClientSpec, TopicSpec

CHANCE: Final = 0.2
"""Of each topic."""
POLICY: Final = "cleanup.policy"
DEDUPE_BYTES: Final = 2_400_000
"""Little more than two cleaners must have."""


def is_compacted(topic: TopicSpec) -> bool:
    """Whether old values of a key may go."""
    return "compact" in topic.configs.get(POLICY, "")


def with_compaction(topics: Sequence[TopicSpec], random: Random) -> tuple[TopicSpec, ...]:
    """The topics, some of them compacted."""
    return tuple(
        replace(topic, configs={**topic.configs, **_configs(random)})
        if random.random() < CHANCE
        else topic
        for topic in topics
    )


def _configs(random: Random) -> dict[str, str]:
    configs = {
        POLICY: random.choice(("compact", "compact", "compact,delete")),
        "internal.segment.bytes": str(random.choice((300, 300, 700, 1_500, 4_000))),
        "min.cleanable.dirty.ratio": random.choice(("0", "0.01", "0.1", "0.5")),
        "delete.retention.ms": str(random.choice((0, 0, 100, 1_000, 60_000))),
    }
    if random.random() < 0.25:
        configs["min.compaction.lag.ms"] = str(random.choice((50, 500, 2_000)))
    if random.random() < 0.25:
        configs["max.compaction.lag.ms"] = str(random.choice((2_000, 5_000)))
    return configs


def cleaner_settings(topics: Sequence[TopicSpec], random: Random) -> dict[str, str]:
    """Settings of the brokers: a cleaner that looks often, with little memory now and then."""
    settings = {"log.cleaner.dedupe.buffer.size": str(DEDUPE_BYTES)}
    if not any(is_compacted(topic) for topic in topics):
        return settings
    settings["log.cleaner.backoff.ms"] = str(random.choice((20, 100, 500)))
    if random.random() < 0.3:
        settings["log.cleaner.threads"] = "2"
    if random.random() < 0.3:
        # Room for a few keys: rounds end early.
        settings["log.cleaner.io.buffer.load.factor"] = random.choice(("0.00003", "0.0001"))
    if random.random() < 0.3:
        settings["log.cleaner.io.buffer.size"] = str(random.choice((1, 200, 1_000)))
    return settings


def keyed_clients(
    topics: Sequence[TopicSpec], clients: Sequence[ClientSpec], random: Random
) -> tuple[ClientSpec, ...]:
    """The clients; a compacted topic takes no records without keys."""
    compacted = {topic.name for topic in topics if is_compacted(topic)}
    keyed: list[ClientSpec] = []
    for client in clients:
        if client.kind == "producer" and client.options.get("topic") in compacted:
            wishes = {
                "keys": str(random.choice((1, 3, 10, 30))),
                "tombstones": str(random.choice((0, 5, 20))),
            }
            client = replace(client, options={**client.options, **wishes})
        keyed.append(client)
    return tuple(keyed)
