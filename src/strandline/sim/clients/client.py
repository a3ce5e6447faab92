"""The base of all simulated clients: a name, a random stream, connections, findings.

A client is a state machine: the schedule and the network call it, and it sends frames and plans
alarms; it never waits. `finish()` asks it to begin nothing new and to bring the last through; when
it `is_done`, it has closed its connections, and nothing of it is left anywhere (I-50).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias
from uuid import UUID

from strandline.protocol.apis import ApiKey
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.cluster import Cluster
from strandline.sim.clients.connection import Connection
from strandline.sim.clients.versions import Versions
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.types import TopicPartition

PATIENCE_US: Final = 60_000_000
"""How long after `finish` a client tries to bring through what it has begun (I-50)."""
_LOOK_US: Final = 20_000
NO_TOPIC_US: Final = 15_000_000
"""A topic that is unknown to the brokers for so long after `finish` is deleted, in us."""

Place: TypeAlias = str
"""A partition in the history: with its topic's id, since a topic that is made anew is another."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a client saw and that must not be."""

    invariant: str
    what: str
    at_us: int
    partition: str | None = None


class SimClient:
    """See the module. Its creator calls `start` once."""

    kind: ClassVar[str]

    def __init__(self, world: ClientWorld, spec: ClientSpec, options: ClientOptions) -> None:
        self.world = world
        self.spec = spec
        self.name = spec.name
        self.random = world.streams(f"client {spec.name}")
        self.findings: list[Finding] = []
        self.is_finishing = False
        self.is_done = False
        self.give_up_us = 0
        """When patience ends, once `finish` was called."""
        self._alarm_us: int | None = None
        self.names_by = options.one_of("by", ("any", "id", "name"))
        drawn = options.one_of("versions", ("newest", "drawn")) == "drawn"
        versions = Versions(
            drawn_from=self.random if drawn else None,
            by=self.names_by,
            least=self.least_versions(options),
        )
        self.cluster = Cluster(world, self.name, self.random, versions, [])

    def least_versions(self, options: ClientOptions) -> Mapping[ApiKey, int]:
        """Versions of requests that it cannot do without."""
        del options
        return {}

    @property
    def counters(self) -> Counter[str]:
        """Counts of events by name."""
        return self.cluster.counters

    @property
    def outstanding(self) -> int:
        """Requests without an outcome."""
        return self.cluster.outstanding

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to work."""
        raise NotImplementedError

    def finish(self) -> None:
        """Begin nothing new, bring the last through, then be done."""
        if not self.is_finishing:
            self.is_finishing = True
            self.give_up_us = self.now_us + PATIENCE_US
            self.finishing()
            self._look_whether_done()

    def _look_whether_done(self) -> None:
        if not self.is_done:
            self.maybe_done()
            self.after(_LOOK_US, self._look_whether_done)

    def finishing(self) -> None:
        """`finish` was called: hurry up."""

    def maybe_done(self) -> None:
        """After `finish`: look now and then whether anything is left to do."""

    def done(self) -> None:
        """Nothing is left to do."""
        if not self.is_done:
            self.is_done = True
            self.cluster.close()
            for what in self.cluster.malformed:
                self.found("I-47", f"{self.name} was sent a malformed answer: {what}")

    # -- short ways --------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        return self.world.schedule.now_us

    @property
    def now_ms(self) -> int:
        return self.world.schedule.now_us // 1000

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        """Do it later, unless the client is done by then."""

        def due() -> None:
            if not self.is_done:
                action()

        self.world.schedule.after(delay_us, due)

    def wake_at(self, at_us: int) -> None:
        """Call `pump` then, unless that is to happen before. One alarm serves all that waits."""
        if self._alarm_us is not None and self.now_us < self._alarm_us <= at_us:
            return
        self._alarm_us = at_us = max(at_us, self.now_us + 1)
        self.after(at_us - self.now_us, self._woken)

    def _woken(self) -> None:
        if self._alarm_us is not None and self._alarm_us <= self.now_us:
            self._alarm_us = None
            self.pump()

    def pump(self) -> None:
        """Do what can be done, for clients that wait for many things (`wake_at`)."""
        raise NotImplementedError

    def about(self, interval_us: int) -> int:
        """The interval, give or take a quarter: so that clients do not beat in time."""
        quarter = interval_us // 4
        return interval_us - quarter + self.random.randrange(2 * quarter + 1)

    def sent_corrupt(self, connection: Connection, what: str, partition: object) -> None:
        """Records came that are corrupt. I-47: only what was damaged on its way may be."""
        if connection.is_damaged:
            self.counters["damaged records"] += 1
            connection.close("damaged records")
        else:
            self.found("I-47", f"Broker {connection.broker_id} sent {self.name}: {what}", partition)

    def found(self, invariant: str, what: str, partition: object = None) -> None:
        """Report something that must not be."""
        at = None if partition is None else str(partition)
        self.findings.append(Finding(invariant, what, self.now_us, at))


def place_of(at: TopicPartition, topic_id: UUID) -> Place:
    """How the history calls a partition of this incarnation of a topic."""
    return f"{at.topic}-{at.partition}:{topic_id.hex[-8:]}"


def topic_of(place: Place) -> str:
    """The name of a topic that `place_of` has named a partition of."""
    return place.rpartition(":")[0].rpartition("-")[0]
