"""The kinds of faults and changes that a seed may know, and how each of them is drawn.

One small function per verb, and a table that says how likely a seed knows it (`chance`) and how
often it is then chosen (`weight`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from strandline.sim.compacted import is_compacted
from strandline.sim.faults.draw import Draw, Drawn, round_us
from strandline.sim.plan import BEYOND, Options, TopicSpec
from strandline.sim.workload import meant_by_name


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault: how likely a seed knows it, how often it then happens, what it is."""

    draw: Callable[[Draw], Drawn]
    chance: float
    weight: float = 1.0
    only_beyond: bool = False
    brokers: int = 1
    """So many there must be."""

    def is_for(self, options: Options) -> bool:
        """Whether a run with these options may know it."""
        if self.only_beyond and options.profile != BEYOND:
            return False
        return options.brokers >= self.brokers


def _kill(draw: Draw) -> Drawn:
    return Drawn("kill", (draw.broker(),), {"down": draw.time()} | draw.moment())


def _kill_all(draw: Draw) -> Drawn:
    return Drawn("kill", ("all",), {"down": draw.time()} | draw.moment())


def _blackout(draw: Draw) -> Drawn:
    return Drawn("power-cut", ("all",), {"mode": draw.power_mode(), "down": draw.time()})


def _pause(draw: Draw) -> Drawn:
    return Drawn("pause", (draw.broker(),), {"for": draw.time()} | draw.moment())


def _power_cut(draw: Draw) -> Drawn:
    options = {"mode": draw.power_mode(), "down": draw.time()}
    return Drawn("power-cut", (draw.broker(),), options | draw.moment())


def _stop(draw: Draw) -> Drawn:
    return Drawn("stop", (draw.broker(),), {"down": draw.time()} | draw.moment())


def _rolling_restart(draw: Draw) -> Drawn:
    return Drawn("rolling-restart", (), {"every": draw.time(), "down": draw.time()})


def _swap_disk(draw: Draw) -> Drawn:
    return Drawn("swap-disk", (draw.broker(),), {"down": draw.time()} | draw.moment())


def _crash_in(draw: Draw) -> Drawn:
    options = {"operations": str(draw.random.randint(1, draw.random.choice((5, 30, 100))))}
    options |= {"how": draw.random.choice(("power", "power", "kill")), "down": draw.time()}
    if any(map(is_compacted, draw.options.topics)) and draw.random.random() < 0.5:
        options |= {"operations": str(draw.random.randint(1, 12))}
        options |= {"path": draw.random.choice((".cleaned", ".swap", ".deleted", "cleaner-offset"))}
    return Drawn("crash-in", (draw.broker(),), options | draw.moment())


def _crash_in_recovery(draw: Draw) -> Drawn:
    options = {"times": str(draw.random.randint(1, 3))}
    options |= {"operations": str(draw.random.choice((3, 10, 40)))}
    options |= {"how": draw.random.choice(("power", "kill")), "down": draw.time()}
    return Drawn("crash-in-recovery", (draw.broker(),), options)


def _election_storm(draw: Draw) -> Drawn:
    options = {"times": str(draw.random.randint(2, 6)), "every": draw.time(at_most_us=1_000_000)}
    return Drawn("election-storm", (draw.partition(),), options | {"down": draw.time()})


def _leader_dance(draw: Draw) -> Drawn:
    options = {"times": str(draw.random.randint(2, 6)), "every": draw.time(at_most_us=800_000)}
    return Drawn("leader-dance", (draw.partition(),), options | draw.maybe(0.7, "clog", "yes"))


def _last_standing(draw: Draw) -> Drawn:
    # Longer than a lag and a session together, so that the leader is alone when it is struck.
    until_us = draw.session_us + draw.lag_us + draw.random.randint(500_000, 3_000_000)
    options = {"after": round_us(until_us), "for": round_us(2 * until_us), "down": draw.time()}
    return Drawn("last-standing", (draw.partition(),), options)


def _twin(draw: Draw) -> Drawn:
    return Drawn("twin", (draw.broker(),))


def _cut(draw: Draw) -> Drawn:
    return Drawn("cut", (draw.end(), draw.broker()), {"for": draw.time()} | draw.moment())


def _cut_one_way(draw: Draw) -> Drawn:
    words = (draw.end(), draw.broker())
    if draw.random.random() < 0.5:
        words = words[1], words[0]
    return Drawn("cut-one-way", words, {"for": draw.time()} | draw.moment())


def _isolate(draw: Draw) -> Drawn:
    options = draw.maybe(0.5, "store", "yes") | draw.maybe(0.3, "clients", "yes")
    return Drawn("isolate", (draw.broker(),), options | {"for": draw.time()} | draw.moment())


def _partition(draw: Draw) -> Drawn:
    options = draw.maybe(0.4, "one-way", draw.random.choice(("in", "out")))
    options |= draw.maybe(0.4, "store", "yes") | draw.maybe(0.2, "clients", "yes")
    return Drawn("partition", (draw.several(),), options | {"for": draw.time()})


def _ring(draw: Draw) -> Drawn:
    return Drawn("ring", (), {"for": draw.time()})


def _clog(draw: Draw) -> Drawn:
    words = (draw.end(), draw.broker()) if draw.random.random() < 0.5 else (draw.broker(),)
    return Drawn("clog", words, {"for": draw.time()} | draw.moment())


def _stall(draw: Draw) -> Drawn:
    words = (draw.broker(), draw.end())
    return Drawn("stall", words, {"for": draw.time()})


def _swizzle(draw: Draw) -> Drawn:
    return Drawn("swizzle", (), {"for": draw.time(), "step": draw.time(at_most_us=500_000)})


def _reset(draw: Draw) -> Drawn:
    words = (draw.end(), draw.broker()) if draw.random.random() < 0.6 else (draw.broker(),)
    return Drawn("reset", words, draw.moment())


def _flip(draw: Draw) -> Drawn:
    if draw.random.random() < 0.3:
        return Drawn("flip", (draw.broker(), draw.broker()), {"where": "size"})
    return Drawn("flip", (draw.end(), draw.end()), {"where": "records"})


def _slow_link(draw: Draw) -> Drawn:
    options = {"factor": str(draw.random.choice((5, 20, 100, 500))), "for": draw.time()}
    return Drawn("slow-link", (draw.broker(),), options)


def _store_cut(draw: Draw) -> Drawn:
    return Drawn("store-cut", (draw.broker(),), {"for": draw.time()} | draw.moment())


def _store_reset(draw: Draw) -> Drawn:
    return Drawn("store-reset", (draw.broker(),), draw.moment())


def _store_expire(draw: Draw) -> Drawn:
    word = "all" if draw.random.random() < 0.15 else draw.broker()
    return Drawn("store-expire", (word,), draw.moment())


def _store_lag(draw: Draw) -> Drawn:
    options = {"lag": draw.time(at_most_us=2_000_000), "for": draw.time()}
    return Drawn("store-lag", (draw.broker(),), options | draw.maybe(0.4, "torn", "yes"))


def _store_lose(draw: Draw) -> Drawn:
    options = {"applied": draw.random.choice(("yes", "no"))}
    return Drawn("store-lose", (draw.broker(),), options)


def _store_down(draw: Draw) -> Drawn:
    return Drawn("store-down", (), {"for": draw.time()})


_TABLES: Final = ("recovery-point-offset", "replication-offset", "log-start-offset")
_FILES: Final = (".log", ".log", ".index", ".timeindex", "checkpoint", ".snapshot")


def _disk_fail(draw: Draw) -> Drawn:
    options = {"operation": draw.random.choice(("append", "write", "read", "sync", "rename"))}
    options |= {"path": draw.random.choice(_FILES), "for": draw.time(), "down": draw.time()}
    return Drawn("disk-fail", (draw.broker(),), options | draw.maybe(0.5, "count", "1"))


def _disk_broken(draw: Draw) -> Drawn:
    options = {"dir": str(draw.random.randrange(draw.options.disks)), "for": draw.time()}
    return Drawn("disk-broken", (draw.broker(),), options | {"down": draw.time()})


def starving(draw: Draw) -> Drawn:
    """See `planner.draw_starving`: it has a stream of its own."""
    options = {"percent": draw.random.choice(("3", "10", "30", "100")), "for": draw.time()}
    return Drawn("starve", (draw.broker(),), options)


def _disk_full(draw: Draw) -> Drawn:
    options = {"for": draw.time(), "down": draw.time()}
    path = draw.random.choice(_FILES)
    return Drawn("disk-full", (draw.broker(),), draw.maybe(0.6, "path", path) | options)


def _disk_slow(draw: Draw) -> Drawn:
    options = {"per": draw.random.choice(("200us", "2ms", "20ms", "200ms")), "for": draw.time()}
    return Drawn("disk-slow", (draw.broker(),), options)


def _fsync_fail(draw: Draw) -> Drawn:
    options = {"path": draw.random.choice(_FILES), "for": draw.time(), "down": draw.time()}
    broker = draw.broker()
    # By what was drawn already: the rest of a seed stays as it was before there was this.
    if Random(f"{broker} {options}").random() < 0.4:
        options["error"] = "full"
    return Drawn("fsync-fail", (broker,), options)


def _rot(draw: Draw) -> Drawn:
    options = {"path": draw.random.choice(_FILES), "for": draw.time()}
    return Drawn("rot", (draw.broker(),), options)


def _lose_file(draw: Draw) -> Drawn:
    options = {"path": draw.random.choice(_FILES), "how": draw.random.choice(("gone", "cut"))}
    return Drawn("lose-file", (draw.broker(),), options | {"for": draw.time()})


def _tamper_checkpoint(draw: Draw) -> Drawn:
    # Those of a whole directory: a leader-epoch-checkpoint is durable before anything that was
    # flushed rests on it.
    options = {"path": draw.random.choice(_TABLES), "how": draw.random.choice(("old", "gone"))}
    return Drawn("tamper-checkpoint", (draw.broker(),), options | {"down": draw.time()})


def _clock_jump(draw: Draw) -> Drawn:
    way = draw.random.choice(("forward", "back"))
    options = {way: draw.random.choice(("300ms", "5s", "10min", "2880min"))}
    return Drawn(
        "clock-jump", (draw.random.choice(("all", draw.broker())),), options | {"for": draw.time()}
    )


def _clock_drift(draw: Draw) -> Drawn:
    way = draw.random.choice(("fast", "slow"))
    options = {way: str(draw.random.choice((500, 5_000, 50_000))), "for": draw.time()}
    return Drawn("clock-drift", (draw.broker(),), options)


def _clock_leap(draw: Draw) -> Drawn:
    return Drawn("clock-leap", (draw.random.choice(("all", draw.broker())),))


def _reassign(draw: Draw) -> Drawn:
    brokers = draw.options.brokers
    at = draw.partition()
    # Not fewer than must be in sync at any time, or nothing could be written any more.
    least = max(min(2, brokers), draw.least_in_sync(at))
    width = draw.random.randint(least, max(least, min(3, brokers)))
    chosen = draw.random.sample(range(1, brokers + 1), width)
    return Drawn("reassign", (at, ",".join(map(str, chosen))), draw.moment())


def _cancel_reassign(draw: Draw) -> Drawn:
    return Drawn("cancel-reassign", (draw.partition(),))


def _elect(draw: Draw) -> Drawn:
    unclean = draw.options.profile == BEYOND and draw.random.random() < 0.3
    return Drawn("elect", ("unclean" if unclean else "preferred", draw.partition()))


def _delete_records(draw: Draw) -> Drawn:
    if draw.random.random() < 0.3:
        return Drawn("delete-records", (draw.partition(), "high-watermark"))
    return Drawn(
        "delete-records", (draw.partition(),), {"fraction": str(draw.random.randint(1, 99))}
    )


def _alter_config(draw: Draw) -> Drawn:
    topic = draw.random.choice(draw.options.topics)
    width = min(topic.replication, draw.options.brokers, 2)
    setting, value = draw.random.choice(
        (
            ("min.insync.replicas", str(draw.random.randint(1, width))),
            ("internal.segment.bytes", str(draw.random.choice((300, 1_000, 20_000)))),
            ("retention.bytes", draw.random.choice(("2000", "-1", "-"))),
            ("retention.ms", draw.random.choice(("500", "-1", "-"))),
            ("flush.messages", draw.random.choice(("1", "5", "-"))),
            ("segment.ms", draw.random.choice(("300", "-"))),
            ("message.timestamp.type", draw.random.choice(("LogAppendTime", "CreateTime"))),
        )
    )
    return Drawn("alter-config", (topic.name,), {setting: value})


def _extra_topic(draw: Draw) -> Drawn:
    verb = draw.random.choice(("create-topic", "create-topic", "delete-topic", "recreate-topic"))
    if verb == "delete-topic":
        return Drawn(verb, ("extra",))
    replication = min(draw.options.brokers, draw.random.choice((1, 2, 3)))
    options = {
        "partitions": str(draw.random.randint(1, 2)),
        "replication": str(replication),
        "min.insync.replicas": str(min(2, replication)),
    }
    return Drawn(verb, ("extra",), options)


def _recreate_topic(draw: Draw) -> Drawn:
    topic = draw.random.choice(draw.options.topics)
    if topic.name in meant_by_name(draw.clients):
        return _extra_topic(draw)  # else what was sent to the former one may be in the new one
    return made_anew(topic, **draw.moment())


def made_anew(topic: TopicSpec, **moment: str) -> Drawn:
    """A topic is deleted, and made as it was."""
    options = {"partitions": str(topic.partitions), "replication": str(topic.replication)}
    return Drawn("recreate-topic", (topic.name,), options | dict(topic.configs) | moment)


def _add_partitions(draw: Draw) -> Drawn:
    topic = draw.random.choice(draw.options.topics)
    return Drawn("add-partitions", (topic.name,), {"total": str(topic.partitions + 1)})


def _describe(draw: Draw) -> Drawn:
    return Drawn("describe", (draw.random.choice(draw.options.topics).name,))


KINDS: Final = (
    Kind(_kill, 0.75, 3.0),
    Kind(_pause, 0.6, 2.0),
    Kind(_power_cut, 0.35),
    Kind(_kill_all, 0.08, 0.3),
    Kind(_blackout, 0.3, 0.4, only_beyond=True),
    Kind(_stop, 0.35),
    Kind(_rolling_restart, 0.1, 0.3),
    Kind(_swap_disk, 0.15, 0.5),
    Kind(_crash_in, 0.3),
    Kind(_crash_in_recovery, 0.15, 0.5),
    Kind(_election_storm, 0.08, 0.4),
    Kind(_leader_dance, 0.15, 0.6, brokers=2),
    Kind(_last_standing, 0.1, 0.4, brokers=2),
    Kind(_twin, 0.05, 0.3),
    Kind(_cut, 0.3),
    Kind(_cut_one_way, 0.25),
    Kind(_isolate, 0.3),
    Kind(_partition, 0.25),
    Kind(_ring, 0.3, brokers=4),
    Kind(_clog, 0.2),
    Kind(_stall, 0.1),
    Kind(_swizzle, 0.1, 0.5),
    Kind(_reset, 0.25),
    Kind(_flip, 0.15),
    Kind(_slow_link, 0.15),
    Kind(_store_cut, 0.25),
    Kind(_store_reset, 0.15),
    Kind(_store_expire, 0.25),
    Kind(_store_lag, 0.2),
    Kind(_store_lose, 0.25),
    Kind(_store_down, 0.08, 0.4),
    Kind(_disk_fail, 0.15, 0.8),
    Kind(_disk_broken, 0.08, 0.5),
    Kind(_disk_full, 0.15, 0.6),
    Kind(_disk_slow, 0.15),
    Kind(_fsync_fail, 0.15, 0.8),
    Kind(_rot, 0.12, 0.6),
    Kind(_lose_file, 0.08, 0.5),
    Kind(_tamper_checkpoint, 0.08, 0.5),
    Kind(_clock_jump, 0.12, 0.6),
    Kind(_clock_drift, 0.1, 0.6),
    Kind(_clock_leap, 0.05, 0.4),
    Kind(_reassign, 0.25),
    Kind(_cancel_reassign, 0.1, 0.5),
    Kind(_elect, 0.2),
    Kind(_delete_records, 0.2),
    Kind(_alter_config, 0.2, 0.6),
    Kind(_extra_topic, 0.12, 0.6),
    Kind(_recreate_topic, 0.06, 0.3),
    Kind(_add_partitions, 0.05, 0.3),
    Kind(_describe, 0.05, 0.3),
)
"""Everything that a seed may know."""

DAMAGES: Final = (_fsync_fail, _rot, _lose_file, _tamper_checkpoint)
"""What a disk does behind its broker's back (`plan.DAMAGING`)."""
