"""What seeds do besides what `kinds` knows: laptops that sleep, slow disks, settings that change,
answers that are lost in front of a restart, logs that are gone.

A kind may be several actions, which only mean something together. All of it is drawn from a stream
of its own and added to what there is, so that the rest of a seed stays as it was before there was
any of this. A seed without faults stays without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from strandline.sim.compacted import POLICY, is_compacted
from strandline.sim.faults.draw import Draw, Drawn, Together, alone, round_us, timed
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
            together = kind(draw)
            at_us = random.randrange(_BEGIN_US, options.safety_us) // 1_000 * 1_000
            found += timed(at_us, together, end_us=options.safety_us)
    return tuple(sorted(found, key=lambda action: action.at_us))


def _sleep(draw: Draw) -> Together:
    """A laptop slept for an hour, with all that runs on it: only its wall clock knows. Or the clock
    was a minute ahead before."""
    way = draw.random.choice(({"forward": "60min"}, {"back": "1min"}))
    return alone(Drawn("clock-jump", ("all",), way | {"for": round_us(draw.options.safety_us)}))


def _suspend(draw: Draw) -> Together:
    """Machines stand still, some or all of them, for longer than anything waits."""
    who = draw.random.choice(("all", draw.broker(), draw.broker()))
    seconds = draw.random.choice((2, 5, 12, 30))
    return alone(Drawn("suspend", (who,), {"for": f"{seconds}s"}))


def _slow_syncs(draw: Draw) -> Together:
    """Disks that take as long for every sync as cheap ones do."""
    who = draw.random.choice(("all", draw.broker()))
    per = draw.random.choice(("10ms", "30ms"))
    return alone(
        Drawn("disk-slow", (who,), {"per": per, "for": round_us(draw.options.safety_us // 2)})
    )


def _alter_config(draw: Draw) -> Together:
    """Settings of a topic change under load (F-69)."""
    random = draw.random
    topic = random.choice(draw.options.topics)
    choices = [
        ("compression.type", random.choice(("gzip", "lz4", "zstd", "snappy", "uncompressed", "-"))),
        ("max.message.bytes", random.choice(("500", "3000", "-"))),
        ("retention.ms", random.choice(("2000", "-"))),
        ("retention.bytes", random.choice(("5000", "-"))),
        ("preallocate", random.choice(("true", "false", "-"))),
        ("index.interval.bytes", random.choice(("0", "1", "100", "4096"))),
        ("segment.index.bytes", random.choice(("8", "16", "64", "-"))),
        ("flush.ms", random.choice(("1", "50", "-"))),
        ("segment.jitter.ms", random.choice(("0", "200", "-"))),
        ("file.delete.delay.ms", random.choice(("0", "100", "1000", "-"))),
        ("delete.retention.ms", random.choice(("0", "100", "60000", "-"))),
        ("min.compaction.lag.ms", random.choice(("0", "500", "-"))),
        ("max.compaction.lag.ms", random.choice(("2000", "-"))),
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
    return alone(Drawn("alter-config", (topic.name,), {setting: value}))


def _answers_lost(draw: Draw) -> Together:
    """All brokers stop in order while no answer reaches a client: what producers repeat afterwards
    is looked for in logs that nothing but a snapshot of producers speaks of (note 0020)."""
    random = draw.random
    until_us = random.randint(500, 3_000) * 1_000
    lost = Drawn("cut-one-way", ("all", "clients"), {"for": round_us(until_us + 500_000)})
    stop = Drawn("stop", ("all",), {"down": f"{random.randint(50, 1_000)}ms"})
    return (0, lost), (until_us, stop)


def _slow_tables(draw: Draw) -> Together:
    """Leaders change while tables of leader epochs are still being written."""
    per = draw.random.choice(("10ms", "50ms", "200ms"))
    length_us = draw.random.randint(2_000, 6_000) * 1_000
    slow = Drawn(
        "disk-slow", ("all",), {"per": per, "path": "leader-epoch", "for": round_us(length_us)}
    )
    options = {"times": str(draw.random.randint(2, 6)), "clog": "yes"}
    options |= {"every": draw.time(at_most_us=800_000)}
    return (0, slow), (100_000, Drawn("leader-dance", (draw.partition(),), options))


def _repeated_alone(draw: Draw) -> Together:
    """A leader that no follower hears is sent the same batches again, and dies: what it had
    acknowledged, if only for the second time, would be gone."""
    leader = f"leader:{draw.partition()}"
    until_us = draw.random.randint(150, 1_000) * 2_000
    alone = Drawn("isolate", (leader,), {"for": round_us(2 * until_us)})
    again = Drawn("reset", (leader, "clients"))
    kill = Drawn("kill", (leader,), {"down": draw.time()})
    return (0, alone), (until_us // 2, again), (until_us, kill)


def _lose_directory(draw: Draw) -> Together:
    """A log was removed, a volume is not mounted, or its directory is not in `log.dirs` any more,
    when a broker starts again."""
    options = {"what": draw.random.choice(("log", "log", "disk")), "down": draw.time()}
    options |= {"dir": str(draw.random.randrange(draw.options.disks))}
    broker = draw.broker()
    # By what was drawn already: the rest of a seed stays as it was before there was this.
    if options["what"] == "disk" and draw.options.disks > 1 and Random(f"{options}").random() < 0.7:
        options["what"] = "entry"
    return alone(Drawn("lose-directory", (broker,), options))


_KINDS: Final[Sequence[Callable[[Draw], Together]]] = (
    _sleep,
    _suspend,
    _slow_syncs,
    _alter_config,
    _answers_lost,
    _repeated_alone,
    _slow_tables,
    _lose_directory,
)
