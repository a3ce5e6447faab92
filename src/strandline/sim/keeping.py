"""Which seeds have programs that store and delete offsets without a group protocol (`keeper`), and
in which of them the topic of offsets is deleted, after its leader epochs have risen.

Drawn from a stream of its own, after everything else, so that all else stays what it is.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from strandline.cluster.topic_names import CONSUMER_OFFSETS
from strandline.sim.faults.draw import Drawn, timed
from strandline.sim.plan import ClientSpec, Plan, TopicSpec

KEEPER: Final = "keeper"
_CHANCE: Final = 0.3
_EMPTIED: Final = 0.3
_DELETING: Final = ("delete-topic", "recreate-topic")
_SEGMENT: Final = "offsets.topic.segment.bytes"
IN_GROUPS: Final = ("group", "share", "copier", "transactional")
"""Other kinds of clients that have something stored there, which must stay."""


def with_keepers(plan: Plan, random: Random) -> Plan:
    """The plan, perhaps with keepers. Offsets of a topic go with it: theirs is not deleted."""
    gone = {each.words[0] for each in plan.actions if each.verb in _DELETING}
    topics = [each for each in plan.options.topics if each.name not in gone]
    if random.random() >= _CHANCE or not topics:
        return plan
    others = any(each.kind in IN_GROUPS for each in plan.clients)
    is_emptied = bool(plan.actions) and not others and random.random() < _EMPTIED
    keepers = [
        _keeper(f"y{number + 1}", random.choice(topics), random, is_emptied=is_emptied)
        for number in range(random.choice((1, 2, 2, 3)))
    ]
    plan = replace(plan, clients=(*plan.clients, *keepers))
    return _emptied(plan, random) if is_emptied else plan


def _keeper(name: str, topic: TopicSpec, random: Random, *, is_emptied: bool) -> ClientSpec:
    wishes = {"topic": topic.name, "partition": str(random.randrange(topic.partitions))}
    wishes["every"] = random.choice(("5ms", "20ms", "60ms"))
    wishes["deletes"] = str(random.choice((0, 10, 30)))
    wishes["versions"] = random.choice(("newest", "drawn"))
    if is_emptied:
        wishes["emptied"] = "yes"
    return ClientSpec(KEEPER, name, wishes)


def _emptied(plan: Plan, random: Random) -> Plan:
    """Two elections in the topic of offsets, and its deletion: brokers make it anew when a client
    asks for a coordinator, which they refuse with segments as small as some seeds have them."""
    options = plan.options
    settings = {name: value for name, value in options.settings.items() if name != _SEGMENT}
    kill = Drawn("kill", (f"leader:{CONSUMER_OFFSETS}-0",), {"down": "500ms"})
    deletion = Drawn("delete-topic", (CONSUMER_OFFSETS,))
    at_us = random.randrange(1_000, max(1_001, options.safety_us // 1_000)) * 1_000
    after_us = random.randint(100, 4_000) * 1_000
    together = ((0, kill), (after_us // 2, kill), (after_us, deletion))
    actions = (*plan.actions, *timed(at_us, together, end_us=options.safety_us))
    actions = tuple(sorted(actions, key=lambda each: each.at_us))
    return replace(plan, options=replace(options, settings=settings), actions=actions)
