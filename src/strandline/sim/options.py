"""What a seed stands for: cluster, settings and clients of one run ("swarm testing").

Theory: a run that can do everything does each thing rarely, and always in the same mixture. So each
seed first draws *what it is about*: which settings are far from their defaults, which clients there
are, which faults are possible at all (see `faults.planner`). Times are much shorter than in real
clusters, so that much happens: a session lives for seconds, a lag is one after a second.

Limits of settings are hit on purpose (tiny segments, tiny fetches, one fetch session): they make
rare branches frequent, as FoundationDB's BUGGIFY does, without a line in production code. Each part
is drawn from a stream of its own, so that a change here disturbs little. This file knows the names
of settings, and no world.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final

from strandline.sim.authorized import with_authorizer
from strandline.sim.compacted import cleaner_settings, keyed_clients, with_compaction
from strandline.sim.far_follower import with_far_follower
from strandline.sim.faults.draw import Draw
from strandline.sim.faults.later import draw_later
from strandline.sim.faults.log_moves import draw_log_moves
from strandline.sim.faults.planner import draw_actions, draw_damage, draw_starving
from strandline.sim.faults.rare import draw_rare
from strandline.sim.grouping import with_consumer_protocol
from strandline.sim.keeping import with_keepers
from strandline.sim.knobs import draw_knobs
from strandline.sim.meeting import with_meetings, with_shared_offsets
from strandline.sim.pace import at_a_followers_pace
from strandline.sim.plan import (
    BEYOND,
    DAMAGE,
    DAMAGING,
    SAFE,
    STRICT,
    LatencySpec,
    Options,
    Plan,
    TopicSpec,
    safe_profile,
)
from strandline.sim.sharing import with_record_limits, with_share_group
from strandline.sim.streams import Streams
from strandline.sim.tokens import with_tokens
from strandline.sim.transacting import strikes_at_coordinators, with_transactions
from strandline.sim.unequal import with_unequal_brokers
from strandline.sim.workload import (
    NEAREST,
    draw_askers,
    draw_clients,
    with_names,
    with_near_readers,
)

BEYOND_ONE_OF: Final = 6
"""One of so many seeds has the profile `beyond`."""

_QUIET_CLOCKS: Final = 0.6
_SAFETY_S: Final = (5, 5, 6, 6, 7, 8, 8, 10, 12, 15, 20, 30)


def draw_plan(seed: int, profile: str | None = None) -> Plan:
    """The run of a seed; `profile` is drawn too unless it is given.

    A strict plan that is asked for is that of the seed without the actions that damage disks, and a
    plan of the profile damage has one at least.
    """
    streams = Streams(seed)
    if profile is None:
        profile = BEYOND if streams("profile").randrange(BEYOND_ONE_OF) == 0 else SAFE
    plan = _with_actions(_options(seed, profile, streams), streams)
    if profile == BEYOND:
        return plan
    actions = plan.actions
    if profile == STRICT:
        actions = tuple(action for action in actions if action.verb not in DAMAGING)
    elif profile == DAMAGE and safe_profile(actions) == STRICT:
        damage = draw_damage(plan.options, plan.clients, streams("damage"))
        actions = tuple(sorted((*actions, damage), key=lambda action: action.at_us))
    options = replace(plan.options, profile=safe_profile(actions))
    return replace(plan, options=options, actions=actions)


def _with_actions(options: Options, streams: Streams) -> Plan:
    clients = draw_clients(options, streams("clients"))
    options, clients = with_consumer_protocol(options, clients, streams("group protocols"))
    clients = with_names(clients, streams("names of topics"))
    clients += draw_askers(options, streams("askers"))
    options, clients = with_transactions(options, clients, streams("transactions"))
    options, clients = with_shared_offsets(options, clients, streams("shared offsets"))
    clients = keyed_clients(options.topics, clients, streams("keys"))
    options, clients = with_near_readers(options, clients, streams("near readers"))
    clients = at_a_followers_pace(clients, options)
    options, clients = with_authorizer(options, clients, streams("authorization"))
    options, clients = with_share_group(options, clients, streams("share groups"))
    clients = with_record_limits(clients, streams("record limits"))
    actions = draw_actions(options, clients, streams("faults"))
    if actions:
        actions += draw_starving(options, clients, streams("starving"))
        actions = tuple(sorted(actions, key=lambda action: action.at_us))
    actions = draw_later(Draw(options, clients, streams("later faults")), actions)
    actions = draw_rare(Draw(options, clients, streams("rare faults")), actions)
    if actions:
        strikes = strikes_at_coordinators(Draw(options, clients, streams("coordinators struck")))
        actions = tuple(sorted((*actions, *strikes), key=lambda action: action.at_us))
    actions = draw_log_moves(Draw(options, clients, streams("log moves")), actions)
    plan = with_unequal_brokers(Plan(options, clients, actions), streams("unequal brokers"))
    far = with_far_follower(plan, streams("far follower"))
    is_usual = far is plan
    plan = with_tokens(far, streams("delegation tokens"))
    if is_usual:
        plan = with_keepers(plan, streams("keepers"))
    knobs = draw_knobs(streams("knobs"))
    plan = replace(plan, options=replace(plan.options, knobs=knobs))
    return with_meetings(plan, streams("meetings")) if is_usual else plan


def _options(seed: int, profile: str, streams: Streams) -> Options:
    random = streams("cluster")
    brokers = random.choices((1, 2, 3, 4, 5), (2, 6, 74, 10, 8))[0]
    topics = with_compaction(_topics(brokers, streams("topics")), streams("compacted topics"))
    settings = _settings(brokers, profile, streams("settings"))
    settings |= cleaner_settings(topics, streams("cleaner"))
    racks = random.random() < 0.3
    quiet = random.random() < _QUIET_CLOCKS
    return Options(
        seed=seed,
        profile=profile,
        brokers=brokers,
        racks=tuple(random.choice(("a", "b", "c")) for _ in range(brokers)) if racks else (),
        disks=random.choices((1, 2, 3), (75, 20, 5))[0],
        settings=settings,
        topics=topics,
        latency=_latency(random),
        store_latency_us=random.choice((100, 300, 500, 1_000, 3_000, 10_000)),
        store_lag_us=random.choice((0, 0, 0, 2_000, 20_000, 150_000)),
        drifts_ppm=() if quiet else tuple(random.randint(-200, 200) for _ in range(brokers)),
        wall_offsets_ms=() if quiet else tuple(_offset_ms(random) for _ in range(brokers)),
        safety_us=random.choice(_SAFETY_S) * 1_000_000,
    )


def _latency(random: Random) -> LatencySpec:
    least = random.choice((20, 50, 100, 200, 500))
    has_spikes = random.random() < 0.4
    return LatencySpec(
        least_us=least,
        mean_us=least * random.choice((2, 3, 5, 10)),
        spike_us=random.choice((20_000, 80_000, 250_000)) if has_spikes else 0,
        spikes_per_mille=random.choice((1, 5, 20)) if has_spikes else 0,
    )


def _offset_ms(random: Random) -> int:
    return random.choice((0, 0, random.randint(-50, 50), random.randint(-5_000, 5_000)))


# -- topics ----------------------------------------------------------------------------------


def _topics(brokers: int, random: Random) -> tuple[TopicSpec, ...]:
    count = random.choices((1, 2, 3), (60, 30, 10))[0]
    return tuple(_topic(name, brokers, random) for name in ("t", "u", "v")[:count])


def _topic(name: str, brokers: int, random: Random) -> TopicSpec:
    replication = min(brokers, random.choices((1, 2, 3, 5), (3, 12, 80, 5))[0])
    configs: dict[str, str] = {"min.insync.replicas": str(_min_in_sync(replication, random))}

    def maybe(setting: str, chance: float, values: Sequence[int | str]) -> None:
        if random.random() < chance:
            configs[setting] = str(random.choice(values))

    maybe("internal.segment.bytes", 0.6, (300, 700, 1_500, 4_000, 16_000))
    maybe("index.interval.bytes", 0.4, (0, 1, 100, 500))
    maybe("segment.index.bytes", 0.15, (8, 16, 64, 400))
    maybe("flush.messages", 0.25, (1, 1, 2, 10, 50))
    maybe("flush.ms", 0.15, (1, 50, 500))
    maybe("segment.ms", 0.15, (200, 1_000, 5_000))
    maybe("retention.bytes", 0.12, (1_000, 5_000, 20_000))
    maybe("retention.ms", 0.06, (1_000, 5_000, 60_000))
    maybe("file.delete.delay.ms", 0.5, (0, 100, 1_000))
    maybe("message.timestamp.type", 0.1, ("LogAppendTime",))
    maybe("preallocate", 0.1, ("true",))
    return TopicSpec(name, random.choice((1, 1, 2, 3)), replication, configs)


def _min_in_sync(replication: int, random: Random) -> int:
    if replication == 1:
        return 1
    if replication == 2:
        return random.choice((1, 2, 2))
    return random.choices((1, 2, replication), (12, 78, 10))[0]


# -- broker settings -------------------------------------------------------------------------


def _settings(brokers: int, profile: str, random: Random) -> dict[str, str]:
    session_ms = random.choice((1_000, 1_500, 2_000, 3_000, 4_000, 6_000))
    lag_ms = random.choice((300, 500, 1_000, 1_000, 2_000, 3_000, 5_000, 10_000))
    wait_ms = random.choice((20, 50, 100, 200, 500, 500))
    replication = min(brokers, 3)
    settings: dict[str, int | str] = {
        "zookeeper.session.timeout.ms": session_ms,
        "replica.lag.time.max.ms": lag_ms,
        "replica.fetch.wait.max.ms": min(wait_ms, lag_ms // 3),
        "replica.fetch.backoff.ms": random.choice((10, 50, 100, 300)),
        "replica.socket.timeout.ms": random.choice((1_000, 2_000, 5_000)),
        "controller.socket.timeout.ms": random.choice((1_000, 2_000, 5_000)),
        "min.insync.replicas": min(2, replication),
        "default.replication.factor": replication,
        "offsets.topic.num.partitions": random.choice((1, 1, 2, 3)),
        "offsets.topic.replication.factor": replication,
        "controlled.shutdown.retry.backoff.ms": random.choice((50, 200, 1_000)),
        "group.min.session.timeout.ms": 500,
        "group.initial.rebalance.delay.ms": random.choice((0, 0, 50, 500)),
        "log.initial.task.delay.ms": random.choice((50, 200, 1_000)),
        # Clocks jump by days. A producer id that expires before its producer gives up costs
        # duplicates, in Kafka as well.
        "producer.id.expiration.ms": 2**31 - 1,
    }

    def maybe(setting: str, chance: float, values: Sequence[int | str]) -> None:
        if random.random() < chance:
            settings[setting] = random.choice(values)

    maybe("replica.fetch.max.bytes", 0.35, (1, 100, 300, 1_000, 10_000))
    maybe("replica.fetch.response.max.bytes", 0.15, (1, 200, 1_000))
    if not {"replica.fetch.max.bytes", "replica.fetch.response.max.bytes"} & settings.keys():
        # Else a follower might never get so much at once.
        maybe("replica.fetch.min.bytes", 0.15, (1, 500, 5_000))
    maybe("num.replica.fetchers", 0.2, (2, 3))
    maybe("fetch.max.bytes", 0.1, (1_024, 5_000))
    maybe("max.incremental.fetch.session.cache.slots", 0.3, (0, 1, 1, 2, 3))
    checkpoints = (50, 100, 500, 2_000)
    maybe("replica.high.watermark.checkpoint.interval.ms", 0.7, checkpoints)
    maybe("log.flush.offset.checkpoint.interval.ms", 0.5, checkpoints)
    maybe("log.flush.start.offset.checkpoint.interval.ms", 0.5, checkpoints)
    maybe("log.flush.scheduler.interval.ms", 0.4, (50, 300, 1_000))
    maybe("log.retention.check.interval.ms", 0.6, (100, 500, 2_000))
    maybe("producer.id.expiration.check.interval.ms", 0.3, (100, 1_000))
    maybe("offsets.topic.segment.bytes", 0.4, (500, 2_000, 10_000))
    maybe("offsets.load.buffer.size", 0.3, (1, 100, 1_000))
    maybe("replica.selector.class", 0.3, (NEAREST,))
    maybe("controlled.shutdown.enable", 0.15, ("false",))
    maybe("controlled.shutdown.max.retries", 0.3, (0, 1, 10))
    maybe("log.index.size.max.bytes", 0.05, (64, 200))
    if random.random() < 0.4:
        settings["leader.imbalance.check.interval.seconds"] = random.choice((1, 2, 5))
    else:
        settings["auto.leader.rebalance.enable"] = "false"
    if profile == BEYOND and random.random() < 0.6:
        settings["unclean.leader.election.enable"] = "true"
    return {name: str(value) for name, value in settings.items()}
