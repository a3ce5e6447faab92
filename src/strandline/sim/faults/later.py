"""What seeds do besides what `kinds` knows: laptops that sleep, slow disks, settings that change.

Drawn from a stream of its own and added to what there is, so that the rest of a seed stays as it
was before there was any of this. A seed without faults stays without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from strandline.sim.compacted import POLICY, is_compacted
from strandline.sim.faults.draw import Draw, Drawn, round_us
from strandline.sim.plan import BEYOND, Action

_CHANCE: Final = 0.12
"""Of each kind, in each seed."""
_TIMES_MAX: Final = 3
_BEGIN_US: Final = 300_000


def draw_later(draw: Draw, actions: Sequence[Action]) -> tuple[Action, ...]:
    """The actions of a seed, and perhaps more."""
    random, options = draw.random, draw.options
    if not actions:
        return ()
    found = list(actions)
    for kind in _KINDS:
        if random.random() >= _CHANCE:
            continue
        for _ in range(random.randint(1, _TIMES_MAX)):
            drawn = kind(draw)
            at_us = random.randrange(_BEGIN_US, options.safety_us) // 1_000 * 1_000
            found.append(Action(at_us, drawn.verb, drawn.words, dict(drawn.options)))
    return tuple(sorted(found, key=lambda action: action.at_us))


def _sleep(draw: Draw) -> Drawn:
    """A laptop slept for an hour, with all that runs on it: only its wall clock knows. Or the clock
    was a minute ahead before."""
    way = draw.random.choice(({"forward": "60min"}, {"back": "1min"}))
    return Drawn("clock-jump", ("all",), way | {"for": round_us(draw.options.safety_us)})


def _suspend(draw: Draw) -> Drawn:
    """Machines stand still, some or all of them, for longer than anything waits."""
    who = draw.random.choice(("all", draw.broker(), draw.broker()))
    seconds = draw.random.choice((2, 5, 12, 30))
    return Drawn("suspend", (who,), {"for": f"{seconds}s"})


def _slow_syncs(draw: Draw) -> Drawn:
    """Disks that take as long for every sync as cheap ones do."""
    who = draw.random.choice(("all", draw.broker()))
    per = draw.random.choice(("10ms", "30ms"))
    return Drawn("disk-slow", (who,), {"per": per, "for": round_us(draw.options.safety_us // 2)})


def _alter_config(draw: Draw) -> Drawn:
    """Settings of a topic change under load (F-69)."""
    random = draw.random
    topic = random.choice(draw.options.topics)
    choices = [
        ("compression.type", random.choice(("gzip", "lz4", "zstd", "snappy", "uncompressed", "-"))),
        ("max.message.bytes", random.choice(("500", "3000", "-"))),
        ("retention.ms", random.choice(("2000", "-"))),
        ("retention.bytes", random.choice(("5000", "-"))),
    ]
    producers = [
        each
        for each in draw.clients
        if each.kind == "producer" and each.options["topic"] == topic.name
    ]
    if is_compacted(topic) or all(int(each.options.get("keys", "0")) for each in producers):
        # Records without a key do not survive in a compacted topic.
        choices.append((POLICY, random.choice(("compact", "delete", "compact,delete"))))
    if draw.options.profile == BEYOND:
        choices.append(("unclean.leader.election.enable", random.choice(("true", "false"))))
    setting, value = random.choice(choices)
    return Drawn("alter-config", (topic.name,), {setting: value})


_KINDS: Final[Sequence[Callable[[Draw], Drawn]]] = (_sleep, _suspend, _slow_syncs, _alter_config)
