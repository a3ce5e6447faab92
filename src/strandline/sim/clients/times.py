"""Asks again and again which record is the first of some time, and which is the newest.

`client times t1 topic=t partition=0 every=500ms`

The times are about those at which something was written. The checker that
knows the log (`checkers.time_rules`) judges an answer; that counts if the same process led in the
same epoch before and after.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Final

from strandline.client.channel import RequestFailed
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.sim.clients.batches import WALL_MS
from strandline.sim.clients.client import SimClient
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.connection import Outcome
from strandline.sim.clients.offsets import list_offsets, only_partition
from strandline.sim.clients.world import ClientWorld
from strandline.sim.history.lookups import NEWEST, Leadership, TimeAnswer
from strandline.sim.plan import ClientSpec
from strandline.sim.schedule import START_US
from strandline.types import LeaderEpoch, TopicPartition

NEWEST_SINCE: Final = 7
"""Older versions of ListOffsets do not know what that is."""
_NEWEST_ONE_OF: Final = 5
_NOWHERE_MS: Final = (0, 1, 2**62)


class TimesAsker(SimClient):
    """See the module."""

    kind: ClassVar[str] = "times"

    def __init__(self, world: ClientWorld, spec: ClientSpec, options: ClientOptions) -> None:
        super().__init__(world, spec, options)
        self.on_told: Callable[[TimeAnswer], None] = lambda answer: None  # noqa: ARG005
        """Hears every answer that counts."""
        self._every_us = options.time_us("every", "500ms")
        self._version = max(NEWEST_SINCE, self.cluster.versions.of(ApiKey.LIST_OFFSETS))
        self._partitions = options.partitions()
        self.cluster.topics = [options.text("topic")]

    def start(self) -> None:
        """See `SimClient`."""
        self.cluster.stale()
        for at in self._partitions:
            self.after(self.random.randrange(self._every_us), partial(self._ask, at))

    def maybe_done(self) -> None:
        """See `SimClient`."""
        if not self.outstanding:
            self.done()

    def _ask(self, at: TopicPartition) -> None:
        if self.is_finishing:
            return
        self.cluster.keep_fresh()
        leader = self.cluster.leader(at)
        connection = None if leader is None else self.cluster.connection(leader.broker_id)
        if leader is None or connection is None:
            self._later(at)
            return
        asked = self._time()
        led = self.world.leadership(leader.broker_id, at)
        high_watermark = self.world.high_watermark(leader.broker_id, at)
        request = list_offsets(at, asked, LeaderEpoch(leader.epoch), 0)
        then = partial(self._told, at, led, high_watermark, asked)
        self.cluster.ask(connection, ApiKey.LIST_OFFSETS, request, then, version=self._version)

    def _time(self) -> int:
        """What to ask for."""
        random = self.random
        if random.randrange(_NEWEST_ONE_OF) == 0:
            return NEWEST
        if random.randrange(10) == 0:
            return random.choice(_NOWHERE_MS)
        passed_ms = (self.now_us - START_US) // 1000
        return WALL_MS + random.randint(0, passed_ms + 1000)

    def _told(
        self,
        at: TopicPartition,
        led: Leadership | None,
        high_watermark: int,
        asked: int,
        outcome: Outcome,
    ) -> None:
        answer = None if isinstance(outcome, RequestFailed) else only_partition(outcome)
        if answer is None or answer.error_code != ErrorCode.NONE:
            if answer is not None:
                self.counters[f"time {ErrorCode(answer.error_code).name}"] += 1
            self.cluster.stale()
        elif led is not None and led == self.world.leadership(led.broker_id, at):
            found = TimeAnswer(at, led, high_watermark, asked, answer.offset, answer.timestamp)
            self.on_told(found)
        self._later(at)

    def _later(self, at: TopicPartition) -> None:
        self.after(self.about(self._every_us), partial(self._ask, at))
