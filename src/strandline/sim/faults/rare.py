"""What few seeds would come to by chance: faults that hardly any seed knows, and situations that
take several actions.

A sweep fails when a state that is counted was never reached (see `sweep`), so every one of them
must be frequent enough. Drawn from a stream of its own and added to what there is. A seed without
faults stays without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from strandline.sim.compacted import is_compacted
from strandline.sim.faults.draw import Draw, Drawn, Together, alone, round_us, timed
from strandline.sim.faults.kinds import KINDS
from strandline.sim.plan import Action, Options

_CHANCE: Final = 0.4
"""How many seeds have some of it."""
_KINDS_MAX: Final = 3
_RARE: Final = 0.1
"""Kinds that no more seeds than this know are drawn here as well."""
_BEGIN_US: Final = 300_000


class Situation(NamedTuple):
    """Actions that lead to a state, and in which seeds they can."""

    draw: Callable[[Draw], Together]
    is_for: Callable[[Options], bool]


def draw_rare(draw: Draw, actions: Sequence[Action]) -> tuple[Action, ...]:
    """The actions of a seed, and perhaps more."""
    random, options = draw.random, draw.options
    if not actions or random.random() >= _CHANCE:
        return tuple(actions)
    found = list(actions)
    possible = list(_possible(options))
    for kind in random.sample(possible, min(len(possible), random.randint(1, _KINDS_MAX))):
        at_us = random.randrange(_BEGIN_US, options.safety_us) // 1_000 * 1_000
        found += timed(at_us, kind(draw), end_us=options.safety_us)
    return tuple(sorted(found, key=lambda action: action.at_us))


def _possible(options: Options) -> Iterator[Callable[[Draw], Together]]:
    for situation in _SITUATIONS:
        if situation.is_for(options):
            # As likely as two of the others: not all seeds can have them.
            yield situation.draw
            yield situation.draw
    for kind in KINDS:
        if kind.chance <= _RARE and kind.is_for(options):
            yield lambda draw, kind=kind: alone(kind.draw(draw))  # type: ignore[misc]


def _cancelled_move(draw: Draw) -> Together:
    """Move a partition to a broker that is cut off, and cancel the reassignment later."""
    topic = next(each for each in draw.options.topics if each.replication < draw.options.brokers)
    number = draw.random.randrange(topic.partitions)
    brokers = range(1, draw.options.brokers + 1)
    target = ",".join(map(str, draw.random.sample(brokers, topic.replication)))
    at = f"{topic.name}-{number}"
    return (
        (0, Drawn("isolate", (draw.several(),), {"for": "1500ms"})),
        (50_000, Drawn("reassign", (at, target))),
        (draw.random.randint(60, 1_000) * 1_000, Drawn("cancel-reassign", (at,))),
    )


def _stray(draw: Draw) -> Together:
    """A topic is deleted while one of its brokers is down."""
    replicas = {"partitions": "2", "replication": str(draw.options.brokers)}
    return (
        (0, Drawn("create-topic", ("extra",), replicas)),
        (700_000, Drawn("kill", (str(draw.number()),), {"down": "2s"})),
        (900_000, Drawn("delete-topic", ("extra",))),
    )


def _partitions(draw: Draw) -> Together:
    """A topic is made, and gets more partitions at once."""
    return (
        (0, Drawn("create-topic", ("more",), {"partitions": "1", "replication": "1"})),
        (draw.random.randint(1, 800) * 1_000, Drawn("add-partitions", ("more",), {"total": "3"})),
    )


def _offline_at_start(draw: Draw) -> Together:
    """One of several disks is broken while its broker starts."""
    broker = str(draw.number())
    broken = {"dir": str(draw.random.randrange(draw.options.disks)), "for": "3s"}
    return (
        (0, Drawn("disk-broken", (broker,), broken)),
        (50_000, Drawn("kill", (broker,), {"down": "100ms"})),
    )


def _emptied(draw: Draw) -> Together:
    """Empty a log before its leader changes: no producer writes, and all records are deleted."""
    at = draw.partition()
    return (
        (0, Drawn("cut", ("clients", "all"), {"for": "2s"})),
        (600_000, Drawn("delete-records", (at, "high-watermark"))),
        (1_200_000, Drawn("kill", (f"leader:{at}",), {"down": draw.time()})),
    )


def _log_gone(draw: Draw) -> Together:
    """All brokers stop in order, and one of the last finds a log of its own no more."""
    broker = draw.number()
    others = ",".join(str(each) for each in range(1, draw.options.brokers + 1) if each != broker)
    return (
        (0, Drawn("stop", (others,), {"down": round_us(draw.random.randint(200, 900) * 1_000)})),
        (1_000, Drawn("lose-directory", (str(broker),), {"what": "log", "down": "300ms"})),
    )


def _cleaner_dies(draw: Draw) -> Together:
    """A broker dies while a compacted segment takes its place."""
    options = {"operations": str(draw.random.randint(1, 4)), "how": "kill", "down": draw.time()}
    path = {"path": draw.random.choice((".swap", ".swap", ".cleaned"))}
    return alone(Drawn("crash-in", (draw.broker(),), options | path))


def _cleaner_fails(draw: Draw) -> Together:
    """A cleaner cannot write."""
    options = {"operation": "append", "path": ".cleaned", "count": "1", "for": draw.time()}
    return alone(Drawn("disk-fail", (draw.broker(),), options | {"down": draw.time()}))


def _always(_: Options) -> bool:
    return True


def _has_compacted_topics(options: Options) -> bool:
    return any(map(is_compacted, options.topics))


_SITUATIONS: Final = (
    Situation(_cancelled_move, lambda each: any(t.replication < each.brokers for t in each.topics)),
    Situation(_stray, _always),
    Situation(_partitions, _always),
    Situation(_offline_at_start, lambda options: options.disks > 1),
    Situation(_emptied, _always),
    Situation(_log_gone, lambda options: options.brokers > 1),
    Situation(_cleaner_dies, _has_compacted_topics),
    Situation(_cleaner_fails, _has_compacted_topics),
)
