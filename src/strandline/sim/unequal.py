"""Seeds whose brokers differ: in their settings files, or by disks restored from older copies.

A rolling change of `min.insync.replicas` leaves brokers with different files for minutes. Such a
seed has one number for each broker, topics that go by it, and administrators who change the setting
meanwhile: that of a topic, or the default of the whole cluster. Drawn from a stream of its own, so
that seeds without any of this stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Final

from strandline.sim.plan import Action, Plan, TopicSpec

_MIN_IN_SYNC: Final = "min.insync.replicas"
_DIFFERENT_FILES: Final = 0.2
_OF_THE_CLUSTER: Final = 0.4
"""How many of the changes are of the cluster's default, which topics without a setting go by."""
_OLDER_DISK: Final = 0.1


def with_unequal_brokers(plan: Plan, random: Random) -> Plan:
    """The plan, with brokers that differ if its seed wants that."""
    options = plan.options
    if options.brokers < 2:
        return plan
    actions: list[Action] = []
    if random.random() < _DIFFERENT_FILES:
        minimums = tuple(random.choice((1, 1, 2, 2, 3)) for _ in range(options.brokers))
        minimums = tuple(min(each, options.brokers) for each in minimums)
        topics = tuple(_by_the_file(each, random) for each in options.topics)
        options = replace(options, minimums=minimums, topics=topics)
        actions += _changes(plan, random)
    if random.random() < _OLDER_DISK:
        actions += _older_disks(plan, random)
    ordered = sorted((*plan.actions, *actions), key=lambda action: action.at_us)
    return replace(plan, options=options, actions=tuple(ordered))


def _by_the_file(topic: TopicSpec, random: Random) -> TopicSpec:
    if random.random() < 0.2:
        return topic
    configs = {name: value for name, value in topic.configs.items() if name != _MIN_IN_SYNC}
    return replace(topic, configs=configs)


def _changes(plan: Plan, random: Random) -> Iterator[Action]:
    for _ in range(random.choice((0, 1, 3, 6))):
        topic = random.choice(plan.options.topics)
        change = {_MIN_IN_SYNC: random.choice(("1", "2", "2", "3", "-"))}
        at_us = _moment_us(plan, random)
        if random.random() < _OF_THE_CLUSTER:
            yield Action(at_us, "alter-defaults", (), change)
        else:
            yield Action(at_us, "alter-config", (topic.name,), change)


def _older_disks(plan: Plan, random: Random) -> Iterator[Action]:
    broker = str(random.randint(1, plan.options.brokers))
    options = {
        "after": f"{random.randint(200, 4_000)}ms",
        "down": f"{random.randint(50, 2_000)}ms",
        "last": random.choice(("yes", "yes", "no")),
    }
    yield Action(_moment_us(plan, random), "restore-disk", (broker,), options)


def _moment_us(plan: Plan, random: Random) -> int:
    return random.randrange(max(1, plan.options.safety_us // 1_000)) * 1_000
