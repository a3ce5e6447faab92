"""Random choices for faults: the target, the duration, the moment.

Faults prefer what matters: leaders, the controller, and the moments at which something changes
anyway. How long one lasts is drawn on the scale of what it must outlast: blips, the time after
which a follower lags, the time after which a session ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple, TypeAlias

from strandline.sim.faults.moments import MOMENTS
from strandline.sim.plan import Action, ClientSpec, Options, TopicSpec
from strandline.sim.scenarios.script import format_us

_LONGEST_US: Final = 8_000_000


class Drawn(NamedTuple):
    """An action without its time."""

    verb: str
    words: tuple[str, ...] = ()
    options: Mapping[str, str] = {}


Together: TypeAlias = tuple[tuple[int, Drawn], ...]
"""Actions, and how many microseconds after the first each of them begins."""


def alone(drawn: Drawn) -> Together:
    """One action."""
    return ((0, drawn),)


def timed(at_us: int, together: Together, *, end_us: int) -> Iterator[Action]:
    """The actions, of which the first begins at that time; nothing begins when faults are over."""
    for after_us, drawn in together:
        if at_us + after_us < end_us:
            yield Action(at_us + after_us, drawn.verb, drawn.words, dict(drawn.options))


class Draw:
    """What kinds of faults draw from: the seed's stream, and what there is to break."""

    def __init__(self, options: Options, clients: Sequence[ClientSpec], random: Random) -> None:
        self.options = options
        self.clients = clients
        self.random = random
        self.session_us = int(options.settings["zookeeper.session.timeout.ms"]) * 1000
        self.lag_us = int(options.settings["replica.lag.time.max.ms"]) * 1000
        self.blip_us = random.choice((2_000, 10_000, 50_000, 200_000))
        self.loves_moments = random.choice((0.0, 0.0, 0.2, 0.6))

    def broker(self) -> str:
        """Whom to strike."""
        role = self.random.choices(
            ("leader", "follower", "controller", "coordinator", "number"), (32, 12, 14, 4, 38)
        )[0]
        match role:
            case "controller":
                return role
            case "coordinator" if any(each.kind == "group" for each in self.clients):
                return "coordinator:g"
            case "leader" | "follower":
                return f"{role}:{self.partition()}"
            case _:
                return str(self.number())

    def number(self) -> int:
        """One broker."""
        return self.random.randint(1, self.options.brokers)

    def several(self) -> str:
        """Some brokers, but not all."""
        count = self.random.randint(1, max(1, self.options.brokers - 1))
        chosen = self.random.sample(range(1, self.options.brokers + 1), count)
        return ",".join(map(str, sorted(chosen)))

    def end(self) -> str:
        """An end of links: mostly a broker, sometimes a client."""
        if self.random.random() < 0.2:
            return f"client:{self.random.choice(self.clients).name}"
        return self.broker()

    def partition(self, topics: Sequence[TopicSpec] = ()) -> str:
        """One partition of these topics, or of all topics of the plan."""
        topic = self.random.choice(topics or self.options.topics)
        return f"{topic.name}-{self.random.randrange(topic.partitions)}"

    def least_in_sync(self, partition: str) -> int:
        """`min.insync.replicas` of a partition that `partition` drew."""
        name = partition.rpartition("-")[0]
        topic = next(each for each in self.options.topics if each.name == name)
        return int(topic.configs.get("min.insync.replicas", "1"))

    def time(self, *, at_most_us: int = _LONGEST_US) -> str:
        """How long: a blip, about as long as a lag, or about as long as a session."""
        scale = self.random.choices((self.blip_us, self.lag_us, self.session_us), (45, 25, 30))[0]
        us = int(scale * self.random.uniform(0.3, 2.0))
        return round_us(max(1_000, min(us, at_most_us)))

    def moment(self) -> dict[str, str]:
        """`when=`, sometimes."""
        if self.random.random() >= self.loves_moments:
            return {}
        wait_us = self.random.choice((500_000, 2_000_000))
        return {"when": self.random.choice(MOMENTS), "wait": format_us(wait_us)}

    def maybe(self, chance: float, name: str, value: str) -> dict[str, str]:
        """An option, sometimes."""
        return {name: value} if self.random.random() < chance else {}

    def power_mode(self) -> str:
        """What of the page cache survives."""
        return self.random.choice(("any", "any", "prefix", "torn", "hole", "none"))


def round_us(us: int) -> str:
    """A time in whole milliseconds, at least one, as a plan writes it."""
    return format_us(max(1, us // 1_000) * 1_000)
