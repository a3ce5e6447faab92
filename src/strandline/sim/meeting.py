"""Seeds in which several things meet that hardly ever would: a full disk and a power failure behind
a deletion, a topic that goes while its logs move, a cleaner that is late and a log that is loaded.

Each of these is a few actions in the order in which they matter, with the settings without which
nothing of it would happen within seconds. Drawn from a stream of its own, behind everything else,
so that seeds without any of this stay what they are. A seed without faults stays without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from strandline.cluster.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from strandline.sim.compacted import POLICY, is_compacted
from strandline.sim.faults.draw import Draw, Drawn, Together, round_us, timed
from strandline.sim.faults.kinds import made_anew
from strandline.sim.keeping import IN_GROUPS, KEEPER
from strandline.sim.plan import BEYOND, ClientSpec, Options, Plan, TopicSpec
from strandline.sim.workload import meant_by_name

_TIMES: Final = (1, 1, 2, 3)
_BEGIN_US: Final = 300_000
_SEGMENT: Final = "internal.segment.bytes"
_OFFSETS_SEGMENT: Final = "offsets.topic.segment.bytes"
_TABLE: Final = "log-start-offset"
"""In the name of the table that says where logs start."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """What meets: the actions, in which plans they can, and what they need."""

    draw: Callable[[Draw], Together]
    is_for: Callable[[Plan], bool]
    chance: float
    """Of a plan in which it can be, and that has none of those before it."""
    settings: Mapping[str, str] = field(default_factory=dict)
    knobs: Mapping[str, int] = field(default_factory=dict)
    keepers: Mapping[str, str] = field(default_factory=dict)
    """Options of the keepers of such a plan."""
    at_the_end: bool = False
    """Whether it begins just before faults are over."""


def with_meetings(plan: Plan, random: Random) -> Plan:
    """The plan, perhaps with one kind of meeting."""
    if not plan.actions:
        return plan
    possible = [each for each in _MEETINGS if each.is_for(plan)]
    meeting = next((each for each in possible if random.random() < each.chance), None)
    if meeting is None:
        return plan
    options = plan.options
    draw = Draw(options, plan.clients, random)
    actions = list(plan.actions)
    for _ in range(random.choice(_TIMES)):
        at_us = random.randrange(_BEGIN_US, options.safety_us)
        if meeting.at_the_end:
            at_us = options.safety_us - random.randint(100, 600) * 1_000
        actions += timed(at_us // 1_000 * 1_000, meeting.draw(draw), end_us=options.safety_us)
    options = replace(
        options,
        settings={**options.settings, **meeting.settings},
        knobs={**options.knobs, **meeting.knobs},
    )
    clients = tuple(
        replace(each, options={**each.options, **meeting.keepers}) if each.kind == KEEPER else each
        for each in plan.clients
    )
    ordered = tuple(sorted(actions, key=lambda action: action.at_us))
    return Plan(options, clients, ordered)


def with_shared_offsets(
    options: Options, clients: tuple[ClientSpec, ...], random: Random
) -> tuple[Options, tuple[ClientSpec, ...]]:
    """Perhaps let all transactional ids of a seed store offsets for the same group, whose log is
    compacted all the time."""
    writers = [each for each in clients if each.kind == "transactional"]
    if len(writers) < 2 or random.random() >= _SHARED:
        return options, clients
    shared = {"offsets": "yes", "group": "tg"}
    settings = {
        _OFFSETS_SEGMENT: "500",
        "log.cleaner.backoff.ms": "50",
        "log.cleaner.min.cleanable.ratio": "0.01",
    }
    return replace(options, settings={**options.settings, **settings}), tuple(
        replace(each, options={**each.options, **shared}) if each in writers else each
        for each in clients
    )


_SHARED: Final = 0.6


# -- what meets ------------------------------------------------------------------------------


def _hole(draw: Draw) -> Together:
    """A full disk does not take where a log starts, its oldest segments are dropped all the same,
    and the power fails between two of them."""
    at = draw.partition([each for each in draw.options.topics if _has_segments(each)])
    broker = str(draw.number())
    crash = {"operations": str(draw.random.randint(8, 30)), "operation": "rename"}
    crash |= {"path": f"{at}/", "how": "power", "down": draw.time()}
    return (
        (0, Drawn("disk-full", (broker,), {"path": _TABLE, "for": "2s", "restart": "no"})),
        (1_000, Drawn("crash-in", (broker,), crash)),
        (draw.random.randint(2, 300) * 1_000, Drawn("delete-records", (at, "high-watermark"))),
    )


def _late_start(draw: Draw) -> Together:
    """A disk takes only later where a log starts, when no record comes any more."""
    at = draw.partition()
    broker = draw.random.choice((f"follower:{at}", f"follower:{at}", str(draw.number())))
    full = {"path": _TABLE, "for": "5s", "restart": "no"}
    return (
        (0, Drawn("disk-full", (broker,), full)),
        (10_000, Drawn("delete-records", (at, "high-watermark"))),
    )


def _loaded_with_a_start(draw: Draw) -> Together:
    """A log is loaded again of which the start was not written, and its broker dies."""
    random = draw.random
    at = draw.partition()
    broker = random.choice((f"leader:{at}", f"follower:{at}", str(draw.number())))
    full = {"path": _TABLE, "for": f"{random.randint(600, 2_500)}ms", "restart": "no"}
    starved = {"percent": "100", "for": f"{random.randint(20, 300)}ms"}
    last_us = random.randint(500, 3_000) * 1_000
    return (
        (0, Drawn("disk-full", (broker,), full)),
        (random.randint(1, 100) * 1_000, Drawn("delete-records", (at, "high-watermark"))),
        (random.randint(100, 400) * 1_000, Drawn("starve", (broker,), starved)),
        (last_us, Drawn("kill", (broker,), {"down": draw.time()})),
    )


def _late_cleaner(draw: Draw) -> Together:
    """A log is loaded again, since it could not be truncated for want of handles, while a cleaner
    has yet to end its round."""
    random = draw.random
    compacted = [each for each in draw.options.topics if is_compacted(each)]
    leader = f"leader:{draw.partition(compacted)}"
    slow = {"per": random.choice(("30ms", "100ms", "300ms")), "path": ".cleaned", "for": "6s"}
    alone = {"store": "yes", "for": round_us(2 * draw.session_us)}
    starved = {"percent": random.choice(("10", "30")), "for": round_us(2 * draw.session_us)}
    return (
        (0, Drawn("disk-slow", ("all",), slow)),
        (100_000, Drawn("isolate", (leader,), alone)),
        (100_000 + draw.session_us, Drawn("starve", (str(draw.number()),), starved)),
        (100_000 + draw.session_us, Drawn("starve", (str(draw.number()),), starved)),
    )


def _moves_and_goes(draw: Draw) -> Together:
    """A topic is deleted while its logs move to other disks."""
    random, options = draw.random, draw.options
    topic = random.choice(_may_go(draw.clients, options.topics))
    ahead = {"dir": str(random.randint(1, options.disks - 1))}
    moves = tuple(
        (100_000, Drawn("move-log", (f"{topic.name}-{number}", str(broker)), ahead))
        for number in range(topic.partitions)
        for broker in range(1, options.brokers + 1)
    )
    # A disk that lets brokers wait: so much else comes while they do, and happens in one turn.
    slow = Drawn("disk-slow", ("all",), {"per": "20ms", "path": "checkpoint", "for": "1s"})
    after_us = random.randint(100, 250) * 1_000
    return ((0, slow), *moves, (after_us, made_anew(topic)))


def _loads_and_goes(draw: Draw) -> Together:
    """A topic is deleted while the states of a share group are read by their next coordinator."""
    random = draw.random
    topic = random.choice(_may_go(draw.clients, draw.options.topics))
    coordinator = f"leader:{SHARE_GROUP_STATE}-0"
    at_us = random.randint(1, 400) * 1_000
    return (
        (0, Drawn("kill", (coordinator,), {"down": draw.time()})),
        (at_us, made_anew(topic)),
    )


def _shrinking_log(draw: Draw) -> Together:
    """The log of groups loses its oldest segments while its next coordinator reads it."""
    configs = {POLICY: "compact,delete", "retention.bytes": "1500", _SEGMENT: "500"}
    slow = {"per": "20ms", "path": CONSUMER_OFFSETS, "for": "4s"}
    dance = {"times": "10", "every": draw.random.choice(("200ms", "400ms"))}
    return (
        (0, Drawn("alter-config", (CONSUMER_OFFSETS,), configs)),
        (500_000, Drawn("disk-slow", ("all",), slow)),
        (600_000, Drawn("leader-dance", (f"{CONSUMER_OFFSETS}-0",), dance)),
    )


def _lost_and_shared(draw: Draw) -> Together:
    """A log loses what members of a share group have accepted, and is read on at once."""
    at = draw.partition()
    lost = {"mode": "none", "down": draw.time()}
    return (
        (0, Drawn("isolate", (f"leader:{at}",), {"for": "2500ms"})),
        (draw.random.randint(500, 2_000) * 1_000, Drawn("elect", ("unclean", at))),
        (2_600_000, Drawn("power-cut", ("all",), lost)),
    )


# -- where it can ----------------------------------------------------------------------------


def _has_segments(topic: TopicSpec) -> bool:
    return int(topic.configs.get(_SEGMENT, "100000")) <= 1_500


def _may_go(clients: Sequence[ClientSpec], topics: Sequence[TopicSpec]) -> list[TopicSpec]:
    by_name = meant_by_name(clients)
    kept = {each.options.get("topic") for each in clients if each.kind == KEEPER}
    return [each for each in topics if each.name not in by_name and each.name not in kept]


def _any_has_segments(plan: Plan) -> bool:
    return any(map(_has_segments, plan.options.topics))


def _has_followers(plan: Plan) -> bool:
    return plan.options.brokers > 1


def _is_compacted(plan: Plan) -> bool:
    return any(map(is_compacted, plan.options.topics))


def _can_move_and_go(plan: Plan) -> bool:
    return plan.options.disks > 1 and bool(_may_go(plan.clients, plan.options.topics))


def _shares_what_may_go(plan: Plan) -> bool:
    return _shares(plan) and bool(_may_go(plan.clients, plan.options.topics))


def _shares(plan: Plan) -> bool:
    return any(each.kind == "share" for each in plan.clients)


def _shares_and_loses(plan: Plan) -> bool:
    return _shares(plan) and plan.options.profile == BEYOND


def _keeps_alone(plan: Plan) -> bool:
    kinds = {each.kind for each in plan.clients}
    return KEEPER in kinds and kinds.isdisjoint(IN_GROUPS)


_RETENTION: Final = {"log.retention.check.interval.ms": "100"}
_LATER: Final = {"log.flush.start.offset.checkpoint.interval.ms": "2000"}
_CHECKPOINTS: Final = {
    "replica.high.watermark.checkpoint.interval.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "50",
}
_SYNCED: Final = {"log.flush.offset.checkpoint.interval.ms": "100"}
_CLEANERS: Final = {"log.cleaner.threads": "2", "log.cleaner.backoff.ms": "20"}
_LOADING: Final = {"node.coordinator_loading._RECORDS_PER_STEP": 1}
_COPYING: Final = {"storage.log_copy.BATCHES_MAX": 1}

_MEETINGS: Final = (
    Meeting(_lost_and_shared, _shares_and_loses, 0.8),
    Meeting(
        _shrinking_log,
        _keeps_alone,
        0.5,
        _RETENTION | {"offsets.load.buffer.size": "1"},
        _LOADING,
        {"emptied": "yes"},
    ),
    Meeting(_loads_and_goes, _shares_what_may_go, 0.5, knobs=_LOADING),
    Meeting(_moves_and_goes, _can_move_and_go, 0.4, _CHECKPOINTS, _COPYING),
    Meeting(_late_cleaner, _is_compacted, 0.3, _CLEANERS),
    Meeting(_hole, _any_has_segments, 0.12, _RETENTION | _SYNCED),
    Meeting(_late_start, _has_followers, 0.1, _LATER, at_the_end=True),
    Meeting(_loaded_with_a_start, _has_followers, 0.06, _LATER),
)
"""Those that few plans can have come first."""
