"""A whole run as values: what stands still (`Options`), who works, and what goes wrong when.

A seed expands into a `Plan` (see `options`), and so does a text (see `text`). Everything in a plan
is a number or a text that fits on one line, so that it survives being written down exactly; a run
reads nothing else. An `Action` carries its own healing (`for=3s`, `down=2s`), so that any line can
be dropped and the rest still makes sense. This file knows no world and no randomness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from strandline.sim.scenarios.script import BadScript, format_us, parse_int, parse_us

STRICT: Final = "strict"
"""Faults stay within what acks=all with `min.insync.replicas` survives, and no disk changes a file
behind its broker's back: nothing may be lost, and everything is checked."""
DAMAGE: Final = "damage"
"""Nothing may be lost either, but disks rot, lie and lose files."""
BEYOND: Final = "beyond"
"""Faults may cost acknowledged records; the replicas must still agree in the end."""
SAFE: Final = "safe"
"""Strict or damage, as the actions of the plan are. No plan has it; it can be asked for."""

DAMAGING: Final = frozenset({"fsync-fail", "rot", "lose-file", "tamper-checkpoint"})
"""The verbs of actions that change a file behind its broker's back. An emptied disk and one from an
older copy are not among them: that is another disk, and what is on it is whole."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that is done to the cluster: `at 1200ms kill leader:t-0 down=3s`."""

    at_us: int
    """Counted from the beginning of the safety phase."""
    verb: str
    words: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    def time_us(self, option: str, default_us: int) -> int:
        """A time given as an option."""
        return parse_us(self.options[option]) if option in self.options else default_us

    def number(self, option: str, default: int) -> int:
        """A number given as an option."""
        return parse_int(self.options[option]) if option in self.options else default

    def word(self, position: int) -> str:
        """A word that must be there."""
        if position >= len(self.words):
            raise BadScript(f"'{self}' says too little.")
        return self.words[position]

    def __str__(self) -> str:
        options = (f"{name}={value}" for name, value in self.options.items())
        return " ".join(("at", format_us(self.at_us), self.verb, *self.words, *options))


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """A client of the cluster: `client producer p1 topic=t acks=all every=20ms`."""

    kind: str
    name: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        options = (f"{name}={value}" for name, value in self.options.items())
        return " ".join(("client", self.kind, self.name, *options))


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that exists from the beginning: `topic: t partitions=2 replication=3 ...`.

    Its replicas are placed by rotation: the preferred leader of partition n is broker n + 1, as
    far as there are brokers. The other options of the line are its configuration.
    """

    name: str
    partitions: int = 1
    replication: int = 3
    configs: Mapping[str, str] = field(default_factory=dict)

    def assignment(self, brokers: int) -> tuple[tuple[int, ...], ...]:
        """The replicas of each partition, the preferred leader first."""
        width = min(self.replication, brokers)
        return tuple(
            tuple((number + place) % brokers + 1 for place in range(width))
            for number in range(self.partitions)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySpec:
    """How long a message takes: `latency: least=100us mean=1ms spike=80ms spikes=5`.

    Exponential above the least, with the mean; `spikes_per_mille` of the messages take as long as
    `spike_us` (uniformly up to it) in addition.
    """

    least_us: int = 100
    mean_us: int = 500
    spike_us: int = 0
    spikes_per_mille: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a run has from beginning to end. One header line each."""

    seed: int
    profile: str = STRICT
    brokers: int = 3
    racks: tuple[str, ...] = ()
    """The rack of each broker; none: no broker has one."""
    disks: int = 1
    """Log directories per broker."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Broker settings by Kafka's names, the same for all brokers."""
    minimums: tuple[int, ...] = ()
    """`min.insync.replicas` in the file of each broker, while an operator changes it; none: all
    have that of `settings`."""
    knobs: Mapping[str, int] = field(default_factory=dict)
    """Constants of the brokers' code that are others in this run (see `knobs`)."""
    spares_candidates: bool = True
    """Whether the budget counts replicas that their leader may make members of the in-sync set."""
    topics: tuple[TopicSpec, ...] = ()
    latency: LatencySpec = LatencySpec()
    """Between brokers, and between brokers and clients."""
    store_latency_us: int = 500
    """Mean time between a broker and the metadata store, one way."""
    store_lag_us: int = 0
    """How much later news of the store may come than answers of it (F-38, F-39)."""
    drifts_ppm: tuple[int, ...] = ()
    """How much faster than true time the clocks of each broker run; none: they run true."""
    wall_offsets_ms: tuple[int, ...] = ()
    """How far the wall clock of each broker is ahead; none: they are right."""
    safety_us: int = 10_000_000
    """Length of the phase in which things go wrong."""
    liveness_us: int = 120_000_000
    """The longest that everything may take to come right afterwards, whatever the settings say."""

    def drift_ppm(self, broker_id: int) -> int:
        """How much faster than true time a broker's clocks run."""
        return self.drifts_ppm[broker_id - 1] if self.drifts_ppm else 0

    def wall_offset_ms(self, broker_id: int) -> int:
        """How far a broker's wall clock is ahead."""
        return self.wall_offsets_ms[broker_id - 1] if self.wall_offsets_ms else 0

    def minimum(self, broker_id: int) -> int:
        """What a broker's file says of `min.insync.replicas`."""
        if self.minimums:
            return self.minimums[broker_id - 1]
        return int(self.settings.get("min.insync.replicas", "1"))

    def rack(self, broker_id: int) -> str | None:
        """Where a broker stands."""
        return self.racks[broker_id - 1] if self.racks else None

    @property
    def allows_loss(self) -> bool:
        """Whether faults may cost what was acknowledged."""
        return self.profile == BEYOND


@dataclass(frozen=True, slots=True)
class Plan:
    """A run."""

    options: Options
    clients: tuple[ClientSpec, ...] = ()
    actions: tuple[Action, ...] = ()
    """In the order of their times."""


def safe_profile(actions: Iterable[Action]) -> str:
    """The profile of a plan that may lose nothing: strict unless an action damages a disk."""
    return DAMAGE if any(action.verb in DAMAGING for action in actions) else STRICT
