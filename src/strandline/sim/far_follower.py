"""Seeds in which a follower that has left the in-sync set comes back from far away.

While each of its fetches is under way, records are written that the others have at once. So the
high watermark has to wait for it (KAFKA-4485), or it joins only when the others stumble. Where
anything else goes wrong the others stumble soon, and nothing shows that a leader did not wait: so
nothing else goes wrong here.
Drawn from a stream of its own, so that all other seeds stay what they are.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from strandline.sim.plan import Action, ClientSpec, LatencySpec, Plan, TopicSpec

_ONE_OF: Final = 20
"""One of so many seeds with three brokers and more is of this kind."""
_TOPIC: Final = "t"
_SETTINGS: Final = {
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "3000",
    "auto.leader.rebalance.enable": "false",
    "controller.socket.timeout.ms": "1000",
}
_PACE: Final = {"records": "1", "size": "20", "large": "0", "compressed": "0"}


def with_far_follower(plan: Plan, random: Random) -> Plan:
    """The plan, or another one if its seed is of this kind."""
    options = plan.options
    if random.randrange(_ONE_OF) or options.brokers < 3 or options.allows_loss:
        return plan
    fetch_wait = {"replica.fetch.wait.max.ms": str(random.choice((50, 100, 200)))}
    least_us = random.choice((50, 100, 200))
    away_ms = random.randint(5_600, 6_000)
    every = {"every": f"{random.randint(10, 20)}ms"}
    producer = {"topic": _TOPIC, "partition": "0", "acks": random.choice(("1", "1", "all"))}
    far = {"factor": str(random.randint(300, 500)), "for": "9s"}
    return Plan(
        replace(
            options,
            settings={**_SETTINGS, **fetch_wait},
            minimums=(),
            topics=(TopicSpec(_TOPIC, 1, 3, {"min.insync.replicas": "1"}),),
            latency=LatencySpec(least_us=least_us, mean_us=3 * least_us),
            drifts_ppm=(),
            wall_offsets_ms=(),
            safety_us=16_000_000,
        ),
        (ClientSpec("producer", "p1", producer | every | _PACE),),
        (
            Action(500_000, "pause", (f"follower:{_TOPIC}-0",), {"for": f"{away_ms}ms"}),
            Action(
                (500 + away_ms - 100) * 1_000,
                "slow-link",
                (f"outsider:{_TOPIC}-0", f"leader:{_TOPIC}-0"),
                far,
            ),
        ),
    )
