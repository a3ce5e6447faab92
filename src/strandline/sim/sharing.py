"""Which seeds have a share group (KIP-932), and what its members do.

Drawn from a stream of its own, so that all other clients stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Final

from strandline.sim.plan import ClientSpec, Options
from strandline.sim.transacting import TRANSACTING

CHANCE: Final = 0.1
_CHANCE_BESIDE_TRANSACTIONS: Final = 0.3
GROUP: Final = "sg"
_KIND: Final = "share"
_ISOLATION: Final = "isolation"
_LIMITED: Final = 0.5
_OFFSETS_SEGMENT: Final = "offsets.topic.segment.bytes"


def share_groups(clients: Iterable[ClientSpec]) -> list[str]:
    """The share groups that clients are in."""
    found = {each.options.get("group", "") for each in clients if each.kind == _KIND}
    return sorted(found)


def group_settings(clients: Iterable[ClientSpec], group: str) -> dict[str, str]:
    """The settings of a share group. Its members tell its isolation level, all of them the same."""
    members = [each for each in clients if each.kind == _KIND and each.options["group"] == group]
    settings = {"share.auto.offset.reset": "earliest"}
    if any(each.options.get(_ISOLATION) == "committed" for each in members):
        settings["share.isolation.level"] = "read_committed"
    return settings


def with_share_group(
    options: Options, clients: tuple[ClientSpec, ...], random: Random
) -> tuple[Options, tuple[ClientSpec, ...]]:
    """The seed, perhaps with members of a share group."""
    writers = [each for each in clients if each.kind in TRANSACTING]
    if random.random() >= (_CHANCE_BESIDE_TRANSACTIONS if writers else CHANCE):
        return options, clients
    topics = options.topics[: random.choice((1, 1, 2))]
    members = [
        ClientSpec(_KIND, f"w{number + 1}", _wishes(",".join(each.name for each in topics), random))
        for number in range(random.choice((1, 2, 2, 3)))
    ]
    lock_ms = random.choice((1000, 1000, 2000, 5000))
    settings = {
        "group.share.min.session.timeout.ms": "500",
        "group.share.session.timeout.ms": str(random.choice((1000, 2000, 6000))),
        "group.share.min.heartbeat.interval.ms": "100",
        "group.share.heartbeat.interval.ms": "200",
        "group.share.assignment.interval.ms": str(random.choice((0, 0, 300, 1000))),
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": str(lock_ms),
        "share.coordinator.state.topic.num.partitions": str(random.choice((1, 1, 2))),
        "share.coordinator.state.topic.replication.factor": str(min(3, options.brokers)),
        "share.coordinator.state.topic.min.isr": str(min(2, options.brokers)),
        "share.coordinator.state.topic.prune.interval.ms": str(random.choice((5000, 300000))),
        "share.coordinator.snapshot.update.records.per.snapshot": str(random.choice((0, 3, 20))),
        "share.coordinator.load.buffer.size": str(random.choice((1, 1000, 5242880))),
    }
    if _OFFSETS_SEGMENT in options.settings:
        # A segment must hold what a change of a group writes at once: also of several members.
        settings[_OFFSETS_SEGMENT] = "10000"
    if writers and random.random() < 0.7:
        topics_read = {topics[0].name, writers[0].options["topic"]}
        wishes = {"topic": ",".join(sorted(topics_read)), _ISOLATION: "committed"}
        members = [replace(each, options={**each.options, **wishes}) for each in members]
    return replace(options, settings={**options.settings, **settings}), (*clients, *members)


def with_record_limits(clients: tuple[ClientSpec, ...], random: Random) -> tuple[ClientSpec, ...]:
    """Half of the members of share groups are given no more records than they ask for, so that
    batches are split between members (KIP-1206)."""
    limited = {"acquire": "record_limit"}
    return tuple(
        replace(each, options={**each.options, **limited})
        if each.kind == _KIND and random.random() < _LIMITED
        else each
        for each in clients
    )


def _wishes(topics: str, random: Random) -> dict[str, str]:
    wishes = {
        "group": GROUP,
        "topic": topics,
        "work": random.choice(("0ms", "20ms", "200ms")),
        "max-records": str(random.choice((1, 5, 20, 100))),
        "forgets": str(random.choice((0, 3, 20))),
    }
    if random.random() < 0.5:
        wishes["stay"] = random.choice(("1s", "3s"))
        wishes["away"] = random.choice(("300ms", "2s"))
    return wishes
