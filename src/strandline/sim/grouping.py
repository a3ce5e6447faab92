"""Which seeds have groups of the consumer protocol (KIP-848), or of both.

Drawn from a stream of its own, of the seeds that have a group: all other clients, and the members
themselves, stay what they are but for the protocol that they speak. In some of them all members are
of the new one; in others a part is, so that the group changes from one protocol to the other while
members come and go.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from strandline.client.group_settings import CONSUMER
from strandline.sim.plan import ClientSpec, Options

CHANCE: Final = 0.5
"""Of a seed that has a group."""
_MIXED: Final = 0.35
_KIND: Final = "group"
_UNMIXABLE: Final = ("sticky",)
"""Assignors whose members no consumer group takes over: they write something of their own."""


def with_consumer_protocol(
    options: Options, clients: tuple[ClientSpec, ...], random: Random
) -> tuple[Options, tuple[ClientSpec, ...]]:
    """The seed, perhaps with members of the consumer protocol."""
    members = [each for each in clients if each.kind == _KIND]
    if not members or random.random() >= CHANCE:
        return options, clients
    is_mixed = len(members) > 1 and random.random() < _MIXED
    newer = {each.name for each in members if not is_mixed or random.random() < 0.5}
    # Without any, it would be what it is in seeds that are not drawn.
    newer = newer or {random.choice(members).name}
    assignor = random.choice(("uniform", "uniform", "range", ""))
    drawn = tuple(
        _of_both(each, is_newer=each.name in newer, assignor=assignor)
        if each.kind == _KIND
        else each
        for each in clients
    )
    return replace(options, settings={**options.settings, **_settings(members, random)}), drawn


def _of_both(member: ClientSpec, *, is_newer: bool, assignor: str) -> ClientSpec:
    chosen = dict(member.options)
    if is_newer:
        chosen["protocol"] = CONSUMER
        if assignor:
            chosen["remote-assignor"] = assignor
    elif chosen.get("assignors") in _UNMIXABLE:
        chosen["assignors"] = "range"
    return replace(member, options=chosen)


def _settings(members: list[ClientSpec], random: Random) -> dict[str, str]:
    """Brokers have the times of such members: as short as those of the seed's classic ones."""
    session = members[0].options.get("session", "6s")
    session_ms = 1000 * int(session.removesuffix("s"))
    return {
        "group.consumer.min.session.timeout.ms": "500",
        "group.consumer.session.timeout.ms": str(session_ms),
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": str(session_ms // 5),
        "group.consumer.assignment.interval.ms": random.choice(("0", "0", "300", "1000")),
    }
